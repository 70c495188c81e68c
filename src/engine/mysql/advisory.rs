//! Locks of sessions: `GET_LOCK`.
//!
//! The name is the lock's name, folded where it is longer than the 64 characters that a server
//! takes. Locks belong to the whole server, not to a database.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Conn, Error as Driver, Row};

use super::errors::is_no_session;
use super::packet::{Answer, run};
use super::promises::{ADVISORY, ENGINE};
use super::requirements;
use super::rows::last;
use super::url::Place;
use crate::claim::{Holder, Micros};
use crate::engine::Guarantees;
use crate::engine::advisory::{Advisory, Locks, Mode, Seen, Session, connect};
use crate::error::{Error, Result};
use crate::name::{Name, fold};

/// The longest name of a lock that every server takes.
const LONGEST: usize = 64;
/// Longer than anybody waits. Servers differ in what they make of a negative number.
const FOR_EVER: u32 = 365 * 24 * 60 * 60;

/// Connects.
pub(super) async fn open(place: Place) -> Result<Advisory<AdvisoryLocks>> {
    let most = place.connections;
    let locks = AdvisoryLocks { place: Arc::new(place) };
    let first = connect(&locks).await?;
    Advisory::new(locks, vec![first], most)
}

/// A server, and how it is reached.
pub(crate) struct AdvisoryLocks {
    place: Arc<Place>,
}

impl std::fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdvisoryLocks").field("server", &self.place.blame.server).finish()
    }
}

/// The name of a lock, as it stands in a statement: its bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    fn of(name: &str) -> Key {
        let mut text = String::from("convert(0x");
        for byte in fold(name, LONGEST).bytes() {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push_str(" using utf8mb4)");
        Key(text)
    }
}

impl Locks for AdvisoryLocks {
    type Key = Key;
    type Session = AdvisorySession;

    fn guarantees(&self) -> Guarantees {
        ADVISORY
    }

    fn server(&self) -> &str {
        &self.place.blame.server
    }

    fn key(&self, name: &Name) -> Key {
        Key::of(name.as_str())
    }

    async fn connect(&self) -> Result<AdvisorySession> {
        let blame = &self.place.blame;
        let mut connection =
            Conn::new(self.place.options.clone()).await.map_err(|error| blame.unreachable(error))?;
        requirements::prepare(&mut connection, blame, false).await?;
        let mut session = AdvisorySession { connection, waits: false, place: Arc::clone(&self.place) };
        // No limit of the server's must end a wait.
        let unlimited = "set session /*M! max_statement_time = 0, */ /*!80000 max_execution_time = 0, */ \
                         autocommit = 1";
        session.run(unlimited).await?;
        Ok(session)
    }
}

/// A session. Dropped, the connection is closed.
pub(crate) struct AdvisorySession {
    connection: Conn,
    /// It waits for a lock in the server.
    waits: bool,
    place: Arc<Place>,
}

impl Drop for AdvisorySession {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        // The driver would wait for the answer before it closes the connection. The server frees
        // what a killed session holds, whether it has been granted meanwhile or not.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (options, kill) = (self.place.options.clone(), format!("kill {}", self.connection.id()));
            runtime.spawn(async move {
                let mut other = Conn::new(options).await?;
                run(&mut other, &kill).await?;
                other.disconnect().await
            });
        }
    }
}

impl AdvisorySession {
    async fn run(&mut self, text: &str) -> Result<Vec<Answer>> {
        let answers: Result<Vec<Answer>, Driver> = run(&mut self.connection, text).await;
        answers.map_err(|error| self.place.blame.error(error))
    }

    /// The number that a statement gives; `None` for null.
    async fn number_of(&mut self, text: &str) -> Result<Option<i64>> {
        let rows = last(self.run(text).await?);
        Ok(rows.first().and_then(first))
    }
}

fn first(row: &Row) -> Option<i64> {
    row.get_opt::<Option<i64>, usize>(0).and_then(Result::ok).flatten()
}

impl Session for AdvisorySession {
    type Key = Key;

    // The driver does not read while nothing is asked, and so does not see the end.
    const LOOK_EVERY: Option<Duration> = Some(Duration::from_millis(500));

    async fn take(&mut self, Key(name): &Key, _: Mode, wait: bool) -> Result<Option<Micros>> {
        let time = if wait { FOR_EVER } else { 0 };
        // In a statement of its own: the time is that of the beginning of a statement.
        let now = self.place.blame.tables.fill("select :now");
        self.waits = wait;
        let answers = self.run(&format!("select get_lock({name}, {time}); {now}")).await?;
        self.waits = false;
        let mut numbers = answers.iter().map(|answer| answer.rows.first().and_then(first));
        let (taken, now) = (numbers.next().flatten(), numbers.next().flatten());
        match taken {
            Some(1) => Ok(Some(now.unwrap_or(0).max(0).cast_unsigned())),
            Some(0) if !wait => Ok(None),
            _ => Err(Error::Unavailable {
                engine: ENGINE,
                what: format!("`{}` gave up waiting for a lock", self.place.blame.server),
                source: None,
            }),
        }
    }

    async fn give_back(&mut self, Key(name): &Key, _: Mode) -> Result<bool> {
        Ok(self.number_of(&format!("select release_lock({name})")).await? == Some(1))
    }

    async fn holds(&mut self, Key(name): &Key) -> Result<bool> {
        Ok(self.number_of(&format!("select is_used_lock({name}) = connection_id()")).await? == Some(1))
    }

    async fn share(&mut self, _: &Key) -> Result<bool> {
        Ok(false)
    }

    async fn look(&mut self, Key(name): &Key) -> Result<Vec<Seen>> {
        // Of those who wait, the server shows what they have asked.
        let statement = format!(
            "select id, id <> coalesce(is_used_lock({name}), 0), user, host from information_schema.processlist \
             where id = is_used_lock({name}) or (state = 'User lock' and locate('get_lock({name},', info) > 0 \
             and id <> connection_id()) order by 2, time desc"
        );
        let rows = last(self.run(&statement).await?);
        let seen = |row: Row| {
            let (number, waits, user, host): (u64, i64, String, String) =
                mysql_async::from_row_opt(row).ok()?;
            let pid = u32::try_from(number).unwrap_or(u32::MAX);
            let holder = Holder { host, pid, label: user };
            Some(Seen { number, mode: Mode::Whole, waits: waits == 1, holder })
        };
        let mut all: Vec<Seen> = rows.into_iter().filter_map(seen).collect();
        // The two statements do not see the same moment, so the second one alone says who holds.
        let number = self.number_of(&format!("select is_used_lock({name})")).await?;
        let holder = number.and_then(|number| u64::try_from(number).ok());
        all.retain(|seen| seen.waits || Some(seen.number) == holder);
        all.iter_mut().for_each(|seen| seen.waits = Some(seen.number) != holder);
        if let Some(number) = holder.filter(|number| !all.iter().any(|seen| seen.number == *number)) {
            // Sessions of other users are shown to those only who have the right to see them.
            let pid = u32::try_from(number).unwrap_or(u32::MAX);
            let holder = Holder { host: "the server".into(), pid, label: "a session of another user".into() };
            all.push(Seen { number, mode: Mode::Whole, waits: false, holder });
        }
        Ok(all)
    }

    async fn end_session(&mut self, Key(name): &Key, number: u64) -> Result<()> {
        // The lock may have been handed on since it was looked at; then the session stays.
        let kill = format!("kill if(is_used_lock({name}) = {number}, {number}, 0)");
        match run(&mut self.connection, &kill).await {
            Err(error) if is_no_session(&error) => Ok(()),
            ended => ended.map(drop).map_err(|error| self.place.blame.error(error)),
        }
    }

    async fn ended(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs know these names: they never change.
    #[test]
    fn the_locks_of_names_are_pinned() {
        assert_eq!(Key::of("jobs").0, "convert(0x6a6f6273 using utf8mb4)");
        let long = Key::of(&"x".repeat(65)).0;
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let folded = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx~9537c5fdf120482f7d58d25e9ed583f5~";
        assert_eq!(long, format!("convert(0x{} using utf8mb4)", hex(folded)));
    }
}
