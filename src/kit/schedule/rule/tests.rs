//! Nodes that come, die and disagree, over one record.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::plan::Misfire;
use super::*;

const SECOND: Micros = 1_000_000;
const START: Micros = 1_700_000_000 * SECOND;
const PERIOD: u64 = 10;

fn setup(misfire: Misfire, if_lost: IfLost) -> Arc<Setup> {
    Arc::new(Setup {
        timing: Timing::every(Duration::from_secs(PERIOD)).expect("a timing"),
        policy: Policy { grace: 4 * SECOND, misfire, offset: 0 },
        if_lost,
        replaces: false,
        history: 10_000,
        node: "n".to_owned(),
    })
}

/// The cell of a task.
#[derive(Default)]
struct Cell(Option<Vec<u8>>);

impl Cell {
    fn ask(&mut self, setup: &Arc<Setup>, ask: Ask, now: Micros) -> Answer {
        let step = Step { setup: Arc::clone(setup), ask };
        let Decision { writes, answer } = step.step(&[self.0.as_deref()], now);
        if let Some(Write::Put(put)) = writes.into_iter().next() {
            self.0 = Some(put.bytes);
        }
        step.read(&answer).expect("an answer")
    }

    fn record(&self) -> Record {
        Record::decode(self.0.as_deref().expect("a record")).expect("a record")
    }
}

fn held(token: u64) -> Held {
    Held { token, instant: None }
}

fn begin(token: u64) -> Ask {
    Ask::Begin(held(token))
}

fn end(token: u64) -> Ask {
    Ask::End { held: held(token), end: End::Done }
}

fn ends(record: &Record) -> Vec<(u64, End)> {
    record.history.iter().map(|past| ((past.instant - START) / SECOND, past.end.clone())).collect()
}

#[test]
fn a_new_task_starts_with_the_instants_after_it_was_heard_of() {
    let setup = setup(Misfire::All { at_most: 100 }, IfLost::Record);
    let mut cell = Cell::default();
    let look = cell.ask(&setup, Ask::Look { joins: true }, START + 1);
    assert_eq!(look, Answer::Look { due: None, runs: Vec::new(), wait: Some(PERIOD * SECOND - 1) });
    assert_eq!(cell.ask(&setup, begin(5), START + 2), Answer::Nothing);
    let now = START + PERIOD * SECOND;
    let look = cell.ask(&setup, Ask::Look { joins: false }, now);
    assert_eq!(look, Answer::Look { due: Some(now), runs: Vec::new(), wait: None });
}

#[test]
fn an_occurrence_is_begun_once_and_its_answer_can_be_asked_for_again() {
    let setup = setup(Misfire::Skip, IfLost::Record);
    let mut cell = Cell::default();
    cell.ask(&setup, Ask::Look { joins: true }, START);
    let now = START + PERIOD * SECOND;
    let run = Answer::Run { instant: now, attempt: 1, now };
    assert_eq!(cell.ask(&setup, begin(5), now), run);
    assert_eq!(cell.ask(&setup, begin(5), now), run);
    for _ in 0..2 {
        assert_eq!(cell.ask(&setup, end(5), now), Answer::Yes);
    }
    assert_eq!(cell.ask(&setup, end(4), now), Answer::Gone);
    // One that was paused before it could ask, and comes when its lock is long gone.
    let late = now + PERIOD * SECOND;
    assert_eq!(cell.ask(&setup, begin(4), late), Answer::Nothing);
    // Another node, a moment later.
    assert_eq!(cell.ask(&setup, begin(6), now + 1), Answer::Nothing);
    assert_eq!(ends(&cell.record()), [(PERIOD, End::Done)]);
}

#[test]
fn whoever_comes_with_a_greater_token_finds_what_was_lost() {
    let now = START + PERIOD * SECOND;
    let run_again = IfLost::RunAgain { within: Duration::from_secs(5), attempts: 2 };
    for (if_lost, after, answer) in [
        (IfLost::Record, 1, Answer::Nothing),
        (run_again, 1, Answer::Run { instant: now, attempt: 2, now: now + SECOND }),
        (run_again, 6, Answer::Nothing),
    ] {
        let setup = setup(Misfire::Skip, if_lost);
        let mut cell = Cell::default();
        cell.ask(&setup, Ask::Look { joins: true }, START);
        cell.ask(&setup, begin(7), now);
        // A node whose lease was over before that does nothing.
        assert_eq!(cell.ask(&setup, begin(6), now), Answer::Nothing);
        assert_eq!(cell.ask(&setup, begin(8), now + after * SECOND), answer);
        assert_eq!(ends(&cell.record()), [(PERIOD, End::Lost)]);
        // The one that was lost comes back, too late.
        assert_eq!(cell.ask(&setup, end(7), now + 9), Answer::Gone);
    }
}

#[test]
fn what_was_begun_and_not_started_is_started_by_another() {
    let setup = setup(Misfire::Skip, IfLost::Record);
    let mut cell = Cell::default();
    cell.ask(&setup, Ask::Look { joins: true }, START);
    let now = START + PERIOD * SECOND;
    cell.ask(&setup, begin(7), now);
    assert_eq!(cell.ask(&setup, Ask::Undo(held(7)), now), Answer::Yes);
    assert_eq!(cell.ask(&setup, Ask::Undo(held(7)), now), Answer::Gone);
    assert_eq!(cell.ask(&setup, begin(8), now), Answer::Run { instant: now, attempt: 1, now });
    assert_eq!(ends(&cell.record()), []);
}

#[test]
fn another_timing_starts_anew() {
    let old = setup(Misfire::Once, IfLost::Record);
    let mut cell = Cell::default();
    cell.ask(&old, Ask::Look { joins: true }, START);
    let new = Arc::new(Setup {
        timing: Timing::every(Duration::from_secs(7)).expect("a timing"),
        ..Setup::clone(&old)
    });
    // Nothing that the new one would have been due for before runs now.
    let look = cell.ask(&new, Ask::Look { joins: true }, START + 1000 * SECOND);
    assert!(matches!(look, Answer::Look { due: None, .. }), "{look:?}");
    assert_eq!(cell.record().timing, "every 7s");
}

#[test]
fn a_record_that_is_looked_at_is_not_forgotten() {
    let setup = setup(Misfire::Skip, IfLost::Record);
    let mut cell = Cell::default();
    cell.ask(&setup, Ask::Look { joins: true }, START);
    cell.ask(&setup, Ask::Look { joins: false }, START + 1);
    assert_eq!(cell.record().written, START);
    cell.0 = Some(Record { paused: Some(START), ..cell.record() }.encode());
    cell.ask(&setup, Ask::Look { joins: false }, START + 2_000_000 * SECOND);
    assert_eq!(cell.record().written, START + 2_000_000 * SECOND);
}

#[derive(Clone, Debug)]
enum Move {
    Look,
    Begin,
    /// Begins, and the answer is lost.
    BeginUnheard,
    End(bool),
    Undo,
    /// The lease of whoever runs is over.
    Lose,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => Just(Move::Look),
        6 => Just(Move::Begin),
        1 => Just(Move::BeginUnheard),
        4 => any::<bool>().prop_map(Move::End),
        1 => Just(Move::Undo),
        2 => Just(Move::Lose),
    ]
}

proptest! {
    /// Every occurrence starts once, or once more for each time that it was lost; it is in the
    /// history, runs, or was missed; nothing else is.
    #[test]
    fn each_occurrence_runs_once_or_is_accounted_for(
        steps in proptest::collection::vec((moves(), 0..8u64), 1..150),
        again in any::<bool>(),
        misfire in prop_oneof![Just(Misfire::Skip), Just(Misfire::Once), Just(Misfire::All { at_most: 3 })],
    ) {
        let if_lost = if again {
            IfLost::RunAgain { within: Duration::from_secs(30), attempts: 3 }
        } else {
            IfLost::Record
        };
        let setup = setup(misfire, if_lost);
        let (mut cell, mut now, mut token) = (Cell::default(), START, 100);
        cell.ask(&setup, Ask::Look { joins: true }, now);
        // Who holds the lock, and whether it was told to run.
        let mut holder: Option<(u64, Option<(Micros, u32)>)> = None;
        let mut starts: BTreeMap<Micros, Vec<u32>> = BTreeMap::new();
        for (step, passes) in steps {
            now += passes * SECOND;
            match step {
                Move::Look => {
                    cell.ask(&setup, Ask::Look { joins: false }, now);
                }
                Move::Begin | Move::BeginUnheard => {
                    if holder.is_some_and(|(_, run)| run.is_some()) {
                        continue;
                    }
                    let mine = holder.map_or_else(|| { token += 1; token }, |(mine, _)| mine);
                    let answer = cell.ask(&setup, begin(mine), now);
                    holder = match answer {
                        Answer::Run { .. } if matches!(step, Move::BeginUnheard) => Some((mine, None)),
                        Answer::Run { instant, attempt, .. } => {
                            starts.entry(instant).or_default().push(attempt);
                            Some((mine, Some((instant, attempt))))
                        }
                        Answer::Nothing => None,
                        other => panic!("{other:?}"),
                    };
                }
                Move::End(fails) => {
                    let Some((mine, Some(_))) = holder else { continue };
                    let end = if fails { End::Failed("no".to_owned()) } else { End::Done };
                    prop_assert_eq!(cell.ask(&setup, Ask::End { held: held(mine), end }, now), Answer::Yes);
                    holder = None;
                }
                Move::Undo => {
                    if let Some((mine, None)) = holder {
                        cell.ask(&setup, Ask::Undo(held(mine)), now);
                        holder = None;
                    }
                }
                Move::Lose => holder = None,
            }
        }
        let record = cell.record();
        let mut lost: BTreeMap<Micros, u32> = BTreeMap::new();
        let mut accounted = BTreeSet::new();
        for past in &record.history {
            match past.end {
                End::Missed { count, more } => {
                    prop_assert!(!more);
                    for number in 0..u64::from(count) {
                        prop_assert!(accounted.insert(past.instant + number * PERIOD * SECOND), "missed once");
                    }
                }
                End::Lost => *lost.entry(past.instant).or_default() += 1,
                _ => prop_assert!(accounted.insert(past.instant), "it ends once"),
            }
        }
        prop_assert!(record.runs.len() <= 1);
        for run in &record.runs {
            prop_assert!(accounted.insert(run.instant), "what runs has not ended");
        }
        for (instant, starts) in &starts {
            let lost = lost.get(instant).copied().unwrap_or(0);
            // The last start may have been lost and not found yet, or not have been heard of.
            prop_assert!(starts.len() <= lost as usize + 1, "{starts:?}, lost {lost} times");
            prop_assert!(again || starts.len() == 1, "it does not run again unless that is said");
            prop_assert!(starts.is_sorted_by(|one, two| one < two) && starts.iter().all(|start| *start <= 3));
        }
        let all: BTreeSet<Micros> = accounted.iter().chain(lost.keys()).copied().collect();
        let decided = record.decided - START;
        let expected: BTreeSet<Micros> =
            (1..=decided / (PERIOD * SECOND)).map(|number| START + number * PERIOD * SECOND).collect();
        prop_assert_eq!(all, expected);
    }

    #[test]
    fn bytes_of_something_else_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let setup = setup(Misfire::Skip, IfLost::Record);
        let mut cell = Cell(Some(bytes.clone()));
        if Record::decode(&bytes).is_none() {
            prop_assert_eq!(cell.ask(&setup, Ask::Look { joins: true }, 5), Answer::Foreign);
            prop_assert_eq!(cell.0, Some(bytes));
        }
    }
}

#[test]
fn side_by_side_each_instant_has_a_lock_of_its_own() {
    let setup = setup(Misfire::Skip, IfLost::Record);
    let mut cell = Cell::default();
    cell.ask(&setup, Ask::Look { joins: true }, START);
    let first = START + PERIOD * SECOND;
    let lock = |token, instant| Held { token, instant: Some(instant) };
    let at = |token, instant| Ask::Begin(lock(token, instant));
    assert_eq!(
        cell.ask(&setup, at(50, first), first),
        Answer::Run { instant: first, attempt: 1, now: first }
    );
    let second = first + PERIOD * SECOND;
    // Tokens of two locks may be alike.
    assert_eq!(
        cell.ask(&setup, at(50, second), second),
        Answer::Run { instant: second, attempt: 1, now: second }
    );
    assert_eq!(cell.record().runs.len(), 2);
    // A lock of an instant that is decided is of no use.
    assert_eq!(cell.ask(&setup, at(60, second - SECOND), second), Answer::Nothing);
    let ended = Ask::End { held: lock(50, first), end: End::Done };
    assert_eq!(cell.ask(&setup, ended, second), Answer::Yes);
    // The second was lost, and its lock is free.
    assert_eq!(cell.ask(&setup, at(51, second), second), Answer::Nothing);
    assert_eq!(ends(&cell.record()), [(PERIOD, End::Done), (2 * PERIOD, End::Lost)]);
    // Another one is due, under its own lock alone.
    let third = second + PERIOD * SECOND;
    assert_eq!(cell.ask(&setup, at(60, first), third), Answer::Nothing);
    let run = Answer::Run { instant: third, attempt: 1, now: third };
    assert_eq!(cell.ask(&setup, at(60, third), third), run);
}

#[test]
fn what_is_paused_is_not_begun_by_one_who_has_looked_before() {
    let setup = setup(Misfire::Skip, IfLost::Record);
    let mut cell = Cell::default();
    let now = START + PERIOD * SECOND;
    cell.ask(&setup, Ask::Look { joins: true }, START);
    let running = cell.record();
    cell.0 = Some(Record { paused: Some(now), ..running.clone() }.encode());
    assert_eq!(cell.ask(&setup, begin(5), now), Answer::Nothing);
    cell.0 = Some(running.encode());
    assert_eq!(cell.ask(&setup, begin(5), now), Answer::Run { instant: now, attempt: 1, now });
}

#[test]
fn one_that_runs_is_told_to_stop_if_it_is_replaced() {
    let setup = Arc::new(Setup { replaces: true, ..Setup::clone(&setup(Misfire::Skip, IfLost::Record)) });
    let mut cell = Cell::default();
    cell.ask(&setup, Ask::Look { joins: true }, START);
    let now = START + PERIOD * SECOND;
    cell.ask(&setup, begin(5), now);
    cell.ask(&setup, Ask::Look { joins: false }, now + SECOND);
    assert!(held(5).goes_on(&cell.record()));
    cell.ask(&setup, Ask::Look { joins: false }, now + PERIOD * SECOND);
    assert!(!held(5).goes_on(&cell.record()));
    let end = Ask::End { held: held(5), end: End::Replaced };
    assert_eq!(cell.ask(&setup, end, now + PERIOD * SECOND), Answer::Yes);
    let instant = now + PERIOD * SECOND;
    assert_eq!(cell.ask(&setup, begin(6), instant), Answer::Run { instant, attempt: 1, now: instant });
    assert_eq!(ends(&cell.record()), [(PERIOD, End::Replaced)]);
}
