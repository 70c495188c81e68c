//! The keys of the engine: see docs/internals/etcd.md.

use crate::claim::Seat;
use crate::name::{Family, Name};

/// Makes the keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// With a `/` at its end.
    prefix: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: Vec<u8>) -> Keys {
        Keys { prefix }
    }

    fn under(&self, parts: &[&[u8]]) -> Vec<u8> {
        [&[self.prefix.as_slice()], parts].concat().concat()
    }

    /// The record of a name, or the value of a cell. The name is the last part, so it is written as
    /// it is: one name's key is never looked for by the start of another's.
    pub(super) fn name(&self, name: &Name) -> Vec<u8> {
        self.names(name.family(), name.as_str())
    }

    /// Where the keys of a family's names start that start with `prefix`.
    pub(super) fn names(&self, family: Family, prefix: &str) -> Vec<u8> {
        self.under(&[b"n/", letter(family), b"/", prefix.as_bytes()])
    }

    /// The name that a key is for.
    pub(super) fn name_of(&self, family: Family, key: &[u8]) -> Option<Name> {
        let text = key.strip_prefix(self.names(family, "").as_slice())?;
        Name::new(family, std::str::from_utf8(text).ok()?).ok()
    }

    /// Where the waiters of a name are. The name is escaped, so that `a` does not see the waiters
    /// of `a/b`.
    pub(super) fn waiters(&self, name: &Name) -> Vec<u8> {
        let escaped = name.as_str().replace('%', "%25").replace('/', "%2F");
        self.under(&[b"q/", letter(name.family()), b"/", escaped.as_bytes(), b"/"])
    }

    /// One waiter of a name.
    pub(super) fn waiter(&self, name: &Name, place: u64) -> Vec<u8> {
        let mut key = self.waiters(name);
        key.extend_from_slice(format!("{place:016x}").as_bytes());
        key
    }

    /// The place of a waiter.
    pub(super) fn place_of(key: &[u8]) -> Option<u64> {
        let digits = key.get(key.len().checked_sub(16)?..)?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    /// Where the sessions are.
    pub(super) fn sessions(&self) -> Vec<u8> {
        self.under(&[b"s/"])
    }

    /// The key of a session, which lives as long as its lease and is where its client gets mail.
    pub(super) fn session(&self, seat: Seat) -> Vec<u8> {
        self.under(&[b"s/", format!("{seat:016x}").as_bytes()])
    }

    /// Whose session a key is.
    pub(super) fn seat_of(&self, key: &[u8]) -> Option<Seat> {
        let digits = key.strip_prefix(self.sessions().as_slice())?;
        Seat::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

/// The first key after all that start with `prefix`.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Of all keys.
    vec![0]
}

fn letter(family: Family) -> &'static [u8] {
    match family {
        Family::Lock => b"l",
        Family::Semaphore => b"s",
        Family::Election => b"e",
        Family::Cell => b"c",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(text: &str) -> Name {
        Name::new(Family::Lock, text).unwrap()
    }

    /// These are what clusters contain: they never change.
    #[test]
    fn keys_are_pinned() {
        let keys = Keys::new(b"leasehold/".to_vec());
        assert_eq!(keys.name(&lock("stock/42")), b"leasehold/n/l/stock/42");
        assert_eq!(keys.waiter(&lock("a/b%"), 255), b"leasehold/q/l/a%2Fb%25/00000000000000ff");
        assert_eq!(keys.session(0x68c5), b"leasehold/s/00000000000068c5");
        assert_eq!(Keys::place_of(&keys.waiter(&lock("x"), 255)), Some(255));
        assert_eq!(keys.seat_of(&keys.session(0x68c5)), Some(0x68c5));
        assert_eq!(keys.name_of(Family::Lock, b"leasehold/n/l/a/b"), Some(lock("a/b")));
        assert_eq!(after(b"ab"), b"ac");
        assert_eq!(after(&[1, 255]), [2]);
    }

    #[test]
    fn the_waiters_of_one_name_are_not_those_of_another() {
        let keys = Keys::new(b"p/".to_vec());
        let (short, long) = (keys.waiters(&lock("a")), keys.waiter(&lock("a/b"), 1));
        assert!(!long.starts_with(&short));
    }
}
