//! A row of ShedLock's table, and the text in `locked_by`.
//!
//! ShedLock writes the name of its host there. Ours is `leasehold OWNER PID HOST LABEL`, and
//! `released leasehold …` after a release: a name that stays closed for a while then is nobody's.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Holder, Micros, OwnerId, WHOLE};
use crate::engine::{HeldClaim, View};

/// How many characters of the text say whose it is: `leasehold ` and an owner.
pub(crate) const MARK: usize = 42;
/// The longest text that is written.
pub(crate) const LONGEST_TEXT: usize = RELEASED.len() + LONGEST;

const LONGEST: usize = 100;
const OURS: &str = "leasehold ";
const RELEASED: &str = "released ";

/// A row. Times are microseconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct LockRow {
    pub(crate) name: String,
    pub(crate) lock_until: Micros,
    pub(crate) locked_at: Micros,
    pub(crate) locked_by: String,
}

/// How the text of an owner starts.
pub(super) fn mark(owner: OwnerId) -> String {
    format!("{OURS}{owner:?}")
}

/// The text of an owner.
pub(super) fn text(owner: OwnerId, holder: &Holder) -> String {
    let word = |letter: char| if letter.is_whitespace() || letter.is_control() { '_' } else { letter };
    let host: String = holder.host.chars().map(word).collect();
    let label = holder.label.replace('\0', " ");
    let text = format!("{} {} {host} {label}", mark(owner), holder.pid);
    text.trim_end().chars().take(LONGEST).collect()
}

/// The claim that a row stands for.
pub(super) fn claim(row: &LockRow, now: Micros) -> Claim {
    let (owner, holder) = ours(&row.locked_by).unwrap_or_else(|| {
        let label = format!("a client that is not leasehold (`{}`)", row.locked_by);
        (OwnerId(0), Holder { host: String::new(), pid: 0, label })
    });
    Claim {
        owner,
        seat: 0,
        weight: WHOLE,
        token: 0,
        tokens: 0,
        lease: row.lock_until.saturating_sub(row.locked_at),
        expires: row.lock_until,
        lock_delay: 0,
        since: row.locked_at.min(now),
        confirmed: true,
        holder: Arc::new(holder),
        value: Arc::default(),
    }
}

fn ours(text: &str) -> Option<(OwnerId, Holder)> {
    let (text, released) = match text.strip_prefix(RELEASED) {
        Some(text) => (text, "released, and still closed "),
        None => (text, ""),
    };
    let mut words = text.strip_prefix(OURS)?.splitn(4, ' ');
    let owner = OwnerId(u128::from_str_radix(words.next()?, 16).ok()?);
    let pid = words.next()?.parse().ok()?;
    let host = words.next().unwrap_or_default().to_owned();
    let label = format!("{released}{}", words.next().unwrap_or_default()).trim_end().to_owned();
    Some((owner, Holder { host, pid, label }))
}

/// What is known of a name from its row; `None` if it is free.
pub(super) fn view(row: Option<&LockRow>, now: Micros) -> View {
    let held = |row: &LockRow| HeldClaim {
        claim: claim(row, now),
        held_for: Duration::from_micros(now.saturating_sub(row.locked_at)),
        ends_in: Duration::from_micros(row.lock_until.saturating_sub(now)),
    };
    View {
        capacity: if row.is_some() { WHOLE } else { 0 },
        claims: row.map(held).into_iter().collect(),
        ..View::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(locked_by: &str) -> LockRow {
        LockRow { name: "x".into(), lock_until: 9, locked_at: 3, locked_by: locked_by.into() }
    }

    #[test]
    fn a_text_says_who_holds() {
        let holder = Holder { host: "my host".into(), pid: 7, label: "nightly report".into() };
        let text = text(OwnerId(0xab), &holder);
        assert_eq!(text, "leasehold 000000000000000000000000000000ab 7 my_host nightly report");
        assert!(text.starts_with(&mark(OwnerId(0xab))) && mark(OwnerId(0xab)).len() == MARK);
        let read = claim(&row(&text), 5);
        assert_eq!((read.owner, read.lease, read.since), (OwnerId(0xab), 6, 3));
        assert_eq!((read.holder.pid, read.holder.label.as_str()), (7, "nightly report"));
        let closed = claim(&row(&format!("{RELEASED}{text}")), 5).holder;
        assert_eq!(closed.label, "released, and still closed nightly report");
    }

    #[test]
    fn a_text_has_room_and_that_of_another_is_shown() {
        let holder = Holder { host: "h".repeat(300), pid: 7, label: "é".repeat(300) };
        let long = text(OwnerId(1), &holder);
        assert!(long.chars().count() + RELEASED.len() <= LONGEST_TEXT, "{long}");
        assert_eq!(claim(&row(&long), 5).owner, OwnerId(1));
        let theirs = claim(&row("app-17"), 5);
        assert!(theirs.owner == OwnerId(0) && theirs.holder.label.contains("app-17"), "{theirs:?}");
    }
}
