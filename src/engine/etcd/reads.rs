//! Reading names, and finding out which sessions live.

use super::errors::Attempt;
use super::found::{ALL, Found, Known};
use super::keys::Keys;
use super::messages::{KeyValue, Op};
use super::promises::ENGINE;
use super::record::{Stored, WaiterRow};
use super::state::Etcd;
use super::store::{Outcome, Txn, get, get_all, look_for};
use crate::claim::{OwnerId, Seat};
use crate::error::{Error, Result};
use crate::name::Name;

impl Etcd {
    /// What is read of a name. The place of the asker in its queue is read if it is known.
    pub(super) fn reads(&self, name: &Name, most: usize, own: Option<u64>) -> Vec<Op> {
        let mut reads = vec![get(self.keys.name(name)), Op::Range(get_all(self.keys.waiters(name), most))];
        reads.extend(own.map(|place| get(self.keys.waiter(name, place))));
        reads
    }

    /// What was found by [`Etcd::reads`].
    pub(super) fn found(
        &self,
        name: &Name,
        most: usize,
        owner: Option<OwnerId>,
        outcome: &mut Outcome,
    ) -> Result<Found> {
        let revision = outcome.revision;
        self.heard(revision);
        let mut answers = outcome.found.drain(..);
        let unreadable = |error| unreadable(name, error);
        let record = answers.next().and_then(|mut kvs| kvs.pop());
        let row = |kv: KeyValue| {
            let place = Keys::place_of(&kv.key).unwrap_or_default();
            Ok((place, WaiterRow::decode(&kv.value)?))
        };
        let rows = answers.next().unwrap_or_default();
        let first: Vec<_> = rows.into_iter().map(row).collect::<Result<_, _>>().map_err(unreadable)?;
        let own = answers.next().and_then(|mut kvs| kvs.pop()).map(row).transpose().map_err(unreadable)?;
        let is_own = |row: &WaiterRow| Some(row.waiter.owner) == owner;
        let own = own.filter(|(_, row)| is_own(row));
        let own = own.or_else(|| first.iter().find(|(_, row)| is_own(row)).cloned());
        let version = record.as_ref().map_or(0, |kv| kv.mod_revision);
        let stored = record.map(|kv| Stored::decode(&kv.value, kv.mod_revision)).transpose();
        let whole = most == ALL || first.len() < most;
        let known = Known { stored: stored.map_err(unreadable)?, first, whole };
        Ok(Found { revision, version, known, most, own, fresh: true })
    }

    /// Reads a name.
    pub(super) async fn read_name(&self, name: &Name, most: usize, owner: Option<OwnerId>) -> Attempt<Found> {
        let own = owner.and_then(|owner| self.asked.queued(owner)).map(|queued| queued.place);
        let txn = Txn { then: self.reads(name, most, own), ..Txn::default() };
        let mut outcome = self.store.txn(txn).await?;
        Ok(self.found(name, most, owner, &mut outcome)?)
    }

    /// Finds out which of these sessions live, where that is not known.
    pub(super) async fn look_at_seats(&self, seats: &[Seat]) -> Attempt<()> {
        // As many operations as a transaction can have.
        const MOST: usize = 100;
        let unknown: Vec<Seat> =
            seats.iter().copied().filter(|seat| self.is_alive(*seat).is_none()).collect();
        for seats in unknown.chunks(MOST) {
            let then = seats.iter().map(|seat| look_for(self.keys.session(*seat))).collect();
            let outcome = self.store.txn(Txn { then, ..Txn::default() }).await?;
            self.note_seats(seats, &outcome.found);
        }
        Ok(())
    }

    /// Notes which of these sessions were found.
    pub(super) fn note_seats(&self, seats: &[Seat], found: &[Vec<KeyValue>]) {
        for (seat, found) in seats.iter().zip(found) {
            self.seats.seen(*seat, !found.is_empty());
            if found.is_empty() {
                self.sessions.ended(*seat);
            }
        }
    }
}

pub(super) fn unreadable(name: &Name, error: postcard::Error) -> Error {
    Error::Engine {
        engine: ENGINE,
        what: format!(
            "the key of `{name}` can not be read ({error}): it is not ours, is damaged, or was written by a \
             newer version; delete it if nobody holds the name"
        ),
        source: Some(Box::new(error)),
    }
}
