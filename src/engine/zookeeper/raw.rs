//! Locks that are shared with Curator, kazoo and others that use ZooKeeper's recipe.
//!
//! A contender for the name `N` is a node below the node `N`, with a number that the servers give.
//! Whoever has the lowest number holds the name: see `contenders`. A node belongs to the session of
//! its client and goes with it. All claims of a client share one session, so a claim that is not
//! renewed any more is ended by its client.
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

use super::contenders::{Contender, Wants, in_order, waits_for};
use super::messages::{ANY, Event, Get, Got, Mode, Op, Request, What};
use super::promises::ENGINE;
use super::raw_nodes::{check, create, find, look_later, uuid};
use super::requests::{Done, Fresh, Requests};
use super::url::RawKind;
use super::wire::Said;
use crate::claim::{Answer, Ask, Grant, OwnerId, Pause, Refused, Released, WHOLE};
use crate::clock::{Moment, SystemClock, sleep_until};
use crate::engine::sessions::store::Session as _;
use crate::engine::sessions::{Attempt, Failure, Heard, now};
use crate::engine::{Hint, Life, Renewal, Renewed};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// A waiter that hears nothing asks again after this long.
const ASK_AGAIN: Pause = Pause { at_most: Duration::from_secs(5) };
/// A waiter that has not asked again for this long has given up, and its word was lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// One client that shares names with others.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) requests: Arc<Requests>,
    kind: RawKind,
    table: Mutex<Table>,
    /// Something ends earlier than was thought.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Table {
    own: HashMap<OwnerId, Own>,
    /// Who waits for which node to go.
    watched: HashMap<String, Vec<OwnerId>>,
}

/// A contender of ours.
#[derive(Clone, Debug)]
struct Own {
    name: Name,
    /// Tells it from all others.
    id: String,
    /// The session that it is in.
    seat: u64,
    wants: Wants,
    /// Its path and the change that made it, once they are known.
    node: Option<(String, u64)>,
    /// The token that it was granted, if it was.
    token: u64,
    /// When it is to be deleted unless somebody asks for it before.
    ends: Moment,
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

    fn table(&self) -> MutexGuard<'_, Table> {
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
        if event.what == What::Deleted || event.what == What::Written {
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

    fn wants(&self, ask: &Ask) -> Result<Wants> {
        let reads = ask.weight != ask.capacity;
        match self.kind {
            _ if !ask.lock_delay.is_zero() => Err(unsupported("has no lock delays in raw mode")),
            RawKind::Mutex if reads => {
                Err(unsupported("shares mutexes with `raw`; read-write locks are shared with `raw=rwlock`"))
            }
            RawKind::ReadWrite if reads && (ask.weight != 1 || ask.capacity != WHOLE) => {
                Err(unsupported("shares read-write locks only with `raw=rwlock`"))
            }
            _ if reads => Ok(Wants::Read),
            _ => Ok(Wants::All),
        }
    }

    /// Asks for a claim, or asks again.
    pub(super) async fn acquire(self: Arc<Self>, name: Name, ask: Ask) -> Result<Answer> {
        if name.family() != Family::Lock {
            return Err(unsupported("shares locks only in raw mode; leave out `raw`"));
        }
        let (directory, wants) = (self.directory(&name)?, self.wants(&ask)?);
        loop {
            match self.acquire_once(&name, &directory, wants, &ask).await {
                // The node went with its session: it queues again.
                Err(Failure::SessionEnded) => drop(self.table().own.remove(&ask.owner)),
                answer => return answer.map_err(|failure| failure.into_error(ENGINE)),
            }
        }
    }

    async fn acquire_once(&self, name: &Name, directory: &str, wants: Wants, ask: &Ask) -> Attempt<Answer> {
        let connected = self.requests.connected().await?;
        let started = now();
        connected.session.use_until(started + ask.answer_within + ask.lease);
        let seat = connected.session.seat();
        let known = self.table().own.get(&ask.owner).filter(|own| own.seat == seat).cloned();
        let is_new = known.is_none();
        let mut own = match known {
            Some(own) => own,
            None => {
                let ends = started + PATIENCE.max(ask.lease);
                Own { name: name.clone(), id: uuid()?, seat, wants, node: None, token: 0, ends }
            }
        };
        // Noted before it is sent: whoever gives up finds it.
        self.note(ask.owner, own.clone());
        let (path, change) = match own.node.clone() {
            Some(node) => node,
            None => {
                let node = match is_new {
                    true => {
                        let kind = (self.kind, own.wants, own.id.as_str());
                        let label = ask.holder.label.as_bytes();
                        create(&self.requests, &connected, directory, kind, label).await?
                    }
                    // An answer was lost.
                    false => {
                        let found = find(&self.requests, &connected, directory, &own.id).await?;
                        found.ok_or(Failure::SessionEnded)?
                    }
                };
                own.node = Some(node.clone());
                self.note(ask.owner, own.clone());
                node
            }
        };
        let mut how = if is_new { Fresh::Already } else { Fresh::Vouched };
        loop {
            let gets = [Get::Data(path.clone()), Get::Children(directory.to_owned())];
            let mut got = self.requests.read(&gets, how).await?.into_iter();
            let (Some(Got::Data(_, stat)), Some(Got::Children(children))) = (got.next(), got.next()) else {
                return Err(Failure::SessionEnded);
            };
            if stat.session != connected.link.id || stat.created.cast_unsigned() != change {
                return Err(Failure::SessionEnded);
            }
            let mine = path.rsplit('/').next().and_then(Contender::parse).ok_or(Failure::SessionEnded)?;
            let all = in_order(&children);
            let Some(before) = waits_for(&mine, &all) else {
                // What was read may be old: a majority says whether it is still there.
                if !is_new {
                    check(&self.requests, &connected, &path).await?;
                }
                own.ends = started + ask.lease;
                if own.token == 0 {
                    own.token = change;
                }
                let grant = Grant { token: own.token, tokens: 1 };
                self.note(ask.owner, own);
                return Ok(Answer::Granted(grant));
            };
            if !ask.wait {
                self.leave(ask.owner).await?;
                return Ok(Answer::Busy(ASK_AGAIN));
            }
            let before = format!("{directory}/{}", before.node);
            self.table().watched.entry(before.clone()).or_default().push(ask.owner);
            let opened = connected.link.send(Request::Exists { path: before.clone(), watch: true });
            match self.requests.within(&connected, opened).await? {
                Ok(_) => {
                    own.ends = started + PATIENCE;
                    self.note(ask.owner, own);
                    return Ok(Answer::Queued(ASK_AGAIN));
                }
                // It has gone meanwhile.
                Err(Said::NoNode) => {
                    self.table().watched.remove(&before);
                    how = Fresh::Already;
                }
                Err(said) => return Err(self.requests.failed(&said)),
            }
        }
    }

    fn note(&self, owner: OwnerId, own: Own) {
        self.table().own.insert(owner, own);
        self.sooner.notify_one();
    }

    /// Gives a claim back, or leaves the queue.
    pub(super) async fn release(self: Arc<Self>, owner: OwnerId) -> Result<Released> {
        self.leave(owner).await.map_err(|failure| failure.into_error(ENGINE))
    }

    async fn leave(&self, owner: OwnerId) -> Attempt<Released> {
        let Some(own) = self.table().own.get(&owner).cloned() else { return Ok(Released::Nothing) };
        let connected = self.requests.connected().await?;
        if own.seat != connected.session.seat() {
            // It went with its session.
            self.table().own.remove(&owner);
            return Ok(Released::Nothing);
        }
        let node = match own.node {
            Some((path, _)) => Some(path),
            None => {
                let directory = self.directory(&own.name)?;
                look_later(&self.requests, directory.clone(), &own.id);
                find(&self.requests, &connected, &directory, &own.id).await?.map(|(path, _)| path)
            }
        };
        let Some(path) = node else {
            self.table().own.remove(&owner);
            return Ok(Released::Nothing);
        };
        let deleted = connected.link.send(Request::Delete { path, version: ANY });
        let released = match self.requests.within(&connected, deleted).await? {
            Ok(_) => Released::Claim,
            Err(Said::NoNode) => Released::Nothing,
            Err(said) => return Err(self.requests.failed(&said)),
        };
        self.table().own.remove(&owner);
        Ok(released)
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
        let is_it = |own: &Own| own.node.as_ref().is_some_and(|(other, _)| other == path);
        table.own.iter().find(|(_, own)| is_it(own)).map(|(owner, _)| *owner)
    }

    /// Deletes all nodes of this client.
    pub(super) async fn close(&self) {
        let paths: Vec<String> = {
            let mut table = self.table();
            table.own.drain().filter_map(|(_, own)| own.node).map(|(path, _)| path).collect()
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

pub(super) fn unsupported(what: &str) -> Error {
    Error::Unsupported { engine: ENGINE, what: what.to_owned() }
}
