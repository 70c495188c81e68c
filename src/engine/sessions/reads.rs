//! Reading names, and finding out which sessions live.

use super::failure::Attempt;
use super::found::{ALL, Found, Known};
use super::names::Names;
use super::record::{Stored, WaiterRow};
use super::store::{Read, Store, Value};
use crate::claim::{OwnerId, Seat};
use crate::error::Result;
use crate::name::Name;

impl<S: Store> Names<S> {
    /// What a store has read of a name.
    pub(crate) fn found(
        &self,
        name: &Name,
        most: usize,
        owner: Option<OwnerId>,
        read: Read,
    ) -> Result<Found> {
        let Read { number, now, record, rows, own } = read;
        let row = |(place, bytes): (u64, Vec<u8>)| Ok((place, WaiterRow::decode(&bytes)?));
        let unreadable = |error| self.unreadable(name, error);
        let first: Vec<_> = rows.into_iter().map(row).collect::<Result<_, _>>().map_err(unreadable)?;
        let own = own.map(row).transpose().map_err(unreadable)?;
        let is_own = |row: &WaiterRow| Some(row.waiter.owner) == owner;
        let own = own.filter(|(_, row)| is_own(row));
        let own = own.or_else(|| first.iter().find(|(_, row)| is_own(row)).cloned());
        let stored = self.decode(name, &record)?;
        let whole = most == ALL || first.len() < most;
        let known = Known { stored, first, whole };
        Ok(Found { number, now, version: record.version, known, most, own, fresh: true })
    }

    /// The record in a value, if there is one.
    pub(crate) fn decode(&self, name: &Name, value: &Value) -> Result<Option<Stored>> {
        let Some(bytes) = &value.bytes else { return Ok(None) };
        let first_token = S::ROOM.first_of(value.version.written);
        Stored::decode(bytes, first_token).map(Some).map_err(|error| self.unreadable(name, error))
    }

    /// Reads a name.
    pub(crate) async fn read_name(&self, name: &Name, most: usize, owner: Option<OwnerId>) -> Attempt<Found> {
        let own = owner.and_then(|owner| self.asked.queued(owner)).map(|queued| queued.place);
        let read = self.store.read(name, most, own).await?;
        Ok(self.found(name, most, owner, read)?)
    }

    /// Finds out which of these sessions live, where that is not known.
    pub(crate) async fn look_at_seats(&self, seats: &[Seat]) -> Attempt<()> {
        let unknown: Vec<Seat> =
            seats.iter().copied().filter(|seat| self.is_alive(*seat).is_none()).collect();
        if !unknown.is_empty() {
            let alive = self.store.look_for(&unknown).await?;
            self.note_seats(&unknown, &alive);
        }
        Ok(())
    }

    /// Notes which of these sessions live.
    pub(crate) fn note_seats(&self, seats: &[Seat], alive: &[bool]) {
        for (seat, alive) in seats.iter().zip(alive) {
            self.seats.seen(*seat, *alive);
            if !alive {
                self.store.session_ended(*seat);
            }
        }
    }
}
