//! Claims kept by a majority of independent Redis servers.
//!
//! A name is held by whoever holds it at more than half of the servers, so any minority of them can die, hang, be cut off or lose its
//! data. A majority must have accepted the token before the name counts as held, and a server accepts one only above its counter:
//! tokens are unique and rise whatever the clocks do. A server that has forgotten its data does not vote until nobody can rely on what it forgot. The
//! decisions are in `redlock/rules.rs`, the rules of one server in `redlock/spec.rs` and in the scripts, the keys in docs/redlock.md.
//!
//! Exclusion depends on time: clocks that run at different speeds by more than a hundredth, or that are set forward where a holder needs
//! the server for its majority, can let a second holder in before the first one's lease is over. There is no queue: whoever asks at the right moment comes first.
//! Semaphores, elections and cells need one order of all changes, which independent servers do not have; they are refused.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::listener::Ears;
use self::member::{FLOOR, MEMBER, Registrar, TOP};
use self::node::{Node, Nodes};
use self::rules::majority;
use self::scripts::SCRIPTS;
use self::url::Place;
use crate::claim::{Alteration, Answer, Ask, Claim, Grant, OwnerId, Refused, Released, Seat, WHOLE};
use crate::engine::{
    AfterDeath, Cells, Engine, Guarantees, Hints, Reach, Renewal, Renewed, Reply, Swap, Swapped, View,
    Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;
use crate::redis::holder::{host_text, owner_text};
use crate::redis::keys::{Keys, beside};
use crate::redis::link::Link;
use crate::redis::micros;
use crate::redis::script::Invocation;

mod attempt;
mod listener;
mod member;
mod node;
mod release;
mod renew;
mod reply;
mod rules;
mod scripts;
mod url;

pub(super) const ENGINE: &str = "redlock";

/// What a quorum of servers promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "while clocks run alike and no majority forgets at once",
    tokens: "whatever the clocks do, over the loss of any minority's data",
    wakes: "pub/sub of a majority; no order",
    after_death: AfterDeath::AfterLease,
    fair: false,
    counts: false,
    upgrades: false,
    elects: false,
    cells: false,
    delays: false,
};

/// How long a server has to be connected to before the others go on without it.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
/// How long a majority has.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a server has to answer what is not about a lease.
const LIMIT: Duration = Duration::from_secs(1);
/// How long the others have when a majority has answered.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// One client's connections to the servers.
#[derive(Debug)]
pub(crate) struct Redlock {
    nodes: Nodes,
    keys: Keys,
    max_lease: Duration,
    seat: Seat,
    ears: Arc<Ears>,
    runtime: Handle,
    stamp: AtomicU64,
    /// The largest counter that was heard of, of any name.
    seen: AtomicU64,
    table: Arc<Table>,
    /// Those who release something hear it.
    releasing: watch::Sender<()>,
    pid: u32,
    registrar: Registrar,
}

/// What this client knows of its owners.
#[derive(Debug, Default)]
struct Table(Mutex<HashMap<OwnerId, Entry>>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this client knows of one of its owners.
#[derive(Debug)]
struct Entry {
    /// The servers that may have heard of it, a bit for each.
    touched: u32,
    /// The servers that have given its claim back.
    removed: u32,
    lease: Duration,
    held: Option<Held>,
    since: Instant,
}

impl Entry {
    fn new(lease: Duration) -> Entry {
        Entry { touched: 0, removed: 0, lease, held: None, since: Instant::now() }
    }
}

/// A claim that is held.
#[derive(Clone, Debug)]
struct Held {
    grant: Grant,
    shared: bool,
    /// For each server, since which asking or renewal it had the claim when a majority last said yes. Another number means that there was a
    /// gap in which somebody else may have held the name.
    known: Vec<u64>,
    /// The last renewal that was asked for.
    renewal: u64,
    /// Seat, process, host and label.
    said: [String; 4],
}

/// The keys of one name for one owner, in the order of every script.
#[derive(Debug)]
struct NameKeys {
    holder: String,
    token: String,
    state: String,
    ends: String,
    queue: String,
    gone: String,
}

impl NameKeys {
    fn all(&self) -> [&str; 9] {
        let NameKeys { holder, token, state, ends, queue, gone } = self;
        [holder, token, state, ends, queue, gone, MEMBER, TOP, FLOOR]
    }
}

fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| reply::strange("no number"))
}

fn numbers<const N: usize>(texts: &[String]) -> Result<[u64; N]> {
    let all = texts.iter().map(|text| number(text.as_bytes())).collect::<Result<Vec<u64>>>()?;
    all.try_into().map_err(|_| reply::strange("another number of numbers"))
}

/// Some time up to `most`, another one each time.
fn random_pause(most: Duration) -> Duration {
    let number = random::number().unwrap_or(u64::MAX / 2);
    most.mul_f64((number >> 11) as f64 / (1_u64 << 53) as f64)
}

impl Redlock {
    /// Connects to the servers at a URL.
    pub(crate) async fn open(url: &str) -> Result<Redlock> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("`redlock:` must be opened inside a tokio runtime with io and time enabled")
        })?;
        let Place { targets, keys, max_lease } = Place::parse(url)?;
        let seat = random::number()?;
        let ears = Arc::new(Ears::new(targets.len(), runtime.clone()));
        let links = join_all(targets.into_iter().enumerate().map(|(number, target)| {
            let weak = Arc::downgrade(&ears);
            let hear = move |heard| {
                if let Some(ears) = Weak::upgrade(&weak) {
                    ears.hear(number, heard);
                }
            };
            let channels = BTreeSet::from([format!("leasehold:seat:{seat}")]);
            Link::open_or_retry(target, channels, FIRST_LIMIT, hear)
        }))
        .await;
        let mut nodes = Vec::new();
        for (number, link) in links.into_iter().enumerate() {
            nodes.push(Arc::new(Node::new(number, link?, Arc::clone(&ears.look))));
        }
        let nodes: Nodes = nodes.into();
        wait_for_majority(&nodes).await?;
        let registrar = member::register(&nodes, max_lease, Arc::clone(&ears.look)).await?;
        Ok(Redlock {
            nodes,
            keys,
            max_lease,
            seat,
            ears,
            runtime,
            stamp: AtomicU64::new(1),
            seen: AtomicU64::new(0),
            table: Arc::default(),
            releasing: watch::Sender::new(()),
            pid: std::process::id(),
            registrar,
        })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.table.lock()
    }

    /// A number for an asking: later ones are larger.
    fn next_stamp(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::AcqRel)
    }

    fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::invalid("this client was made before a fork; a child process must connect for itself"))
    }

    /// Refuses what can not be promised.
    fn check(&self, name: &Name, ask: &Ask) -> Result<()> {
        if name.family() != Family::Lock || ask.logged || ask.capacity != WHOLE {
            return Err(unsupported(name.family()));
        }
        if !ask.lock_delay.is_zero() {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "can not keep a name closed after an expiry (lock delay); check tokens, or use another engine".into(),
            });
        }
        if ask.lease > self.max_lease {
            return Err(Error::invalid(format!(
                "a lease of {:?} is longer than `max_lease`, {:?}: a server that lost its data waits that long before it votes. \
                 Leases renew themselves; give a shorter one, or a larger `max_lease` in the URL of all clients",
                ask.lease, self.max_lease
            )));
        }
        Ok(())
    }

    fn keys_of(&self, name: &Name, owner: OwnerId) -> Result<Arc<NameKeys>> {
        let keys = self.keys.of(name)?;
        let side = |what: &str| beside(&keys.holder, &format!("redlock:{what}"));
        Ok(Arc::new(NameKeys {
            holder: keys.holder.clone(),
            token: side("token"),
            state: side("state"),
            ends: side("ends"),
            queue: side("queue"),
            gone: side(&format!("gone:{}", owner_text(owner))),
        }))
    }

    /// What is said of a holder at its key.
    fn said(&self, ask: &Ask) -> [String; 4] {
        let holder = &ask.holder;
        [self.seat.to_string(), holder.pid.to_string(), host_text(&holder.host), holder.label.clone()]
    }

    /// The error if too few servers do what they should; `failures` is what is known of those.
    fn no_majority(&self, failures: Vec<(usize, Error)>) -> Error {
        let servers = self.nodes.len();
        let needed = majority(servers);
        let hopeless = failures.iter().filter(|(_, error)| !error.is_retryable()).count();
        let retryable = servers - hopeless >= needed;
        let mut failures = failures;
        failures.sort_by_key(|(number, _)| *number);
        let each: Vec<String> = failures.iter().map(|(_, error)| error.what()).collect();
        let what = format!(
            "no majority of the {servers} servers can answer ({needed} are needed): {}",
            each.join("; ")
        );
        let source = failures.into_iter().next().map(|(_, error)| error.into());
        if retryable {
            Error::Unavailable { engine: ENGINE, what, source }
        } else {
            Error::Engine { engine: ENGINE, what, source }
        }
    }

    /// Runs a script at every server, and gives what those have answered that did in time, and why the others have not. Fewer than a majority
    /// are an error. A majority that has answered does not wait for long.
    async fn everywhere<T: redis::FromRedisValue + Send + 'static>(
        &self,
        script: impl Fn() -> Invocation + Send + Sync + 'static,
    ) -> Result<(Vec<T>, Vec<(usize, Error)>)> {
        self.check_process()?;
        let script = Arc::new(script);
        let (send, mut answers) = mpsc::unbounded_channel();
        for node in self.nodes.iter() {
            let (node, send, script) = (Arc::clone(node), send.clone(), Arc::clone(&script));
            self.runtime.spawn(async move {
                let answer = node.run_within(LIMIT, |_| script()).await;
                send.send((node.number, answer)).ok();
            });
        }
        drop(send);
        let needed = majority(self.nodes.len());
        let (mut good, mut failures) = (Vec::new(), Vec::new());
        loop {
            let patience = if good.len() >= needed { STRAGGLERS } else { 2 * LIMIT };
            match tokio::time::timeout(patience, answers.recv()).await {
                Ok(Some((_, Ok(answer)))) => good.push(answer),
                Ok(Some((number, Err(error)))) => failures.push((number, error)),
                Ok(None) | Err(_) => break,
            }
        }
        if good.len() < needed { Err(self.no_majority(failures)) } else { Ok((good, failures)) }
    }

    async fn downgrade(&self, name: &Name, owner: OwnerId, token: u64) -> Result<Answer> {
        let keys = self.keys_of(name, owner)?;
        let stamp = self.next_stamp();
        let script = move || {
            let mut script = SCRIPTS.downgrade.on(&keys.all());
            script.arg(owner_text(owner)).arg(stamp).arg(token);
            script
        };
        let (answers, failures): (Vec<u8>, _) = self.everywhere(script).await?;
        let needed = majority(self.nodes.len());
        let done = answers.iter().filter(|answer| **answer == 1).count();
        if done >= needed {
            if let Some(held) = self.table().get_mut(&owner).and_then(|entry| entry.held.as_mut()) {
                held.shared = true;
            }
            return Ok(Answer::Granted(Grant { token, tokens: 1 }));
        }
        if done + self.nodes.len() - answers.len() < needed {
            return Ok(Answer::Refused(Refused::NotHeld));
        }
        Err(self.no_majority(failures))
    }

    async fn look_at(&self, name: &Name) -> Result<View> {
        if name.family() != Family::Lock {
            return Ok(View::default());
        }
        let keys = self.keys_of(name, OwnerId(0))?;
        let script = move || {
            let mut script = SCRIPTS.look.on(&keys.all());
            script.arg(owner_text(OwnerId(0))).arg(0);
            script
        };
        let (looks, _): (Vec<reply::Look>, _) = self.everywhere(script).await?;
        reply::view(self.nodes.len(), &looks)
    }

    /// The keys at one server that may be those of a lock.
    async fn scan(node: &Node, pattern: &str) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut cursor = 0_u64;
        loop {
            let connected = node.link.connected().await?;
            let mut connection = connected.connection.clone();
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
            let (next, keys): (u64, Vec<Vec<u8>>) =
                node.link.call(&connected, pin!(scan.query_async(&mut connection))).await?;
            found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }

    async fn names(&self, prefix: &str) -> Result<BTreeSet<Name>> {
        self.check_process()?;
        let patterns = self.keys.patterns(Family::Lock, prefix);
        // The last finds holders; the others find the state of the other engine.
        let pattern = patterns.last().map(String::as_str).unwrap_or_default();
        let scans = self.nodes.iter().map(|node| async move {
            match tokio::time::timeout(2 * LIMIT, Redlock::scan(node, pattern)).await {
                Ok(keys) => keys,
                Err(_) => Err(node.silent()),
            }
        });
        let (mut keys, mut failures) = (BTreeSet::new(), Vec::new());
        for (number, found) in join_all(scans).await.into_iter().enumerate() {
            match found {
                Ok(found) => keys.extend(found),
                Err(error) => failures.push((number, error)),
            }
        }
        if self.nodes.len() - failures.len() < majority(self.nodes.len()) {
            return Err(self.no_majority(failures));
        }
        Ok(keys.iter().filter_map(|key| self.keys.name(Family::Lock, key)).collect())
    }
}

/// Waits until a majority is connected.
async fn wait_for_majority(nodes: &Nodes) -> Result<()> {
    let give_up = Instant::now() + CONNECT_LIMIT - FIRST_LIMIT;
    let needed = majority(nodes.len());
    loop {
        let connected = nodes.iter().filter(|node| node.link.connected_now().is_some()).count();
        if connected >= needed {
            return Ok(());
        }
        if Instant::now() >= give_up {
            let each: Vec<String> = nodes.iter().filter_map(|node| node.trouble()).collect();
            let what = format!(
                "no majority of the {} servers can be reached ({needed} are needed): {}",
                nodes.len(),
                each.join("; ")
            );
            return Err(Error::Unavailable { engine: ENGINE, what, source: None });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn unsupported(family: Family) -> Error {
    let what = match family {
        Family::Lock => "knows only locks with one holder or many readers".to_owned(),
        family => {
            format!("can not keep a {family}, which needs one order of all changes; use another engine")
        }
    };
    Error::Unsupported { engine: ENGINE, what }
}

fn refused<'a, T: Send + 'a>(family: Family) -> Reply<'a, T> {
    Box::pin(std::future::ready(Err(unsupported(family))))
}

impl Engine for Redlock {
    fn guarantees(&self) -> Guarantees {
        let mut guarantees = GUARANTEES;
        let evicts = |node: &Arc<Node>| node.link.facts().is_some_and(|facts| facts.evicts);
        if self.nodes.iter().any(evicts) {
            guarantees.exclusion = "until servers run out of memory and throw it away";
        }
        guarantees
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.ears.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(self.acquire_whole(name, ask))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(self.release_whole(name, owner))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        match alteration {
            Alteration::Downgrade { token, .. } => Box::pin(self.downgrade(name, owner, token)),
            Alteration::TryUpgrade | Alteration::Upgrade => {
                Box::pin(std::future::ready(Err(Error::Unsupported {
                    engine: ENGINE,
                    what: "can not turn a reader into the writer; release, then ask to write".into(),
                })))
            }
            Alteration::Value(_) => refused(Family::Election),
        }
    }

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        refused(Family::Semaphore)
    }

    fn look<'a>(&'a self, name: &'a Name, _: u64) -> Reply<'a, View> {
        Box::pin(self.look_at(name))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(async move {
            let mut found = Vec::new();
            // There are none of the others.
            if family != Family::Lock {
                return Ok(found);
            }
            let wanted = self.names(prefix).await?.into_iter().filter(|name| {
                name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            });
            for name in wanted {
                if found.len() == limit {
                    break;
                }
                // With names that are keys as they are, a key may be anything.
                let view = match self.look_at(&name).await {
                    Err(Error::Engine { .. }) => continue,
                    view => view?,
                };
                if !view.claims.is_empty() || view.waiting > 0 {
                    found.push((name, view));
                }
            }
            Ok(found)
        })
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move {
            if name.family() != Family::Lock {
                return Ok(Vec::new());
            }
            let keys = self.keys_of(name, OwnerId(0))?;
            let script = move || {
                let mut script = SCRIPTS.break_claims.on(&keys.all());
                script.arg(owner_text(OwnerId(0))).arg(0);
                script
            };
            let (broken, _): (Vec<reply::Broken>, _) = self.everywhere(script).await?;
            reply::broken(self.nodes.len(), &broken)
        })
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        refused(Family::Cell)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        refused(Family::Cell)
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        match watching {
            Watching::On => refused(name.family()),
            Watching::Off => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            // A release has succeeded when a majority has heard. The others have a moment to hear
            // of it, too.
            tokio::time::timeout(STRAGGLERS, self.releasing.closed()).await.ok();
            self.registrar.close();
            self.nodes.iter().for_each(|node| node.link.close());
            Ok(())
        })
    }

    fn trouble(&self) -> Option<String> {
        let each: Vec<String> = self.nodes.iter().filter_map(|node| node.trouble()).collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}
