//! Invalidations that are part of the transaction that changes the source.
//!
//! A process may die between its commit and the invalidation, and the cache keeps the value of
//! before. So the transaction also writes down what is to be invalidated, in a cell of the
//! database: a row of its outbox. Whoever relays the outbox invalidates what it finds, and then
//! deletes the row. A row is relayed at least once; an invalidation can be repeated without harm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::entry::LARGEST;
use super::filter_rule::Forget;
use super::handle::Cache;
use crate::client::Client;
use crate::clock::sleep_until;
use crate::engine::{Cells, MOST_CELLS};
use crate::error::{Error, Result};
use crate::kit::bytes::{Reader, Writer};
use crate::kit::cells;
use crate::name::{Family, Name};
use crate::random;

const ROW: u8 = 0x95;
/// Rows that are relayed in one go.
const PAGE: usize = 1000;
/// A row must be found by its name, which databases store whole up to this length.
const LONGEST_NAME: usize = 400;
/// A row that nobody relays is kept for so long.
const KEPT: Duration = super::settings::LONGEST_LIFE;

/// The invalidations that transactions of a database have written down. Made by
/// [`Client::outbox`].
///
/// # Examples
///
/// With `tokio-postgres`; docs/cache.md has the rest:
///
/// ```ignore
/// let row = outbox.row([("apple", 0)])?;
/// let transaction = database.transaction().await?;
/// transaction.execute("update prices set price = 4 where name = 'apple'", &[]).await?;
/// let parameters = [&row.key as _, &row.lives as _, &row.value as _];
/// transaction.execute(&row.insert, &parameters).await?;
/// transaction.commit().await?;
/// // At once; if this process dies before it, or the engine is away, the relay does it.
/// outbox.deliver(&row, &prices).await?;
/// ```
#[derive(Clone, Debug)]
pub struct Outbox {
    database: Client,
    name: String,
    /// What the names of its rows start with.
    prefix: String,
    poll: Duration,
}

/// A statement that writes down what is to be invalidated, as part of the caller's transaction.
///
/// It takes three parameters, in this order: `key`, `lives` and `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxSql {
    /// The statement.
    pub insert: String,
    /// The first parameter: the key of the row.
    pub key: Vec<u8>,
    /// The second parameter: how long it is kept, in microseconds.
    pub lives: i64,
    /// The third parameter: what is to be invalidated.
    pub value: Vec<u8>,
    cell: Name,
    names: Vec<(String, u64)>,
}

/// What a relay has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relayed {
    /// Rows that were relayed.
    pub rows: u64,
    /// How old the oldest of them was.
    pub oldest: Duration,
}

impl Client {
    /// An outbox in this client's database, for a cache of any engine. For `postgres:` and
    /// `mysql:`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the engine is no SQL database; [`Error::Invalid`] if the name is
    /// too long.
    pub fn outbox(&self, name: impl AsRef<str>) -> Result<Outbox> {
        let name = name.as_ref();
        let prefix = cells::cell("cache-outbox/", name) + "/";
        let whole = self.name(Family::Cell, &prefix)?;
        if self.inner.engine.add_sql(&whole).is_none() {
            return Err(Error::Unsupported {
                engine: self.guarantees().engine,
                what: "is no SQL database, so an invalidation can not be part of a transaction; use \
                       `postgres:` or `mysql:`"
                    .into(),
            });
        }
        if whole.as_str().len() + 32 > LONGEST_NAME {
            return Err(Error::invalid(format!(
                "the name of the outbox `{name}` is too long; {} bytes with its namespace are the most",
                LONGEST_NAME - 32 - "cache-outbox/{}/".len()
            )));
        }
        let (database, name) = (self.clone(), name.to_owned());
        Ok(Outbox { database, name, prefix, poll: Duration::from_millis(200) })
    }
}

impl Outbox {
    /// How often [`Outbox::run`] looks for rows: every 200 ms by default.
    #[must_use]
    pub fn poll(mut self, time: Duration) -> Outbox {
        self.poll = time;
        self
    }

    /// The statement that writes down what is to be invalidated: names, and their versions for
    /// [`Cache::invalidate_version`] or 0 for [`Cache::invalidate`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there is no name, or a version is out of range.
    pub fn row<N: AsRef<str>>(&self, names: impl IntoIterator<Item = (N, u64)>) -> Result<OutboxSql> {
        let names: Vec<(String, u64)> =
            names.into_iter().map(|(name, version)| (name.as_ref().to_owned(), version)).collect();
        if names.is_empty() || names.iter().any(|(_, version)| *version >= LARGEST) {
            return Err(Error::invalid("a row of an outbox has at least one name, and versions below 2^52"));
        }
        let (high, low) = (random::number()?, random::number()?);
        let cell = self.database.name(Family::Cell, &format!("{}{high:016x}{low:016x}", self.prefix))?;
        let sql = self.database.inner.engine.add_sql(&cell).ok_or_else(|| Error::Unsupported {
            engine: self.database.guarantees().engine,
            what: "is no SQL database".into(),
        })?;
        let lives = i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX / 4);
        let value = encode(&names);
        Ok(OutboxSql { insert: sql.insert, key: sql.key, lives, value, cell, names })
    }

    /// Invalidates what a row says, after its transaction was committed, and deletes the row.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if one of the two engines does not answer: the relay does it then.
    ///
    /// # Cancel safety
    ///
    /// What was not done is done by the relay.
    pub async fn deliver(&self, row: &OutboxSql, cache: &Cache) -> Result<()> {
        invalidate(cache, row.names.iter().map(|(name, version)| (name.as_str(), *version))).await?;
        self.delete(std::slice::from_ref(&row.cell)).await
    }

    async fn delete(&self, cells: &[Name]) -> Result<()> {
        self.database.inner.update(cells, &Arc::new(Forget(cells.len()))).await
    }

    /// Relays what is in the outbox now: invalidates it, and deletes the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if one of the two engines does not answer; [`Error::Engine`] if a row
    /// can not be read. What was not relayed is still there.
    ///
    /// # Cancel safety
    ///
    /// What was not relayed is still there.
    pub async fn drain(&self, cache: &Cache) -> Result<Relayed> {
        let mut relayed = Relayed::default();
        let client = &self.database.inner;
        let prefix = self.database.name(Family::Cell, &self.prefix)?;
        loop {
            client.check_open()?;
            let rows = client.call(client.engine.list_cells(prefix.as_str(), None, PAGE)).await?;
            if rows.is_empty() {
                return Ok(relayed);
            }
            for some in rows.chunks(MOST_CELLS) {
                let Cells { now, cells } = client.read_cells(some).await?;
                // In several rows, the highest version counts; without one, it is forgotten.
                let mut names: BTreeMap<String, u64> = BTreeMap::new();
                let mut count = 0;
                for (row, cell) in some.iter().zip(&cells) {
                    // Somebody else has relayed it.
                    let Some(bytes) = &cell.value else { continue };
                    let listed = decode(bytes).ok_or_else(|| Error::Engine {
                        engine: self.database.guarantees().engine,
                        what: format!("the cell `{row}` holds something that is not a row of an outbox"),
                        source: None,
                    })?;
                    for (name, version) in listed {
                        let merged = names.entry(name).or_insert(version);
                        *merged = if *merged == 0 || version == 0 { 0 } else { version.max(*merged) };
                    }
                    count += 1;
                    let age = Duration::from_micros(now.saturating_sub(cell.changed_at));
                    relayed.oldest = relayed.oldest.max(age);
                }
                invalidate(cache, names.iter().map(|(name, version)| (name.as_str(), *version))).await?;
                self.delete(some).await?;
                relayed.rows += count;
            }
        }
    }

    /// Relays the outbox for as long as the future is kept. Start it in several processes: one of
    /// them relays, and another takes over when it ends.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when a client is closed. Engines that are away are waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the relay. What was not relayed is still there.
    pub async fn run(&self, cache: &Cache) -> Result<()> {
        let clock = &*self.database.inner.clock;
        let turn = self.database.mutex(format!("cache-outbox/{}", self.name))?;
        loop {
            let guard = match turn.lock().await {
                Ok(guard) => guard,
                Err(error) => {
                    self.bear(error)?;
                    sleep_until(clock, clock.now() + self.poll).await;
                    continue;
                }
            };
            while guard.is_held() {
                if let Err(error) = self.drain(cache).await {
                    self.bear(error)?;
                }
                sleep_until(clock, clock.now() + self.poll).await;
            }
        }
    }

    /// Says what failed, and goes on if that may help.
    fn bear(&self, error: Error) -> Result<()> {
        if let Error::Invalid { .. } | Error::Unsupported { .. } = error {
            return Err(error);
        }
        tracing::warn!(target: "leasehold", outbox = self.name, %error, "the outbox was not relayed");
        Ok(())
    }
}

async fn invalidate<'a>(cache: &Cache, names: impl Iterator<Item = (&'a str, u64)>) -> Result<()> {
    let mut invalidations: FuturesUnordered<_> =
        names.map(|(name, version)| cache.invalidate_to(name, version)).collect();
    while let Some(invalidated) = invalidations.next().await {
        invalidated?;
    }
    Ok(())
}

fn encode(names: &[(String, u64)]) -> Vec<u8> {
    let write = |mut writer: Writer, (name, version): &(String, u64)| {
        writer.short(*version);
        writer.short(name.len() as u64);
        writer.bytes(name.as_bytes())
    };
    names.iter().fold(Writer::new(ROW), write).done()
}

fn decode(bytes: &[u8]) -> Option<Vec<(String, u64)>> {
    let mut reader = Reader::new(bytes, ROW)?;
    let mut names = Vec::new();
    while !reader.is_empty() {
        let version = reader.short()?;
        let length = usize::try_from(reader.short()?).ok()?;
        let name = String::from_utf8(reader.bytes(length)?.to_vec()).ok()?;
        names.push((name, version));
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let names = [("apple".to_owned(), 0), ("é".to_owned(), (1 << 52) - 1), (String::new(), 7)];
        let bytes = encode(&names);
        assert_eq!(decode(&bytes), Some(names.to_vec()));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(b"x"), None);
    }
}
