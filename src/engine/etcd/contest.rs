//! An election in raw mode, as somebody sees it who watches its keys.
//!
//! Nobody stores who led before. So an observer writes its own log, from the events of a watch that
//! it opened before it read who stands: etcd gives them all, in order. After a break it reads
//! again, and the log has a gap, which is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::messages::KeyValue;
use crate::claim::{Change, Holder, LOG_LENGTH};

/// Who stands, who leads, and who led.
#[derive(Debug, Default)]
pub(super) struct Contest {
    /// By create revision: the first one leads.
    stand: BTreeMap<i64, (Vec<u8>, Vec<u8>)>,
    /// What was read at this revision is known. `None` until it was.
    read_at: Option<i64>,
    /// Events that came before that.
    early: Vec<(KeyValue, bool)>,
    log: VecDeque<Change>,
    count: u64,
}

impl Contest {
    /// Takes in what was read.
    pub(super) fn read(&mut self, kvs: &[KeyValue], revision: i64) {
        self.stand = kvs.iter().map(|kv| (kv.create_revision, (kv.key.clone(), kv.value.clone()))).collect();
        self.read_at = Some(revision);
        self.note();
        for (kv, deleted) in std::mem::take(&mut self.early) {
            self.event(&kv, deleted);
        }
    }

    /// Events may have been missed: what is known is of no use until it is read again.
    pub(super) fn is_stale(&self) -> bool {
        self.read_at.is_none()
    }

    /// Takes in an event of the watch. True if there is something new to see.
    pub(super) fn event(&mut self, kv: &KeyValue, deleted: bool) -> bool {
        match self.read_at {
            None => {
                self.early.push((kv.clone(), deleted));
                return false;
            }
            Some(read_at) if kv.mod_revision <= read_at => return false,
            Some(_) => {}
        }
        if deleted {
            self.stand.retain(|_, (key, _)| *key != kv.key);
        } else {
            self.stand.insert(kv.create_revision, (kv.key.clone(), kv.value.clone()));
        }
        self.note()
    }

    /// Writes the log: a new leader, a new word of the same leader, or nobody.
    fn note(&mut self) -> bool {
        let leader = self.stand.first_key_value();
        let change = match leader {
            Some((revision, (key, value))) => Change {
                number: self.count + 1,
                token: revision.max(&0).cast_unsigned(),
                holder: Arc::new(Holder {
                    label: String::from_utf8_lossy(key).into_owned(),
                    ..Holder::default()
                }),
                value: value.as_slice().into(),
            },
            None => Change {
                number: self.count + 1,
                token: 0,
                holder: Arc::default(),
                value: Arc::from([].as_slice()),
            },
        };
        let last = self.log.back();
        let is_new = match last {
            Some(last) => (last.token, &last.value) != (change.token, &change.value),
            // Nobody has led yet, and nobody does.
            None => change.token != 0 || self.count > 0,
        };
        if is_new {
            self.count += 1;
            self.log.push_back(change);
            if self.log.len() > LOG_LENGTH {
                self.log.pop_front();
            }
        }
        is_new
    }

    /// Forgets what is known until it is read again. What was missed is a gap in the log.
    pub(super) fn miss(&mut self) {
        if self.read_at.is_some() {
            // How many changes it was is not known.
            self.count += 1;
        }
        self.log.clear();
        self.read_at = None;
        self.early.clear();
    }

    /// The changes after `seen`, and the number of the last one.
    pub(super) fn changes(&self, seen: u64) -> (Vec<Change>, u64) {
        (self.log.iter().filter(|change| change.number > seen).cloned().collect(), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str, created: i64, written: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: value.into(),
            create_revision: created,
            mod_revision: written,
            ..KeyValue::default()
        }
    }

    fn told(contest: &Contest, seen: u64) -> Vec<(u64, u64, String)> {
        let tell = |change: &Change| {
            (change.number, change.token, String::from_utf8_lossy(&change.value).into_owned())
        };
        contest.changes(seen).0.iter().map(tell).collect()
    }

    #[test]
    fn every_change_is_told_once_and_in_order() {
        let mut contest = Contest::default();
        // Between the opening of the watch and the read.
        assert!(!contest.event(&kv("x/1", "a", 5, 5), false));
        assert!(!contest.event(&kv("x/1", "b", 5, 8), false));
        contest.read(&[kv("x/1", "a", 5, 6)], 6);
        assert!(!contest.event(&kv("x/2", "c", 9, 9), false), "it only stands");
        assert!(contest.event(&kv("x/1", "", 0, 10), true));
        assert!(contest.event(&kv("x/2", "", 0, 11), true));
        let told = told(&contest, 0);
        let told: Vec<_> = told.iter().map(|(n, token, value)| (*n, *token, value.as_str())).collect();
        assert_eq!(told, [(1, 5, "a"), (2, 5, "b"), (3, 9, "c"), (4, 0, "")]);
        assert_eq!(contest.changes(3).0.len(), 1);
    }

    #[test]
    fn a_break_is_a_gap() {
        let mut contest = Contest::default();
        contest.read(&[], 1);
        assert_eq!(contest.changes(0), (Vec::new(), 0));
        contest.event(&kv("x/1", "a", 2, 2), false);
        contest.miss();
        assert!(contest.is_stale());
        contest.read(&[kv("x/1", "a", 2, 2)], 9);
        assert_eq!(told(&contest, 1), [(3, 2, "a".to_owned())], "2 was missed");
    }
}
