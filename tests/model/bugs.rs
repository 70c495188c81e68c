//! The hall of bugs: designs that were shipped and were wrong. In each, the explorer must find the
//! violation.

use std::io::Write;

use leasehold::claim::WHOLE;

use crate::explore::explore;
use crate::setup::{Bug, Role, Setup};
use crate::worlds::{MUTEX, PLAIN, UPGRADER, of_two};

/// Explores a broken world until a violation is found that starts with one of `expected`.
fn is_caught(bug: Bug, expected: &[&str], setup: &Setup) {
    const FAR: u32 = 16;
    let sound = Setup { name: "sound", ..setup.clone() };
    let broken = Setup { name: "broken", bug: Some(bug), ..setup.clone() };
    let found = explore(&broken, FAR);
    let Some((violation, trace)) = found.violation else {
        panic!("{bug:?}: not caught in {} states to depth {}", found.states, found.depth)
    };
    let _ = writeln!(
        std::io::stderr(),
        "{:<24} caught in {:>2} steps, {:>8} states: {violation}",
        format!("{bug:?}"),
        trace.len(),
        found.states
    );
    assert!(
        expected.iter().any(|expected| violation.starts_with(expected)),
        "{bug:?}: caught for another reason: {violation}\n{trace:#?}"
    );
    // It is the bug that was caught and not the world: without it, as far as this, all is well.
    let depth = u32::try_from(trace.len()).unwrap_or(FAR);
    let found = explore(&sound, depth);
    assert!(found.violation.is_none(), "{bug:?}: caught without the bug, too: {:?}", found.violation);
}

#[test]
fn a_deadline_that_counts_from_the_reply_is_caught() {
    is_caught(Bug::DeadlineFromReply, &["X1", "X2"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_renewal_that_counts_from_the_reply_is_caught() {
    is_caught(Bug::RenewalFromReply, &["X1", "X4"], &Setup { lease: 2, messages: 2, ..PLAIN });
}

#[test]
fn a_reply_that_is_accepted_after_the_deadline_is_caught() {
    is_caught(Bug::LateReplyAccepted, &["X1", "X2"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_renewal_that_revives_a_lost_holder_is_caught() {
    let setup = Setup { lease: 2, duplicates: 1, ..PLAIN };
    is_caught(Bug::LateRenewalRevives, &["X1", "X2", "X4"], &setup);
}

#[test]
fn a_holder_without_a_deadline_is_caught() {
    is_caught(Bug::NoDeadline, &["X1"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_holder_that_believes_while_it_releases_is_caught() {
    is_caught(Bug::BelievesWhileReleasing, &["X1"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_release_of_whoever_holds_is_caught() {
    is_caught(Bug::ReleaseOfAnyone, &["X4"], &PLAIN);
}

#[test]
fn a_renewal_that_makes_a_claim_is_caught() {
    is_caught(Bug::RenewalRecreates, &["X4"], &PLAIN);
}

#[test]
fn a_renewal_of_whoever_holds_is_caught() {
    is_caught(Bug::RenewalOfAnyone, &["X4"], &PLAIN);
}

#[test]
fn a_renewal_of_what_has_expired_is_caught() {
    is_caught(Bug::RenewalOfExpired, &["X4"], &PLAIN);
}

#[test]
fn a_counter_that_is_deleted_with_the_record_is_caught() {
    is_caught(Bug::CounterDeleted, &["X2"], &Setup { retires: true, tokens: 2, ..PLAIN });
}

#[test]
fn a_token_that_is_used_twice_is_caught() {
    is_caught(Bug::TokenUsedTwice, &["X2"], &PLAIN);
}

#[test]
fn a_token_that_was_not_reserved_is_caught() {
    is_caught(Bug::TokenNotReserved, &["X2"], &Setup { ahead: true, renews: false, ..PLAIN });
}

#[test]
fn a_release_that_does_not_tell_what_was_used_is_caught() {
    is_caught(Bug::UseNotTold, &["X2"], &Setup { tokens: 2, renews: false, ..PLAIN });
}

#[test]
fn a_waiter_that_believes_when_woken_is_caught() {
    is_caught(Bug::NoRecheck, &["X1", "X2"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_hand_over_that_needs_no_confirmation_is_caught() {
    let setup = Setup { lease: 12, renews: false, messages: 2, ..PLAIN };
    is_caught(Bug::HandOverUnconfirmed, &["X6"], &setup);
}

#[test]
fn capacities_that_are_mixed_are_caught() {
    let clients = const { &[MUTEX, of_two(&[1])] };
    let setup = Setup { clients, capacity: 2, renews: false, messages: 2, ..PLAIN };
    is_caught(Bug::CapacityMixed, &["X1", "X8"], &setup);
}

#[test]
fn a_dead_waiter_that_is_kept_is_caught() {
    let setup = Setup { clients: &[MUTEX, MUTEX, MUTEX], lease: 4, renews: false, messages: 2, ..PLAIN };
    is_caught(Bug::DeadWaiterKept, &["X6"], &setup);
}

#[test]
fn a_dead_process_that_is_served_is_caught() {
    let setup = Setup { deaths: 1, sees_death: true, renews: false, messages: 2, ..PLAIN };
    is_caught(Bug::DeadSeatServed, &["X7"], &setup);
}

#[test]
fn two_upgraders_that_wait_for_each_other_are_caught() {
    let clients: &[Role] = &[UPGRADER, UPGRADER];
    let setup = Setup { clients, capacity: WHOLE, messages: 2, serves_all: true, ..PLAIN };
    is_caught(Bug::TwoUpgraders, &["X7: everybody waits"], &setup);
}

#[test]
fn last_come_first_served_is_caught() {
    let setup = Setup { clients: &[MUTEX, MUTEX, MUTEX], renews: false, ..PLAIN };
    is_caught(Bug::Lifo, &["X7"], &setup);
}

#[test]
fn a_waiter_that_loses_its_place_by_asking_is_caught() {
    let setup = Setup { clients: &[MUTEX, MUTEX, MUTEX], renews: false, ..PLAIN };
    is_caught(Bug::RequeuedOnPoll, &["X7"], &setup);
}

#[test]
fn a_lease_that_is_judged_by_the_askers_clock_is_caught() {
    is_caught(Bug::AskersClock, &["X1", "X4"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn an_expiry_that_is_set_by_a_second_request_is_caught() {
    is_caught(Bug::ExpirySetLater, &["X6"], &PLAIN);
}

#[test]
fn a_lock_delay_that_is_forgotten_is_caught() {
    is_caught(Bug::LockDelayForgotten, &["lock delay"], &Setup { lock_delay: 2, messages: 2, ..PLAIN });
}

#[test]
fn an_owner_that_is_used_for_every_attempt_is_caught() {
    is_caught(Bug::OwnerReused, &["X1", "X2"], &Setup { renews: false, ..PLAIN });
}

#[test]
fn a_downgrade_that_is_obeyed_late_is_caught() {
    let clients: &[Role] = &[UPGRADER, UPGRADER];
    let setup = Setup { clients, capacity: WHOLE, messages: 2, renews: false, duplicates: 1, ..PLAIN };
    is_caught(Bug::LateDowngrade, &["X1"], &setup);
}
