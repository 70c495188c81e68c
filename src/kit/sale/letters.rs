//! Reservations for people: all of them, and those that were given up.

use super::answer::{Reservation, Standing};
use super::bucket::{Bucket, ReservationId};
use super::sell::Sale;
use super::settle::Event;
use crate::claim::Micros;
use crate::engine::{Cells, MOST_CELLS};
use crate::error::Result;

impl Sale {
    /// The reservations that workers have given up. For people: it reads all reservations.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn dead_letters(&self) -> Result<Vec<Reservation>> {
        let mut letters = self.reservations().await?;
        letters.retain(|reservation| reservation.standing == Standing::Dead);
        Ok(letters)
    }

    /// All reservations that are remembered. For people, and for those who compare them with a
    /// database: it reads the buckets one after the other, so what changes meanwhile may be seen or
    /// not.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn reservations(&self) -> Result<Vec<Reservation>> {
        let mut found = Vec::new();
        let Some(layout) = self.look_up_layout().await? else { return Ok(found) };
        let buckets: Vec<u16> = (0..layout.buckets).collect();
        for shard in 0..layout.shards {
            for part in buckets.chunks(MOST_CELLS) {
                let (now, read) = self.read_buckets(shard, layout.epoch, part).await?;
                let records = read.iter().flat_map(|bucket| &bucket.records);
                found.extend(records.map(|record| Reservation::new(record, layout.epoch, now)));
            }
        }
        Ok(found)
    }

    /// Gives a reservation that was given up to the workers again, with the whole time to pay.
    /// The answer is what has become of it; `None` if there is no such reservation.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer: it can be asked again.
    ///
    /// # Cancel safety
    ///
    /// It was done or not. It can be asked again.
    pub async fn retry(&self, id: ReservationId) -> Result<Option<Standing>> {
        Ok(self.happen(id, Event::Retry).await?.map(|(state, _)| state.into()))
    }

    pub(super) async fn read_buckets(
        &self,
        shard: u8,
        epoch: u32,
        buckets: &[u16],
    ) -> Result<(Micros, Vec<Bucket>)> {
        let names =
            buckets.iter().map(|bucket| self.bucket_cell(shard, *bucket)).collect::<Result<Vec<_>>>()?;
        let Cells { now, cells } = self.client.inner.read_cells(&names).await?;
        let mut read = Vec::with_capacity(cells.len());
        for cell in cells {
            let bytes = cell.value.as_deref();
            match Bucket::of(epoch, bytes) {
                Some(bucket) => read.push(bucket),
                // It was rebuilt since: nothing of this epoch is left.
                None if bytes.and_then(Bucket::epoch).is_some_and(|found| found > epoch) => {
                    read.push(Bucket { epoch, records: Vec::new() });
                }
                None => return Err(self.foreign()),
            }
        }
        Ok((now, read))
    }
}
