//! The bounds of each limit for any schedule, and what a refusal says.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::claim::Micros;

/// Requests in a generated schedule, on average.
const LENGTH: usize = 1000;
/// Schedules for each property. `LEASEHOLD_SCHEDULES` in the environment asks for more.
const SCHEDULES: u32 = 512;

/// In microseconds: a schedule ends before numbers in Lua are not exact any more.
const LONGEST_STEP: i128 = 3_000_000_000_000;

/// A limit, the numbers that it promises, and steps of time that are interesting for it.
#[derive(Clone, Debug)]
struct Setup {
    limit: Limit,
    amount: u32,
    period: Micros,
    /// The burst of a bucket.
    burst: u32,
}

/// One request of a schedule.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// How long after the last, in thousandths of an interval; negative if the clock is set back.
    after: i64,
    request: Turned,
}

#[derive(Clone, Copy, Debug)]
enum Turned {
    Take(u32),
    UpTo(u32),
    /// Gives back what was taken so many takes ago.
    Refund(usize),
}

/// A schedule. It is drawn from a number, because to draw each turn by itself takes longer than to
/// run it; a shorter schedule is the start of a longer one, so a failure still shrinks.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    (any::<u64>(), 1..2 * LENGTH).prop_map(|(seed, length)| {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let turn = |_| {
            let after = match roll(13) {
                0..4 => 0,
                4..8 => roll(3_000).cast_signed(),
                8..11 => roll(100_000).cast_signed(),
                11 => roll(3_000_000).cast_signed(),
                _ => -roll(50_000).cast_signed(),
            };
            let request = match roll(14) {
                0..8 => Turned::Take(1),
                8..11 => Turned::Take(roll(12) as u32),
                11..13 => Turned::UpTo(1 + roll(30) as u32),
                _ => Turned::Refund(roll(4) as usize),
            };
            Turn { after, request }
        };
        (0..length).map(turn).collect()
    })
}

fn numbers() -> impl Strategy<Value = (u32, Micros, u32)> {
    let amount = prop_oneof![1..20u32, 1..2_000u32, Just(1_000_003u32)];
    let period = prop_oneof![1..100u64, 1..3_000_000u64, Just(86_400_000_000u64), 1..100_000_000_000u64];
    (amount, period, 1..40u32)
}

fn config() -> ProptestConfig {
    let wanted = std::env::var("LEASEHOLD_SCHEDULES").ok().and_then(|number| number.parse().ok());
    let cases = wanted.unwrap_or(SCHEDULES);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What was let through and not given back: when, and how much.
#[derive(Debug)]
struct Passed {
    at: Micros,
    goes: Micros,
    cost: u32,
}

/// What an engine keeps.
struct Kept {
    state: Vec<u8>,
    changed_at: Micros,
    expires: Micros,
}

/// Runs a schedule as an engine would, checks every answer, and says what was let through, in real
/// time: a clock that is set back must not let more through.
fn run(setup: &Setup, turns: &[Turn]) -> Vec<Passed> {
    let algorithm = setup.limit.algorithm().expect("in range");
    let interval = (setup.period / u64::from(setup.amount)).max(1);
    // The time that passes, and the engine's clock, which is sometimes set back.
    let mut real: Micros = 1_700_000_000_000_000;
    let mut clock = real;
    let mut kept: Option<Kept> = None;
    let mut passed: Vec<Passed> = Vec::new();
    let mut receipts: VecDeque<(Receipt, usize)> = VecDeque::new();
    for turn in turns {
        let step = i128::from(turn.after) * i128::from(interval) / 1000;
        let step = i64::try_from(step.min(LONGEST_STEP)).expect("some days");
        clock = clock.saturating_add_signed(step);
        real = real.saturating_add_signed(step.max(0));
        if step < 0 {
            // What was taken by another time can not be given back exactly.
            receipts.clear();
        }
        // As engines do: a value expires by the clock, and time stands still while it was set back.
        kept = kept.filter(|kept| kept.expires > clock);
        let state = kept.as_ref().map(|kept| kept.state.as_slice());
        let request = match turn.request {
            Turned::Take(cost) => Request::Take { least: cost, most: cost },
            Turned::UpTo(most) => Request::Take { least: 1, most },
            Turned::Refund(ago) => match receipts.remove(ago) {
                Some((receipt, index)) => {
                    passed[index].cost -= receipt.cost;
                    Request::Refund(receipt)
                }
                None => Request::Peek(1),
            },
        };
        let given = kept.as_ref().map_or(clock, |kept| kept.changed_at.max(clock));
        let step = algorithm.step(state, given, request).expect("its own state");
        check(&algorithm, state, given, request, &step);
        if let Outcome::Allowed { receipt, .. } = step.outcome
            && receipt.cost > 0
        {
            passed.push(Passed { at: real, goes: real + receipt.delay, cost: receipt.cost });
            // While time stands still it is not known when it was taken either.
            if given == clock {
                receipts.push_front((receipt, passed.len() - 1));
                receipts.truncate(8);
            }
        }
        match step.change {
            Change::Keep => {}
            Change::Delete => kept = None,
            Change::Put { state, lives } => {
                kept = Some(Kept { state, changed_at: given, expires: clock + lives });
            }
        }
    }
    passed
}

/// What must be true of every answer.
fn check(algorithm: &Algorithm, state: Option<&[u8]>, now: Micros, request: Request, step: &Step) {
    let capacity = algorithm.capacity();
    match step.outcome {
        Outcome::Impossible { capacity: told } => {
            assert_eq!((told, &step.change), (capacity, &Change::Keep));
            assert!(matches!(request, Request::Take { least, .. } if least > capacity));
        }
        Outcome::Denied { retry_after, left, reset_after } => {
            // A refusal costs nothing, and the time that it says is exact.
            assert_eq!(step.change, Change::Keep);
            let (Request::Take { least, .. } | Request::Peek(least)) = request else {
                panic!("{request:?} was refused")
            };
            assert!(left < least && least <= capacity && retry_after > 0 && retry_after <= reset_after);
            // If the clock was set back, time stands still until it has caught up.
            let peek = |at| algorithm.step(state, at, Request::Peek(least)).expect("a state").outcome;
            let start = standing(algorithm, state, now);
            let then = peek(start + retry_after);
            assert!(matches!(then, Outcome::Allowed { .. }), "{step:?} and then {then:?}");
            let before = peek(start + retry_after - 1);
            assert!(
                matches!(before, Outcome::Denied { retry_after: 1, .. }),
                "{step:?} and a microsecond before {before:?}"
            );
        }
        Outcome::Allowed { receipt, left, reset_after } => {
            assert!(left <= capacity && receipt.cost <= capacity);
            if let Request::Take { least, most } = request {
                assert!((least..=most.max(least)).contains(&receipt.cost));
            }
            if let Change::Put { state, lives } = &step.change {
                assert_eq!(*lives, reset_after);
                // When it need not be kept any more, it says the same as none; not before.
                let start = receipt.at;
                let all = |at| algorithm.step(Some(state), at, Request::Peek(capacity)).expect("a state");
                assert!(matches!(all(start + lives).outcome, Outcome::Allowed { reset_after: 0, .. }));
                let before = all(start + lives - 1).outcome;
                assert!(!matches!(before, Outcome::Allowed { reset_after: 0, .. }), "{before:?}");
            }
        }
    }
}

/// The time at which a state decides.
fn standing(algorithm: &Algorithm, state: Option<&[u8]>, now: Micros) -> Micros {
    match algorithm.step(state, now, Request::Peek(0)).expect("a state").outcome {
        Outcome::Allowed { receipt, .. } => receipt.at,
        other => panic!("{other:?}"),
    }
}

/// The most that was let through in any time of this length.
fn most_in_any(passed: &[Passed], period: Micros) -> u64 {
    let (mut most, mut sum, mut first) = (0, 0, 0);
    for last in passed {
        sum += u64::from(last.cost);
        while last.at - passed[first].at >= period {
            sum -= u64::from(passed[first].cost);
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// True if in any time t no more than `burst + amount × t / period` was let through.
fn is_within_rate(times: impl Iterator<Item = (Micros, u32)>, setup: &Setup, burst: u32) -> bool {
    let (amount, period) = (i128::from(setup.amount), i128::from(setup.period));
    let (mut before, mut lowest) = (0i128, i128::MAX);
    for (at, cost) in times {
        lowest = lowest.min(before * period - amount * i128::from(at));
        before += i128::from(cost);
        let above = before * period - amount * i128::from(at) - lowest;
        if above > i128::from(burst) * period {
            return false;
        }
    }
    true
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_fixed_window_lets_at_most_twice_its_limit_through((amount, period, _) in numbers(), turns in turns()) {
        let limit = Limit::fixed_window(amount, Duration::from_micros(period));
        let passed = run(&Setup { limit, amount, period, burst: 0 }, &turns);
        prop_assert!(most_in_any(&passed, period) <= 2 * u64::from(amount));
    }

    #[test]
    fn a_sliding_log_never_lets_more_than_its_limit_through(
        (amount, period, _) in numbers(),
        turns in turns(),
    ) {
        let amount = amount.min(LONGEST_LOG);
        let limit = Limit::sliding_log(amount, Duration::from_micros(period));
        let passed = run(&Setup { limit, amount, period, burst: 0 }, &turns);
        prop_assert!(most_in_any(&passed, period) <= u64::from(amount));
    }

    #[test]
    fn a_sliding_window_never_lets_more_than_its_limit_through(
        (amount, period, slices) in numbers(),
        turns in turns(),
    ) {
        let limit = Limit::sliding_window(amount, Duration::from_micros(period)).slices(slices);
        let passed = run(&Setup { limit, amount, period, burst: 0 }, &turns);
        prop_assert!(most_in_any(&passed, period) <= u64::from(amount));
    }

    #[test]
    fn a_token_bucket_never_lets_more_than_burst_and_rate_through(
        (amount, period, burst) in numbers(),
        turns in turns(),
    ) {
        let limit = Limit::token_bucket(amount, Duration::from_micros(period)).burst(burst);
        let setup = Setup { limit, amount, period, burst };
        let passed = run(&setup, &turns);
        prop_assert!(is_within_rate(passed.iter().map(|one| (one.at, one.cost)), &setup, setup.burst));
    }

    #[test]
    fn a_leaky_bucket_lets_all_go_evenly((amount, period, queue) in numbers(), turns in turns()) {
        let limit = Limit::leaky_bucket(amount, Duration::from_micros(period)).queue(queue);
        let setup = Setup { limit, amount, period, burst: 1 };
        // Those that left the queue do not go.
        let mut passed = run(&setup, &turns);
        passed.retain(|one| one.cost > 0);
        let pair = passed.windows(2).find(|pair| pair[0].goes > pair[1].goes);
        prop_assert!(pair.is_none(), "{pair:?}");
        for pair in passed.windows(2) {
            // What goes takes its time, except for the part of a microsecond by which it went late.
            let between = i128::from(pair[1].goes + 1 - pair[0].goes) * i128::from(amount);
            prop_assert!(between > i128::from(pair[0].cost) * i128::from(period) - i128::from(amount));
        }
        // Nobody waits for longer than the queue is.
        let longest = (u128::from(queue) * u128::from(period)).div_ceil(u128::from(amount)) + u128::from(queue);
        prop_assert!(passed.iter().all(|one| u128::from(one.goes - one.at) <= longest));
    }

    /// A process takes a batch and gives it out when it likes, while it may hold it.
    #[test]
    fn batches_do_not_widen_the_bound(
        (amount, period, burst) in numbers(),
        turns in turns(),
        hold in 1..100u64,
        shape in 0..3,
    ) {
        let hold = Duration::from_micros((period * hold / 100).max(1));
        let period_of = Duration::from_micros(period);
        let limit = match shape {
            0 => Limit::token_bucket(amount, period_of).burst(burst),
            1 => Limit::sliding_log(amount.min(LONGEST_LOG), period_of),
            _ => Limit::sliding_window(amount, period_of),
        };
        let setup = Setup { limit: limit.batches(5, hold), amount, period, burst };
        // A burst that is too small for it is refused.
        prop_assume!(setup.limit.algorithm().is_ok());
        let mut passed = run(&setup, &turns);
        for (number, one) in passed.iter_mut().enumerate() {
            // Some at once, some in the middle, some at the last moment.
            one.at += u64::try_from(hold.as_micros()).expect("short") * (number as u64 % 3) / 2;
        }
        passed.sort_by_key(|one| one.at);
        if shape == 0 {
            prop_assert!(is_within_rate(passed.iter().map(|one| (one.at, one.cost)), &setup, burst));
        } else {
            prop_assert!(most_in_any(&passed, period) <= u64::from(amount));
        }
    }

    #[test]
    fn bytes_of_something_else_are_never_taken_for_a_state(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        cost in 0..5u32,
    ) {
        for limit in one_of_each() {
            let algorithm = limit.algorithm().expect("in range");
            // With the right tag it may look like a state. It is one or it is not, and it is no
            // panic.
            let tagged = [&[tag_of(&algorithm)], bytes.as_slice()].concat();
            for request in [Request::Take { least: cost, most: 9 }, Request::Refund(Receipt::default())] {
                let now = 1_700_000_000_000_000;
                algorithm.step(Some(&tagged), now, request);
                let other = algorithm.step(Some(&bytes), now, request);
                prop_assert!(other.is_none() || bytes.first() == Some(&tagged[0]));
            }
        }
    }
}

fn one_of_each() -> [Limit; 5] {
    let second = Duration::from_secs(1);
    [
        Limit::fixed_window(10, second),
        Limit::sliding_log(10, second),
        Limit::sliding_window(10, second),
        Limit::token_bucket(10, second),
        Limit::leaky_bucket(10, second),
    ]
}

fn tag_of(algorithm: &Algorithm) -> u8 {
    let step = algorithm.step(None, 1_700_000_000_000_000, Request::Take { least: 1, most: 1 });
    match step.expect("a step").change {
        Change::Put { state, .. } => state[0],
        other => panic!("{other:?}"),
    }
}

/// Stores keep these: they never change.
#[test]
fn the_encoding_of_each_state_is_pinned() {
    let pinned = [
        "11060a24181e400000000003",
        "21060a24181e40000003",
        "31000000000186a0000003f5476a0003",
        "41000000000186a0060a24181e4000000000000493e0",
    ];
    for (limit, expected) in one_of_each().iter().zip(pinned) {
        let algorithm = limit.algorithm().expect("in range");
        let step = algorithm.step(None, 1_700_000_000_000_000, Request::Take { least: 3, most: 3 });
        let Some(Step { change: Change::Put { state, .. }, .. }) = step else { panic!("{step:?}") };
        let hex: String = state.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{algorithm:?}");
    }
}

#[test]
fn more_than_there_ever_is_is_impossible_and_all_of_it_is_not() {
    for limit in one_of_each() {
        let algorithm = limit.algorithm().expect("in range");
        let take = |state, cost| {
            let request = Request::Take { least: cost, most: cost };
            algorithm.step(state, 5_000_000, request).expect("a step")
        };
        let capacity = algorithm.capacity();
        assert_eq!(take(None, capacity + 1).outcome, Outcome::Impossible { capacity });
        let Change::Put { state, .. } = take(None, capacity).change else { panic!("it was taken") };
        assert!(matches!(take(Some(&state), capacity).outcome, Outcome::Denied { .. }));
    }
}

#[test]
fn what_was_taken_can_be_given_back_once_it_is_known_when() {
    for limit in one_of_each() {
        let algorithm = limit.algorithm().expect("in range");
        let step = |state: Option<&[u8]>, now, request| algorithm.step(state, now, request).expect("a step");
        let taken = step(None, 5_000_000, Request::Take { least: 4, most: 4 });
        let (Change::Put { state, .. }, Outcome::Allowed { receipt, .. }) = (taken.change, taken.outcome)
        else {
            panic!("it was taken")
        };
        let back = step(Some(&state), 5_000_000, Request::Refund(receipt));
        assert_eq!(back.change, Change::Delete, "{algorithm:?}: as if nothing had been");
        // Long after, nothing is left to give back: it has come back by itself.
        let late = step(Some(&state), 50_000_000, Request::Refund(receipt));
        let fresh = step(None, 50_000_000, Request::Peek(1));
        let (Outcome::Allowed { left, .. }, Outcome::Allowed { left: full, .. }) =
            (late.outcome, fresh.outcome)
        else {
            panic!("nothing is refused")
        };
        assert_eq!(left, full, "{algorithm:?}");
        assert_eq!(step(Some(&state), 5_000_000, Request::Reset).change, Change::Delete);
    }
}

#[test]
fn a_clock_that_is_set_back_gives_nothing() {
    for limit in one_of_each() {
        let algorithm = limit.algorithm().expect("in range");
        let all = Request::Take { least: algorithm.capacity(), most: algorithm.capacity() };
        let taken = algorithm.step(None, 1_700_000_000_000_000, all).expect("a step");
        let Change::Put { state, .. } = taken.change else { panic!("it was taken") };
        for now in [0, 1, 1_600_000_000_000_000, 1_699_999_999_999_999] {
            let step = algorithm.step(Some(&state), now, Request::Peek(1)).expect("a step");
            assert!(matches!(step.outcome, Outcome::Denied { left: 0, .. }), "{algorithm:?} at {now}");
        }
    }
}

#[test]
fn a_limit_that_was_changed_remembers_what_is_owed() {
    let second = Duration::from_secs(1);
    let changes = [
        (Limit::token_bucket(10, second), Limit::token_bucket(7, 3 * second).burst(10)),
        (Limit::token_bucket(10, second), Limit::token_bucket(1000, second).burst(10)),
        (Limit::sliding_window(10, second), Limit::sliding_window(10, 2 * second).slices(7)),
        (Limit::fixed_window(10, second), Limit::fixed_window(10, 2 * second)),
        (Limit::sliding_log(10, second), Limit::sliding_log(10, 2 * second)),
        (Limit::leaky_bucket(10, second), Limit::leaky_bucket(3, second).queue(10)),
    ];
    for (before, after) in changes {
        let (before, after) = (before.algorithm().expect("in range"), after.algorithm().expect("in range"));
        let now = 1_700_000_000_000_000;
        let taken = before.step(None, now, Request::Take { least: 4, most: 4 }).expect("a step");
        let Change::Put { state, .. } = taken.change else { panic!("it was taken") };
        let Some(Step { outcome: Outcome::Allowed { left, .. }, .. }) =
            after.step(Some(&state), now, Request::Peek(1))
        else {
            panic!("some is left")
        };
        assert_eq!(left, after.capacity() - 4, "{before:?} to {after:?}");
        // Less than was used already: nothing is left, and it is no panic.
        let tight = Limit::fixed_window(2, second).algorithm().expect("in range");
        if before.word() == tight.word() {
            let step = tight.step(Some(&state), now, Request::Take { least: 1, most: 1 }).expect("a step");
            assert!(matches!(step.outcome, Outcome::Denied { left: 0, .. }));
        }
    }
}

#[test]
fn rates_are_exact_or_a_little_slower() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (amount, period, burst) in [(1, day, 1), (3, Duration::from_secs(1), 5), (1_000_003, day, 1_000_003)]
    {
        let limit = Limit::token_bucket(amount, period).burst(burst);
        let algorithm = limit.algorithm().expect("in range");
        let now = 1_700_000_000_000_000;
        let all = Request::Take { least: burst, most: burst };
        let Some(Step { outcome: Outcome::Allowed { reset_after, .. }, .. }) = algorithm.step(None, now, all)
        else {
            panic!("it is full")
        };
        let exact = (period.as_micros() * u128::from(burst)).div_ceil(u128::from(amount));
        let slower = u128::from(reset_after) - exact;
        assert!(slower <= u128::from(burst), "{amount} per {period:?}: {slower} µs late");
    }
    // A million a second is one in a microsecond.
    let fast = Limit::per_second(1_000_000).burst(1).algorithm().expect("in range");
    let one = Request::Take { least: 1, most: 1 };
    let Some(Step { change: Change::Put { lives: 1, .. }, .. }) = fast.step(None, 7, one) else {
        panic!("a microsecond")
    };
}

#[test]
fn what_is_out_of_range_is_refused_with_the_reason() {
    let second = Duration::from_secs(1);
    for (limit, reason) in [
        (Limit::per_second(0), "limit of 0"),
        (Limit::per_second(1).burst(0), "burst of 0"),
        (Limit::fixed_window(1, Duration::ZERO), "out of range"),
        (Limit::fixed_window(1, 2 * LONGEST_PERIOD), "out of range"),
        (Limit::fixed_window(1, second).burst(3), "`burst` is not an option of a fixed window"),
        (Limit::per_second(1).queue(3), "`queue` is not an option of a token bucket"),
        (Limit::per_second(1).slices(3).queue(1), "`slices` is not"),
        (Limit::leaky_bucket(1, second).batches(3, second), "`batches` is not"),
        (Limit::sliding_window(1, second).slices(0), "0 slices"),
        (Limit::sliding_window(1, second).slices(101), "101 slices"),
        (Limit::sliding_log(LONGEST_LOG + 1, second), "use a sliding window"),
        (Limit::token_bucket(1, LONGEST_PERIOD).burst(u32::MAX), "more than 70 years"),
        (Limit::per_second(100).burst(20).batches(5, second), "100 tokens come back"),
        (Limit::per_second(100).burst(20).batches(0, second), "out of range"),
        (Limit::per_second(100).burst(20).batches(5, 2 * second), "out of range"),
    ] {
        let error = limit.algorithm().expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    Limit::per_second(100).burst(20).batches(5, Duration::from_millis(100)).algorithm().expect("half of it");
}

#[test]
fn a_share_is_never_more_than_the_whole_divided() {
    for (limit, shared) in [
        (Limit::per_second(100).burst(20), Some(5)),
        (Limit::per_second(100).burst(3), None),
        (Limit::fixed_window(10, Duration::from_secs(1)), Some(2)),
        (Limit::sliding_log(3, Duration::from_secs(1)), None),
        (Limit::leaky_bucket(10, Duration::from_secs(1)).queue(7), Some(2)),
    ] {
        assert_eq!(limit.share(4).map(|share| share.capacity()), shared, "{limit:?}");
    }
    // A quarter of the rate: four times as long for a token.
    let share = Limit::per_second(10).burst(4).share(4).expect("one each");
    let one = Request::Take { least: 1, most: 1 };
    let Some(Step { change: Change::Put { lives, .. }, .. }) = share.step(None, 7, one) else {
        panic!("one")
    };
    assert_eq!(lives, 400_000);
}
