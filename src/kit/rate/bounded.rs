//! What a process remembers of keys: never of more than so many, whoever sends them.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;

/// A full table is searched for entries that are over at most this often.
const SWEEP: Duration = Duration::from_millis(50);

/// Values by key. Each is there until its time is over, and there are never more than `most`.
#[derive(Debug)]
pub(super) struct Bounded<V> {
    most: usize,
    entries: HashMap<Box<str>, (Moment, V)>,
    sweep_at: Moment,
}

impl<V> Bounded<V> {
    pub(super) fn new(most: usize) -> Bounded<V> {
        Bounded { most, entries: HashMap::new(), sweep_at: Moment::from_micros(0) }
    }

    /// The value, if its time is not over.
    pub(super) fn get(&mut self, key: &str, now: Moment) -> Option<(Moment, &mut V)> {
        self.entries.get_mut(key).filter(|(until, _)| *until > now).map(|(until, value)| (*until, value))
    }

    /// Remembers a value. False if there is no room: the value is not remembered.
    pub(super) fn put(&mut self, key: &str, value: V, now: Moment, until: Moment) -> bool {
        if let Some(entry) = self.entries.get_mut(key) {
            *entry = (until, value);
            return true;
        }
        if self.entries.len() >= self.most && now >= self.sweep_at {
            self.sweep_at = now + SWEEP;
            self.entries.retain(|_, (until, _)| *until > now);
        }
        let room = self.entries.len() < self.most;
        if room {
            self.entries.insert(key.into(), (until, value));
        }
        room
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_keys_takes_no_more_room() {
        let at = Moment::from_micros;
        let mut bounded = Bounded::new(100);
        for number in 0..10_000u64 {
            let kept = bounded.put(&format!("k{number}"), number, at(number), at(1_000_000));
            assert_eq!(kept, number < 100);
        }
        assert_eq!(bounded.len(), 100);
        assert_eq!(bounded.get("k7", at(5)), Some((at(1_000_000), &mut 7)));
        assert_eq!(bounded.get("k7", at(1_000_000)), None);
        // Those that are over make room.
        assert!(bounded.put("later", 1, at(1_000_000), at(2_000_000)));
        assert_eq!(bounded.len(), 1);
        bounded.remove("later");
        assert_eq!(bounded.len(), 0);
    }
}
