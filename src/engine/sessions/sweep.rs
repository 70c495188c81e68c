//! Clears away what nobody may ask for again: cells that have expired, names whose holders and
//! waiters are all gone, and elections that nobody has taken part in for a day.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;

use super::claims::How;
use super::failure::Attempt;
use super::names::Names;
use super::record::{Stored, wall_clock};
use super::store::{Page, Store, Value, ValueWrite};
use crate::claim::{Micros, State};
use crate::engine::table::Sweep;
use crate::engine::table::cell::StoredCell;
use crate::engine::table::row::decode;
use crate::name::{Family, Name};
use crate::random;

/// A client sweeps soon after it has connected and then about so often, and looks at so many names
/// each time.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(30);
const NAMES: usize = 500;
/// A cell is kept for so long after its end: the clocks of clients differ.
const KEPT: Duration = Duration::from_secs(60);

/// Sweeps now and then, until the client is gone.
pub(crate) async fn run<S: Store>(names: Weak<Names<S>>) {
    let mut places = Family::ALL.map(|family| (family, None));
    let mut pause = FIRST;
    loop {
        // Up to half as long again, so that clients do not all sweep at once.
        let share = random::number().unwrap_or(0) % 1024;
        sleep(pause + pause.mul_f64(share as f64 / 2048.0)).await;
        pause = EVERY;
        for (family, after) in &mut places {
            let Some(names) = names.upgrade() else { return };
            match names.sweep(*family, after.as_deref()).await {
                Ok(next) => *after = next,
                // It is done later.
                Err(failure) => tracing::debug!(target: "leasehold", ?failure, "not swept"),
            }
        }
    }
}

impl<S: Store> Names<S> {
    /// Sweeps a few names of a family, and says after which to go on; none at the end.
    async fn sweep(&self, family: Family, after: Option<&str>) -> Attempt<Option<String>> {
        let Page { names, more_after, .. } = self.store.sweep_page(family, after, NAMES).await?;
        for (name, value) in names {
            match family {
                Family::Cell => self.sweep_cell(&name, &value).await?,
                Family::Lock | Family::Semaphore | Family::Election => self.sweep_name(&name, &value).await?,
            }
        }
        Ok(more_after)
    }

    async fn sweep_cell(&self, name: &Name, value: &Value) -> Attempt<()> {
        let kept = u64::try_from(KEPT.as_micros()).unwrap_or(u64::MAX);
        let Some(bytes) = &value.bytes else { return Ok(()) };
        // What can not be read is not ours to delete.
        let over = |cell: StoredCell| cell.expires.saturating_add(kept) < wall_clock();
        if decode::<StoredCell>(bytes).is_ok_and(over) {
            self.store.write_values(&[(name, value.version, Some(ValueWrite::Delete))]).await?;
        }
        Ok(())
    }

    async fn sweep_name(&self, name: &Name, value: &Value) -> Attempt<()> {
        let Some(bytes) = &value.bytes else { return Ok(()) };
        let Ok(stored) = Stored::decode(bytes, S::ROOM.first_of(value.version.written)) else {
            return Ok(());
        };
        let state: &State = &stored.record.state;
        // The log of an election that nobody has taken part in for long. The rules have no clock
        // and can not tell. The next record starts above every token of this one.
        let next = S::ROOM.first_of(value.version.written + 1);
        if stored.is_forgotten(wall_clock()) && state.retire(Micros::MAX).is_some_and(|last| last < next) {
            self.store.write_values(&[(name, value.version, Some(ValueWrite::Delete))]).await?;
            return Ok(());
        }
        let mut seats: Vec<_> = state.kept_claims().iter().map(|claim| claim.seat).collect();
        seats.dedup();
        self.look_at_seats(&seats).await?;
        let has_dead = seats.iter().any(|seat| self.is_alive(*seat) == Some(false));
        // Nobody who lives waits behind those: they would have asked.
        if has_dead || (seats.is_empty() && state.waiting() > 0) {
            let key = self.store.key(name);
            let _passed = self.gates.pass(&key).await;
            self.on_name(name, &Sweep, How::default()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::table::row::Record;

    #[test]
    fn an_election_is_forgotten_after_a_day_without_candidates() {
        let name = Name::new(Family::Election, "x").unwrap();
        let stored = Stored::new(Record::new(&name, 64, 0), Vec::new());
        let day = 24 * 60 * 60 * 1_000_000;
        let now = wall_clock();
        assert!(!stored.is_forgotten(now) && !stored.is_forgotten(now + day - 1_000_000));
        assert!(stored.is_forgotten(now + day + 1));
    }
}
