//! Asking for a raw name: a node is made, and whoever is before it is waited for.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Member;
use super::contenders::{Contender, Wants, in_order, waits_for};
use super::messages::Request;
use super::promises::ENGINE;
use super::raw::{Own, Raw, unsupported};
use super::raw_nodes::{Node, base, beside, check, create, directories, find, mark};
use super::requests::Fresh;
use super::url::RawKind;
use super::wire::Said;
use crate::claim::{Answer, Ask, Grant, OwnerId, Pause, WHOLE};
use crate::clock::Moment;
use crate::engine::sessions::store::Session as _;
use crate::engine::sessions::{Attempt, Failure, now};
use crate::engine::supervise::Connected;
use crate::error::Result;
use crate::name::{Family, Name};

/// A waiter that hears nothing asks again after this long.
pub(super) const ASK_AGAIN: Pause = Pause { at_most: Duration::from_secs(5) };
/// A waiter that has not asked again for this long has given up, and its word was lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody who has begun to ask.
pub(super) struct Begun {
    pub(super) connected: Arc<Connected<Member>>,
    pub(super) started: Moment,
    pub(super) own: Own,
    pub(super) is_new: bool,
}

impl Raw {
    /// Whether others have such names, too.
    pub(super) fn shares(&self, family: Family) -> bool {
        match self.kind {
            RawKind::Mutex | RawKind::ReadWrite => family == Family::Lock,
            RawKind::Semaphore => family == Family::Semaphore,
            RawKind::Latch => family == Family::Election,
            RawKind::Kazoo => matches!(family, Family::Lock | Family::Election),
        }
    }

    fn wants(&self, name: &Name, ask: &Ask) -> Result<Wants> {
        let whole = ask.weight == ask.capacity;
        let refused = match self.kind {
            _ if !ask.lock_delay.is_zero() => "has no lock delays in raw mode",
            RawKind::Mutex if !self.shares(name.family()) => {
                "shares mutexes with `raw`, semaphores with `raw=semaphore`, elections with `raw=latch` or \
                 `raw=kazoo`, and nothing else; leave out `raw`"
            }
            _ if !self.shares(name.family()) => {
                "shares one kind of names: read-write locks with `raw=rwlock`, semaphores with \
                 `raw=semaphore`, elections with `raw=latch`, mutexes and elections with `raw=kazoo`"
            }
            RawKind::Semaphore if ask.weight != 1 => {
                "takes one permit at a time with `raw=semaphore`: Curator takes several one after the other, \
                 and two who have a part of what they want would wait for each other"
            }
            RawKind::ReadWrite if !whole && (ask.weight != 1 || ask.capacity != WHOLE) => {
                "shares read-write locks only with `raw=rwlock`"
            }
            RawKind::ReadWrite if !whole => return Ok(Wants::Read),
            RawKind::Mutex | RawKind::Latch | RawKind::Kazoo if !whole => {
                "shares mutexes and elections in this mode; read-write locks are shared with `raw=rwlock`"
            }
            _ => return Ok(Wants::All),
        };
        Err(unsupported(refused))
    }

    /// Asks for a claim, or asks again.
    pub(super) async fn acquire(self: Arc<Self>, name: Name, ask: Ask) -> Result<Answer> {
        let (directory, wants) = (self.directory(&name)?, self.wants(&name, &ask)?);
        loop {
            let answer = match self.kind {
                RawKind::Semaphore => self.acquire_permit(&name, &directory, &ask).await,
                _ => self.acquire_once(&name, &directory, wants, &ask).await,
            };
            match answer {
                // The node went with its session, or somebody has deleted it: it queues again.
                Err(Failure::SessionEnded) => self.abandon(ask.owner).await,
                answer => return answer.map_err(|failure| failure.into_error(ENGINE)),
            }
        }
    }

    async fn acquire_once(&self, name: &Name, directory: &str, wants: Wants, ask: &Ask) -> Attempt<Answer> {
        let Begun { connected, started, mut own, is_new } = self.begin(name, wants, ask).await?;
        let node = match own.node.clone() {
            Some(node) => node,
            None => {
                let node = self.make(&connected, (directory, ""), &own, is_new, ask).await?;
                own.node = Some(node.clone());
                self.note(ask.owner, own.clone());
                node
            }
        };
        let mut how = if is_new { Fresh::Already } else { Fresh::Vouched };
        loop {
            let Some(before) = self.ahead(&connected, (directory, &node), how).await? else {
                // What was read may be old: a majority says whether it is still there.
                if !is_new {
                    check(&self.requests, &connected, &node.0).await?;
                }
                return Ok(self.granted(ask, own, started));
            };
            if !ask.wait {
                self.leave(ask.owner).await?;
                return Ok(Answer::Busy(ASK_AGAIN));
            }
            if self.tell_when_gone(&connected, ask.owner, before).await? {
                return Ok(self.queued(ask.owner, own, started));
            }
            how = Fresh::Already;
        }
    }

    /// The contender of somebody who asks: the one from before, or another one.
    pub(super) async fn begin(&self, name: &Name, wants: Wants, ask: &Ask) -> Attempt<Begun> {
        let connected = self.requests.connected().await?;
        let started = now();
        connected.session.use_until(started + ask.answer_within + ask.lease);
        let seat = connected.session.seat();
        let known = self.table().own.get(&ask.owner).filter(|own| own.seat == seat).cloned();
        let is_new = known.is_none();
        let own = match known {
            Some(own) => own,
            None => Own {
                name: name.clone(),
                mark: mark(self.kind)?,
                seat,
                wants,
                capacity: ask.capacity,
                node: None,
                turn: None,
                token: 0,
                ends: started + PATIENCE.max(ask.lease),
            },
        };
        // Noted before anything is sent: whoever gives up finds it.
        self.note(ask.owner, own.clone());
        Ok(Begun { connected, started, own, is_new })
    }

    /// The node of a contender in a directory. What was asked for before may be there already.
    /// Nodes that are no claims have a base of their own.
    pub(super) async fn make(
        &self,
        connected: &Connected<Member>,
        (directory, other_base): (&str, &str),
        own: &Own,
        is_new: bool,
        ask: &Ask,
    ) -> Attempt<Node> {
        if !is_new {
            // An answer was lost. What was sent over a connection is done before what comes after
            // it, or not at all.
            let found = find(&self.requests, connected, directory, &own.mark).await?;
            return found.ok_or(Failure::SessionEnded);
        }
        let base = if other_base.is_empty() { base(self.kind, own.wants) } else { other_base };
        let data = match own.name.family() {
            Family::Election => &ask.value[..],
            _ => ask.holder.label.as_bytes(),
        };
        let place = (directory, directories(self.kind));
        create(&self.requests, connected, place, &format!("{}{base}", own.mark), data).await
    }

    /// Who is in the way of a node of ours, by its path.
    pub(super) async fn ahead(
        &self,
        connected: &Connected<Member>,
        (directory, node): (&str, &Node),
        how: Fresh,
    ) -> Attempt<Option<String>> {
        let children = beside(&self.requests, connected, (directory, node), how).await?;
        let mine = node.0.rsplit('/').next().and_then(Contender::parse).ok_or(Failure::SessionEnded)?;
        let before = waits_for(&mine, &in_order(&children)).map(|other| other.node.clone());
        Ok(before.map(|before| format!("{directory}/{before}")))
    }

    /// Has an owner told when a node is gone. False if it has gone already.
    pub(super) async fn tell_when_gone(
        &self,
        connected: &Connected<Member>,
        owner: OwnerId,
        path: String,
    ) -> Attempt<bool> {
        self.watch(owner, &path);
        let opened = connected.link.send(Request::Exists { path: path.clone(), watch: true });
        match self.requests.within(connected, opened).await? {
            Ok(_) => Ok(true),
            Err(Said::NoNode) => {
                self.table().watched.remove(&path);
                Ok(false)
            }
            Err(said) => Err(self.requests.failed(&said)),
        }
    }

    /// An owner is woken by what a watch tells of a node.
    pub(super) fn watch(&self, owner: OwnerId, path: &str) {
        let mut table = self.table();
        let owners = table.watched.entry(path.to_owned()).or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// Notes that somebody waits.
    pub(super) fn queued(&self, owner: OwnerId, own: Own, started: Moment) -> Answer {
        self.note(owner, Own { ends: started + PATIENCE, ..own });
        Answer::Queued(ASK_AGAIN)
    }

    /// Notes that somebody holds. The token is the change that made its node.
    pub(super) fn granted(&self, ask: &Ask, mut own: Own, started: Moment) -> Answer {
        if own.token == 0 {
            own.token = own.node.as_ref().map_or(0, |(_, change)| *change);
        }
        let grant = Grant { token: own.token, tokens: 1 };
        self.note(ask.owner, Own { ends: started + ask.lease, ..own });
        Answer::Granted(grant)
    }
}
