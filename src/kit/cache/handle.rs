//! The cache as its users hold it.

use std::error::Error as StdError;
use std::future::Future;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::core::Core;
use super::entry::LARGEST;
use super::figures::{Count, Figures};
use super::filter::Filter;
use super::got::{Failure, Got};
use super::hash::hash;
use super::loader::{Loaded, Loader};
use super::rule::{Answer, Ask, Step};
use super::settings::{Dice, Settings, WhenAway};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::kit::cells;

/// A cache with a name, shared by all processes. Made by [`Client::cache`].
///
/// Cheap to clone; clones share the memory of this process.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use leasehold::kit::cache::Loaded;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leasehold::connect("memory:").await?;
/// let prices = client.cache("prices", Duration::from_secs(60), |name: String| async move {
///     // Here the database is asked.
///     Ok::<_, std::io::Error>(match name.as_str() {
///         "apple" => Loaded::value(b"3 francs".to_vec()),
///         _ => Loaded::none(),
///     })
/// })?;
/// assert_eq!(prices.get("apple").await?.value(), Some(b"3 francs".as_slice()));
/// assert_eq!(prices.get("unicorn").await?.value(), None);
/// // The database was changed: from here on nobody gets the price of before.
/// prices.invalidate("apple").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cache(pub(super) Arc<Core>);

impl Client {
    /// A cache: its name, how long a value is fresh, and what loads it.
    ///
    /// The loader is given the name and tells what the source has. It must read what is committed:
    /// a replica that lags behind needs versions ([`Loaded::version`]). It runs in a task of its
    /// own, for one caller of all processes, and may run again for the same name if the process
    /// that loads it is cut off.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long, or the time out of range; [`Error::Unsupported`]
    /// if the engine has no cells.
    pub fn cache<F, L, E>(
        &self,
        name: impl AsRef<str>,
        fresh: Duration,
        load: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Result<Cache>
    where
        F: Future<Output = std::result::Result<L, E>> + Send + 'static,
        L: Into<Loaded>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.inner.needs_cells("the entries of a cache are kept in")?;
        let name = name.as_ref();
        let mut prefix = String::from("cache/");
        cells::part(name, &mut prefix);
        prefix.push('/');
        let settings = Settings::new(name, prefix, fresh);
        settings.check()?;
        let core = Core::new(self, settings, Loader::new(load), None, Dice::new()?);
        // Finds a name that is too long.
        core.cell("")?;
        core.news_cell()?;
        Ok(Cache(Arc::new(core)))
    }
}

impl Cache {
    /// The same with other settings, and nothing in its memory.
    fn with(self, change: impl FnOnce(&mut Settings)) -> Result<Cache> {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        settings.check()?;
        let (loader, filter) = (self.0.loader.clone(), self.0.filter.clone());
        Ok(Cache(Arc::new(Core::new(&self.0.client, settings, loader, filter, Dice::new()?))))
    }

    /// How long after it was fresh a value is given to callers while one loads it again, or while
    /// loads fail: as long as it is fresh, by default. With zero, callers wait.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is longer than [`LONGEST_LIFE`](super::LONGEST_LIFE).
    pub fn stale_for(self, time: Duration) -> Result<Cache> {
        self.with(|settings| settings.stale = time)
    }

    /// How long it is remembered that the source has nothing of a name: as long as a value, and at
    /// most 10 seconds, by default.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is longer than [`LONGEST_LIFE`](super::LONGEST_LIFE).
    pub fn none_for(self, time: Duration) -> Result<Cache> {
        self.with(|settings| settings.none = time)
    }

    /// By how many hundredths lifetimes differ by chance, up or down, so that what was stored
    /// together does not end together: 10 by default.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for more than 90.
    pub fn jitter(self, percent: u32) -> Result<Cache> {
        self.with(|settings| settings.jitter = percent)
    }

    /// How early a value is loaded again before it is not fresh any more, as a multiple of the time
    /// that its load took: 1 by default. The more often a value is read, the earlier; a value that
    /// is read once is not loaded early. With 0 nothing is.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn early(self, times: f32) -> Result<Cache> {
        // The conversion is at most 20,000 times, and 0 for what is not a number.
        self.with(|settings| settings.early = (times.clamp(0.0, 20.0) * 1000.0) as u32)
    }

    /// How long a value is given from the memory of this process without asking the engine: not at
    /// all by default.
    ///
    /// For so long after an invalidation another process may still give what was before. Usually it
    /// is told at once; this is the bound if it is not.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn local_for(self, time: Duration) -> Result<Cache> {
        self.with(|settings| settings.local = time)
    }

    /// How many bytes the memory of this process may take: 64 MiB by default. It is also what is
    /// remembered for when the engine is away.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn local_bytes(self, bytes: u64) -> Result<Cache> {
        self.with(|settings| settings.local_bytes = bytes)
    }

    /// The lease of the right to load: 5 seconds by default. A loader that has not renewed for so
    /// long counts as dead. It is renewed while the load runs, so a load may take longer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is shorter than 30 ms.
    pub fn lease(self, lease: Duration) -> Result<Cache> {
        self.with(|settings| settings.lease = lease)
    }

    /// How long a load may take, and how long it may wait for its turn: 30 seconds each by default.
    /// Longer counts as failed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn load_limit(self, limit: Duration) -> Result<Cache> {
        self.with(|settings| settings.load_limit = limit)
    }

    /// How long a caller waits for a load, its own or that of another: 10 seconds by default. The
    /// load goes on after that.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn wait_limit(self, limit: Duration) -> Result<Cache> {
        self.with(|settings| settings.wait_limit = limit)
    }

    /// How long the engine has to answer a caller: a second by default. After that it gets what
    /// [`WhenAway`] says, and after some such calls at once.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn deadline(self, deadline: Duration) -> Result<Cache> {
        self.with(|settings| settings.deadline = deadline)
    }

    /// How many loads run at once in this process: 64 by default. The others wait.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn loads_at_once(self, loads: usize) -> Result<Cache> {
        self.with(|settings| settings.loads_at_once = loads)
    }

    /// How long nobody loads a name whose load has failed: 250 ms by default. After five failures
    /// in a row this process pauses with all names, for longer each time.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is longer than [`LONGEST_LIFE`](super::LONGEST_LIFE).
    pub fn pause(self, pause: Duration) -> Result<Cache> {
        self.with(|settings| settings.pause = pause)
    }

    /// How long the version of [`Cache::invalidate_version`] is remembered: 10 minutes by default.
    /// It must be longer than any source lags behind.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is longer than [`LONGEST_LIFE`](super::LONGEST_LIFE).
    pub fn versions_kept_for(self, time: Duration) -> Result<Cache> {
        self.with(|settings| settings.version_kept = time)
    }

    /// What callers get while the engine does not answer: [`WhenAway::Load`] by default.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn when_away(self, what: WhenAway) -> Result<Cache> {
        self.with(|settings| settings.when_away = what)
    }

    /// Refuses names that the filter says do not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client can not draw random numbers.
    pub fn filtered_by(self, filter: &Filter) -> Result<Cache> {
        let (settings, loader) = (self.0.settings.clone(), self.0.loader.clone());
        let filter = Some(filter.clone());
        Ok(Cache(Arc::new(Core::new(&self.0.client, settings, loader, filter, Dice::new()?))))
    }

    /// The value of a name: from memory, from the shared level, or loaded.
    ///
    /// [`Got::origin`] says from where, and so how old it may be.
    ///
    /// # Errors
    ///
    /// [`Failure`] says why there is nothing: a load that failed, a pause after one, a limit, or
    /// the engine. [`Failure::Behind`]: what was loaded is older than what was invalidated or is
    /// there, or has no version where one is known.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line of those who wait. A load that it has begun goes on for
    /// the others.
    pub async fn get(&self, name: impl AsRef<str>) -> std::result::Result<Got, Failure> {
        self.0.get(name.as_ref(), 0).await
    }

    /// The same, but of no earlier version of the source than this: for whoever has just written
    /// that version. Only for sources with versions.
    ///
    /// It never gives an earlier one. While the engine is away, what this process remembers is
    /// given only if it is new enough; otherwise [`WhenAway::Load`] loads, and the others fail. A
    /// filter is not asked, because whoever knows of a version knows that the name exists. To read
    /// that a name was deleted, the source must give a version to "none" ([`Loaded::version`]).
    ///
    /// # Errors
    ///
    /// As [`Cache::get`], and [`Failure::Behind`] if the source has only earlier versions, or
    /// nothing to which it gives a version.
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::kit::cache::{Failure, Loaded};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::connect("memory:").await?;
    /// let prices = client.cache("prices", Duration::from_secs(60), |_| async {
    ///     Ok::<_, std::io::Error>(Loaded::value(b"3 francs".to_vec()).version(7))
    /// })?;
    /// assert_eq!(prices.get_at_least("apple", 7).await?.version(), 7);
    /// let behind = prices.get_at_least("apple", 8).await;
    /// assert!(matches!(behind, Err(Failure::Behind { wanted: 8 })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_at_least(
        &self,
        name: impl AsRef<str>,
        version: u64,
    ) -> std::result::Result<Got, Failure> {
        self.0.get(name.as_ref(), version.min(LARGEST)).await
    }

    /// The values of several names, in their order. Each name that is not in the memory of this
    /// process is a call of its own; all calls are under way at the same time, so it takes about as
    /// long as one. What is missing is loaded at the same time too, within the limits of loads.
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::get`].
    pub async fn get_many<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Vec<std::result::Result<Got, Failure>> {
        let asked = names.into_iter().enumerate();
        let mut asked: FuturesUnordered<_> =
            asked.map(|(number, name)| async move { (number, self.get(name).await) }).collect();
        let mut answers = Vec::with_capacity(asked.len());
        while let Some(answer) = asked.next().await {
            answers.push(answer);
        }
        answers.sort_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, got)| got).collect()
    }

    /// Forgets the value of a name: to be called after the source was changed. The version of an
    /// earlier [`Cache::invalidate_version`] is still remembered.
    ///
    /// When it returns, nobody gets a value of before from the shared level, and what is being
    /// loaded is not kept. Other processes' memories are told; if they do not hear it they forget
    /// within [`Cache::local_for`].
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it was forgotten or not, and the value
    /// of before may be there until the end of its life. Try again; or let an [`Outbox`](super::Outbox)
    /// see to it.
    ///
    /// # Cancel safety
    ///
    /// It was forgotten or not; it can be done again.
    pub async fn invalidate(&self, name: impl AsRef<str>) -> Result<()> {
        self.invalidate_to(name.as_ref(), 0).await
    }

    /// The same for a source with versions: forgets the value unless it has at least this version,
    /// and keeps no earlier one from now on, whoever loads it.
    ///
    /// "None" without a version counts as earlier, for [`Cache::versions_kept_for`]. So after a
    /// deletion invalidate with the version of the deletion, and let the loader give one that is as
    /// high to "none" ([`Loaded::none`]). If it gives none, callers are told [`Failure::Behind`]
    /// until the version is forgotten.
    ///
    /// It can be repeated, and come late, without harm: a newer value stays.
    ///
    /// # Errors
    ///
    /// As [`Cache::invalidate`]; [`Error::Invalid`] for version 0 and from 2^52 on.
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::invalidate`].
    pub async fn invalidate_version(&self, name: impl AsRef<str>, version: u64) -> Result<()> {
        if version == 0 || version >= LARGEST {
            return Err(Error::invalid(format!(
                "{version} is not the version of a source; versions are from 1 to 2^52 - 1"
            )));
        }
        self.invalidate_to(name.as_ref(), version).await
    }

    pub(super) async fn invalidate_to(&self, name: &str, version: u64) -> Result<()> {
        let (core, hash) = (&self.0, hash(name));
        let cell = core.cell(name)?;
        // What this process has asked for until now is not kept in its memory.
        core.local.invalidate(hash);
        let rule = Arc::new(Step(Ask::Invalidate { version, kept: core.settings.version_kept }));
        let answer = core.client.inner.update(slice::from_ref(&cell), &rule).await;
        // Nor what it has asked for before the engine had heard of it.
        core.local.invalidate(hash);
        core.note(&answer);
        if answer? == Answer::Foreign {
            return Err(core.foreign(&cell));
        }
        core.counters.add(Count::Invalidations);
        core.announce(hash);
        Ok(())
    }

    /// What this cache has done in this process.
    pub fn figures(&self) -> Figures {
        self.0.counters.figures()
    }
}
