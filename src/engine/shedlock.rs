//! Locks in ShedLock's table: `name`, `lock_until`, `locked_at`, `locked_by`.
//!
//! For names that are shared with programs that use ShedLock with a JDBC table. The lease is their
//! `lockAtMostFor`, and `at_least` of the URL their `lockAtLeastFor`. All times are the server's,
//! as with `usingDbTime()`. A row says who took the name last. Ours carry an owner, which is one
//! acquisition, so a late release or renewal of ours never touches the claim of another.
//!
//! What is not promised: ShedLock knows a holder by its host, so two of its processes on one host
//! may end each other's locks. There is no fencing token: the number that a guard carries is the
//! server's time. There is no queue: a waiter looks again now and then, and whoever looks first
//! gets the name. Semaphores, read-write locks, elections, cells and lock delays are refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use self::row::{LONGEST_TEXT, LockRow, MARK};
use self::row::{claim, mark, text, view};
pub(crate) use self::table::{LockTable, Seen, Take};
use crate::claim::{Alteration, Answer, Ask, Claim, Grant, Micros, OwnerId, Pause, Released, WHOLE};
use crate::engine::sql::{Attempt, Failure, ServerClock, jitter};
use crate::engine::{
    Cells, Connection, Engine, Guarantees, Hints, Renewal, Renewed, Reply, Swap, Swapped, View, Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name, fold};

mod row;
mod table;

/// A waiter looks again after this long at first, and this long later.
const FIRST_POLL: Duration = Duration::from_millis(25);
const LONGEST_POLL: Duration = Duration::from_millis(250);

/// One client of a table.
#[derive(Debug)]
pub(crate) struct Shedlock<T> {
    table: T,
    at_least: Duration,
    clock: ServerClock,
    last_token: AtomicU64,
}

impl<T: LockTable> Shedlock<T> {
    /// A client of a table that is there. `now` is the time at its server.
    pub(crate) fn new(table: T, at_least: Duration, now: Micros) -> Shedlock<T> {
        let clock = ServerClock::default();
        clock.heard(now);
        Shedlock { table, at_least, clock, last_token: AtomicU64::new(0) }
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported { engine: self.table.guarantees().engine, what: what.to_owned() }
    }

    fn refused<'a, R: Send + 'a>(&self, what: &str) -> Reply<'a, R> {
        Box::pin(std::future::ready(Err(self.unsupported(what))))
    }

    /// Refuses what can not be promised.
    fn check(&self, name: &Name, ask: &Ask) -> Result<()> {
        if name.family() != Family::Lock || ask.logged || ask.capacity != WHOLE {
            return Err(self.unsupported("has locks in a table of ShedLock, and nothing else"));
        }
        if ask.weight != WHOLE {
            return Err(self.unsupported("has no readers in a table of ShedLock; use a mutex"));
        }
        if !ask.lock_delay.is_zero() {
            return Err(self.unsupported(
                "can not keep a name closed after an expiry in a table of ShedLock (lock delay); leave it out",
            ));
        }
        if ask.lease < self.at_least {
            return Err(Error::invalid(format!(
                "a lease of {:?} is shorter than `at_least` of the URL, {:?}; make it as long",
                ask.lease, self.at_least
            )));
        }
        Ok(())
    }

    /// What a row calls a name: as it is where the column has room for it.
    fn key(&self, name: &Name) -> Result<String> {
        if name.as_str().contains('\0') {
            return Err(Error::invalid("a name in a table of ShedLock can not have a zero byte"));
        }
        let (text, longest) = (name.as_str(), self.table.longest_name());
        let fits = text.chars().count() <= longest;
        Ok(if fits { text.to_owned() } else { fold(text, longest).into_owned() })
    }

    /// A number above all that this client has given, and the server's time if that is later.
    fn token(&self, now: Micros) -> u64 {
        let above = |last: u64| (last + 1).max(now);
        let last =
            self.last_token.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(above(last)));
        above(last.unwrap_or_else(|last| last))
    }

    /// Asks, and asks again if the connection broke on the way: asking twice is harmless.
    async fn acquire(&self, name: &Name, ask: &Ask) -> Result<Answer> {
        self.check(name, ask)?;
        let key = self.key(name)?;
        let tried = match self.take(&key, ask).await {
            Err(Failure::Failed(error)) if error.is_retryable() => self.take(&key, ask).await,
            tried => tried,
        };
        let longest = jitter((FIRST_POLL * ask.round.max(1)).min(LONGEST_POLL));
        let at_most = match tried {
            Ok(Ok(now)) => {
                return Ok(Answer::Granted(Grant { token: self.token(now), tokens: 1 }));
            }
            Ok(Err(left)) => left.min(longest),
            // A transaction has the row locked, so nobody can take the name now.
            Err(Failure::Conflict(_)) => longest,
            Err(failure) => return Err(failure.into_error()),
        };
        let pause = Pause { at_most };
        Ok(if ask.wait { Answer::Queued(pause) } else { Answer::Busy(pause) })
    }

    /// Takes a name: when that was, or for how long it is closed.
    async fn take(&self, key: &str, ask: &Ask) -> Attempt<std::result::Result<Micros, Duration>> {
        let owner = mark(ask.owner);
        if ask.round > 1 {
            // A statement that would take it writes to the row even if it does not.
            let Seen { now, row } = self.read(key).await?;
            if let Some(row) = row.filter(|row| row.lock_until > now && !row.locked_by.starts_with(&owner)) {
                return Ok(Err(Duration::from_micros(row.lock_until - now)));
            }
        }
        let take = Take {
            name: key,
            owner: &owner,
            locked_by: &text(ask.owner, &ask.holder),
            lease: ask.lease,
            not_after: self.clock.after(ask.answer_within),
        };
        match self.table.take(&take).await? {
            Some(now) => {
                self.clock.heard(now);
                Ok(Ok(now))
            }
            // The server's clock may have been set; the next try knows the time.
            None => {
                let Seen { now, row } = self.read(key).await?;
                let left = row.map_or(0, |row| row.lock_until.saturating_sub(now));
                Ok(Err(Duration::from_micros(left)))
            }
        }
    }

    async fn read(&self, key: &str) -> Attempt<Seen> {
        let seen = self.table.read(key).await?;
        self.clock.heard(seen.now);
        Ok(seen)
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed> {
        let key = self.key(&renewal.name)?;
        match self.table.extend(&key, &mark(renewal.owner), renewal.lease).await {
            Ok(true) => Ok(Renewed::Yes),
            Ok(false) => Ok(Renewed::Gone),
            Err(Failure::Conflict(_)) => Ok(Renewed::Unknown),
            Err(failure) => Err(failure.into_error()),
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let all = futures_util::future::join_all(renewals.iter().map(|one| self.renew_one(one))).await;
        if all.iter().all(Result::is_err) {
            return all.into_iter().collect();
        }
        Ok(all.into_iter().map(|one| one.unwrap_or(Renewed::Unknown)).collect())
    }

    async fn release(&self, name: &Name, owner: OwnerId) -> Result<Released> {
        let key = self.key(name)?;
        let given = self.table.give_back(&key, &mark(owner), self.at_least).await;
        Ok(if given.map_err(Failure::into_error)? { Released::Claim } else { Released::Nothing })
    }

    async fn look(&self, name: &Name) -> Result<View> {
        if name.family() != Family::Lock {
            return Ok(View::default());
        }
        let Seen { now, row } = self.read(&self.key(name)?).await.map_err(Failure::into_error)?;
        Ok(view(row.filter(|row| row.lock_until > now).as_ref(), now))
    }

    async fn list(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        if family != Family::Lock {
            return Ok(Vec::new());
        }
        let listed = self.table.list(prefix, after, limit).await;
        let (now, rows) = listed.map_err(Failure::into_error)?;
        let named = |row: LockRow| Ok((Name::new(family, row.name.clone())?, view(Some(&row), now)));
        rows.into_iter().map(named).collect()
    }

    async fn end(&self, name: &Name) -> Result<Vec<Claim>> {
        let key = self.key(name)?;
        let Seen { now, row } = self.read(&key).await.map_err(Failure::into_error)?;
        let Some(row) = row.filter(|row| row.lock_until > now) else { return Ok(Vec::new()) };
        let ended = self.table.end(&key, &row.locked_by).await.map_err(Failure::into_error)?;
        Ok(if ended { vec![claim(&row, now)] } else { Vec::new() })
    }
}

const NO_CELLS: &str = "has no cells in a table of ShedLock; leave out `shedlock`";

impl<T: LockTable> Engine for Shedlock<T> {
    fn guarantees(&self) -> Guarantees {
        self.table.guarantees()
    }

    fn listen(&self, hints: Hints) {
        self.table.listen(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(self.acquire(name, ask))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.renew(renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(self.release(name, owner))
    }

    fn alter<'a>(&'a self, _: &'a Name, _: OwnerId, _: Alteration) -> Reply<'a, Answer> {
        self.refused("has neither readers nor elections in a table of ShedLock")
    }

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        self.refused("has no semaphores in a table of ShedLock")
    }

    fn look<'a>(&'a self, name: &'a Name, _: u64) -> Reply<'a, View> {
        Box::pin(self.look(name))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(self.list(family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.end(name))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        self.refused(NO_CELLS)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        self.refused(NO_CELLS)
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
        self.refused(NO_CELLS)
    }

    fn watch<'a>(&'a self, _: &'a Name, watching: Watching) -> Reply<'a, ()> {
        match watching {
            Watching::On => self.refused("can not watch names in a table of ShedLock"),
            Watching::Off => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn connection(&self, name: &Name) -> Connection {
        self.table.connection(name.as_str())
    }

    fn close(&self) -> Reply<'_, ()> {
        self.table.close();
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<String> {
        Some(self.table.trouble())
    }
}
