//! Every rule, one by one, and then all of them on generated sequences (`sequences.rs`).

use super::*;

mod sequences;
mod sharing;

const SECOND: Micros = 1_000_000;
const LEASE: Duration = Duration::from_secs(10);

/// A name, its queue, a clock, and who has died.
struct Name {
    state: State,
    queue: MemoryQueue,
    now: Micros,
    dead: Vec<Seat>,
}

fn owner(number: u8) -> OwnerId {
    OwnerId(u128::from(number))
}

/// Asks for all of a mutex, and waits.
fn mutex(number: u8) -> Ask {
    Ask {
        owner: owner(number),
        weight: 1,
        capacity: 1,
        lease: LEASE,
        lock_delay: Duration::ZERO,
        tokens: 1,
        wait: true,
        answer_within: Duration::from_secs(5),
        holder: Arc::default(),
        value: Arc::default(),
        round: 1,
        logged: false,
    }
}

fn of(number: u8, weight: u32, capacity: u32) -> Ask {
    Ask { weight, capacity, ..mutex(number) }
}

fn reader(number: u8) -> Ask {
    of(number, 1, WHOLE)
}

fn writer(number: u8) -> Ask {
    of(number, WHOLE, WHOLE)
}

fn candidate(number: u8) -> Ask {
    Ask { logged: true, value: vec![number].into(), ..mutex(number) }
}

impl Name {
    fn new() -> Name {
        Name { state: State::new(0), queue: MemoryQueue::default(), now: 1000 * SECOND, dead: Vec::new() }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut State, &mut MemoryQueue, World<'_>) -> T) -> T {
        let Name { state, queue, now, dead } = self;
        let alive = |seat| !dead.contains(&seat);
        work(state, queue, World::at(*now, &alive))
    }

    /// The seat of an owner has the same number.
    fn ask(&mut self, ask: &Ask) -> Step<Answer> {
        let seat = ask.owner.0 as Seat;
        self.with(|state, queue, world| state.ask(queue, ask, seat, world).unwrap())
    }

    fn granted(&mut self, ask: &Ask) -> u64 {
        match self.ask(ask).answer {
            Answer::Granted(grant) => grant.token,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn queued(&mut self, ask: &Ask) -> Duration {
        match self.ask(ask).answer {
            Answer::Queued(pause) => pause.at_most,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn refused(&mut self, ask: &Ask) -> Refused {
        match self.ask(ask).answer {
            Answer::Refused(refused) => refused,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Releases, and says what was found and who is woken.
    fn release(&mut self, number: u8) -> (Released, Vec<u8>) {
        self.release_used(number, 0)
    }

    fn release_used(&mut self, number: u8, used: u64) -> (Released, Vec<u8>) {
        let step = self.with(|state, queue, world| state.release(queue, owner(number), used, world).unwrap());
        (step.answer, woken(&step.wakes))
    }

    /// From writer to reader, under the token that the owner has.
    fn downgrade(&mut self, number: u8, weight: u32) -> Step<Answer> {
        let token = self
            .state
            .claims(self.now)
            .find(|claim| claim.owner == owner(number))
            .map_or(0, |claim| claim.token);
        self.alter(number, Alteration::Downgrade { weight, token })
    }

    fn alter(&mut self, number: u8, alteration: Alteration) -> Step<Answer> {
        self.with(|state, queue, world| state.alter(queue, owner(number), alteration, world).unwrap())
    }

    fn renew(&mut self, number: u8) -> bool {
        self.state.renew(owner(number), LEASE, self.now)
    }

    fn resize(&mut self, declared: u32, capacity: u32) -> (Result<(), Refused>, Vec<u8>) {
        let step = self.with(|state, queue, world| state.resize(queue, declared, capacity, world).unwrap());
        (step.answer, woken(&step.wakes))
    }

    fn sweep(&mut self) -> Vec<u8> {
        woken(&self.with(|state, queue, world| state.sweep(queue, world).unwrap()).wakes)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
    }

    fn holders(&self) -> Vec<u8> {
        self.state.claims(self.now).map(|claim| claim.owner.0 as u8).collect()
    }
}

fn woken(wakes: &[Wake]) -> Vec<u8> {
    wakes.iter().map(|wake| wake.owner.0 as u8).collect()
}

#[test]
fn a_free_name_is_granted_at_once() {
    let mut name = Name::new();
    assert_eq!(name.granted(&mutex(1)), name.now);
    assert_eq!(name.holders(), [1]);
}

#[test]
fn first_come_is_first_served() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    for number in [5, 2, 4] {
        name.queued(&mutex(number));
    }
    assert_eq!(name.release(1), (Released::Claim, vec![5]));
    assert_eq!(name.release(5), (Released::Claim, vec![2]));
    assert_eq!(name.release(2), (Released::Claim, vec![4]));
    assert_eq!(name.release(4), (Released::Claim, vec![]));
}

#[test]
fn a_small_newcomer_does_not_pass_a_big_waiter() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.queued(&of(2, 2, 2));
    name.queued(&of(3, 1, 2));
    assert_eq!(name.release(1).1, [2]);
    assert_eq!(name.release(2).1, [3]);
}

#[test]
fn who_does_not_want_to_wait_is_told_that_it_is_busy() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    let step = name.ask(&Ask { wait: false, ..mutex(2) });
    assert_eq!(step.answer, Answer::Busy(Pause { at_most: LEASE }));
    assert_eq!(name.state.waiting(), 0);
}

#[test]
fn asking_again_gives_the_same_grant_and_counts_from_now() {
    let mut name = Name::new();
    let token = name.granted(&mutex(1));
    name.pass(6);
    assert_eq!(name.granted(&mutex(1)), token);
    name.pass(6);
    assert_eq!(name.holders(), [1]);
}

#[test]
fn asking_again_keeps_the_place_in_the_queue() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.queued(&mutex(3));
    name.queued(&mutex(2));
    assert_eq!(name.state.waiting(), 2);
    assert_eq!(name.release(1).1, [2]);
}

#[test]
fn a_waiter_that_asks_after_the_expiry_gets_the_name_and_is_not_woken_too() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.pass(8);
    assert_eq!(name.queued(&mutex(2)), Duration::from_secs(2));
    name.pass(2);
    let step = name.ask(&mutex(2));
    assert!(matches!(step.answer, Answer::Granted(_)));
    assert!(step.wakes.is_empty());
}

#[test]
fn a_kept_claim_does_not_end_and_is_asked_for_again_in_a_lease() {
    let mut name = Name::new();
    let token = name.granted(&mutex(1));
    name.pass(9);
    assert!(!name.state.keep_claims(name.now, |_| panic!("its time is not over")));
    for _ in 0..3 {
        name.pass(25);
        assert!(name.state.keep_claims(name.now, |seat| seat == 1));
        assert_eq!(name.queued(&mutex(2)), LEASE);
        assert_eq!(name.state.claims(name.now).map(|claim| claim.token).collect::<Vec<_>>(), [token]);
    }
    name.pass(25);
    assert!(!name.state.keep_claims(name.now, |_| false));
    name.granted(&mutex(2));
}

#[test]
fn only_the_claims_of_a_kept_seat_are_kept() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    name.pass(5);
    name.granted(&reader(3));
    name.pass(6);
    assert!(name.state.keep_claims(name.now, |seat| seat == 2));
    assert_eq!(name.holders(), [2, 3]);
    assert!(name.renew(3), "and a renewal takes nothing away");
    name.pass(9);
    assert_eq!(name.holders(), [2, 3]);
    name.pass(1);
    assert!(name.holders().is_empty());
}

#[test]
fn a_grant_that_nobody_confirmed_is_not_kept() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.release(1);
    name.pass(3);
    assert!(!name.state.keep_claims(name.now, |_| true));
    name.granted(&mutex(3));
}

#[test]
fn another_capacity_is_refused_while_in_use() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    assert_eq!(name.refused(&of(2, 1, 3)), Refused::Capacity { has: 2, asked: 3 });
}

#[test]
fn another_capacity_is_adopted_when_idle() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.release(1);
    name.granted(&of(2, 3, 3));
    assert_eq!(name.state.capacity(), 3);
}

#[test]
fn the_dead_do_not_hold_a_name_to_its_capacity() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    // Neither is heard of again.
    name.pass(10);
    name.granted(&of(3, 2, 2));
    assert_eq!(name.resize(5, 6).0, Err(Refused::Capacity { has: 2, asked: 5 }));
    name.dead.push(3);
    assert_eq!(name.resize(5, 6).0, Ok(()));
}

#[test]
fn more_than_there_is_is_refused() {
    let mut name = Name::new();
    assert_eq!(name.refused(&of(1, 3, 2)), Refused::Weight { capacity: 2, weight: 3 });
}

#[test]
fn a_refused_candidate_leaves_no_log_behind() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.refused(&candidate(2));
    let token = name.state.last_token();
    name.release(1);
    assert_eq!(name.state.retire(name.now), Some(token));
}

#[test]
fn a_stale_release_frees_nobody() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.pass(10);
    name.granted(&mutex(2));
    name.queued(&mutex(3));
    assert_eq!(name.release(1), (Released::Nothing, vec![]));
    assert_eq!(name.holders(), [2]);
}

#[test]
fn a_release_gives_up_a_place() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.queued(&mutex(3));
    assert_eq!(name.release(2), (Released::Place, vec![]));
    assert_eq!(name.release(2), (Released::Nothing, vec![]));
    assert_eq!(name.release(1).1, [3]);
}

#[test]
fn tokens_rise_over_release_expiry_and_break() {
    let mut name = Name::new();
    let first = name.granted(&mutex(1));
    name.release(1);
    // No time has passed: the counter goes on alone.
    let second = name.granted(&mutex(2));
    assert_eq!(second, first + 1);
    name.pass(10);
    let third = name.granted(&mutex(3));
    assert!(third > second);
    let broken = name.with(|state, queue, world| state.break_claims(queue, world).unwrap());
    assert_eq!(broken.answer.len(), 1);
    assert_eq!(name.granted(&mutex(4)), third + 1);
}

#[test]
fn tokens_rise_over_a_retired_record() {
    let mut name = Name::new();
    let first = name.granted(&Ask { tokens: 100, ..mutex(1) });
    name.release_used(1, first + 70);
    let floor = name.state.retire(name.now).unwrap();
    assert_eq!(floor, first + 70);
    name.state = State::new(floor);
    assert_eq!(name.granted(&mutex(2)), floor + 1);
}

#[test]
fn a_clock_that_steps_back_does_not_take_tokens_back() {
    let mut name = Name::new();
    let first = name.granted(&mutex(1));
    name.release(1);
    name.now -= 100 * SECOND;
    assert_eq!(name.granted(&mutex(2)), first + 1);
}

#[test]
fn a_block_of_tokens_is_reserved_and_what_is_not_used_is_free_again() {
    let mut name = Name::new();
    let first = name.granted(&Ask { tokens: 10, ..mutex(1) });
    assert_eq!(name.state.last_token(), first + 9);
    name.release_used(1, first + 3);
    assert_eq!(name.granted(&mutex(2)), first + 4);
}

#[test]
fn a_block_that_others_came_after_is_not_given_back() {
    let mut name = Name::new();
    let first = name.granted(&Ask { tokens: 10, ..of(1, 1, 2) });
    let second = name.granted(&of(2, 1, 2));
    assert_eq!(second, first + 10);
    name.release_used(1, first);
    assert_eq!(name.state.last_token(), second);
}

#[test]
fn what_a_release_says_of_use_is_kept_within_the_block() {
    for said in [0, u64::MAX] {
        let mut name = Name::new();
        let first = name.granted(&Ask { tokens: 10, ..mutex(1) });
        name.release_used(1, said);
        assert_eq!(name.state.last_token(), if said == 0 { first } else { first + 9 });
    }
}

#[test]
fn a_block_that_expires_stays_reserved() {
    let mut name = Name::new();
    let first = name.granted(&Ask { tokens: 100 * SECOND as u32, ..mutex(1) });
    name.pass(10);
    assert_eq!(name.granted(&mutex(2)), first + 100 * SECOND);
}

fn delayed(number: u8) -> Ask {
    Ask { lock_delay: Duration::from_secs(4), ..mutex(number) }
}

#[test]
fn a_name_stays_closed_after_an_expiry() {
    let mut name = Name::new();
    name.granted(&delayed(1));
    name.pass(11);
    assert_eq!(name.queued(&mutex(2)), Duration::from_secs(3));
    assert_eq!(name.state.retire(name.now), None);
    name.pass(3);
    name.granted(&mutex(2));
}

#[test]
fn a_name_stays_closed_after_a_death() {
    let mut name = Name::new();
    name.granted(&delayed(1));
    name.pass(2);
    name.dead.push(1);
    assert_eq!(name.queued(&mutex(2)), Duration::from_secs(4));
    name.pass(4);
    name.granted(&mutex(2));
}

#[test]
fn a_name_is_open_after_a_release_and_after_a_break() {
    let mut name = Name::new();
    name.granted(&delayed(1));
    name.release(1);
    name.granted(&delayed(2));
    name.pass(11);
    name.queued(&mutex(3));
    let step = name.with(|state, queue, world| state.break_claims(queue, world).unwrap());
    assert_eq!(woken(&step.wakes), [3]);
}

#[test]
fn a_grant_that_nobody_heard_of_closes_nothing() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&delayed(2));
    name.release(1);
    name.pass(3);
    name.granted(&mutex(3));
}

#[test]
fn a_hand_over_must_be_confirmed_soon() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.queued(&mutex(3));
    assert_eq!(name.release(1).1, [2]);
    name.pass(CONFIRM.as_secs());
    let step = name.ask(&mutex(3));
    assert!(matches!(step.answer, Answer::Granted(_)));
    // The one that was too late stands at the end again.
    name.queued(&mutex(2));
}

#[test]
fn a_hand_over_that_is_confirmed_is_a_whole_lease() {
    for confirm_by_asking in [true, false] {
        let mut name = Name::new();
        name.granted(&mutex(1));
        name.queued(&mutex(2));
        name.release(1);
        name.pass(2);
        if confirm_by_asking {
            name.granted(&mutex(2));
        } else {
            assert!(name.renew(2));
        }
        name.pass(9);
        assert_eq!(name.holders(), [2]);
    }
}

#[test]
fn a_short_lease_is_shorter_than_the_time_to_confirm() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&Ask { lease: Duration::from_secs(1), ..mutex(2) });
    name.release(1);
    name.pass(1);
    assert!(name.holders().is_empty());
}

#[test]
fn a_waiter_that_says_nothing_is_passed_over() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.pass(1);
    name.queued(&mutex(3));
    name.pass(PATIENCE.as_secs() - 1);
    assert_eq!(name.release(1), (Released::Claim, vec![3]));
}

#[test]
fn a_waiter_that_died_is_passed_over() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.queued(&mutex(3));
    name.dead.push(2);
    assert_eq!(name.release(1), (Released::Claim, vec![3]));
    assert_eq!(name.state.waiting(), 0);
}

#[test]
fn a_sweep_takes_from_the_dead_and_hands_on() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.granted(&of(2, 1, 2));
    name.queued(&of(3, 1, 2));
    assert!(name.sweep().is_empty());
    name.dead.push(1);
    assert_eq!(name.sweep(), [3]);
    assert_eq!(name.holders(), [2, 3]);
}

#[test]
fn a_renewal_counts_from_now_and_never_brings_back() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.pass(9);
    assert!(name.renew(1));
    name.pass(9);
    assert_eq!(name.holders(), [1]);
    name.pass(1);
    assert!(!name.renew(1));
    assert!(!name.renew(1));
    assert!(name.holders().is_empty());
}

#[test]
fn a_renewal_may_shorten_the_lease() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.granted(&of(2, 1, 2));
    assert!(name.state.renew(owner(1), Duration::from_secs(2), name.now));
    assert_eq!(name.queued(&of(3, 1, 2)), Duration::from_secs(2));
    name.pass(2);
    assert_eq!(name.holders(), [2]);
    name.granted(&of(3, 1, 2));
}

fn changes(name: &Name, seen: u64) -> Vec<(u64, u8)> {
    let changes = name.state.changes(seen);
    changes.iter().map(|change| (change.number, change.value.first().copied().unwrap_or(0))).collect()
}

#[test]
fn an_election_is_logged_in_order_and_without_gaps() {
    let mut name = Name::new();
    name.granted(&candidate(1));
    name.queued(&candidate(2));
    let _ = name.alter(1, Alteration::Value(vec![11].into()));
    name.release(1);
    name.release(2);
    assert_eq!(changes(&name, 0), [(1, 1), (2, 11), (3, 2), (4, 0)]);
    assert_eq!(changes(&name, 3), [(4, 0)]);
    assert_eq!(name.state.changes(3)[0].token, 0);
    assert_eq!(name.state.change_count(), 4);
}

#[test]
fn a_vacancy_by_expiry_or_death_is_logged_once() {
    let mut name = Name::new();
    name.granted(&candidate(1));
    name.granted(&candidate(1));
    name.pass(10);
    name.sweep();
    name.sweep();
    assert_eq!(changes(&name, 0), [(1, 1), (2, 0)]);
    name.granted(&candidate(2));
    name.dead.push(2);
    name.sweep();
    assert_eq!(changes(&name, 2), [(3, 2), (4, 0)]);
}

#[test]
fn the_log_is_bounded() {
    let mut name = Name::new();
    for number in 1..=40 {
        name.granted(&candidate(number));
        name.release(number);
    }
    assert_eq!(name.state.change_count(), 80);
    assert_eq!(name.state.changes(0).len(), LOG_LENGTH);
    assert_eq!(name.state.changes(0)[0].number, 80 - LOG_LENGTH as u64 + 1);
}

#[test]
fn only_an_idle_name_without_a_log_is_retired() {
    let mut name = Name::new();
    assert_eq!(name.state.retire(name.now), Some(0));
    let token = name.granted(&mutex(1));
    assert_eq!(name.state.retire(name.now), None);
    name.queued(&mutex(2));
    name.release(2);
    name.release(1);
    assert_eq!(name.state.retire(name.now), Some(token));
    name.granted(&candidate(3));
    name.release(3);
    assert_eq!(name.state.retire(name.now), None);
}

#[test]
fn very_long_leases_do_not_overflow() {
    let mut name = Name::new();
    name.granted(&Ask { lease: Duration::MAX, lock_delay: Duration::MAX, ..mutex(1) });
    name.dead.push(1);
    name.queued(&mutex(2));
    assert!(name.state.closed_until() > name.now);
}

#[test]
fn a_clock_that_is_set_back_makes_no_claim_longer() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.now -= 100 * SECOND;
    assert_eq!(name.queued(&mutex(2)), LEASE);
    // Counted from when it was seen, not from each time that it is looked at.
    name.now += 6 * SECOND;
    assert_eq!(name.queued(&mutex(2)), LEASE - Duration::from_secs(6));
    name.now += 4 * SECOND;
    name.granted(&mutex(2));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_unconfirmed_claim() {
    let mut name = Name::new();
    name.granted(&mutex(1));
    name.queued(&mutex(2));
    name.queued(&mutex(3));
    name.release(1);
    name.now -= 100 * SECOND;
    assert_eq!(name.queued(&mutex(3)), CONFIRM);
    name.now += micros(CONFIRM);
    name.granted(&mutex(3));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_waiter_alive() {
    let mut name = Name::new();
    name.granted(&of(1, 1, 2));
    name.queued(&of(2, 2, 2));
    name.queued(&of(3, 1, 2));
    name.now -= 100 * SECOND;
    assert_eq!(name.queued(&of(3, 1, 2)), PATIENCE);
    name.now += micros(PATIENCE) - 1;
    name.queued(&of(3, 1, 2));
    name.now += 1;
    name.granted(&of(3, 1, 2));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_upgrade() {
    let mut name = Name::new();
    name.granted(&reader(1));
    name.granted(&reader(2));
    assert!(matches!(name.alter(1, Alteration::Upgrade).answer, Answer::Queued(_)));
    name.now -= 100 * SECOND;
    assert_eq!(name.queued(&reader(3)), PATIENCE);
    name.now += micros(PATIENCE);
    name.granted(&reader(3));
}

#[test]
fn a_lock_delay_that_is_over_stays_over_when_the_clock_is_set_back() {
    let mut name = Name::new();
    name.granted(&Ask { lock_delay: Duration::from_secs(5), ..mutex(1) });
    name.now += 12 * SECOND;
    name.queued(&mutex(2));
    name.now += 3 * SECOND;
    name.granted(&mutex(2));
    name.now -= 10 * SECOND;
    name.release(2);
    name.granted(&mutex(3));
}

#[test]
fn a_name_is_idle_when_only_its_claims_must_end() {
    let mut name = Name::new();
    assert_eq!(name.state.idle_from(), Some(0));
    name.granted(&mutex(1));
    assert_eq!(name.state.idle_from(), Some(name.now + micros(LEASE)));
    assert_eq!(name.state.sole_claim().map(|claim| claim.owner), Some(owner(1)));
    assert!(name.ask(&mutex(2)).wakes.is_empty());
    assert_eq!(name.state.idle_from(), None, "somebody waits");

    let mut name = Name::new();
    name.granted(&Ask { lock_delay: LEASE, ..mutex(1) });
    assert_eq!(name.state.idle_from(), None, "it will be closed for a while");

    let mut name = Name::new();
    name.granted(&candidate(1));
    assert_eq!(name.state.idle_from(), None, "its log is kept");

    let mut name = Name::new();
    name.granted(&of(1, 1, 4));
    assert_eq!(name.state.sole_claim(), None, "there is room for others");
    name.with(|state, queue, world| state.resize(queue, 4, 6, world).unwrap().answer.unwrap());
    assert_eq!(name.state.idle_from(), None, "its capacity is another one than the declared");
}

#[test]
fn what_stands_for_none_is_not_moved() {
    let mut state = State::new(7);
    state.shift(100);
    assert_eq!(state, State::new(107));
}
