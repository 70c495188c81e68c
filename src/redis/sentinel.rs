//! The sentinels of a server that can fail over to another.
//!
//! Every sentinel is asked, over a connection of its own, so that one that hangs holds up nobody.
//! Of what they say the newest counts: a sentinel that is cut off from the others goes on to name
//! the old primary, and the number of its configuration tells. Those that do not answer have no
//! say, so that a single one will do.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, FromRedisValue as _, RedisResult, Value};
use tokio::sync::mpsc;

use super::address::like;
use super::errors::REDIS;
use super::replicas::Replicas;
use crate::error::Result;

/// How long a sentinel has to answer.
const LIMIT: Duration = Duration::from_millis(800);
/// How long the others have when one has answered.
const STRAGGLERS: Duration = Duration::from_millis(200);
/// How often they are asked whether the server is still the primary.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The sentinels, and what they watch.
pub(crate) struct Sentinels {
    sentinels: Vec<Arc<Sentinel>>,
    /// What they call it.
    primary: Arc<str>,
    /// How to talk to the server itself; its address is theirs to say.
    node: ConnectionInfo,
    /// The number of the configuration that is followed.
    followed: AtomicU64,
}

struct Sentinel {
    info: ConnectionInfo,
    /// In use while it is asked.
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    /// What it said when it was last asked, if it did.
    said: Mutex<Option<Said>>,
    closed: AtomicBool,
}

/// What a sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    /// Counts configurations: every fail-over has a number above those before.
    configuration: u64,
    host: String,
    port: u16,
    /// Whether they are there or not.
    replicas: u32,
}

/// What is said counts for as long as the same sentinel says nothing else.
fn newest<'a>(said: impl DoubleEndedIterator<Item = &'a Said>) -> Option<&'a Said> {
    // The first of those that are equal.
    said.rev().max_by_key(|said| said.configuration)
}

/// True if a server that was found under the configuration `followed` is to be left for another:
/// there is a newer configuration, or most of the sentinels agree and none objects.
fn left(said: &[Said], sentinels: usize, followed: u64, is_followed: impl Fn(&Said) -> bool) -> bool {
    let Some(newest) = newest(said.iter()) else { return false };
    if is_followed(newest) {
        return false;
    }
    let agree = said.iter().all(|said| (&said.host, said.port) == (&newest.host, newest.port));
    newest.configuration > followed || (agree && said.len() > sentinels / 2)
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.sentinels.first().map(|first| first.info.addr().to_string()).unwrap_or_default();
        write!(f, "{} of {first}", self.primary)
    }
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<ConnectionInfo>, primary: String, node: ConnectionInfo) -> Sentinels {
        let sentinel = |info| {
            Arc::new(Sentinel {
                info,
                connection: tokio::sync::Mutex::default(),
                said: Mutex::default(),
                closed: AtomicBool::new(false),
            })
        };
        Sentinels {
            sentinels: sentinels.into_iter().map(sentinel).collect(),
            primary: primary.into(),
            node,
            followed: AtomicU64::new(0),
        }
    }

    /// How to talk to the server itself.
    pub(crate) fn node(&self) -> &ConnectionInfo {
        &self.node
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (Vec<&ConnectionInfo>, &str) {
        (self.sentinels.iter().map(|sentinel| &sentinel.info).collect(), &self.primary)
    }

    /// The address at which the server is by the newest word.
    pub(crate) async fn find(&self) -> Result<ConnectionInfo> {
        let mut answers = self.ask();
        let (mut heard, mut unknown, mut failure) = (false, false, None);
        loop {
            let patience = if heard { STRAGGLERS } else { 2 * LIMIT };
            match tokio::time::timeout(patience, answers.recv()).await {
                Ok(Some(Ok(true))) => heard = true,
                Ok(Some(Ok(false))) => unknown = true,
                Ok(Some(Err(error))) => failure = Some(error),
                Ok(None) | Err(_) => break,
            }
        }
        let said = self.said();
        let Some(newest) = newest(said.iter()) else {
            if unknown {
                let what =
                    format!("the sentinels know no primary `{}`; check its name in the URL", self.primary);
                return Err(REDIS.unfit(what));
            }
            return Err(failure.unwrap_or_else(|| {
                REDIS.unavailable(format!("no sentinel of `{self}` has answered in {LIMIT:?}"))
            }));
        };
        self.followed.store(newest.configuration, Ordering::Release);
        Ok(like(&self.node, &newest.host, newest.port))
    }

    /// Waits until the server is somewhere else, and counts the replicas meanwhile.
    pub(crate) async fn moved_from(&self, addr: &ConnectionAddr, replicas: &Replicas) {
        let is_there = |said: &Said| like(&self.node, &said.host, said.port).addr() == addr;
        loop {
            tokio::time::sleep(FOLLOW_EVERY).await;
            let mut answers = self.ask();
            // Whoever has news is heard at once. The others have until they are asked again.
            while let Ok(Some(_)) = tokio::time::timeout(STRAGGLERS, answers.recv()).await {
                let said = self.said();
                let followed = self.followed.load(Ordering::Acquire);
                if left(&said, self.sentinels.len(), followed, is_there) {
                    return;
                }
                if let Some(newest) = newest(said.iter()).filter(|newest| is_there(newest)) {
                    self.followed.fetch_max(newest.configuration, Ordering::AcqRel);
                    replicas.heard(self.replicas());
                }
            }
        }
    }

    /// How many replicas the server has, by those who know best.
    pub(crate) fn replicas(&self) -> u32 {
        let said = self.said();
        let configuration = newest(said.iter()).map(|newest| newest.configuration);
        let best = said.iter().filter(|said| Some(said.configuration) == configuration);
        best.map(|said| said.replicas).max().unwrap_or(0)
    }

    fn said(&self) -> Vec<Said> {
        self.sentinels.iter().filter_map(|sentinel| sentinel.said()).collect()
    }

    /// Asks all at once. Each answer is noted, whether somebody waits for it or not; false means
    /// that the sentinel knows no such primary. One that has not answered yet is not asked again.
    fn ask(&self) -> mpsc::UnboundedReceiver<Result<bool>> {
        let (send, answers) = mpsc::unbounded_channel();
        for sentinel in &self.sentinels {
            let (sentinel, primary, send) = (Arc::clone(sentinel), Arc::clone(&self.primary), send.clone());
            tokio::spawn(async move {
                let Ok(mut connection) = sentinel.connection.try_lock() else { return };
                let asked = tokio::time::timeout(LIMIT, sentinel.ask(&mut connection, &primary)).await;
                let answer = asked.unwrap_or_else(|_| Err(timed_out()));
                if answer.is_err() || sentinel.closed.load(Ordering::Acquire) {
                    *connection = None;
                }
                drop(connection);
                let said = answer.as_ref().ok().cloned().flatten();
                *sentinel.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
                let server = sentinel.info.addr().to_string();
                // Nobody listens when enough have answered.
                send.send(
                    answer.map(|said| said.is_some()).map_err(|error| REDIS.unreachable(&server, error)),
                )
                .ok();
            });
        }
        answers
    }

    /// Lets go of the connections.
    pub(crate) fn close(&self) {
        for sentinel in &self.sentinels {
            sentinel.closed.store(true, Ordering::Release);
            // Whoever asks just now lets go of it afterwards.
            if let Ok(mut connection) = sentinel.connection.try_lock() {
                *connection = None;
            }
        }
    }
}

fn timed_out() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

impl Sentinel {
    fn said(&self) -> Option<Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it says; `None` if it knows no such primary.
    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        primary: &str,
    ) -> RedisResult<Option<Said>> {
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(LIMIT))
                    .set_response_timeout(Some(LIMIT));
                let client = redis::Client::open(self.info.clone())?;
                connection.insert(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
        };
        // In this order: the sentinel that leads a fail-over names the new server a moment before
        // it has the new number, never after.
        let mut questions = redis::pipe();
        questions.cmd("SENTINEL").arg("MASTER").arg(primary);
        questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(primary);
        let answers = connection.send_packed_commands(&questions, 0, 2).await?;
        let [facts, address] = <[Value; 2]>::try_from(answers).unwrap_or([Value::Nil, Value::Nil]);
        let Some((host, port)) = Option::<(String, u16)>::from_redis_value(address.extract_error()?)? else {
            return Ok(None);
        };
        // Not everybody may ask for them.
        let facts =
            facts.extract_error().and_then(|facts| Ok(HashMap::<String, String>::from_redis_value(facts)?));
        let facts = facts.unwrap_or_default();
        let number = |name: &str| facts.get(name).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        let (configuration, replicas) = (number("config-epoch"), number("num-slaves"));
        Ok(Some(Said { configuration, host, port, replicas: replicas.try_into().unwrap_or(u32::MAX) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(configuration: u64, port: u16) -> Said {
        Said { configuration, host: "h".into(), port, replicas: 2 }
    }

    #[test]
    fn the_newest_word_counts() {
        let words = [said(3, 1), said(4, 2), said(4, 3), said(1, 4)];
        assert_eq!(newest(words.iter()), Some(&words[1]));
        assert_eq!(newest([].iter()), None);
    }

    #[test]
    fn a_server_is_left_for_news_only() {
        let left = |said: &[Said]| left(said, 3, 4, |said| said.port == 1);
        assert!(!left(&[]));
        assert!(!left(&[said(4, 1), said(3, 2)]));
        // One has heard of a fail-over, and the others have not yet.
        assert!(left(&[said(4, 1), said(4, 1), said(5, 2)]));
        // The one that was cut off is the only one that is left.
        assert!(!left(&[said(3, 2)]));
        assert!(!left(&[said(3, 2), said(4, 1)]));
        // They were set up anew, for another server.
        assert!(left(&[said(0, 2), said(0, 2)]));
    }
}
