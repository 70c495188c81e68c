//! Claims kept in a Redis server.
//!
//! A free lock is taken by a short script and given back by another. Everything else is done by
//! scripts that restate the rules of [`crate::claim`], so a claim is granted whole or not at all.
//! Time is read from the server, never from the caller. The holder of a lock is a plain string at
//! the lock's own key, so that clients that know nothing of leasehold (`SET key value NX PX …`)
//! exclude us and we exclude them. The keys are described in docs/redis.md.
//!
//! A server that loses its data, or a replica that is promoted before it has the last grant, can
//! give a name to two owners. Where that matters, use an engine that agrees before it answers, and
//! always check the token.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use self::batch::Batcher;
use self::listener::Listener;
use self::scripts::{ALTER, BREAK, RESIZE};
use self::session::Session;
use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use crate::engine::{
    AfterDeath, Cells, Connection, Engine, Guarantees, Hints, Reach, Renewal, Renewed, Reply, Rule, Swap,
    Swapped, View, Watching, apply_by_swap, refusal,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;
use crate::redis::cluster::Cluster;
use crate::redis::link::{Link, Server};
use crate::redis::requirements::Target;
use crate::redis::source::Source;
use crate::redis::topology::Topology;
use crate::redis::url::{Copies, Place, Servers};
use crate::redis::{errors, holder};

mod acquire;
mod batch;
mod cells;
mod listener;
mod look;
mod release;
mod renew;
mod reply;
mod scripts;
mod session;

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
    shares: true,
    fences: true,
};

/// One client's engine.
#[derive(Debug)]
pub(crate) struct Redis {
    session: Session,
    listener: Arc<Listener>,
    /// A replica can take over.
    fails_over: bool,
}

impl Redis {
    /// Connects to the server at a URL.
    pub(crate) async fn open(url: &str) -> Result<Redis> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::invalid(
                "`redis:` must be opened inside a tokio runtime with io and time enabled",
            ));
        }
        let Place { servers, keys, eviction_allowed, copies, strangers } = Place::parse(url)?;
        let seat = random::number()?;
        let listener = Arc::new(Listener::new(copies != Copies::None));
        let weak = Arc::downgrade(&listener);
        let hear = move |heard| {
            if let Some(listener) = Weak::upgrade(&weak) {
                listener.hear(heard);
            }
        };
        let channels = BTreeSet::from([format!("leasehold:seat:{seat}")]);
        let fails_over = !matches!(servers, Servers::One(Source::Fixed(_)));
        let counts_replicas = copies == Copies::Majority;
        let topology = match servers {
            Servers::One(source) => {
                let (label, server) = (errors::REDIS, source.to_string());
                let target = Target { label, source, server, eviction_allowed, counts_replicas };
                Topology::One(Arc::new(Link::open(Server::new(target, channels, hear)).await?))
            }
            Servers::Cluster(seeds) => {
                let cluster = Cluster::open(seeds, eviction_allowed, counts_replicas, channels, hear);
                Topology::Cluster(Box::new(cluster.await?))
            }
        };
        let batcher = match &topology {
            Topology::One(link) if copies == Copies::None => Some(Batcher::new(link)),
            _ => None,
        };
        let session = Session { topology, batcher, keys, copies, seat, strangers };
        Ok(Redis { session, listener, fails_over })
    }
}

impl Engine for Redis {
    fn guarantees(&self) -> Guarantees {
        let forgets = self.session.topology.any(|facts| !facts.remembers);
        let exclusion = if self.session.topology.any(|facts| facts.evicts) {
            "until the server runs out of memory and throws it away"
        } else if self.session.copies != Copies::None && forgets {
            "over fail-overs to a replica that has heard of it, but not over a restart (appendonly no)"
        } else if self.session.copies != Copies::None {
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
        let tokens = if self.fails_over && self.session.copies != Copies::Majority {
            "over loss of data too, while the servers' clocks go on and agree; for a moment after a fail-over the old primary may \
             still give some that are lower than those of the new one"
        } else {
            GUARANTEES.tokens
        };
        Guarantees { exclusion, tokens, ..GUARANTEES }
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.listener.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(acquire::acquire(&self.session, name, ask))
    }

    fn shard(&self, name: &Name) -> u64 {
        match &self.session.topology {
            Topology::One(_) => 0,
            // A name that can not be used is refused when it is.
            Topology::Cluster(cluster) => {
                self.session.keys.of(name).map_or(0, |keys| cluster.shard(&keys.holder))
            }
        }
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(renew::renew(&self.session, renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(release::release(&self.session, name, owner, used))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move {
            let keys = self.session.keys.of(name)?;
            let script = |_: &_| {
                let script = ALTER.on(&keys.all());
                let script = script.arg(name.family().word()).arg(holder::owner_text(owner));
                match &alteration {
                    Alteration::Downgrade { weight, token } => script.arg("downgrade").arg(weight).arg(token),
                    Alteration::TryUpgrade => script.arg("try"),
                    Alteration::Upgrade => script.arg("upgrade"),
                    Alteration::Value(value) => script.arg("value").arg(&**value),
                }
            };
            let answer: Vec<i64> = self.session.run_confirmed(&keys.holder, script).await?;
            reply::answer(&answer)?.ok_or_else(|| errors::strange("an answer that was not asked for"))
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move {
            let keys = self.session.keys.of(name)?;
            let family = name.family().word();
            let script = |_: &_| RESIZE.on(&keys.all()).arg(family).arg(declared).arg(capacity);
            let answer: Vec<i64> = self.session.run_confirmed(&keys.holder, script).await?;
            match reply::answer(&answer)? {
                Some(Answer::Refused(refused)) => Err(refusal(name, refused)),
                _ => Ok(()),
            }
        })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(look::look(&self.session, name, seen, true))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(look::list(&self.session, family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move {
            let keys = self.session.keys.of(name)?;
            let script = |_: &_| BREAK.on(&keys.all()).arg(name.family().word());
            reply::broken(self.session.run_confirmed(&keys.holder, script).await?)
        })
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(cells::read(&self.session, names))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(async move { cells::swap(&self.session, &swaps).await })
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        Box::pin(async move {
            match rule.twin() {
                Some(twin) => cells::apply(&self.session, names, &twin).await,
                None => apply_by_swap(self, names, rule).await,
            }
        })
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(cells::list(&self.session, prefix, after, limit))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            let key = match name.family() {
                Family::Cell => self.session.keys.cell(name)?,
                _ => self.session.keys.of(name)?.state.clone(),
            };
            let channel = format!("leasehold:changed:{key}");
            match watching {
                Watching::On => {
                    self.listener.watched().insert(channel.clone(), name.clone());
                    self.session.topology.subscribe(&channel).await
                }
                Watching::Off => {
                    self.listener.watched().remove(&channel);
                    self.session.topology.unsubscribe(&channel).await
                }
            }
        })
    }

    fn connection(&self, name: &Name) -> Connection {
        // A name that has no keys is refused, and never asked for.
        self.session
            .keys
            .of(name)
            .map_or(Connection::Up, |keys| self.session.topology.connection(&keys.holder))
    }

    fn close(&self) -> Reply<'_, ()> {
        // Its claims were given back before, or end with their leases.
        self.session.topology.close();
        if let Some(batcher) = &self.session.batcher {
            batcher.close();
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<String> {
        Some(self.session.topology.trouble())
    }
}
