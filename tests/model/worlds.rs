//! Worlds that keep every promise.

use std::io::Write;
use std::sync::Mutex;

use leasehold::claim::WHOLE;

use crate::explore::explore;
use crate::setup::Sight::*;
use crate::setup::{Role, Setup};

pub(crate) const MUTEX: Role = Role { weights: &[1], capacity: 1, waits: true, upgrades: false };

pub(crate) const PLAIN: Setup = Setup {
    name: "plain",
    clients: &[MUTEX, MUTEX],
    capacity: 1,
    lease: 3,
    lock_delay: 0,
    tokens: 1,
    messages: 3,
    duplicates: 0,
    deaths: 0,
    breaks: 0,
    sees_death: false,
    impatient: false,
    renews: true,
    retires: false,
    ahead: false,
    serves_all: false,
    bug: None,
    sights: &[],
    depth: [u32::MAX; 2],
};

/// Explores a world, says what was found, and fails if it was bad or too little.
fn holds(setup: &Setup) {
    static SUM: Mutex<(u64, u64)> = Mutex::new((0, 0));
    let deep = std::env::var("LEASEHOLD_MODEL").is_ok_and(|value| value == "deep");
    let found = explore(setup, setup.depth[usize::from(deep)]);
    let mut sum = SUM.lock().expect("a count is never left half done");
    sum.0 += found.states;
    sum.1 += found.transitions;
    let extent = if found.complete { "all" } else { "to depth" };
    // Straight to the terminal: the figures are wanted when all is well, too.
    let _ = writeln!(
        std::io::stderr(),
        "{:<32} {:>10} states {:>11} transitions  {extent:>8} {:>3}  {:>6.1} s   sum {} states {} transitions",
        setup.name,
        found.states,
        found.transitions,
        found.depth,
        found.elapsed.as_secs_f64(),
        sum.0,
        sum.1,
    );
    drop(sum);
    if let Some((violation, trace)) = found.violation {
        panic!("{}: {violation}, after {} steps:\n{trace:#?}", setup.name, trace.len());
    }
    assert!(found.transitions > 1_000_000, "{}: too small to prove much", setup.name);
    let unseen: Vec<_> = setup.sights.iter().filter(|&&sight| !found.sights.has(sight)).collect();
    assert!(unseen.is_empty(), "{}: never seen: {unseen:?}", setup.name);
}

const READER: Role = Role { weights: &[1], capacity: WHOLE, waits: true, upgrades: false };
const WRITER: Role = Role { weights: &[WHOLE], capacity: WHOLE, waits: true, upgrades: false };
const EITHER: Role = Role { weights: &[1, WHOLE], capacity: WHOLE, waits: true, upgrades: true };
pub(crate) const UPGRADER: Role = Role { weights: &[1], capacity: WHOLE, waits: true, upgrades: true };

pub(crate) const fn of_two(weights: &'static [u32]) -> Role {
    Role { weights, capacity: 2, waits: true, upgrades: false }
}

const fn of_three(weights: &'static [u32]) -> Role {
    Role { weights, capacity: 3, waits: true, upgrades: false }
}

#[test]
fn two_clients_exclude_each_other() {
    holds(&Setup {
        name: "mutex, two clients",
        messages: 2,
        duplicates: 1,
        sights: &[
            Held,
            Succession,
            Expiry,
            HandOver,
            Confirmed,
            PassedOver,
            Renewed,
            RenewedTooLate,
            LateReply,
            StaleRelease,
            LeftQueue,
            Repeated,
        ],
        depth: [15, 20],
        ..PLAIN
    });
}

#[test]
fn two_impatient_clients_exclude_each_other() {
    holds(&Setup {
        name: "mutex, two impatient clients",
        impatient: true,
        duplicates: 1,
        breaks: 1,
        sights: &[Held, Succession, Expiry, HandOver, Confirmed, Renewed, LateReply, StaleRelease, Broken],
        depth: [11, 14],
        ..PLAIN
    });
}

#[test]
fn three_clients_exclude_each_other() {
    holds(&Setup {
        name: "mutex, three clients",
        clients: &[MUTEX, MUTEX, MUTEX],
        messages: 2,
        sights: &[Held, Succession, Expiry, HandOver, Confirmed, PassedOver, Renewed, LateReply, LeftQueue],
        depth: [14, 18],
        ..PLAIN
    });
}

#[test]
fn the_dead_hold_up_nobody() {
    holds(&Setup {
        name: "mutex, deaths that are seen",
        clients: &[MUTEX, MUTEX, MUTEX],
        messages: 2,
        deaths: 2,
        sees_death: true,
        renews: false,
        sights: &[Held, Succession, HandOver, Buried, PassedOver],
        depth: [13, 17],
        ..PLAIN
    });
}

#[test]
fn the_dead_who_are_not_seen_hold_up_nobody_for_long() {
    holds(&Setup {
        name: "mutex, deaths that are not seen",
        clients: &[MUTEX, MUTEX, MUTEX],
        messages: 2,
        deaths: 2,
        renews: false,
        lease: 4,
        sights: &[Held, Succession, HandOver, Expiry, PassedOver],
        depth: [13, 17],
        ..PLAIN
    });
}

#[test]
fn a_writer_is_never_beside_readers() {
    holds(&Setup {
        name: "rwlock, two readers, a writer",
        clients: &[READER, READER, WRITER],
        capacity: WHOLE,
        messages: 2,
        sights: &[Held, Succession, Expiry, HandOver, Confirmed, Shared, PassedOver],
        depth: [14, 18],
        ..PLAIN
    });
}

#[test]
fn readers_become_writers_and_back() {
    holds(&Setup {
        name: "rwlock, upgrade and downgrade",
        clients: &[EITHER, UPGRADER],
        capacity: WHOLE,
        messages: 2,
        serves_all: true,
        sights: &[Held, Shared, Upgraded, UpgradeRefused, Downgraded, HandOver, Expiry],
        depth: [13, 17],
        ..PLAIN
    });
}

#[test]
fn an_upgrader_goes_before_the_queue() {
    holds(&Setup {
        name: "rwlock, upgrade before the queue",
        clients: &[UPGRADER, UPGRADER, WRITER],
        capacity: WHOLE,
        messages: 2,
        deaths: 1,
        sees_death: true,
        renews: false,
        sights: &[Held, Shared, Upgraded, UpgradeRefused, Downgraded, HandOver, Buried],
        depth: [13, 16],
        ..PLAIN
    });
}

#[test]
fn a_semaphore_never_exceeds_its_permits() {
    holds(&Setup {
        name: "semaphore of two",
        clients: const { &[of_two(&[1, 2]), of_two(&[1]), of_two(&[1, 2])] },
        capacity: 2,
        messages: 2,
        sights: &[Held, Succession, Expiry, HandOver, Shared, PassedOver],
        depth: [12, 15],
        ..PLAIN
    });
}

#[test]
fn a_semaphore_counts_weights() {
    holds(&Setup {
        name: "semaphore of three",
        clients: const { &[of_three(&[1, 2]), of_three(&[2]), of_three(&[1])] },
        capacity: 3,
        messages: 2,
        duplicates: 1,
        sights: &[Held, Succession, Expiry, HandOver, Shared, Heavy, Repeated],
        depth: [12, 15],
        ..PLAIN
    });
}

#[test]
fn tokens_are_passed_on_inside_a_client() {
    holds(&Setup {
        name: "blocks of tokens",
        tokens: 3,
        messages: 2,
        ahead: true,
        breaks: 1,
        sights: &[Held, Succession, Expiry, HandOver, PassedOn, Broken, LateReply],
        depth: [15, 19],
        ..PLAIN
    });
}

#[test]
fn a_name_stays_closed_after_an_expiry() {
    holds(&Setup {
        name: "lock delay",
        lock_delay: 2,
        messages: 2,
        deaths: 1,
        sees_death: true,
        sights: &[Held, Succession, Expiry, HandOver, Closed, Buried],
        depth: [15, 20],
        ..PLAIN
    });
}

#[test]
fn tokens_rise_over_the_loss_of_the_record() {
    holds(&Setup {
        name: "retired and made anew",
        tokens: 3,
        messages: 2,
        retires: true,
        duplicates: 1,
        sights: &[Held, Succession, Expiry, HandOver, PassedOn, Retired, Repeated],
        depth: [16, 21],
        ..PLAIN
    });
}

#[test]
fn users_who_disagree_on_the_capacity_are_refused() {
    holds(&Setup {
        name: "two opinions of the capacity",
        clients: const { &[MUTEX, of_two(&[1, 2])] },
        capacity: 2,
        messages: 2,
        deaths: 1,
        sees_death: true,
        sights: &[Held, Succession, Expiry, CapacityRefused],
        depth: [15, 19],
        ..PLAIN
    });
}
