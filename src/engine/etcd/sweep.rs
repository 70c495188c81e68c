//! Clears away what nobody may ask for again: cells that have expired, names whose holders and
//! waiters are all gone, and elections that nobody has taken part in for a day.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;

use super::claims::How;
use super::errors::Attempt;
use super::messages::RangeRequest;
use super::record::{Stored, tokens_of, wall_clock};
use super::state::Etcd;
use super::store::{Txn, delete, get_all, unchanged};
use crate::claim::{Micros, State};
use crate::engine::table::Sweep;
use crate::engine::table::cell::StoredCell;
use crate::engine::table::row::decode;
use crate::name::Family;
use crate::random;

/// A client sweeps soon after it has connected and then about so often, and looks at so many keys
/// each time.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(30);
const KEYS: usize = 500;
/// A cell is kept for so long after its end: the clocks of clients differ.
const KEPT: Duration = Duration::from_secs(60);

/// Sweeps now and then, until the client is gone.
pub(super) async fn run(etcd: Weak<Etcd>) {
    let mut places = Family::ALL.map(|family| (family, Vec::new()));
    let mut pause = FIRST;
    loop {
        // Up to half as long again, so that clients do not all sweep at once.
        let share = random::number().unwrap_or(0) % 1024;
        sleep(pause + pause.mul_f64(share as f64 / 2048.0)).await;
        pause = EVERY;
        for (family, from) in &mut places {
            let Some(etcd) = etcd.upgrade() else { return };
            match etcd.sweep(*family, from, wall_clock()).await {
                Ok(next) => *from = next,
                // It is done later.
                Err(failure) => tracing::debug!(target: "leasehold", ?failure, "not swept"),
            }
        }
    }
}

impl Etcd {
    /// Sweeps a few keys of a family, and says where to go on; nowhere at the end.
    pub(super) async fn sweep(&self, family: Family, from: &[u8], now: u64) -> Attempt<Vec<u8>> {
        let all = get_all(self.keys.names(family, ""), KEYS);
        let range = RangeRequest { key: all.key.clone().max(from.to_vec()), ..all };
        let (_, kvs) = self.store.range(range).await?;
        let next = match kvs.last() {
            Some(last) if kvs.len() == KEYS => [last.key.as_slice(), &[0]].concat(),
            _ => Vec::new(),
        };
        for kv in kvs {
            if family == Family::Cell {
                let kept = u64::try_from(KEPT.as_micros()).unwrap_or(u64::MAX);
                // What can not be read is not ours to delete.
                let over =
                    decode::<StoredCell>(&kv.value).is_ok_and(|cell| cell.expires.saturating_add(kept) < now);
                if over {
                    let conditions = vec![unchanged(kv.key.clone(), kv.mod_revision)];
                    self.store.txn(Txn { conditions, then: vec![delete(kv.key)], ..Txn::default() }).await?;
                }
                continue;
            }
            let Some(name) = self.keys.name_of(family, &kv.key) else { continue };
            let Ok(stored) = Stored::decode(&kv.value, kv.mod_revision) else { continue };
            let state: &State = &stored.record.state;
            // The log of an election that nobody has taken part in for long. The rules count in
            // revisions and can not tell. The next record starts above every token of this one.
            if stored.is_forgotten(now)
                && state.retire(Micros::MAX).is_some_and(|last| last < tokens_of(kv.mod_revision + 1))
            {
                let conditions = vec![unchanged(kv.key.clone(), kv.mod_revision)];
                self.store.txn(Txn { conditions, then: vec![delete(kv.key)], ..Txn::default() }).await?;
                continue;
            }
            let mut seats: Vec<_> = state.kept_claims().iter().map(|claim| claim.seat).collect();
            seats.dedup();
            self.look_at_seats(&seats).await?;
            let has_dead = seats.iter().any(|seat| self.is_alive(*seat) == Some(false));
            // Nobody who lives waits behind those: they would have asked.
            if has_dead || (seats.is_empty() && state.waiting() > 0) {
                let key = self.keys.name(&name);
                let _passed = self.gates.pass(&key).await;
                self.on_name(&name, &Sweep, How::default()).await?;
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::table::row::Record;
    use crate::name::Name;

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
