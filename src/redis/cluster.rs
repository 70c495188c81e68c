//! A Redis Cluster: many servers, each with a part of the names.
//!
//! All keys of a name are in one slot, and a slot is on one member. Where the slots are is asked
//! once and learnt anew whenever a member says that it has moved; every member has a connection of
//! its own, so that a sick one holds up only its own names.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, RedisResult, Value};

use super::address::{client, like};
use super::errors::REDIS;
use super::link::{Answered, Connected, Heard, Link, Server};
use super::requirements::Target;
use super::script::Invocation;
use super::slots::{SlotMap, slot_of};
use super::source::Source;
use crate::engine::Connection;
use crate::error::{Error, Result};

/// How many times a request follows a slot that has moved.
const MOST_MOVES: usize = 16;
/// How long a member may be out of reach before it is asked again where its slots are.
const MEMBER_LIMIT: Duration = Duration::from_millis(300);
/// The pause before a request is sent again to a slot that is on its way.
const AGAIN: Duration = Duration::from_millis(20);

/// A script, as it is for a connection.
type ScriptFor<'a> = dyn Fn(&Connected) -> Invocation + Send + Sync + 'a;

/// The members of a cluster, as far as they are known.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    eviction_allowed: bool,
    /// How many replicas the members have must be known.
    counts_replicas: bool,
    hear: Arc<dyn Fn(Heard) + Send + Sync>,
    state: Mutex<State>,
    /// One member is connected to at a time.
    opening: tokio::sync::Mutex<()>,
    opening_listeners: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    links: HashMap<String, Arc<Link>>,
    /// For what members say to those who wait for a name of theirs, since the first of them.
    listeners: HashMap<String, Arc<Link>>,
    slots: SlotMap,
    channels: BTreeSet<String>,
    trouble: String,
    closed: bool,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("slots", &self.state().slots).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Finds the members and connects to all that have slots.
    pub(crate) async fn open(
        seeds: Vec<ConnectionInfo>,
        eviction_allowed: bool,
        counts_replicas: bool,
        channels: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Cluster> {
        let state = Mutex::new(State { channels, ..State::default() });
        let cluster = Cluster {
            seeds,
            eviction_allowed,
            counts_replicas,
            hear: Arc::new(hear),
            state,
            opening: tokio::sync::Mutex::default(),
            opening_listeners: tokio::sync::Mutex::default(),
        };
        cluster.learn().await?;
        cluster.primaries().await?;
        Ok(cluster)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn member_of(&self, slot: u16) -> Option<String> {
        self.state().slots.member_of(slot).map(str::to_owned)
    }

    /// Whether the member that has a key is connected now. If it is not known which one that is, it
    /// may be.
    pub(crate) fn connection(&self, key: &str) -> Connection {
        let link = self.member_of(slot_of(key)).and_then(|member| self.state().links.get(&member).cloned());
        link.map_or(Connection::Up, |link| link.connection())
    }

    /// Every member that has slots.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<Link>>> {
        let members = self.state().slots.members();
        let mut links = Vec::new();
        for member in members {
            links.push(self.link(&member).await?);
        }
        Ok(links)
    }

    /// The link to the member that has a key.
    pub(crate) async fn member(&self, key: &str) -> Result<Arc<Link>> {
        let slot = slot_of(key);
        let member = self.member_of(slot).ok_or_else(|| {
            REDIS.unavailable(format!("no member of the cluster has slot {slot}; is the cluster complete?"))
        })?;
        self.link(&member).await
    }

    async fn link(&self, member: &str) -> Result<Arc<Link>> {
        let open = async {
            let hear = Arc::clone(&self.hear);
            let channels = self.state().channels.clone();
            Link::open(Server::new(self.target(member)?, channels, move |heard| hear(heard))).await
        };
        self.known_or(member, |state| &mut state.links, &self.opening, open).await
    }

    /// The link to a member among those of a kind, opened if there is none.
    async fn known_or(
        &self,
        member: &str,
        links: fn(&mut State) -> &mut HashMap<String, Arc<Link>>,
        opening: &tokio::sync::Mutex<()>,
        open: impl Future<Output = Result<Link>>,
    ) -> Result<Arc<Link>> {
        let known = || {
            let mut state = self.state();
            if state.closed { Err(Error::closed()) } else { Ok(links(&mut state).get(member).cloned()) }
        };
        if let Some(link) = known()? {
            return Ok(link);
        }
        let _opening = opening.lock().await;
        if let Some(link) = known()? {
            return Ok(link);
        }
        let link = Arc::new(open.await?);
        let mut state = self.state();
        if state.closed {
            link.close();
            return Err(Error::closed());
        }
        links(&mut state).insert(member.to_owned(), Arc::clone(&link));
        Ok(link)
    }

    fn target(&self, member: &str) -> Result<Target> {
        Ok(Target {
            label: REDIS,
            source: Source::Fixed(self.info(member)?),
            server: member.to_owned(),
            eviction_allowed: self.eviction_allowed,
            counts_replicas: self.counts_replicas,
        })
    }

    /// The connection over which a member says whose turn it is.
    async fn listener(&self, member: &str) -> Result<Arc<Link>> {
        let open = async {
            let hear = Arc::clone(&self.hear);
            let hear = move |heard| match heard {
                Heard::Reconnected => hear(Heard::Missed),
                heard => hear(heard),
            };
            // Nothing else is asked over it.
            let target = Target { counts_replicas: false, ..self.target(member)? };
            Link::open_or_retry(Server::new(target, BTreeSet::new(), hear), MEMBER_LIMIT).await
        };
        self.known_or(member, |state| &mut state.listeners, &self.opening_listeners, open).await
    }

    /// Hears what is said at a sharded channel by the member that has a key. False if it can not be
    /// heard there, whatever the reason: then the channel for everybody will do.
    pub(crate) async fn listen(&self, key: &str, channel: &str) -> bool {
        const SHARDS_SINCE: (u32, u32) = (7, 0);
        const MOST_TRIES: usize = 3;
        for _ in 0..MOST_TRIES {
            let Some(member) = self.member_of(slot_of(key)) else { return false };
            let Ok(listener) = self.listener(&member).await else { return false };
            if listener.facts().is_none_or(|facts| facts.version < SHARDS_SINCE) {
                return false;
            }
            match listener.listen(channel).await {
                Ok(heard) => return heard,
                Err(error) => match error.redirect_node() {
                    Some((to, slot)) => self.state().slots.moved(slot, to),
                    None => return false,
                },
            }
        }
        false
    }

    /// How to talk to a member: as to those that are known, at its own address.
    fn info(&self, member: &str) -> Result<ConnectionInfo> {
        let strange = || super::errors::strange(&format!("a member without an address: `{member}`"));
        let (host, port) = member.rsplit_once(':').ok_or_else(strange)?;
        let seed = self.seeds.first().ok_or_else(strange)?;
        Ok(like(seed, host, port.parse().map_err(|_| strange())?))
    }

    /// A connection to the member that has a key. One that is out of reach may have been replaced.
    pub(crate) async fn connected(&self, key: &str) -> Result<Arc<Connected>> {
        loop {
            let member = match self.member(key).await {
                Ok(member) => member,
                Err(error) if error.is_retryable() => {
                    self.note(&error);
                    tokio::time::sleep(AGAIN).await;
                    self.learn().await.ok();
                    continue;
                }
                Err(error) => return Err(error),
            };
            match tokio::time::timeout(MEMBER_LIMIT, member.connected()).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) if error.is_retryable() => self.note(&error),
                // A member that has become a replica: another one has its slots.
                Ok(Err(error @ Error::Engine { .. })) => self.note(&error),
                Ok(Err(error)) => return Err(error),
                Err(_) => self.state().trouble = member.trouble(),
            }
            tokio::time::sleep(AGAIN).await;
            self.learn().await.ok();
        }
    }

    fn note(&self, error: &Error) {
        self.state().trouble = error.what();
    }

    /// Runs a script at the member that has a key, and follows the key where it goes. While a
    /// slot is on its way, the keys of a name are not all in one place, and nothing can be done
    /// with it; the caller's own time limit ends the wait.
    pub(crate) async fn run(&self, key: &str, script: &ScriptFor<'_>) -> Result<Answered<Value>> {
        let (mut moves, mut waits) = (0, 0);
        loop {
            let connected = self.connected(key).await?;
            let member = self.member(key).await?;
            let mut connection = connected.connection.clone();
            let script_here = script(&connected);
            let answer = connected.while_up(pin!(script_here.call(&mut connection))).await;
            let error = match answer {
                Some(Ok(answer)) => {
                    if waits > 0 {
                        self.state().trouble.clear();
                    }
                    return Ok(Answered { answer, connection, connected });
                }
                Some(Err(error)) => error,
                None => return Err(member.given_up()),
            };
            match error.code().unwrap_or_default() {
                // The member knows where the slot is, and the others will know soon.
                "MOVED" if moves < MOST_MOVES => {
                    moves += 1;
                    if let Some((to, slot)) = error.redirect_node() {
                        self.state().slots.moved(slot, to);
                    }
                    if moves > 2 {
                        self.learn().await.ok();
                    }
                }
                "ASK" => {
                    let to = error.redirect_node().map(|(to, _)| to.to_owned()).unwrap_or_default();
                    if let Some(answered) = self.ask_there(&to, script).await? {
                        return Ok(answered);
                    }
                    waits += 1;
                    self.wait_for(&member, key, &error, waits).await;
                }
                "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => {
                    waits += 1;
                    self.wait_for(&member, key, &error, waits).await;
                    self.learn().await.ok();
                }
                _ => return member.read(&connected, Err(error)),
            }
        }
    }

    /// Waits for a member that can not do what was asked just now.
    async fn wait_for(&self, member: &Link, key: &str, error: &redis::RedisError, waits: u32) {
        const LONGEST: u32 = 5;
        let (server, slot) = (member.server(), slot_of(key));
        self.state().trouble = match error.code() {
            Some("ASK" | "TRYAGAIN") => {
                format!(
                    "`{server}` is giving slot {slot} to another member; names there can be used when that is done"
                )
            }
            _ => format!("`{server}` answered: {error}"),
        };
        tokio::time::sleep(AGAIN * waits.min(LONGEST)).await;
    }

    /// Asks the member that a slot is on its way to, over a connection of its own: the permission
    /// is for the very next command. `None` if it is not ready.
    async fn ask_there(&self, member: &str, script: &ScriptFor<'_>) -> Result<Option<Answered<Value>>> {
        let link = self.link(member).await?;
        let connected = link.connected().await?;
        let client = client(self.info(member)?).map_err(|error| REDIS.unreachable(member, error))?;
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| REDIS.unreachable(member, error))?;
        let asking = redis::cmd("ASKING").query_async::<Value>(&mut connection).await;
        asking.map_err(|error| REDIS.failed(member, error))?;
        // The whole text: a member that does not know the script would use up the permission.
        match script(&connected).call_by_text(&mut connection).await {
            Ok(answer) => Ok(Some(Answered { answer, connection, connected })),
            Err(error) if matches!(error.code(), Some("TRYAGAIN" | "MOVED" | "ASK")) => Ok(None),
            Err(error) => Err(REDIS.failed(member, error)),
        }
    }

    /// Asks any member where the slots are.
    async fn learn(&self) -> Result<()> {
        for link in self.links() {
            let Some(connected) = link.connected_now() else { continue };
            let mut connection = connected.connection.clone();
            if let Ok(Ok(slots)) = tokio::time::timeout(MEMBER_LIMIT, ask_for_slots(&mut connection)).await
                && self.read(&slots, link.server())
            {
                return Ok(());
            }
        }
        let mut failure = None;
        for seed in &self.seeds {
            let server = seed.addr().to_string();
            match ask_seed(seed).await {
                Ok(slots) if self.read(&slots, &server) => return Ok(()),
                Ok(_) => {
                    let what = format!("`{server}` is in a cluster without slots; is it complete?");
                    failure = Some(REDIS.unavailable(what));
                }
                Err(error) if error.to_string().contains("cluster support disabled") => {
                    let what =
                        format!("`{server}` is not a member of a cluster; connect to it with `redis://`");
                    return Err(Error::Engine { engine: REDIS.engine(), what, source: Some(error.into()) });
                }
                Err(error) => failure = Some(REDIS.unreachable(&server, error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::invalid("no member of the cluster is given")))
    }

    /// Reads the answer of a member; false if it says nothing.
    fn read(&self, slots: &Value, asked: &str) -> bool {
        let Some(slots) = SlotMap::read(slots, asked) else { return false };
        let present = slots.members();
        let mut state = self.state();
        state.slots = slots;
        // Whoever has no slots any more is not listened to.
        state.links.retain(|member, _| present.contains(member));
        state.listeners.retain(|member, _| present.contains(member));
        true
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.state().channels.insert(channel.to_owned());
        for link in self.primaries().await? {
            link.subscribe(channel).await?;
        }
        Ok(())
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.state().channels.remove(channel);
        for link in self.links() {
            link.unsubscribe(channel).await?;
        }
        Ok(())
    }

    /// The same number for all keys of a member; one for each key of which the member is not known.
    pub(crate) fn shard(&self, key: &str) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        match self.member_of(slot_of(key)) {
            Some(member) => member.hash(&mut hasher),
            None => key.hash(&mut hasher),
        }
        hasher.finish()
    }

    /// Ends the connections to all members; there will be no others.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.links.values().chain(state.listeners.values()).for_each(|link| link.close());
    }

    pub(crate) fn trouble(&self) -> String {
        let state = self.state();
        if !state.trouble.is_empty() {
            return state.trouble.clone();
        }
        let members: Vec<String> = state.slots.members().into_iter().collect();
        format!("the members of the cluster are connected, and some are silent: `{}`", members.join("`, `"))
    }

    /// The members that are known.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.state().links.values().cloned().collect()
    }
}

async fn ask_for_slots(connection: &mut MultiplexedConnection) -> RedisResult<Value> {
    redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await
}

async fn ask_seed(seed: &ConnectionInfo) -> RedisResult<Value> {
    let limit = Some(Duration::from_secs(2));
    let config =
        redis::AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
    let mut connection = client(seed.clone())?.get_multiplexed_async_connection_with_config(&config).await?;
    ask_for_slots(&mut connection).await
}
