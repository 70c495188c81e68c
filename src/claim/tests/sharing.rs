//! Readers and the writer, upgrades, and capacities that change.

use super::*;

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    name.queued(&writer(3));
    name.queued(&reader(4));
    assert!(name.release(1).1.is_empty());
    assert_eq!(name.release(2).1, [3]);
    assert_eq!(name.release(3).1, [4]);
}

#[test]
fn a_downgrade_keeps_the_token_and_lets_readers_in() {
    let mut name = Name::new();
    let token = name.granted(&writer(1));
    name.queued(&reader(2));
    name.queued(&reader(3));
    name.queued(&writer(4));
    let step = name.downgrade(1, 1);
    assert_eq!(step.answer, Answer::Granted(Grant { token, tokens: 1 }));
    assert_eq!(woken(&step.wakes), [2, 3]);
    // It is no way to get more.
    let _ = name.downgrade(1, WHOLE);
    assert_eq!(name.state.used, 3);
}

#[test]
fn a_downgrade_that_comes_late_is_not_obeyed() {
    let mut name = Name::new();
    let late = Alteration::Downgrade { weight: 1, token: name.granted(&writer(1)) };
    assert!(matches!(name.alter(1, late.clone()).answer, Answer::Granted(_)));
    assert!(matches!(name.alter(1, Alteration::Upgrade).answer, Answer::Granted(_)));
    // The writer again, under another token: what was sent before does not concern it.
    assert_eq!(name.alter(1, late).answer, Answer::Refused(Refused::NotHeld));
    name.queued(&reader(2));
}

#[test]
fn a_reader_that_is_alone_becomes_the_writer_under_a_new_token() {
    for alteration in [Alteration::TryUpgrade, Alteration::Upgrade] {
        let mut name = Name::new();
        let token = name.granted(&reader(1));
        let step = name.alter(1, alteration);
        assert_eq!(step.answer, Answer::Granted(Grant { token: token + 1, tokens: 1 }));
        assert!(step.wakes.is_empty());
        name.queued(&reader(2));
    }
}

#[test]
fn an_upgrader_goes_before_the_queue() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    name.queued(&writer(3));
    assert!(matches!(name.alter(2, Alteration::Upgrade).answer, Answer::Queued(_)));
    // New readers would hold it up.
    name.queued(&reader(4));
    assert_eq!(name.release(1).1, [2]);
    assert_eq!(name.release(2).1, [3]);
}

#[test]
fn a_second_upgrader_is_refused() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    let _ = name.alter(1, Alteration::Upgrade);
    for alteration in [Alteration::TryUpgrade, Alteration::Upgrade] {
        assert_eq!(name.alter(2, alteration).answer, Answer::Refused(Refused::Upgrading));
    }
    assert_eq!(name.release(2).1, [1]);
}

#[test]
fn an_upgrader_that_says_nothing_holds_up_nobody_for_long() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    let _ = name.alter(1, Alteration::Upgrade);
    assert_eq!(name.queued(&reader(3)), PATIENCE);
    name.pass(PATIENCE.as_secs());
    name.granted(&reader(3));
}

#[test]
fn an_upgrade_that_does_not_wait_leaves_nothing_behind() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    assert!(matches!(name.alter(1, Alteration::TryUpgrade).answer, Answer::Busy(_)));
    name.granted(&reader(3));
}

#[test]
fn what_is_not_held_can_not_be_altered_and_those_who_wait_are_served() {
    let refused = Answer::Refused(Refused::NotHeld);
    for alteration in
        [Alteration::Upgrade, Alteration::TryUpgrade, Alteration::Downgrade { weight: 1, token: 0 }]
    {
        let mut name = Name::new();
        name.granted(&reader(1));
        name.pass(6);
        name.queued(&writer(2));
        name.pass(4);
        let step = name.alter(1, alteration);
        assert_eq!(step.answer, refused);
        assert_eq!(woken(&step.wakes), [2]);
    }
    assert_eq!(Name::new().alter(1, Alteration::Value(Arc::default())).answer, refused);
}

#[test]
fn a_holder_that_asks_again_hands_on_what_another_left() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.pass(6);
    name.granted(&of(2, 1, 2));
    name.queued(&of(3, 1, 2));
    name.pass(4);
    assert_eq!(woken(&name.ask(&of(2, 1, 2)).wakes), [3]);
}

#[test]
fn a_resize_takes_effect_while_in_use() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 1));
    name.queued(&of(2, 1, 1));
    name.queued(&of(3, 1, 1));
    assert_eq!(name.resize(1, 2), (Ok(()), vec![2]));
    // Users keep saying what they said before, or say what is so.
    name.granted(&of(1, 1, 1));
    name.queued(&of(4, 2, 2));
    assert_eq!(name.state.retire(name.now), None);
}

#[test]
fn after_a_cut_nothing_is_granted_until_enough_is_released() {
    let mut name = Name::new();
    for number in 1..=3 {
        name.granted(&of(number, 1, 3));
    }
    assert_eq!(name.resize(3, 1), (Ok(()), vec![]));
    name.queued(&of(4, 1, 3));
    assert!(name.release(1).1.is_empty());
    assert!(name.release(2).1.is_empty());
    assert_eq!(name.release(3).1, [4]);
}

#[test]
fn a_waiter_that_became_too_big_is_woken_and_refused() {
    let mut name = Name::new();
    name.granted(&of(1, 3, 3));
    name.queued(&of(2, 3, 3));
    name.queued(&of(3, 1, 3));
    assert_eq!(name.resize(3, 2), (Ok(()), vec![2]));
    assert_eq!(name.refused(&of(2, 3, 3)), Refused::Weight { capacity: 2, weight: 3 });
    assert_eq!(name.release(1).1, [3]);
}

#[test]
fn a_resize_by_somebody_with_another_idea_is_refused_while_in_use() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 3));
    assert_eq!(name.resize(2, 5).0, Err(Refused::Capacity { has: 3, asked: 2 }));
    name.release(1);
    assert_eq!(name.resize(2, 5).0, Ok(()));
    name.granted(&of(2, 5, 2));
}
