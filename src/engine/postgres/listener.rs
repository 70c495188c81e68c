//! Hearing what other clients say: one connection, made when a client first waits, holds or
//! watches.
//!
//! PgBouncer in transaction mode takes `LISTEN` and delivers nothing. So a message is sent over
//! another connection first. Until it is heard nobody expects to be called: waiters ask again soon.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sha2::Digest as _;
use tokio::sync::{OnceCell, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::connection::{Abort, Session};
use super::promises::ENGINE;
use super::shared::Shared;
use super::statements::{Tables, quoted};
use crate::claim::{Grant, OwnerId, Seat};
use crate::engine::Hint;
use crate::engine::sql::jitter;
use crate::engine::sql::row::key_of;
use crate::engine::supervise::{Attempt, Connector, Supervisor};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::random;

/// How long the first message may take. A server or a network may be slow at that moment: the
/// second attempt has twice as long, and the third one three times.
const FIRST_MESSAGE: Duration = Duration::from_secs(1);
/// After so many messages that were not heard it is concluded that none will be.
const ATTEMPTS: u32 = 3;
/// When it is tried again to listen: after an error that may pass, and after that conclusion.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(60);

/// The channel on which a client is called.
pub(super) fn seat_channel(seat: Seat) -> String {
    format!("leasehold_{seat:016x}")
}

/// The channel on which changes to elections and cells are told, for all who use the same tables.
pub(super) fn changed_channel(tables: &Tables) -> String {
    format!("leasehold_changed_{}", digest(tables.names.as_bytes()))
}

/// The first half of a hash, in hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    let digest = sha2::Sha256::digest(bytes);
    digest[..16].iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// What is said on a channel. Several are separated by spaces.
pub(super) enum Message {
    /// To oneself. With a number: one that comes late must not answer for a later one.
    Hello(u64),
    Wake(OwnerId),
    Granted {
        owner: OwnerId,
        grant: Grant,
        asking: u32,
    },
    Broken(OwnerId),
    /// The key of what has changed. Its hash is sent: keys are no text.
    Changed(Vec<u8>),
}

impl Message {
    pub(super) fn append(&self, text: &mut String) {
        if !text.is_empty() {
            text.push(' ');
        }
        match self {
            Message::Hello(number) => write!(text, "h{number:x}").unwrap_or_default(),
            Message::Wake(owner) => write!(text, "w{owner:?}").unwrap_or_default(),
            Message::Granted { owner, grant: Grant { token, tokens }, asking } => {
                write!(text, "g{owner:?},{token},{tokens},{asking}").unwrap_or_default();
            }
            Message::Broken(owner) => write!(text, "b{owner:?}").unwrap_or_default(),
            Message::Changed(key) => {
                text.push('c');
                text.push_str(&digest(key));
            }
        }
    }
}

/// Hears what other clients say.
#[derive(Debug)]
pub(super) struct Listener {
    heard: Arc<Heard>,
    task: OnceLock<AbortHandle>,
    supervisor: Arc<OnceCell<Supervisor<ListenConnector>>>,
}

/// Whether it is heard what others say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// It is not known yet, or there is no connection at the moment.
    Unknown,
    Hears,
    /// It is not wanted, or does not seem possible.
    Deaf,
}

/// What is heard, and what it means.
#[derive(Debug)]
struct Heard {
    shared: Arc<Shared>,
    hearing: watch::Sender<Hearing>,
    /// The number of the last [`Message::Hello`].
    hello: watch::Sender<u64>,
    /// How many of those in a row were not heard.
    unheard: AtomicU32,
    /// What is watched, by the hash of its key, and how often.
    watched: Mutex<HashMap<String, (Name, usize)>>,
}

impl Listener {
    pub(super) fn new(shared: Arc<Shared>, wanted: bool) -> Listener {
        let hearing = watch::Sender::new(if wanted { Hearing::Unknown } else { Hearing::Deaf });
        let (hello, unheard) = (watch::Sender::default(), AtomicU32::new(0));
        let heard = Heard { shared, hearing, hello, unheard, watched: Mutex::default() };
        Listener { heard: Arc::new(heard), task: OnceLock::new(), supervisor: Arc::default() }
    }

    fn hearing(&self) -> Hearing {
        *self.heard.hearing.borrow()
    }

    pub(super) fn hears(&self) -> bool {
        self.hearing() == Hearing::Hears
    }

    /// Makes the connection, in the background.
    pub(super) fn start(&self) {
        if self.task.get().is_some() || self.hearing() == Hearing::Deaf {
            return;
        }
        self.task.get_or_init(|| {
            let task = open(Arc::clone(&self.heard), Arc::clone(&self.supervisor));
            tokio::spawn(task).abort_handle()
        });
    }

    /// Starts to hear of changes to a name; false if nobody tells of them.
    pub(super) async fn watch(&self, name: &Name) -> bool {
        {
            let mut watched = self.heard.watched();
            let key = digest(&key_of(name));
            watched.entry(key).or_insert_with(|| (name.clone(), 0)).1 += 1;
        }
        self.start();
        if !self.hears() {
            return false;
        }
        // A connection that is made now listens for changes by itself, for the name is noted.
        let Some(session) = self.supervisor.get().and_then(Supervisor::connected_now) else { return true };
        let listen = listen(&changed_channel(&self.heard.shared.server.names.tables));
        session.client.batch_execute(&listen).await.is_ok()
    }

    pub(super) fn unwatch(&self, name: &Name) {
        let mut watched = self.heard.watched();
        let key = digest(&key_of(name));
        if let Some((_, count)) = watched.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                watched.remove(&key);
            }
        }
    }

    pub(super) fn close(&self) {
        self.heard.hearing.send_replace(Hearing::Deaf);
        if let Some(task) = self.task.get() {
            task.abort();
        }
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.close();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tries to listen until it works.
async fn open(heard: Arc<Heard>, supervisor: Arc<OnceCell<Supervisor<ListenConnector>>>) {
    loop {
        let connector = ListenConnector(Arc::clone(&heard));
        let Err(error) = supervisor.get_or_try_init(|| Supervisor::open(connector)).await else { return };
        let unheard = heard.unheard.load(Ordering::Relaxed);
        let may_pass = error.is_retryable() || (1..ATTEMPTS).contains(&unheard);
        if !may_pass && heard.hearing.send_replace(Hearing::Deaf) != Hearing::Deaf {
            tracing::warn!(target: "leasehold", %error, "waiters poll: they can not be called");
        }
        sleep(jitter(if may_pass { SOON } else { LATER })).await;
    }
}

impl Heard {
    fn watched(&self) -> MutexGuard<'_, HashMap<String, (Name, usize)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has ended.
    fn lost(&self) {
        self.hearing.send_if_modified(|hearing| {
            let heard = *hearing == Hearing::Hears;
            if heard {
                *hearing = Hearing::Unknown;
            }
            heard
        });
    }

    /// Something may have been said that was not heard. The first time nobody has relied on it for
    /// what is watched: that was polled.
    fn missed(&self, first: bool) {
        let server = &self.shared.server;
        server.hint(Hint::WakeAll);
        server.hint(Hint::Verify);
        if first {
            return;
        }
        let watched: Vec<Name> = self.watched().values().map(|(name, _)| name.clone()).collect();
        watched.into_iter().for_each(|name| server.hint(Hint::Changed(name)));
    }

    fn hear(&self, text: &str) {
        for message in text.split(' ') {
            let Some((kind, rest)) = message.split_at_checked(1) else { continue };
            let hint = match (kind, owner_of(rest)) {
                ("h", _) => {
                    self.hello.send_replace(u64::from_str_radix(rest, 16).unwrap_or_default());
                    continue;
                }
                ("g", _) => match granted(rest) {
                    Some(hint) => hint,
                    None => continue,
                },
                ("w", Some(owner)) => Hint::Wake(owner),
                ("b", Some(owner)) => Hint::Broken(owner),
                ("c", _) => match self.watched().get(rest) {
                    Some((name, _)) => Hint::Changed(name.clone()),
                    None => continue,
                },
                _ => continue,
            };
            self.shared.server.hint(hint);
        }
    }
}

fn owner_of(text: &str) -> Option<OwnerId> {
    u128::from_str_radix(text, 16).ok().map(OwnerId)
}

/// What [`Message::Granted`] says.
fn granted(text: &str) -> Option<Hint> {
    let mut parts = text.split(',');
    let owner = owner_of(parts.next()?)?;
    let grant = Grant { token: parts.next()?.parse().ok()?, tokens: parts.next()?.parse().ok()? };
    Some(Hint::Granted { owner, grant, round: parts.next()?.parse().ok()? })
}

fn listen(channel: &str) -> String {
    format!("listen {}", quoted(channel))
}

/// Connects, and listens.
#[derive(Debug)]
struct ListenConnector(Arc<Heard>);

impl Connector for ListenConnector {
    type Session = Session;

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn server(&self) -> &str {
        &self.0.shared.server.names.server
    }

    fn secret(&self) -> Option<&str> {
        self.0.shared.server.secret()
    }

    async fn connect(&self, attempt: Attempt) -> Result<Session> {
        let heard = &self.0;
        let shared = &heard.shared;
        let (client, driver, _) = shared.server.connect().await?;
        let (hears, first) = (Arc::clone(heard), attempt.epoch == 1);
        let mut task = tokio::spawn(async move {
            let why = driver.run(|message| hears.hear(message.payload())).await;
            hears.lost();
            attempt.lost(&why);
        });
        let mut abort = Abort(Some(task.abort_handle()));
        let names = &shared.server.names;
        let own = seat_channel(shared.seat);
        let mut statement = listen(&own);
        if !heard.watched().is_empty() {
            statement = format!("{statement}; {}", listen(&changed_channel(&names.tables)));
        }
        let listening = client.batch_execute(&statement).await;
        listening.map_err(|error| names.statement(error).into_error())?;
        let number = random::number()?;
        let mut hello = String::new();
        Message::Hello(number).append(&mut hello);
        let mut answer = heard.hello.subscribe();
        let unavailable = |what: String| Error::Unavailable { engine: ENGINE, what, source: None };
        if !shared.send(BTreeMap::from([(own, hello)])).await {
            return Err(unavailable(format!("could not send a message over `{}`", names.server)));
        }
        let before = heard.unheard.load(Ordering::Relaxed);
        let answered = async { answer.wait_for(|heard| *heard == number).await.is_ok() };
        let is_heard = tokio::select! {
            biased;
            answered = answered => answered,
            _ = &mut task => {
                return Err(unavailable(format!("`{}` has ended the connection", names.server)));
            }
            () = sleep(FIRST_MESSAGE * (before + 1).min(ATTEMPTS)) => false,
        };
        if !is_heard {
            heard.unheard.store(before.saturating_add(1), Ordering::Relaxed);
            client.batch_execute("unlisten *").await.ok();
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: format!(
                    "`{}` takes LISTEN and delivers no NOTIFY, as PgBouncer in transaction mode does; \
                     `listen=off` says that this is meant",
                    names.server
                ),
            });
        }
        heard.unheard.store(0, Ordering::Relaxed);
        heard.hearing.send_replace(Hearing::Hears);
        // For what is watched since it was looked at above.
        if !heard.watched().is_empty() {
            client.batch_execute(&listen(&changed_channel(&names.tables))).await.ok();
        }
        heard.missed(first);
        abort.0 = None;
        Ok(Session::new(client, 0, task.abort_handle()))
    }

    async fn probe(&self, session: &Session) -> std::result::Result<(), String> {
        session.client.simple_query("select 1").await.map(|_| ()).map_err(|error| error.to_string())
    }
    // The connection for requests tells of it.
    fn disconnected(&self, _: &str) {}

    // Listening again, it has given the hints already.
    fn connected_again(&self, _: String) {}
}
