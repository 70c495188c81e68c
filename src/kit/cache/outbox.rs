//! Invalidations that are part of the transaction that changes the source.
//!
//! A process may die between its commit and the invalidation, and the cache keeps the value of
//! before. So the transaction also writes down what is to be invalidated, in a cell of the
//! database: a row of its outbox. Whoever relays the outbox invalidates what it finds, and then
//! deletes the row. A row is relayed at least once; an invalidation can be repeated without harm.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::entry::LARGEST;
use super::filter_rule::Forget;
use super::handle::Cache;
use super::outbox_meter::{By, Meter, Turn};
use crate::client::Client;
use crate::clock::sleep_until;
use crate::engine::{Cells, MOST_CELLS};
use crate::error::{Error, Result};
use crate::kit::bytes::{Reader, Writer};
use crate::kit::cells;
use crate::name::{Family, LONGEST, Name};
use crate::random;

const ROW: u8 = 0x95;
/// Rows that are relayed in one go.
const PAGE: usize = 1000;
/// A row must be found by its name, which databases store whole up to this length.
const LONGEST_NAME: usize = 400;
/// What a name in a row leaves for the namespaces and the name of its cache.
const LEFT_FOR_CACHE: usize = 512;
/// [`Outbox::run`] leaves a row that can not be relayed alone for so long.
const STUCK_FOR: Duration = Duration::from_secs(10);
/// So many of those are remembered; more are read again each time.
const MOST_STUCK: usize = 100_000;
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
    meter: Meter,
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
    /// Rows that can not be relayed: they hold something else, or the cache refuses one of their
    /// names. They are still there, and the log says why.
    pub stuck: u64,
}

/// A row as it was read.
struct Row<'a> {
    cell: &'a Name,
    age: Duration,
    names: Vec<(String, u64)>,
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
        let meter = Meter::new(self.guarantees().engine, name);
        let (database, name) = (self.clone(), name.to_owned());
        Ok(Outbox { database, name, prefix, poll: Duration::from_millis(200), meter })
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
    /// [`Error::Invalid`] if there is no name, a name is longer than 3,584 bytes (of which `%`, `{`
    /// and `}` take three), or a version is out of range.
    pub fn row<N: AsRef<str>>(&self, names: impl IntoIterator<Item = (N, u64)>) -> Result<OutboxSql> {
        let names: Vec<(String, u64)> =
            names.into_iter().map(|(name, version)| (name.as_ref().to_owned(), version)).collect();
        if names.is_empty() || names.iter().any(|(_, version)| *version >= LARGEST) {
            return Err(Error::invalid("a row of an outbox has at least one name, and versions below 2^52"));
        }
        let length = |name: &str| cells::cell("", name).len() - "{}".len();
        if let Some((name, _)) = names.iter().find(|(name, _)| length(name) > LONGEST - LEFT_FOR_CACHE) {
            return Err(Error::invalid(format!(
                "a name in a row of an outbox is {} bytes long, more than the {} that are allowed; it starts \
                 with `{}`",
                length(name),
                LONGEST - LEFT_FOR_CACHE,
                name.chars().take(40).collect::<String>()
            )));
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
    /// [`Error::Invalid`] and [`Error::Engine`] if the cache refuses a name: the relay can not do
    /// it either, and counts the row as [stuck](Relayed::stuck).
    ///
    /// # Cancel safety
    ///
    /// What was not done is done by the relay.
    pub async fn deliver(&self, row: &OutboxSql, cache: &Cache) -> Result<()> {
        let names = row.names.iter().map(|(name, version)| (name.as_str(), *version));
        if let Some((_, error)) = invalidate(cache, names).await?.pop_first() {
            return Err(error);
        }
        self.delete(std::slice::from_ref(&row.cell)).await?;
        self.meter.relayed(By::Writer, 1);
        Ok(())
    }

    async fn delete(&self, cells: &[Name]) -> Result<()> {
        self.database.inner.update(cells, &Arc::new(Forget(cells.len()))).await
    }

    /// Relays what is in the outbox now: invalidates it, and deletes the rows.
    ///
    /// A row that can not be relayed is logged, [counted](Relayed::stuck) and left, and the others
    /// are relayed.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if one of the two engines does not answer. What was not relayed is
    /// still there.
    ///
    /// # Cancel safety
    ///
    /// What was not relayed is still there.
    pub async fn drain(&self, cache: &Cache) -> Result<Relayed> {
        self.pass(cache, &mut HashSet::new()).await
    }

    /// Relays every row once, except those that are known to be stuck.
    async fn pass(&self, cache: &Cache, stuck: &mut HashSet<Name>) -> Result<Relayed> {
        let mut relayed = Relayed::default();
        let client = &self.database.inner;
        let prefix = self.database.name(Family::Cell, &self.prefix)?;
        // From the last row of a page to the next, so that rows that stay do not hide the others.
        let mut after: Option<Name> = None;
        loop {
            client.check_open()?;
            let from = after.as_ref().map(Name::as_str);
            let page = client.call(client.engine.list_cells(prefix.as_str(), from, PAGE)).await?;
            let Some(last) = page.last() else {
                self.meter.waits(Duration::ZERO);
                self.meter.stuck(relayed.stuck);
                return Ok(relayed);
            };
            after = Some(last.clone());
            let rows: Vec<Name> = page.iter().filter(|row| !stuck.contains(*row)).cloned().collect();
            relayed.stuck += (page.len() - rows.len()) as u64;
            for some in rows.chunks(MOST_CELLS) {
                self.relay(some, cache, stuck, &mut relayed).await?;
            }
        }
    }

    /// Relays a few rows, together.
    async fn relay(
        &self,
        rows: &[Name],
        cache: &Cache,
        stuck: &mut HashSet<Name>,
        relayed: &mut Relayed,
    ) -> Result<()> {
        let Cells { now, cells } = self.database.inner.read_cells(rows).await?;
        let mut whole = Vec::new();
        let mut bad: Vec<(&Name, String)> = Vec::new();
        for (row, cell) in rows.iter().zip(&cells) {
            // Somebody else has relayed it.
            let Some(bytes) = &cell.value else { continue };
            let age = Duration::from_micros(now.saturating_sub(cell.changed_at));
            match decode(bytes) {
                Some(names) => whole.push(Row { cell: row, age, names }),
                None => bad.push((row, "it holds something that is not a row of an outbox".into())),
            }
        }
        self.meter.waits(whole.iter().map(|row| row.age).max().unwrap_or_default());
        // In several rows, the highest version counts; without one, it is forgotten.
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, version) in whole.iter().flat_map(|row| &row.names) {
            let merged = names.entry(name).or_insert(*version);
            *merged = if *merged == 0 || *version == 0 { 0 } else { (*version).max(*merged) };
        }
        let refused = invalidate(cache, names.into_iter()).await?;
        let mut done = Vec::new();
        for row in &whole {
            match row.names.iter().find_map(|(name, _)| refused.get(name.as_str())) {
                None => done.push(row),
                Some(error) => bad.push((row.cell, error.to_string())),
            }
        }
        if let Some((row, error)) = bad.first() {
            tracing::warn!(
                target: "leasehold", outbox = self.name, rows = bad.len(), %row, error,
                "rows of the outbox can not be relayed and are left; this is the first"
            );
        }
        relayed.stuck += bad.len() as u64;
        let room = MOST_STUCK.saturating_sub(stuck.len());
        stuck.extend(bad.into_iter().take(room).map(|(row, _)| row.clone()));
        if done.is_empty() {
            return Ok(());
        }
        let cells: Vec<Name> = done.iter().map(|row| row.cell.clone()).collect();
        self.delete(&cells).await?;
        for row in &done {
            relayed.oldest = relayed.oldest.max(row.age);
            self.meter.lagged(row.age);
        }
        relayed.rows += done.len() as u64;
        self.meter.relayed(By::Relay, done.len() as u64);
        Ok(())
    }

    /// Relays the outbox for as long as the future is kept. Start it in several processes: one of
    /// them relays, and another takes over when it ends. A row that can not be relayed is logged
    /// and left, and tried again every 10 seconds.
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
            let _turn = Turn(&self.meter);
            let (mut stuck, mut since) = (HashSet::new(), clock.now());
            while guard.is_held() {
                if clock.now().since(since) >= STUCK_FOR {
                    stuck.clear();
                    since = clock.now();
                }
                if let Err(error) = self.pass(cache, &mut stuck).await {
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

/// Invalidates names, and tells which of them the cache refuses: those that do not fit into its
/// cells' names, and those whose cell holds something else.
async fn invalidate<'a>(
    cache: &Cache,
    names: impl Iterator<Item = (&'a str, u64)>,
) -> Result<BTreeMap<&'a str, Error>> {
    let mut invalidations: FuturesUnordered<_> = names
        .map(|(name, version)| async move { (name, cache.invalidate_to(name, version).await) })
        .collect();
    let mut refused = BTreeMap::new();
    while let Some((name, invalidated)) = invalidations.next().await {
        match invalidated {
            Ok(()) => {}
            Err(error @ Error::Engine { .. }) => drop(refused.insert(name, error)),
            // And not because the client is closed.
            Err(error @ Error::Invalid { .. }) if cache.0.cell(name).is_err() => {
                refused.insert(name, error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
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
        let version = reader.short().filter(|version| *version < LARGEST)?;
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
