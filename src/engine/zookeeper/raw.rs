//! Names that are shared with Curator, kazoo and others that use ZooKeeper's recipes.
//!
//! A contender for the name `N` is a node below the node `N`, with a number that the servers give.
//! Whoever has the lowest number holds the name: see `contenders`. A node belongs to the session of
//! its client and goes with it. All claims of a client share one session, so a claim that is not
//! renewed any more is ended by its client. How a claim is asked for is in `raw_ask`.
//!
//! What this mode does better than those it shares names with: a waiter asks a majority whether its
//! node is still there before it believes that it holds, a node that was made without our hearing
//! of it is found by the number in its name and deleted, and numbers may wrap around.
//!
//! What it can not do: nobody else says more than what its node is called, and whatever needs more
//! than a place in a queue is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::contenders::Wants;
use super::messages::{ANY, Event, Mode, Op, Request, What};
use super::promises::ENGINE;
use super::raw_nodes::{Node, check, find, look_later};
use super::requests::{Done, Requests};
use super::url::RawKind;
use super::wire::Said;
use crate::claim::{Answer, Grant, OwnerId, Refused, Released};
use crate::clock::{Moment, SystemClock, sleep_until};
use crate::engine::sessions::store::Session as _;
use crate::engine::sessions::{Attempt, Failure, Heard, now};
use crate::engine::{Hint, Life, Renewal, Renewed};
use crate::error::{Error, Result};
use crate::name::Name;

/// One client that shares names with others.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) requests: Arc<Requests>,
    pub(super) kind: RawKind,
    table: Mutex<Table>,
    /// Something ends earlier than was thought.
    sooner: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) own: HashMap<OwnerId, Own>,
    /// Who waits for which node to go.
    pub(super) watched: HashMap<String, Vec<OwnerId>>,
}

/// A contender of ours.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) name: Name,
    /// How the names of its nodes start, which tells them from all others.
    pub(super) mark: String,
    /// The session that it is in.
    pub(super) seat: u64,
    pub(super) wants: Wants,
    /// Out of how many permits it wants one.
    pub(super) capacity: u32,
    /// The node that is its claim, once that is known.
    pub(super) node: Option<Node>,
    /// Its node in the line before a semaphore, as long as it stands there.
    pub(super) turn: Option<Node>,
    /// The token that it was granted, if it was.
    pub(super) token: u64,
    /// When it is to be deleted unless somebody asks for it before.
    pub(super) ends: Moment,
}

impl Raw {
    pub(super) fn new(requests: Arc<Requests>, kind: RawKind) -> Arc<Raw> {
        let raw = Arc::new(Raw { requests, kind, table: Mutex::default(), sooner: Notify::new() });
        let ears = &raw.requests.supervisor.connector().ears;
        let (heard, told) = (Arc::downgrade(&raw), Arc::downgrade(&raw));
        ears.listen(move |message| {
            if let Some(raw) = heard.upgrade() {
                raw.hear(&message);
            }
        });
        ears.watch(move |event| {
            if let Some(raw) = told.upgrade() {
                raw.take(&event);
            }
        });
        raw
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hint(&self, hint: Hint) {
        self.requests.supervisor.connector().ears.hint(hint);
    }

    fn hear(&self, heard: &Heard) {
        if matches!(heard, Heard::Missed | Heard::Ended(_)) {
            self.table().watched.clear();
            self.hint(Hint::WakeAll);
            self.hint(Hint::Verify);
        }
    }

    fn take(&self, event: &Event) {
        if event.what != What::Created {
            let owners = self.table().watched.remove(&event.path).unwrap_or_default();
            owners.into_iter().for_each(|owner| self.hint(Hint::Wake(owner)));
        }
    }

    /// The node of a name.
    pub(super) fn directory(&self, name: &Name) -> Result<String> {
        let text = name.as_str().strip_prefix('/').unwrap_or(name.as_str());
        let is_wrong =
            |part: &str| part.is_empty() || part == "." || part == ".." || part.chars().any(char::is_control);
        let path = format!("{}/{text}", self.requests.paths.prefix());
        if text.split('/').any(is_wrong) || path.starts_with("/zookeeper/") {
            return Err(Error::invalid(format!(
                "`{name}` can not be the path of a node, which a raw name is: parts between `/` are not \
                 empty, `.` or `..`"
            )));
        }
        Ok(path)
    }

    pub(super) fn note(&self, owner: OwnerId, own: Own) {
        self.table().own.insert(owner, own);
        self.sooner.notify_one();
    }

    /// Forgets a contender of which a node is gone. What is left of it is deleted.
    pub(super) async fn abandon(&self, owner: OwnerId) {
        let own = self.table().own.get(&owner).cloned();
        if self.leave(owner).await.is_err()
            && let Some(own) = self.table().own.remove(&owner).or(own)
            && let Ok(directory) = self.directory(&own.name)
        {
            for (directory, _) in places(self.kind, &directory, &own) {
                look_later(&self.requests, directory, own.mark.clone());
            }
        }
    }

    /// Gives a claim back, or leaves the queue.
    pub(super) async fn release(self: Arc<Self>, owner: OwnerId) -> Result<Released> {
        self.leave(owner).await.map_err(|failure| failure.into_error(ENGINE))
    }

    pub(super) async fn leave(&self, owner: OwnerId) -> Attempt<Released> {
        let Some(own) = self.table().own.get(&owner).cloned() else { return Ok(Released::Nothing) };
        let connected = self.requests.connected().await?;
        let mut released = Released::Nothing;
        // Otherwise it went with its session.
        if own.seat == connected.session.seat() {
            let directory = self.directory(&own.name)?;
            for (directory, node) in places(self.kind, &directory, &own) {
                let path = match node {
                    Some((path, _)) => path,
                    None => {
                        look_later(&self.requests, directory.clone(), own.mark.clone());
                        match find(&self.requests, &connected, &directory, &own.mark).await? {
                            Some((path, _)) => path,
                            None => continue,
                        }
                    }
                };
                let deleted = connected.link.send(Request::Delete { path, version: ANY });
                match self.requests.within(&connected, deleted).await? {
                    Ok(_) => released = Released::Claim,
                    Err(Said::NoNode) => {}
                    Err(said) => return Err(self.requests.failed(&said)),
                }
            }
        }
        self.table().own.remove(&owner);
        Ok(released)
    }

    /// Changes what a leader says.
    pub(super) async fn proclaim(self: Arc<Self>, owner: OwnerId, value: Arc<[u8]>) -> Result<Answer> {
        let own = self.table().own.get(&owner).filter(|own| own.token != 0).cloned();
        let Some(Own { node: Some((path, _)), token, .. }) = own else {
            return Ok(Answer::Refused(Refused::NotHeld));
        };
        let written = self.requests.write(&[Op::Set(path, value.to_vec(), ANY)]).await;
        Ok(match written.map_err(|failure| failure.into_error(ENGINE))? {
            Done::Yes(_) => Answer::Granted(Grant { token, tokens: 1 }),
            Done::No(..) => Answer::Refused(Refused::NotHeld),
        })
    }

    /// Makes a reader of a writer, as Curator does: a node of the other kind with the same number.
    pub(super) async fn downgrade(self: Arc<Self>, owner: OwnerId, token: u64) -> Result<Answer> {
        let own = self.table().own.get(&owner).filter(|own| own.token == token).cloned();
        let Some(own) = own else {
            return Ok(Answer::Refused(Refused::NotHeld));
        };
        let (RawKind::ReadWrite, Some((path, _))) = (self.kind, own.node.clone()) else {
            return Err(unsupported("can not change a claim in raw mode; leave out `raw`"));
        };
        let reader = path.replace("__WRIT__", "__READ__");
        let create = Op::Create(reader.clone(), Vec::new(), Mode::Ephemeral, self.requests.access());
        let ops = if reader == path { Vec::new() } else { vec![Op::Delete(path, ANY), create] };
        match self.requests.write(&ops).await.map_err(|failure| failure.into_error(ENGINE))? {
            Done::Yes(versions) => {
                let made = versions.last().copied().flatten();
                if let Some(made) = made {
                    let node = Some((reader, made.written));
                    self.note(owner, Own { wants: Wants::Read, node, ..own });
                }
                Ok(Answer::Granted(Grant { token, tokens: 1 }))
            }
            Done::No(..) => Ok(Answer::Refused(Refused::NotHeld)),
        }
    }

    /// How long a claim lives for sure: its node goes with its session.
    pub(super) fn life(&self, owner: OwnerId) -> Life {
        let Some(seat) = self.table().own.get(&owner).map(|own| own.seat) else { return Life::AsLeased };
        match self.requests.supervisor.connected_now() {
            Some(connected) if connected.session.seat() == seat => connected.session.life(),
            _ => Life::Over,
        }
    }

    /// Renews one claim.
    pub(super) async fn renew(&self, renewal: &Renewal) -> Renewed {
        let Some(own) = self.table().own.get(&renewal.owner).cloned() else { return Renewed::Gone };
        let Some((path, _)) = own.node.clone() else { return Renewed::Gone };
        let started = now();
        if let Some(connected) = self.requests.supervisor.connected_now()
            && (connected.session.has_ended() || connected.session.seat() != own.seat)
        {
            return Renewed::Gone;
        }
        let Ok(connected) = self.requests.connected().await else { return Renewed::Unknown };
        if connected.session.seat() != own.seat {
            return Renewed::Gone;
        }
        connected.session.use_until(started + 2 * renewal.lease);
        match check(&self.requests, &connected, &path).await {
            Ok(()) => {
                self.note(renewal.owner, Own { ends: started + renewal.lease, ..own });
                Renewed::Yes
            }
            Err(Failure::SessionEnded) => {
                self.table().own.remove(&renewal.owner);
                Renewed::Gone
            }
            Err(_) => Renewed::Unknown,
        }
    }

    /// Deletes the nodes of claims that are not renewed any more, until the client is gone.
    pub(super) async fn expire(raw: std::sync::Weak<Raw>) {
        loop {
            let Some(strong) = raw.upgrade() else { return };
            let at = now();
            let (over, next) = {
                let table = strong.table();
                let over = table.own.iter().filter(|(_, own)| own.ends <= at).map(|(owner, _)| *owner);
                let next = table.own.values().map(|own| own.ends).filter(|ends| *ends > at).min();
                (over.collect::<Vec<_>>(), next)
            };
            for owner in over {
                if let Some(own) = strong.table().own.get_mut(&owner) {
                    // If it can not be done now.
                    own.ends = at + Duration::from_secs(1);
                }
                strong.leave(owner).await.ok();
            }
            // Its end is heard of within a second.
            let next = next.unwrap_or(Moment::NEVER).min(at + Duration::from_secs(1));
            let sooner = strong.sooner.notified();
            tokio::select! {
                () = sooner => {}
                () = sleep_until(&SystemClock, next) => {}
            }
        }
    }

    /// Whose node this is, if it is one of ours.
    pub(super) fn owner_of(&self, path: &str) -> Option<OwnerId> {
        let table = self.table();
        let is_it = |own: &Own| [&own.node, &own.turn].into_iter().flatten().any(|(other, _)| other == path);
        table.own.iter().find(|(_, own)| is_it(own)).map(|(owner, _)| *owner)
    }

    /// How many permits a name has, by those of ours who want one.
    pub(super) fn capacity_of(&self, name: &Name) -> Option<u32> {
        self.table().own.values().find(|own| own.name == *name).map(|own| own.capacity)
    }

    /// Deletes all nodes of this client.
    pub(super) async fn close(&self) {
        let paths: Vec<String> = {
            let mut table = self.table();
            let nodes = table.own.drain().flat_map(|(_, own)| [own.node, own.turn]);
            nodes.flatten().map(|(path, _)| path).collect()
        };
        if !self.requests.supervisor.connected_now().is_some_and(|connected| connected.is_up()) {
            // They end with the session.
            return;
        }
        for path in paths {
            self.requests.write(&[Op::Delete(path, ANY)]).await.ok();
        }
    }
}

/// The line before a semaphore, below its node.
pub(super) const LINE: &str = "locks";
/// The permits of a semaphore, below its node.
pub(super) const PERMITS: &str = "leases";

/// The directories in which a contender has a node, or may have one, and the node if it is known.
fn places(kind: RawKind, directory: &str, own: &Own) -> Vec<(String, Option<Node>)> {
    if kind != RawKind::Semaphore {
        return vec![(directory.to_owned(), own.node.clone())];
    }
    let permit = (format!("{directory}/{PERMITS}"), own.node.clone());
    // Whoever holds has left the line.
    let turn = (own.token == 0).then(|| (format!("{directory}/{LINE}"), own.turn.clone()));
    [permit].into_iter().chain(turn).collect()
}

pub(super) fn unsupported(what: &str) -> Error {
    Error::Unsupported { engine: ENGINE, what: what.to_owned() }
}
