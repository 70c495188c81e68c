//! The attempt to take free locks without ado: one transaction that knows nothing of queues.
//!
//! It writes the holder if there is none, counts a token, and looks whether there is more to the name. Its token stands at
//! the holder's key only later, if the lock is held that long: see [`notes`](super::notes). The first time that a name is
//! used a script does the same: it starts the counter, too.

use redis::{Cmd, Pipeline, Value};

use super::keys::NameKeys;
use super::reply::{host_text, owner_text};
use super::scripts::{Invocation, SCRIPTS};
use crate::claim::{Ask, Holder, OwnerId, Seat};

/// What is to stand at the holder's key, and for how many milliseconds.
pub(super) struct HolderText {
    text: String,
    lease: u64,
}

impl HolderText {
    /// The script that takes the lock, with a counter of which nothing is known.
    pub(super) fn script(&self, keys: &NameKeys) -> Invocation {
        let (before, token_and_after) = self.text.split_at(START);
        let mut script = SCRIPTS.take.prepare();
        script.key(&keys.holder).key(&keys.token).key(&keys.state);
        script.arg(before).arg(&token_and_after[1..]).arg(self.lease);
        script
    }
}

/// The length of what stands before the token: see [`holder_start`].
const START: usize = 47;

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The holder's key is ours.
    pub(super) set: bool,
    /// The highest token of the name.
    pub(super) counter: u64,
    /// The counter was raised since we know the server.
    pub(super) fresh: bool,
    /// Others wait, or something else is known of the name that the rules must hear.
    pub(super) others: bool,
}

/// How the holder's key starts.
pub(super) fn holder_start(owner: OwnerId) -> String {
    format!("leasehold/1 {} 1 ", owner_text(owner))
}

pub(super) fn holder_text(ask: &Ask, seat: Seat, now: u64) -> HolderText {
    let Holder { host, pid, label } = &*ask.holder;
    let lease = super::micros(ask.lease);
    let text = format!(
        "leasehold/1 {:032x} 1 0 {lease} 0 {now} {seat} {pid} {} {label}",
        ask.owner.0,
        host_text(host)
    );
    HolderText { text, lease: lease.div_ceil(1000) }
}

/// Not the driver's own kind of transaction, which panics if a server does not know or does not allow `MULTI`.
pub(super) fn transaction<'a>(
    locks: impl ExactSizeIterator<Item = (&'a NameKeys, &'a HolderText)>,
) -> Pipeline {
    let mut transaction = Pipeline::with_capacity(COMMANDS * locks.len() + 3);
    transaction.add_command(command(&["MULTI"]));
    let mut others = redis::cmd("EXISTS");
    for (keys, HolderText { text, lease }) in locks {
        let mut set = command(&["SET", &keys.holder, text, "NX", "PX"]);
        set.arg(*lease);
        transaction.add_command(set);
        transaction.add_command(command(&["INCR", &keys.token]));
        others.arg(&keys.state);
    }
    transaction.add_command(others);
    transaction.add_command(command(&["EXEC"]));
    transaction
}

/// The commands for each lock; the look whether there is more to it is one command for all.
const COMMANDS: usize = 2;

fn command(words: &[&str]) -> Cmd {
    // Room for a number more.
    let mut command =
        Cmd::with_capacity(words.len() + 1, words.iter().map(|word| word.len()).sum::<usize>() + 20);
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command
}

/// What the answer to a transaction says of each lock; `None` where it is not known. `since` is that of the connection. If there is
/// more to one of several names, it is said of all.
pub(super) fn answers(executed: &Value, since: u64) -> Vec<Option<Attempt>> {
    let Value::Array(answers) = executed else { return Vec::new() };
    let Some((Value::Int(others), locks)) = answers.split_last() else { return Vec::new() };
    let read = |answers: &[Value]| match answers {
        [set @ (Value::Nil | Value::Okay), Value::Int(counter)] => {
            let counter = counter.unsigned_abs();
            Some(Attempt { set: *set == Value::Okay, counter, fresh: counter >= since, others: *others > 0 })
        }
        _ => None,
    };
    locks.chunks(COMMANDS).map(read).collect()
}

/// Looks at each name by itself.
pub(super) fn each_state<'a>(names: impl Iterator<Item = &'a NameKeys>) -> Pipeline {
    let mut each = Pipeline::new();
    names.for_each(|keys| {
        each.add_command(command(&["EXISTS", &keys.state]));
    });
    each
}
