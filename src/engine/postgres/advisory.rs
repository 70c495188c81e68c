//! Locks of sessions: `pg_advisory_lock`.
//!
//! A name that is a number is that number's lock, and a name of two numbers (`12,34`) the lock of
//! the two. Any other name is the lock of a 64-bit hash of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::Digest as _;
use tokio::sync::watch;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::connection::{Abort, Server};
use super::promises::{ADVISORY, ENGINE};
use super::statements::NOW;
use super::url::Place;
use crate::claim::{Holder, Micros};
use crate::engine::Guarantees;
use crate::engine::advisory::{Advisory, Locks, Mode, Seen, Session, connect};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::random;

/// Settings of a session that holds a lock or waits for one. No time limit of the role must end
/// it. A server that hears nothing of a client asks after a minute, and frees its lock after a
/// minute and a half.
const SETTINGS: &str = "select set_config(s.name, s.setting, false) from (values \
     ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_session_timeout', '0'), \
     ('tcp_keepalives_idle', '60'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3')) \
     as s (name, setting) join pg_settings as p on p.name = s.name";

/// A server that waits for a lock looks every second whether its client is still there. Not every
/// system can do that; then a waiter that has gone is noticed when it is its turn.
const NOTICE_ABSENCE: &str = "set client_connection_check_interval = '1s'";

/// Connects, and makes sure that sessions are our own.
pub(super) async fn open(place: Place) -> Result<Advisory<AdvisoryLocks>> {
    let most = place.connections;
    let locks = AdvisoryLocks { server: Arc::new(Server::new(place)?) };
    let [one, two] = [connect(&locks).await?, connect(&locks).await?];
    let mark = random::number()?.to_string();
    let marks: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&mark, Type::TEXT)];
    one.query("select set_config('leasehold.session', $1, false)", &marks).await?;
    let seen = two.query("select coalesce(current_setting('leasehold.session', true), '')", &[]).await?;
    let seen: Option<String> = seen.first().map(|row| row.get(0));
    if locks.server.is_behind_pooler() || seen == Some(mark) {
        return Err(Error::Unsupported {
            engine: ENGINE,
            what: format!(
                "there is a pooler at `{}`, as PgBouncer, and locks of sessions need sessions of their own; \
                 connect to the server itself, or leave out `+advisory`",
                locks.server.names.server
            ),
        });
    }
    Advisory::new(locks, vec![one, two], most)
}

/// A server, and how it is reached.
#[derive(Debug)]
pub(crate) struct AdvisoryLocks {
    server: Arc<Server>,
}

/// What an advisory lock is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    One(i64),
    Two(i32, i32),
}

impl Key {
    /// The key of a name. What it is never changes: other programs know it, too.
    fn of(name: &str) -> Key {
        if let Some(number) = number(name) {
            return Key::One(number);
        }
        let two = name.split_once(',').and_then(|(one, two)| Some((number(one)?, number(two)?)));
        two.map_or_else(
            || {
                let mut first = [0; 8];
                first.copy_from_slice(&sha2::Sha256::digest(name.as_bytes())[..8]);
                Key::One(i64::from_be_bytes(first))
            },
            |(one, two)| Key::Two(one, two),
        )
    }

    /// What `pg_locks` shows of it: `classid`, `objid` and `objsubid`.
    fn columns(self) -> (i64, i64, i16) {
        match self {
            Key::One(key) => {
                let bits = key.cast_unsigned();
                ((bits >> 32).cast_signed(), (bits & u64::from(u32::MAX)).cast_signed(), 1)
            }
            Key::Two(one, two) => (i64::from(one.cast_unsigned()), i64::from(two.cast_unsigned()), 2),
        }
    }
}

/// A number that is written as the server would write it.
fn number<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // In quotes: the smallest number is no number with a minus before it.
            Key::One(key) => write!(f, "'{key}'::bigint"),
            Key::Two(one, two) => write!(f, "'{one}'::integer, '{two}'::integer"),
        }
    }
}

impl Locks for AdvisoryLocks {
    type Key = Key;
    type Session = AdvisorySession;

    fn guarantees(&self) -> Guarantees {
        ADVISORY
    }

    fn server(&self) -> &str {
        &self.server.names.server
    }

    fn key(&self, name: &Name) -> Key {
        Key::of(name.as_str())
    }

    async fn connect(&self) -> Result<AdvisorySession> {
        let server = Arc::clone(&self.server);
        let (client, driver, _) = server.connect().await?;
        let (end, ended) = watch::channel(());
        let task = tokio::spawn(async move {
            driver.run(|_| {}).await;
            // Dropped, it tells the session.
            drop(end);
        });
        let task = Abort(Some(task.abort_handle()));
        let mut session = AdvisorySession { server, client, ended, number: 0, _task: task };
        session.query(SETTINGS, &[]).await?;
        session.client.batch_execute(NOTICE_ABSENCE).await.ok();
        let rows = session.query("select pg_backend_pid(), pg_is_in_recovery()", &[]).await?;
        let (pid, standby): (i32, bool) = rows.first().map_or((0, false), |row| (row.get(0), row.get(1)));
        if standby {
            return Err(Error::Unavailable {
                engine: ENGINE,
                what: format!("`{}` is a standby; connect to the primary", self.server.names.server),
                source: None,
            });
        }
        session.number = u64::from(pid.unsigned_abs());
        Ok(session)
    }
}

/// A session. Dropped, the connection is closed.
pub(crate) struct AdvisorySession {
    server: Arc<Server>,
    client: Client,
    ended: watch::Receiver<()>,
    number: u64,
    _task: Abort,
}

impl AdvisorySession {
    async fn query(
        &self,
        statement: &str,
        parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        let rows = self.client.query_typed(statement, parameters).await;
        rows.map_err(|error| self.server.names.statement(error).into_error())
    }

    /// A statement whose answer is one truth.
    async fn is_true(&self, statement: &str) -> Result<bool> {
        let rows = self.query(statement, &[]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn suffix(mode: Mode) -> &'static str {
    match mode {
        Mode::Whole => "",
        Mode::Shared => "_shared",
    }
}

impl Session for AdvisorySession {
    type Key = Key;

    // The driver reads all the time, and so sees the end.
    const LOOK_EVERY: Option<Duration> = None;

    async fn take(&mut self, key: &Key, mode: Mode, wait: bool) -> Result<Option<Micros>> {
        let suffix = suffix(mode);
        // The time is read after the lock was taken: columns are worked out from left to right.
        let statement = match wait {
            true => format!("select pg_advisory_lock{suffix}({key}) is not null, {NOW}"),
            false => format!("select pg_try_advisory_lock{suffix}({key}), {NOW}"),
        };
        let rows = self.query(&statement, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (taken, now): (bool, i64) = (row.get(0), row.get(1));
        Ok((taken || wait).then_some(now.max(0).cast_unsigned()))
    }

    async fn give_back(&mut self, key: &Key, mode: Mode) -> Result<bool> {
        self.is_true(&format!("select pg_advisory_unlock{}({key})", suffix(mode))).await
    }

    async fn holds(&mut self, _: &Key) -> Result<bool> {
        self.is_true(&format!("select pg_backend_pid() = {}", self.number)).await
    }

    async fn share(&mut self, key: &Key) -> Result<bool> {
        // A session is never in its own way.
        let statement = format!(
            "select pg_try_advisory_lock_shared({key}) and pg_backend_pid() = {} and pg_advisory_unlock({key})",
            self.number
        );
        self.is_true(&statement).await
    }

    async fn look(&mut self, key: &Key) -> Result<Vec<Seen>> {
        let (class, object, kind) = key.columns();
        let statement = format!(
            "select l.pid, l.mode = 'ExclusiveLock', not l.granted, coalesce(a.application_name, ''), \
             coalesce(host(a.client_addr), 'local') from pg_locks as l \
             left join pg_stat_activity as a on a.pid = l.pid \
             where l.locktype = 'advisory' and l.classid::bigint = {class} and l.objid::bigint = {object} \
             and l.objsubid = {kind} \
             and l.database = (select oid from pg_database where datname = current_database()) \
             order by l.granted desc, a.query_start"
        );
        let rows = self.query(&statement, &[]).await?;
        let seen = |row: Row| {
            let pid = row.get::<_, i32>(0).unsigned_abs();
            Seen {
                number: u64::from(pid),
                mode: if row.get(1) { Mode::Whole } else { Mode::Shared },
                waits: row.get(2),
                holder: Holder { host: row.get(4), pid, label: row.get(3) },
            }
        };
        Ok(rows.into_iter().map(seen).collect())
    }

    async fn end_session(&mut self, _: &Key, number: u64) -> Result<()> {
        self.query(&format!("select pg_terminate_backend({number})"), &[]).await.map(drop)
    }

    async fn ended(&mut self) {
        // Nothing is ever sent.
        self.ended.changed().await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs know these keys: they never change.
    #[test]
    fn the_keys_of_names_are_pinned() {
        assert_eq!(Key::of("42"), Key::One(42));
        assert_eq!(Key::of("-9223372036854775808"), Key::One(i64::MIN));
        assert_eq!(Key::of("12,-34"), Key::Two(12, -34));
        assert_eq!(Key::of("stock/42"), Key::One(HASH_OF_STOCK));
        // Written in another way they are names, not numbers.
        for text in ["042", "+42", "4 2", "12, 34", "12,34,56", "2147483648,1", "9223372036854775808", ""] {
            assert!(matches!(Key::of(text), Key::One(key) if key.unsigned_abs() > 1 << 32), "{text}");
        }
    }

    const HASH_OF_STOCK: i64 = -3_261_840_518_839_529_631;

    #[test]
    fn a_key_is_found_among_the_locks() {
        assert_eq!(Key::One(5).columns(), (0, 5, 1));
        assert_eq!(Key::One(-1).columns(), (i64::from(u32::MAX), i64::from(u32::MAX), 1));
        assert_eq!(Key::Two(-1, 7).columns(), (i64::from(u32::MAX), 7, 2));
    }
}
