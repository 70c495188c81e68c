//! What a client knows of a name: what it has read of it, and what it has written since.
//!
//! A request plans with that, and its write counts only if the row still has the version that is
//! known. So nothing goes wrong with knowledge that is old, except for time: [`Seen::now`] is the
//! time of the read. A plan that grants the asker its claim needs a time that was read after it
//! asked.

use crate::claim::{Grant, Micros};
use crate::engine::Hint;
use crate::engine::table::buffered::{Plan, QueueChange, Rest, RowChange, Snapshot};

use crate::engine::table::row::Record;

use super::askings::number_of;
use super::row::Found;

/// What is known of a name.
#[derive(Debug)]
pub(super) struct Seen {
    /// The version of the row; `None` if there is none.
    pub(super) version: Option<i64>,
    /// When it was read. All waiters that are known had asked by then.
    pub(super) now: Micros,
    pub(super) snapshot: Snapshot,
}

impl Seen {
    /// What was read; `most` waiters were asked for.
    pub(super) fn read(found: &Found, most: usize) -> Result<Seen, postcard::Error> {
        let version = found.row.as_ref().map(|row| row.version);
        Ok(Seen { version, now: found.now, snapshot: found.snapshot(most)? })
    }

    /// What is known after a plan was written, if that is worth anything.
    pub(super) fn after<T>(mut self, plan: &Plan<T>, version: i64) -> Option<Seen> {
        let RowChange::Put(record) = &plan.row else { return None };
        for (place, change) in &plan.queue {
            match change {
                QueueChange::Delete { .. } => self.snapshot.first.retain(|(other, _)| other != place),
                // It asked after the time of the read.
                QueueChange::Insert(_) => self.snapshot.rest = Rest::Unread,
                QueueChange::Touch { .. } => return None,
            }
        }
        self.snapshot.own = None;
        self.snapshot.record = Some(Record::clone(record));
        self.version = Some(version);
        Some(self)
    }

    /// False if somebody's claim has ended between the read and `now`.
    pub(super) fn holds_until(&self, now: Micros) -> bool {
        let record = self.snapshot.record.as_ref();
        record.is_some_and(|record| record.state.claims(self.now).all(|claim| claim.expires > now))
    }

    /// Tells those who are handed the name what they were granted; false if there are none.
    pub(super) fn tell_grants<T>(&self, plan: &mut Plan<T>) -> bool {
        let RowChange::Put(record) = &plan.row else { return false };
        let mut told = false;
        for notice in &mut plan.notices {
            let Hint::Wake(owner) = notice.hint else { continue };
            let waiter = self.snapshot.first.iter().find(|(_, waiter)| waiter.owner == owner);
            let claim = record.state.claims(self.now).find(|claim| claim.owner == owner && !claim.confirmed);
            if let (Some((_, waiter)), Some(claim)) = (waiter, claim) {
                let grant = Grant { token: claim.token, tokens: claim.tokens };
                notice.hint = Hint::Granted { owner, grant, round: number_of(waiter.alive_until) };
                told = true;
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::claim::{Answer, Ask, OwnerId, World};
    use crate::engine::table::buffered::{MoreWaiters, plan};
    use crate::engine::table::{Acquire, Release, Request};
    use crate::name::{Family, Name};

    const NOW: Micros = 1_000_000;

    fn acquire(owner: u128) -> Acquire<'static> {
        let ask = Ask {
            owner: OwnerId(owner),
            weight: 1,
            capacity: 1,
            lease: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            tokens: 1,
            wait: true,
            answer_within: Duration::from_secs(1),
            round: 1,
            holder: Arc::default(),
            value: Arc::default(),
            logged: false,
        };
        Acquire { ask: Cow::Owned(ask), seat: 1 }
    }

    fn planned<R: Request>(seen: &Seen, request: &R) -> Result<Plan<R::Answer>, MoreWaiters> {
        let name = Name::new(Family::Lock, "x").expect("a name");
        plan(&name, 100, &seen.snapshot, World::at(seen.now, &|_| true), request)
    }

    /// Held by 1, with 2 in the queue, as it was read.
    fn contended() -> Seen {
        let nobody = Snapshot { rest: Rest::None, ..Snapshot::default() };
        let mut seen = Seen { version: None, now: NOW, snapshot: nobody };
        let taken = planned(&seen, &acquire(1)).expect("all was read");
        seen = seen.after(&taken, 1).expect("written");
        let joined = planned(&seen, &acquire(2)).expect("all was read");
        assert!(matches!(joined.answer, Answer::Queued(_)));
        let waiters = joined.queue.iter().map(|(place, change)| match change {
            QueueChange::Insert(waiter) => (*place, waiter.clone()),
            other => panic!("{other:?}"),
        });
        let first = waiters.collect();
        seen = seen.after(&joined, 2).expect("written");
        seen.snapshot.first = first;
        seen.snapshot.rest = Rest::None;
        seen
    }

    #[test]
    fn whoever_is_handed_the_name_is_told_which_asking_was_answered() {
        let seen = contended();
        let mut released = planned(&seen, &Release { owner: OwnerId(1), used: 0 }).expect("all was read");
        assert!(seen.tell_grants(&mut released));
        let told = &released.notices[0].hint;
        let asking = number_of(seen.snapshot.first[0].1.alive_until);
        assert!(
            matches!(told, Hint::Granted { owner: OwnerId(2), round, .. } if *round == asking),
            "{told:?}"
        );
        let after = seen.after(&released, 3).expect("written");
        assert!(after.snapshot.first.is_empty() && after.version == Some(3));
    }

    #[test]
    fn nobody_is_granted_a_claim_who_asked_after_the_time_that_is_known() {
        let seen = contended();
        let release = Release { owner: OwnerId(1), used: 0 };
        assert!(planned(&seen, &release).is_ok(), "all who wait were read");
        let joined = planned(&seen, &acquire(3)).expect("all was read");
        let seen = seen.after(&joined, 3).expect("written");
        assert_eq!(planned(&seen, &release).map(|plan| plan.answer), Err(MoreWaiters));
    }

    #[test]
    fn what_has_ended_since_is_read_again() {
        let seen = contended();
        assert!(seen.holds_until(NOW + 9_999_999) && !seen.holds_until(NOW + 10_000_000));
    }
}
