//! Claims kept in a Redis server.
//!
//! A name that nobody else wants is taken with a short transaction and given back with one script; everything else is done by
//! scripts that restate the rules of [`crate::claim`], so a claim is granted whole or not at all. Time is read from the server,
//! never from the caller. The holder of a lock is a plain string at the lock's own key, so that clients that know
//! nothing of leasehold (`SET key value NX PX …`) exclude us and we exclude them. The keys are described in
//! docs/redis.md.
//!
//! A server that loses its data, or a replica that is promoted before it has heard of the last grant, can give a name
//! to two owners. Where that matters, use an engine that agrees before it answers, and always check the token.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use self::batch::Post;
use self::notes::Known;
use self::scripts::SCRIPTS;
use crate::claim::{Alteration, Answer, Ask, Claim, Holder, OwnerId, Released, Seat};
use crate::engine::{
    AfterDeath, Cells, Connection, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Rule,
    Swap, Swapped, View, Watching, apply_by_swap, refusal,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;
use crate::redis::address::Source;
use crate::redis::cluster::{self, Cluster};
use crate::redis::keys::{Keys, NameKeys};
use crate::redis::link::{Heard, Link};
use crate::redis::requirements::Target;
use crate::redis::script::{Invocation, Script};
use crate::redis::topology::{Answered, Request, Topology};
use crate::redis::url::{Copies, Place, Servers};
use crate::redis::{errors, holder, micros};

mod acquire;
mod batch;
mod cells;
mod fast_path;
mod notes;
mod reply;
mod scripts;

/// What one server promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: "redis",
    reach: Reach::Network,
    exclusion: "while the server keeps its data",
    tokens: "over loss of data too, while the server's clock goes on",
    wakes: "pub/sub, to the one whose turn it is",
    after_death: AfterDeath::AfterLease,
    fair: true,
    counts: true,
    upgrades: true,
    elects: true,
    cells: true,
    delays: true,
};

/// How long replicas have to confirm that they heard of a claim.
const CONFIRM_LIMIT: Duration = Duration::from_millis(500);

/// One client's connection to its servers.
#[derive(Debug)]
pub(crate) struct Redis {
    topology: Topology,
    /// Only where all names are on one server, and need no more than its own word.
    post: Option<Post>,
    keys: Keys,
    copies: Copies,
    /// A replica can take over.
    fails_over: bool,
    /// Others than leasehold are said to use these names too.
    strangers: bool,
    seat: Seat,
    /// How the last holder was written down: it is the same one nearly always.
    who: Mutex<Option<(Arc<Holder>, Arc<str>)>>,
    ears: Arc<Ears>,
    notes: Arc<notes::Notes>,
}

/// Where what is heard goes.
#[derive(Debug, Default)]
struct Ears {
    hints: OnceLock<Hints>,
    /// The elections and cells that are watched, by channel.
    watched: Mutex<HashMap<String, Name>>,
    /// A claim counts only when replicas have heard of it: whoever is told of one asks.
    copies: bool,
}

impl Ears {
    fn watched(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, heard: Heard) {
        let Some(hints) = self.hints.get() else { return };
        match heard {
            Heard::Reconnected => {
                hints.give(Hint::Verify);
                hints.give(Hint::WakeAll);
                let watched: Vec<Name> = self.watched().values().cloned().collect();
                watched.into_iter().for_each(|name| hints.give(Hint::Changed(name)));
            }
            Heard::Missed => hints.give(Hint::WakeAll),
            Heard::Connection(hint) => hints.give(hint),
            Heard::Message(channel, text) => {
                let watched = self.watched().get(&channel).cloned();
                match watched {
                    Some(name) => hints.give(Hint::Changed(name)),
                    None => match holder::hint(&text) {
                        Hint::Granted { owner, .. } if self.copies => hints.give(Hint::Wake(owner)),
                        hint => hints.give(hint),
                    },
                }
            }
        }
    }
}

impl Redis {
    /// Connects to the server at a URL.
    pub(crate) async fn open(url: &str) -> Result<Redis> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("`redis:` must be opened inside a tokio runtime with io and time enabled")
        })?;
        let Place { servers, keys, eviction_allowed, copies, strangers } = Place::parse(url)?;
        let seat = random::number()?;
        let ears = Arc::new(Ears { copies: copies != Copies::None, ..Ears::default() });
        let weak = Arc::downgrade(&ears);
        let hear = move |heard| {
            if let Some(ears) = Weak::upgrade(&weak) {
                ears.hear(heard);
            }
        };
        let channels = BTreeSet::from([format!("leasehold:seat:{seat}")]);
        let fails_over = !matches!(servers, Servers::One(Source::Fixed(_)));
        let counts_replicas = copies == Copies::Majority;
        let topology = match servers {
            Servers::One(source) => {
                let (label, server) = (errors::REDIS, source.to_string());
                let target = Target { label, source, server, eviction_allowed, counts_replicas };
                Topology::One(Arc::new(Link::open(target, channels, hear).await?))
            }
            Servers::Cluster(seeds) => {
                let cluster = Cluster::open(seeds, eviction_allowed, counts_replicas, channels, hear);
                Topology::Cluster(Box::new(cluster.await?))
            }
        };
        let post = match &topology {
            Topology::One(link) if copies == Copies::None => Some(Post::new(link)),
            _ => None,
        };
        let notes = Arc::new(notes::Notes::new(runtime));
        Ok(Redis {
            topology,
            post,
            keys,
            copies,
            fails_over,
            strangers,
            seat,
            who: Mutex::default(),
            ears,
            notes,
        })
    }

    /// Runs a script where a key is.
    async fn run<T: redis::FromRedisValue>(&self, key: &str, script: &Invocation) -> Result<T> {
        Ok(self.topology.call(key, Request::Script(script)).await?.answer)
    }

    /// Runs a script where a key is, and makes sure that enough replicas have heard of what it has
    /// changed or seen.
    async fn run_confirmed<T: redis::FromRedisValue>(&self, key: &str, script: &Invocation) -> Result<T> {
        let mut answered = self.topology.call(key, Request::Script(script)).await?;
        self.confirm(&mut answered).await?;
        Ok(answered.answer)
    }

    /// Makes sure that enough replicas have heard of all that the server knew when it answered. If
    /// they have not, what was done may still last: the outcome is not known.
    async fn confirm<T>(&self, answered: &mut Answered<T>) -> Result<()> {
        let connected = Arc::clone(&answered.connected);
        let unconfirmed = |what: String| Error::Unavailable { engine: errors::ENGINE, what, source: None };
        let Some(wanted) = self.copies.of(connected.replicas.number()) else {
            return Err(unconfirmed(format!(
                "`wait=majority`: no replica of `{}` is known that could confirm it; add one, or leave `wait` out",
                connected.addr
            )));
        };
        if wanted == 0 {
            return Ok(());
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(CONFIRM_LIMIT.as_millis().to_string());
        // Over the connection of the answer: elsewhere the server would not know what is asked for.
        let heard = connected.while_up(pin!(wait.query_async::<u32>(&mut answered.connection))).await;
        let Some(heard) = heard else {
            return Err(unconfirmed("lost the connection before replicas have confirmed".into()));
        };
        let heard = heard.map_err(|error| errors::REDIS.failed(&connected.addr.to_string(), error))?;
        if heard >= wanted {
            return Ok(());
        }
        Err(unconfirmed(format!(
            "only {heard} of the {wanted} replicas that are needed have confirmed in {CONFIRM_LIMIT:?}"
        )))
    }

    async fn release_whole(&self, name: &Name, owner: OwnerId, used: u64) -> Result<Released> {
        let (keys, wakes) = match self.notes.forget(owner) {
            Known::Text(keys, text) => {
                if self.give_back(&keys, text).await? == Some(true) {
                    return Ok(Released::Claim);
                }
                (keys, false)
            }
            Known::Taken => (self.keys.of(name)?, false),
            // It has had a queue, or was never granted.
            Known::Nothing => (self.keys.of(name)?, true),
        };
        let how = if wakes { &SCRIPTS.release_to_next } else { &SCRIPTS.release };
        let script = release_script(how, name, &keys, owner, used);
        reply::released(match &self.post {
            Some(post) => post.release(script, wakes).await?,
            None => {
                let request = if wakes { Request::Waking(&script) } else { Request::Script(&script) };
                Box::pin(self.topology.call(&keys.holder, request)).await?.answer
            }
        })
    }

    /// Gives back a lock if just this stands at its holder's key: all that is known of it, so nobody waits for it. `None` if that
    /// was not tried.
    async fn give_back(&self, keys: &Arc<NameKeys>, text: String) -> Result<Option<bool>> {
        match &self.post {
            Some(post) => post.give_back(keys, text).await,
            None if keys.is_shared() => Ok(None),
            None => {
                let script = give_back_script(keys, &text);
                let given = Box::pin(self.run::<u8>(&keys.holder, &script)).await?;
                Ok(Some(given == 1))
            }
        }
    }

    /// Looks at a name; a second time if its token was not written down yet.
    async fn look_well(&self, name: &Name, seen: u64) -> Result<View> {
        let view = self.look_at(name, seen, true).await?;
        if !lacks_a_token(&view) {
            return Ok(view);
        }
        tokio::time::sleep(notes::AFTER * 2).await;
        self.look_at(name, seen, true).await
    }

    async fn look_at(&self, name: &Name, seen: u64, waiters: bool) -> Result<View> {
        let keys = self.keys.of(name)?;
        let mut script = SCRIPTS.look.on(&keys.all());
        // A number that a script can hold.
        script.arg(name.family().word()).arg(seen.min(1 << 53)).arg(u8::from(waiters));
        reply::view(self.run(&keys.holder, &script).await?)
    }

    /// Every key that fits one of the patterns.
    async fn scan(&self, patterns: &[String]) -> Result<BTreeSet<String>> {
        const AT_ONCE: usize = 1000;
        let mut found = BTreeSet::new();
        for pattern in patterns {
            let answers: Vec<(u64, Vec<Vec<u8>>)> = self
                .topology
                .each(|scan, so_far: &[(u64, Vec<Vec<u8>>)]| {
                    let cursor = so_far.last().map(|(cursor, _)| *cursor);
                    scan.arg("SCAN")
                        .arg(cursor.unwrap_or(0))
                        .arg("MATCH")
                        .arg(pattern)
                        .arg("COUNT")
                        .arg(AT_ONCE);
                    cursor != Some(0)
                })
                .await?;
            let keys = answers.into_iter().flat_map(|(_, keys)| keys);
            found.extend(keys.filter_map(|key| String::from_utf8(key).ok()));
        }
        Ok(found)
    }

    /// Renews claims that are on one server, in one call.
    async fn renew_here(&self, renewals: &[&Renewal]) -> Result<Vec<Renewed>> {
        let names = renewals.iter().map(|renewal| self.keys.of(&renewal.name));
        let names: Vec<Arc<NameKeys>> = names.collect::<Result<_>>()?;
        let Some(first) = names.first() else { return Ok(Vec::new()) };
        let mut keys = Vec::with_capacity(names.len() * 5);
        for NameKeys { holder, state, ends, queue, log, .. } in names.iter().map(|keys| &**keys) {
            keys.extend([holder, state, ends, queue, log].map(String::as_str));
        }
        let mut script = SCRIPTS.renew.on(&keys);
        for renewal in renewals {
            script.arg(renewal.name.family().word());
            script.arg(holder::owner_text(renewal.owner)).arg(micros(renewal.lease));
        }
        let verdicts: Vec<u8> = self.run_confirmed(&first.holder, &script).await?;
        let verdict = |verdict: &u8| if *verdict == 1 { Renewed::Yes } else { Renewed::Gone };
        Ok(verdicts.iter().map(verdict).collect())
    }

    /// Renews claims of a cluster: what is in one slot in one call, all calls at the same time.
    /// Whoever is answered does not wait for long for the others; if nobody is, the caller's limit
    /// ends the wait.
    async fn renew_everywhere(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut slots: HashMap<u16, Vec<usize>> = HashMap::new();
        for (at, renewal) in renewals.iter().enumerate() {
            slots.entry(cluster::slot_of(&self.keys.of(&renewal.name)?.holder)).or_default().push(at);
        }
        let calls = slots.into_values().map(|places| async move {
            let here: Vec<&Renewal> = places.iter().map(|at| &renewals[*at]).collect();
            (places, self.renew_here(&here).await)
        });
        let mut calls: FuturesUnordered<_> = calls.collect();
        let shortest = renewals.iter().map(|renewal| renewal.lease).min().unwrap_or_default();
        let mut late = pin!(tokio::time::sleep(crate::redis::stragglers(shortest)));
        let mut all = vec![Renewed::Unknown; renewals.len()];
        let (mut answered, mut failure) = (false, None);
        loop {
            let (places, verdicts) = tokio::select! {
                biased;
                next = calls.next() => match next {
                    Some(call) => call,
                    None => break,
                },
                () = &mut late, if answered => break,
            };
            match verdicts {
                Ok(verdicts) => {
                    answered = true;
                    places.into_iter().zip(verdicts).for_each(|(at, verdict)| all[at] = verdict);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(all),
        }
    }
}

/// True if somebody holds a lock whose token is not written down yet. A stranger has none.
fn lacks_a_token(view: &View) -> bool {
    view.claims.iter().any(|held| held.claim.token == 0 && held.claim.owner != OwnerId(0))
}

fn give_back_script(keys: &NameKeys, text: &str) -> Invocation {
    let mut script = SCRIPTS.give_back_one.on(&[&keys.holder]);
    script.arg(text);
    script
}

fn release_script(
    how: &'static Script,
    name: &Name,
    keys: &NameKeys,
    owner: OwnerId,
    used: u64,
) -> Invocation {
    let mut script = how.on(&keys.all());
    script.arg(name.family().word()).arg(holder::owner_text(owner)).arg(used);
    script
}

impl Engine for Redis {
    fn guarantees(&self) -> Guarantees {
        let forgets = self.topology.any(|facts| !facts.remembers);
        let exclusion = if self.topology.any(|facts| facts.evicts) {
            "until the server runs out of memory and throws it away"
        } else if self.copies != Copies::None && forgets {
            "over fail-overs to a replica that has heard of it, but not over a restart (appendonly no)"
        } else if self.copies != Copies::None {
            "over fail-overs to a replica that has heard of it"
        } else if self.fails_over && forgets {
            "until a fail-over or a restart: replicas hear of it later, and nothing is written down (appendonly no)"
        } else if self.fails_over {
            "until a fail-over: replicas hear of it later"
        } else if forgets {
            "until a restart: the server does not write it down (appendonly no)"
        } else {
            GUARANTEES.exclusion
        };
        let tokens = if self.fails_over && self.copies != Copies::Majority {
            "over loss of data too, while the servers' clocks go on and agree; for a moment after a fail-over the old primary may \
             still give some that are lower than those of the new one"
        } else {
            GUARANTEES.tokens
        };
        Guarantees { exclusion, tokens, ..GUARANTEES }
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.ears.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(self.acquire_whole(name, ask))
    }

    fn shard(&self, name: &Name) -> u64 {
        match &self.topology {
            Topology::One(_) => 0,
            // A name that can not be used is refused when it is.
            Topology::Cluster(cluster) => self.keys.of(name).map_or(0, |keys| cluster.shard(&keys.holder)),
        }
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        match &self.topology {
            Topology::One(_) => {
                Box::pin(async move { self.renew_here(&renewals.iter().collect::<Vec<_>>()).await })
            }
            Topology::Cluster(_) => Box::pin(self.renew_everywhere(renewals)),
        }
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(self.release_whole(name, owner, used))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move {
            let keys = self.keys.of(name)?;
            let mut script = SCRIPTS.alter.on(&keys.all());
            script.arg(name.family().word()).arg(holder::owner_text(owner));
            match alteration {
                Alteration::Downgrade { weight, token } => script.arg("downgrade").arg(weight).arg(token),
                Alteration::TryUpgrade => script.arg("try"),
                Alteration::Upgrade => script.arg("upgrade"),
                Alteration::Value(value) => script.arg("value").arg(&*value),
            };
            script.arg(self.notes.token(owner).unwrap_or(0));
            let answer: Vec<i64> = self.run_confirmed(&keys.holder, &script).await?;
            reply::answer(&answer)?.ok_or_else(|| errors::strange("an answer that was not asked for"))
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move {
            let keys = self.keys.of(name)?;
            let mut script = SCRIPTS.resize.on(&keys.all());
            script.arg(name.family().word()).arg(declared).arg(capacity);
            let answer: Vec<i64> = self.run_confirmed(&keys.holder, &script).await?;
            match reply::answer(&answer)? {
                Some(Answer::Refused(refused)) => Err(refusal(name, refused)),
                _ => Ok(()),
            }
        })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.look_well(name, seen))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(async move {
            let keys = self.scan(&self.keys.patterns(family, prefix)).await?;
            let names: BTreeSet<Name> = keys.iter().filter_map(|key| self.keys.name(family, key)).collect();
            let wanted = names.into_iter().filter(|name| {
                name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            });
            let mut found = Vec::new();
            for name in wanted {
                if found.len() == limit {
                    break;
                }
                // With names that are keys as they are, a key may be anything.
                let view = match self.look_at(&name, u64::MAX, false).await {
                    Err(Error::Engine { .. }) => continue,
                    view => view?,
                };
                if !view.claims.is_empty() || view.waiting > 0 {
                    found.push((name, view));
                }
            }
            if found.iter().any(|(_, view)| lacks_a_token(view)) {
                tokio::time::sleep(notes::AFTER * 2).await;
                for (name, view) in found.iter_mut().filter(|(_, view)| lacks_a_token(view)) {
                    *view = self.look_at(name, u64::MAX, false).await?;
                }
                found.retain(|(_, view)| !view.claims.is_empty() || view.waiting > 0);
            }
            Ok(found)
        })
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move {
            let keys = self.keys.of(name)?;
            let mut script = SCRIPTS.break_claims.on(&keys.all());
            script.arg(name.family().word());
            // The token of a lock that was taken an instant ago stands nowhere yet.
            let before = self.look_well(name, u64::MAX).await?.claims;
            let mut broken = reply::broken(self.run_confirmed(&keys.holder, &script).await?)?;
            for claim in broken.iter_mut().filter(|claim| claim.token == 0) {
                let seen = before.iter().find(|held| held.claim.owner == claim.owner);
                claim.token = seen.map_or(0, |held| held.claim.token);
            }
            Ok(broken)
        })
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(self.read_cells(names))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(async move { self.swap_cells(&swaps).await })
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        Box::pin(async move {
            match rule.twin() {
                Some(twin) => self.apply_twin(names, &twin).await,
                None => apply_by_swap(self, names, rule).await,
            }
        })
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            let key = match name.family() {
                Family::Cell => self.keys.cell(name)?,
                _ => self.keys.of(name)?.state.clone(),
            };
            let channel = format!("leasehold:changed:{key}");
            match watching {
                Watching::On => {
                    self.ears.watched().insert(channel.clone(), name.clone());
                    self.topology.subscribe(&channel).await
                }
                Watching::Off => {
                    self.ears.watched().remove(&channel);
                    self.topology.unsubscribe(&channel).await
                }
            }
        })
    }

    fn connection(&self, name: &Name) -> Connection {
        // A name that has no keys is refused, and never asked for.
        self.keys.of(name).map_or(Connection::Up, |keys| self.topology.connection(&keys.holder))
    }

    fn close(&self) -> Reply<'_, ()> {
        // Its claims were given back before, or end with their leases.
        self.topology.close();
        if let Some(post) = &self.post {
            post.close();
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<String> {
        Some(self.topology.trouble())
    }
}
