//! Locks in a table that is shared with ShedLock itself, as its users install it from Maven.
//!
//! The same cases for each database that has such a table.

mod cases;
mod stranger;

use std::sync::Arc;

use leasehold::engine::AfterDeath;

use crate::Group;
use crate::setup::{AnyServer, Bench, Promises, Setup};

/// A database server that has a table of ShedLock.
pub(crate) trait Database: Bench {
    /// What statements give, run by the administrator in the database of the cases.
    fn query(&self, statements: &str) -> String;
    /// How a program in Java connects.
    fn jdbc(&self) -> String;
    /// Makes the table, as ShedLock's documentation does.
    fn create(&self);
    /// Gives the user `app`, whose password is `secret`, these rights to the table and no others.
    fn allow_app(&self, rights: &str);
}

/// A server whose table is used. No set-up of every case: it has neither a queue nor tokens.
pub(crate) fn setup<D: Database>(word: &'static str, start: fn() -> D) -> Setup {
    Setup::new(word, Promises::exclusion(word, AfterDeath::AfterLease), move || {
        let database = start();
        database.create();
        Server(Box::new(database))
    })
}

pub(crate) struct Server(Box<dyn Database>);

impl Bench for Server {
    fn url(&self) -> String {
        format!("{}?shedlock=shedlock", self.0.url())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.0.servers()
    }

    fn culprit(&self) -> String {
        self.0.culprit()
    }

    fn spoil(&self) {
        self.0.spoil();
    }
}

/// Cases of this mode, and those of every engine that it can run.
pub(crate) fn groups(setup: Setup) -> Vec<Group> {
    let setup = Arc::new(setup);
    const NOT_PROMISED: [&str; 13] = [
        // Waiters that others can see.
        "leaves_the_queue_when_the_wait_is_dropped",
        "a_waiter_is_woken_by_the_release",
        "a_waiter_that_hears_nothing_asks_again",
        "a_wake_up_that_overtakes_the_answer_is_kept",
        "waiters_are_served_in_order",
        "a_waiter_that_gave_up_holds_up_nobody",
        "thousands_of_local_waiters_are_one_waiter_in_the_engine",
        // Tokens.
        "a_waiter_survives_when_the_name_is_broken",
        // A turn for everybody.
        "nobody_starves_among_processes",
        // One statement for all renewals.
        "many_leases_are_renewed_in_few_calls",
        // To be told of a break before the next renewal.
        "a_broken_claim_is_lost_at_once",
        "a_break_that_overtakes_the_grant_is_heard",
        // Names that the column does not tell apart, or has not.
        "tells_names_apart",
    ];
    let promised = |mut group: Group| {
        group.cases.retain(|(name, _)| !NOT_PROMISED.contains(name));
        group
    };
    let mut every = crate::exclusive::groups();
    let mut own = cases::group();
    own.missing = stranger::missing();
    vec![
        crate::on(&setup, "shedlock", own),
        crate::on(&setup, "shedlock_mutex", promised(every.swap_remove(0))),
        crate::on(&setup, "shedlock_lease", promised(crate::lease::group())),
        crate::on(&setup, "shedlock_waiting", promised(crate::waiting::group())),
    ]
}
