//! Which asking of a waiter its row tells of.
//!
//! A waiter that is handed a name is told its grant, and counts from when it last asked. So it must
//! be sure that the grant came after that: its row may have been read before. A row has a number
//! for the asking that wrote it ([`number_of`]); the hint tells that number, and [`Askings`] knows
//! the number of the last asking of each waiter of this client.

use std::sync::{Mutex, PoisonError};

use crate::claim::{Micros, OwnerId, OwnerMap};
use crate::engine::Hint;

/// More than this is not remembered: those who are forgotten ask again.
const MOST: usize = 1 << 16;

/// The number of an asking: each one writes another time until which the waiter is believed to
/// live.
pub(super) fn number_of(alive_until: Micros) -> u32 {
    // Two askings of one owner are never an hour apart.
    (alive_until & Micros::from(u32::MAX)) as u32
}

/// The last asking of each waiter.
#[derive(Debug, Default)]
pub(super) struct Askings(Mutex<OwnerMap<Asking>>);

#[derive(Clone, Copy, Debug)]
struct Asking {
    number: u32,
    /// How many times the owner has asked.
    round: u32,
}

impl Askings {
    /// Notes an asking, before its row is written.
    pub(super) fn note(&self, owner: OwnerId, alive_until: Micros, round: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(owner, Asking { number: number_of(alive_until), round });
    }

    /// It does not wait any more.
    pub(super) fn forget(&self, owner: OwnerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner);
    }

    /// A hint in which a grant has the number of an asking, for a client that counts rounds. If it
    /// was not the last asking that was answered, the owner asks again.
    pub(super) fn resolve(&self, hint: Hint) -> Hint {
        let Hint::Granted { owner, grant, round: number } = hint else { return hint };
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(&owner) {
            Some(asking) if asking.number == number => Hint::Granted { owner, grant, round: asking.round },
            _ => Hint::Wake(owner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Grant;

    #[test]
    fn a_grant_that_answers_an_earlier_asking_only_wakes() {
        let askings = Askings::default();
        let owner = OwnerId(7);
        let grant = Grant { token: 1, tokens: 1 };
        let told =
            |alive_until| askings.resolve(Hint::Granted { owner, grant, round: number_of(alive_until) });
        assert_eq!(told(5_000_000), Hint::Wake(owner), "it has not asked");
        askings.note(owner, 5_000_000, 1);
        assert_eq!(told(5_000_000), Hint::Granted { owner, grant, round: 1 });
        askings.note(owner, 6_000_000, 2);
        assert_eq!(told(5_000_000), Hint::Wake(owner), "it has asked again since");
        assert_eq!(told(6_000_000), Hint::Granted { owner, grant, round: 2 });
        askings.forget(owner);
        assert_eq!(told(6_000_000), Hint::Wake(owner));
    }
}
