//! Claims kept by a majority of independent Redis servers.
//!
//! A name is held by whoever holds it at more than half of the servers, so any minority of them can
//! die, hang, be cut off or lose its data. A majority must have accepted the token before the name
//! counts as held, and a server accepts one only above its counter: tokens are unique and rise
//! whatever the clocks do. A server that has forgotten its data does not vote until nobody can rely
//! on what it forgot. The decisions are in `redlock/rules.rs`, the rules of one server in the
//! scripts, the keys in docs/redlock.md.
//!
//! Exclusion depends on time. Clocks that run at different speeds by more than a hundredth, or that
//! are set forward where a holder needs the server for its majority, can let a second holder in
//! before the first one's lease is over. There is no queue: whoever asks at the right moment comes
//! first. Semaphores, elections and cells need one order of all changes, which independent servers
//! do not have; they are refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::Instant;

use self::admission::Admission;
use self::errors::{ENGINE, REDLOCK};
use self::listener::Listener;
use self::node::{Node, Nodes};
use self::quorum::{Quorum, STRAGGLERS};
use self::rules::majority;
use self::scripts::DOWNGRADE;
use self::url::Place;
use crate::claim::{Alteration, Answer, Ask, Claim, Grant, OwnerId, Refused, Released, WHOLE};
use crate::engine::{
    AfterDeath, Cells, Engine, Guarantees, Hints, Reach, Renewal, Renewed, Reply, Swap, Swapped, View,
    Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;
use crate::redis::holder::owner_text;
use crate::redis::link::{Link, Server};

mod acquire;
mod admission;
mod errors;
mod keys;
mod listener;
mod look;
mod node;
mod owners;
mod quorum;
mod release;
mod renew;
mod reply;
/// For the model that explores it, `tests/redlock_model`; not a part of the interface.
#[doc(hidden)]
pub mod rules;
mod scripts;
mod url;

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
    shares: true,
    fences: true,
};

/// How long a server has to be connected to before the others go on without it.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
/// How long a majority has.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// One client's engine.
#[derive(Debug)]
pub(crate) struct Redlock {
    quorum: Quorum,
    listener: Arc<Listener>,
    admission: Admission,
}

impl Redlock {
    /// Connects to the servers at a URL.
    pub(crate) async fn open(url: &str) -> Result<Redlock> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("`redlock:` must be opened inside a tokio runtime with io and time enabled")
        })?;
        let Place { targets, keys, max_lease } = Place::parse(url)?;
        let seat = random::number()?;
        let listener = Arc::new(Listener::new(targets.len(), runtime));
        let links = join_all(targets.into_iter().enumerate().map(|(number, target)| {
            let weak = Arc::downgrade(&listener);
            let hear = move |heard| {
                if let Some(listener) = Weak::upgrade(&weak) {
                    listener.hear(number, heard);
                }
            };
            let channels = BTreeSet::from([format!("leasehold:seat:{seat}")]);
            Link::open_or_retry(Server::new(target, channels, hear), FIRST_LIMIT)
        }))
        .await;
        let mut nodes = Vec::new();
        for (number, link) in links.into_iter().enumerate() {
            nodes.push(Arc::new(Node::new(number, link?, Arc::clone(&listener.look))));
        }
        let nodes: Nodes = nodes.into();
        wait_for_majority(&nodes).await?;
        let admission = Admission::start(&nodes, max_lease, Arc::clone(&listener.look)).await?;
        let quorum = Quorum::new(nodes, keys, max_lease, seat);
        Ok(Redlock { quorum, listener, admission })
    }

    /// Refuses what can not be promised.
    fn check(&self, name: &Name, ask: &Ask) -> Result<()> {
        let max_lease = self.quorum.max_lease;
        if name.family() != Family::Lock || ask.logged || ask.capacity != WHOLE {
            return Err(unsupported(name.family()));
        }
        if !ask.lock_delay.is_zero() {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "can not keep a name closed after an expiry (lock delay); check tokens, or use another engine".into(),
            });
        }
        if ask.lease > max_lease {
            return Err(Error::invalid(format!(
                "a lease of {:?} is longer than `max_lease`, {max_lease:?}: a server that lost its data waits that long before \
                 it votes. Leases renew themselves; give a shorter one, or a larger `max_lease` in the URL of all clients",
                ask.lease
            )));
        }
        Ok(())
    }

    async fn downgrade(&self, name: &Name, owner: OwnerId, token: u64) -> Result<Answer> {
        let quorum = &self.quorum;
        let keys = quorum.keys_of(name, owner)?;
        let stamp = quorum.next_stamp();
        let script = move || DOWNGRADE.on(&keys.all()).arg(owner_text(owner)).arg(stamp).arg(token);
        let (answers, failures): (Vec<u8>, _) = quorum.everywhere(script).await?;
        let done = answers.iter().filter(|answer| **answer == 1).count();
        if done >= quorum.majority() {
            if let Some(held) = quorum.owners.lock().get_mut(&owner).and_then(|entry| entry.held.as_mut()) {
                held.shared = true;
            }
            return Ok(Answer::Granted(Grant { token, tokens: 1 }));
        }
        if done + quorum.nodes.len() - answers.len() < quorum.majority() {
            return Ok(Answer::Refused(Refused::NotHeld));
        }
        Err(quorum.no_majority(failures))
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
            return Err(REDLOCK.unavailable(what));
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
        if self.quorum.nodes.iter().any(evicts) {
            guarantees.exclusion = "until servers run out of memory and throw it away";
        }
        guarantees
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.listener.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(async move {
            self.quorum.check_process()?;
            self.check(name, ask)?;
            acquire::acquire(&self.quorum, name, ask).await
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(renew::renew(&self.quorum, renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(release::release(&self.quorum, name, owner))
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
        Box::pin(look::look(&self.quorum, name))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(look::list(&self.quorum, family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(look::break_claims(&self.quorum, name))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        refused(Family::Cell)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        refused(Family::Cell)
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
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
            tokio::time::timeout(STRAGGLERS, self.quorum.releasing.closed()).await.ok();
            self.admission.close();
            self.quorum.nodes.iter().for_each(|node| node.link.close());
            Ok(())
        })
    }

    fn trouble(&self) -> Option<String> {
        let each: Vec<String> = self.quorum.nodes.iter().filter_map(|node| node.trouble()).collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}
