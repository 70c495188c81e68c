//! The attempt to take free locks without ado: plain commands that know nothing of queues.
//!
//! For each lock: write the holder if there is none, and count a token. A counter that is below zero says that there is more to the
//! name. The token stands at the holder's key only later, if the lock is held that long: see [`notes`](super::notes). The first
//! time that a name is used a script does the same: it starts the counter, too.
//!
//! It is one transaction: nobody comes between the holder and its number, and a counter that is gone is made with its lifetime, or not
//! at all. `INCR` alone would make one that stays for ever if its client ends right then.

use redis::{Cmd, Pipeline, Value};

use super::scripts::SCRIPTS;
use crate::claim::Ask;
use crate::redis::holder::push_owner;
use crate::redis::keys::NameKeys;
use crate::redis::script::Invocation;

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
    /// A number that may not be good: the server may have forgotten what was given before.
    Doubtful,
    /// The counter was gone, and counts from 1 now.
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

/// The number of answers that the server gives to the commands for a lock.
pub(super) const ANSWERS: usize = 5;

/// How long a counter is kept, in seconds. The scripts say the same.
const COUNTER_KEPT: &str = "86400";

/// The commands for one lock.
pub(super) fn commands(keys: &NameKeys, holder: &HolderText) -> Pipeline {
    let mut commands = Pipeline::with_capacity(ANSWERS);
    add(&mut commands, keys, holder);
    commands
}

/// Adds the commands for a lock.
///
/// Not the driver's own kind of transaction, which panics if a server does not know or does not allow `MULTI`. Nor `EXPIRE … NX`, which
/// needs Redis 7.
pub(super) fn add(commands: &mut Pipeline, keys: &NameKeys, holder: &HolderText) {
    let mut add = |words: &[&str]| {
        let size = words.iter().map(|word| word.len()).sum();
        let mut command = Cmd::with_capacity(words.len(), size);
        command.arg(words);
        commands.add_command(command);
    };
    add(&["MULTI"]);
    add(&["SET", &keys.holder, &holder.text, "NX", "PX", &holder.lease]);
    add(&["SET", &keys.token, "0", "NX", "EX", COUNTER_KEPT]);
    add(&["INCR", &keys.token]);
    add(&["EXEC"]);
}

/// Takes the answers for a lock from the first of `answers`; `None` if it is not known what came of it. `since` is that of the
/// connection.
pub(super) fn read(answers: &mut &[Value], since: u64) -> Option<Attempt> {
    let (ours, rest) = answers.split_at_checked(ANSWERS)?;
    *answers = rest;
    let [.., Value::Array(executed)] = ours else { return None };
    let [set @ (Value::Nil | Value::Okay), _, Value::Int(number)] = executed.as_slice() else { return None };
    let counted = match u64::try_from(*number) {
        Err(_) => Counted::Others,
        Ok(..STARTED) => Counted::First,
        Ok(number) if number < since => Counted::Doubtful,
        Ok(number) => Counted::Token(number),
    };
    Some(Attempt { set: *set == Value::Okay, counted })
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

    fn executed(set: Value, number: Value) -> Vec<Value> {
        let queued = || Value::SimpleString("QUEUED".into());
        vec![Value::Okay, queued(), queued(), queued(), Value::Array(vec![set, Value::Nil, number])]
    }

    fn counted(number: i64) -> Counted {
        let answers = executed(Value::Okay, Value::Int(number));
        let mut left = answers.as_slice();
        let attempt = read(&mut left, SINCE).expect("an attempt");
        assert!(attempt.set && left.is_empty());
        attempt.counted
    }

    #[test]
    fn a_number_is_good_if_the_server_has_not_forgotten() {
        assert_eq!(counted(SINCE as i64), Counted::Token(SINCE));
        assert_eq!(counted(SINCE as i64 - 1), Counted::Doubtful);
        assert_eq!(counted(1), Counted::First);
        assert_eq!(counted(-5), Counted::Others);
    }

    #[test]
    fn an_error_is_no_answer_and_takes_no_others_place() {
        let failed = executed(Value::Okay, Value::Nil);
        let answers = [failed, executed(Value::Nil, Value::Int(SINCE as i64 + 1))].concat();
        let mut left = answers.as_slice();
        assert_eq!(read(&mut left, SINCE), None);
        let second = read(&mut left, SINCE).expect("an attempt");
        assert_eq!(second, Attempt { set: false, counted: Counted::Token(SINCE + 1) });
        assert_eq!(read(&mut left, SINCE), None);
    }
}
