//! The attempt to take free locks without ado: plain commands that know nothing of queues.
//!
//! For each lock: write the holder if there is none, and count a token. A counter that is below zero says that there is more to the
//! name. The token stands at the holder's key only later, if the lock is held that long: see [`notes`](super::notes). The first
//! time that a name is used a script does the same: it starts the counter, too.
//!
//! The two commands are one step for everybody else only in a transaction, which costs both sides half as much again. It is
//! not needed for a name that nobody else uses. If our number is the next one after our last number for that name, nobody has
//! counted since, so nobody was granted the name since, not between the two commands either.

use redis::{Cmd, Pipeline, Value};

use super::keys::NameKeys;
use super::reply::push_owner;
use super::scripts::{Invocation, SCRIPTS};
use crate::claim::Ask;

/// What is to stand at the holder's key, and for how many milliseconds.
pub(super) struct HolderText {
    pub(super) text: String,
    lease: String,
}

impl HolderText {
    /// The script that takes the lock, with a counter of which nothing is known.
    pub(super) fn script(&self, keys: &NameKeys) -> Invocation {
        let (before, token_and_after) = self.text.split_at(START);
        let mut script = SCRIPTS.take.on(&[&keys.holder, &keys.token, &keys.state]);
        script.arg(before).arg(&token_and_after[1..]).arg(&self.lease);
        script
    }
}

/// The length of what stands before the token.
const START: usize = "leasehold/1 ".len() + 32 + " 1 ".len();

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The holder's key is ours.
    pub(super) set: bool,
    pub(super) counted: Counted,
}

/// What the counter said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The token for the one who has the lock.
    Token(u64),
    /// A number that may not be good: it is not known what was given before.
    Doubtful,
    /// The counter was gone, and has no end now.
    First,
    /// Others wait, or something else is known of the name that the rules must hear.
    Others,
}

/// `who` is what the text ends with: seat, process, host and label.
pub(super) fn holder_text(ask: &Ask, who: &str, now: u64) -> HolderText {
    let lease = super::micros(ask.lease);
    let mut text = String::with_capacity(START + 40 + who.len());
    text.push_str("leasehold/1 ");
    push_owner(&mut text, ask.owner);
    for word in [" 1 0 ", &lease.to_string(), " 0 ", &now.to_string(), " ", who] {
        text.push_str(word);
    }
    HolderText { text, lease: lease.div_ceil(1000).to_string() }
}

/// How to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Two commands, which are good if our number comes right after the last one that we had.
    AfterOurs(u64),
    /// One transaction.
    Whole,
}

impl Step {
    /// The number of answers that the server gives.
    pub(super) const fn answers(self) -> usize {
        match self {
            Step::AfterOurs(_) => 2,
            Step::Whole => 4,
        }
    }

    /// Adds the commands for a lock.
    ///
    /// Not the driver's own kind of transaction, which panics if a server does not know or does not allow `MULTI`.
    pub(super) fn add(self, commands: &mut Pipeline, keys: &NameKeys, holder: &HolderText) {
        let mut add = |words: &[&str]| {
            let size = words.iter().map(|word| word.len()).sum();
            let mut command = Cmd::with_capacity(words.len(), size);
            command.arg(words);
            commands.add_command(command);
        };
        if self == Step::Whole {
            add(&["MULTI"]);
        }
        add(&["SET", &keys.holder, &holder.text, "NX", "PX", &holder.lease]);
        add(&["INCR", &keys.token]);
        if self == Step::Whole {
            add(&["EXEC"]);
        }
    }

    /// Takes the answers for a lock from the first of `answers`; `None` if it is not known what came of it. `since` is that of the
    /// connection.
    pub(super) fn read(self, answers: &mut &[Value], since: u64) -> Option<Attempt> {
        let (ours, rest) = answers.split_at_checked(self.answers())?;
        *answers = rest;
        let ours = match (self, ours) {
            (Step::Whole, [.., Value::Array(executed)]) => executed.as_slice(),
            (Step::Whole, _) => return None,
            (Step::AfterOurs(_), ours) => ours,
        };
        let [set @ (Value::Nil | Value::Okay), Value::Int(number)] = ours else { return None };
        let counted = match u64::try_from(*number) {
            Err(_) => Counted::Others,
            Ok(..STARTED) => Counted::First,
            Ok(number) if number < since => Counted::Doubtful,
            Ok(number) if self == Step::Whole || self == Step::AfterOurs(number - 1) => {
                Counted::Token(number)
            }
            Ok(_) => Counted::Doubtful,
        };
        Some(Attempt { set: *set == Value::Okay, counted })
    }
}

/// The answers to several commands.
pub(super) fn answers(answer: &Value) -> &[Value] {
    if let Value::Array(answers) = answer { answers } else { &[] }
}

/// Counters below this have not been started at the server's time.
const STARTED: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: u64 = 1_700_000_000_000_000;

    fn counted(step: Step, number: i64) -> Counted {
        let pair = vec![Value::Okay, Value::Int(number)];
        let answers = match step {
            Step::AfterOurs(_) => pair,
            Step::Whole => {
                let queued = || Value::SimpleString("QUEUED".into());
                vec![Value::Okay, queued(), queued(), Value::Array(pair)]
            }
        };
        let mut left = answers.as_slice();
        let attempt = step.read(&mut left, SINCE).expect("an attempt");
        assert!(attempt.set && left.is_empty());
        attempt.counted
    }

    #[test]
    fn a_number_is_good_right_after_ours() {
        assert_eq!(counted(Step::AfterOurs(SINCE + 6), SINCE as i64 + 7), Counted::Token(SINCE + 7));
        assert_eq!(counted(Step::AfterOurs(SINCE + 5), SINCE as i64 + 7), Counted::Doubtful);
        assert_eq!(counted(Step::AfterOurs(SINCE + 7), SINCE as i64 + 7), Counted::Doubtful);
    }

    #[test]
    fn a_number_of_a_transaction_is_good_if_the_server_has_not_forgotten() {
        assert_eq!(counted(Step::Whole, SINCE as i64), Counted::Token(SINCE));
        assert_eq!(counted(Step::Whole, SINCE as i64 - 1), Counted::Doubtful);
        assert_eq!(counted(Step::Whole, 1), Counted::First);
        assert_eq!(counted(Step::Whole, -5), Counted::Others);
        assert_eq!(counted(Step::AfterOurs(SINCE - 2), SINCE as i64 - 1), Counted::Doubtful);
    }

    #[test]
    fn an_error_is_no_answer_and_takes_no_others_place() {
        let answers = [Value::Okay, Value::Nil, Value::Nil, Value::Int(SINCE as i64 + 1)];
        let mut left = answers.as_slice();
        assert_eq!(Step::AfterOurs(SINCE).read(&mut left, SINCE), None);
        let second = Step::AfterOurs(SINCE).read(&mut left, SINCE).expect("an attempt");
        assert_eq!(second, Attempt { set: false, counted: Counted::Token(SINCE + 1) });
        assert_eq!(Step::AfterOurs(SINCE).read(&mut left, SINCE), None);
    }
}
