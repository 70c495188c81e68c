//! Renewing many claims at once.

use std::collections::BTreeMap;

use super::claims::TRIED_FOR;
use super::database::{Attempt, Database, Failure, RowWrite};
use super::row::{self, Columns, unreadable};
use super::state::Sql;
use super::tries::Tries;
use crate::engine::{Renewal, Renewed};
use crate::error::{Error, Result};

impl<D: Database> Sql<D> {
    /// Renews many claims.
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut verdicts = vec![Renewed::Unknown; renewals.len()];
        let mut parts = vec![(0, renewals.len())];
        let (mut is_any_known, mut strange) = (false, None);
        while let Some((from, to)) = parts.pop() {
            match self.renew_together(&renewals[from..to]).await {
                Ok(renewed) => {
                    verdicts[from..to].copy_from_slice(&renewed);
                    is_any_known = true;
                }
                // It is looked for, and the others are renewed.
                Err(Failure::Row(_)) if to - from > 1 => {
                    let middle = from.midpoint(to);
                    parts.extend([(middle, to), (from, middle)]);
                }
                Err(Failure::Row(error)) => {
                    let name = &renewals[from].name;
                    tracing::warn!(target: "leasehold", %name, %error, "a claim is not renewed");
                    strange = Some(error);
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
        match strange {
            Some(error) if !is_any_known => Err(error),
            _ => Ok(verdicts),
        }
    }

    async fn renew_together(&self, renewals: &[Renewal]) -> Attempt<Vec<Renewed>> {
        // A row that another transaction has locked is tried again by the client, soon.
        const TRIES: u32 = 4;
        let mut verdicts = vec![Renewed::Unknown; renewals.len()];
        let mut pending: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for (number, renewal) in renewals.iter().enumerate() {
            pending.entry(row::key_of(&renewal.name)).or_default().push(number);
        }
        let mut tries = Tries::new(TRIED_FOR);
        for _ in 0..TRIES {
            match self.renew_pending(renewals, &mut pending, &mut verdicts).await {
                Ok(()) | Err(Failure::Conflict(_)) => {}
                Err(failure) => return Err(failure),
            }
            if pending.is_empty() {
                break;
            }
            if tries.again(Error::closed).await.is_err() {
                break;
            }
        }
        Ok(verdicts)
    }

    /// Renews the claims that are still to be renewed, as far as nobody is in the way.
    async fn renew_pending(
        &self,
        renewals: &[Renewal],
        pending: &mut BTreeMap<Vec<u8>, Vec<usize>>,
        verdicts: &mut [Renewed],
    ) -> Attempt<()> {
        let keys: Vec<Vec<u8>> = pending.keys().cloned().collect();
        let (now, rows) = self.database.read_names(&keys).await?;
        self.clock.heard(now);
        let rows: BTreeMap<Vec<u8>, row::NameRow> = rows.into_iter().collect();
        let mut writes = Vec::new();
        let mut records = BTreeMap::new();
        for key in keys {
            let numbers = &pending[&key];
            let name = &renewals[numbers[0]].name;
            let row = rows.get(&key);
            let record = row.map(row::NameRow::record).transpose();
            let unreadable = |error| Failure::Row(unreadable(self.word(), name, error));
            let record = record.map_err(unreadable)?.flatten();
            let (Some(row), Some(mut record)) = (row, record) else {
                numbers.iter().for_each(|number| verdicts[*number] = Renewed::Gone);
                pending.remove(&key);
                continue;
            };
            let mut renewed = Vec::new();
            let mut gone = Vec::new();
            for number in numbers {
                let Renewal { owner, lease, .. } = &renewals[*number];
                let held = record.state.renew(*owner, *lease, now);
                if held { &mut renewed } else { &mut gone }.push(*number);
            }
            // It was not there when the row was read, and so it never comes back.
            gone.iter().for_each(|number| verdicts[*number] = Renewed::Gone);
            if renewed.is_empty() {
                pending.remove(&key);
                continue;
            }
            let unwritable = |error| Failure::Row(self.unwritable(name, error));
            let columns = Columns::of(&record).map_err(unwritable)?;
            let version = Self::version()?;
            pending.insert(key.clone(), renewed);
            records.insert(key.clone(), (record, version));
            writes.push(RowWrite { key, expected: Some(row.version), version, columns });
        }
        if writes.is_empty() {
            return Ok(());
        }
        for key in self.database.write_names(&writes).await? {
            let Some(numbers) = pending.remove(&key) else { continue };
            for number in numbers {
                verdicts[number] = Renewed::Yes;
                // It may have been told its grant, and never asked.
                self.polled.hold(renewals[number].owner, &key);
                if let Some((record, version)) = records.get(&key) {
                    self.remember(renewals[number].owner, record, *version);
                }
            }
        }
        Ok(())
    }
}
