//! What the client is told without asking: one stream of watches, opened anew when it breaks.
//!
//! Every watch starts *now* and is open before anybody relies on it. It is never resumed at a
//! revision of the past: etcd feeds such a watch only every 100 ms, and can not if that revision
//! was compacted. After a break the watches are opened again, and then everybody is told that
//! something may have been missed ([`Heard::Missed`]).

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::Status;

use super::connection::Member;
use super::errors::Failure;
use super::keys::{Keys, after};
use super::messages::{Event, KeyValue, WatchCancel, WatchCreate, WatchOp, WatchRequest, WatchResponse};
use super::store::Store;
use crate::claim::Seat;
use crate::engine::supervise::Connected;
use crate::error::{Error, Result};
use crate::name::Name;

/// The pause before a stream is opened again that could not be opened or was ended by the server.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before a watch is opened again that the server has cancelled.
const CANCELLED_PAUSE: Duration = Duration::from_secs(1);

/// Something that was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// The session of some client has ended.
    Ended(Seat),
    /// Mail in one of our own sessions, and the revision by which it was written.
    Mail(Vec<u8>, i64),
    /// An election or a cell has changed.
    Changed(Name),
    /// Somebody has given up or given back a raw name.
    Left(Name),
    /// A key of a raw election has changed.
    Event { name: Name, kv: KeyValue, deleted: bool },
    /// From now on nothing is heard.
    Deaf,
    /// Everything is heard again. Anything may have happened meanwhile.
    Missed,
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// The ends of all sessions.
    Sessions,
    /// A session of our own.
    Session(Seat),
    /// An election or a cell.
    Name(Name),
    /// The ends of the contenders for a raw name.
    Contenders(Name),
    /// All that becomes of the contenders for a raw name.
    Contest(Name),
}

/// The watches of a client.
pub(super) struct Watches {
    store: Arc<Store>,
    keys: Keys,
    table: Mutex<Table>,
    sink: OnceLock<Box<dyn Fn(Heard) + Send + Sync>>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Table {
    last_id: i64,
    watches: HashMap<i64, Watch>,
    /// Where requests go while there is a stream.
    requests: Option<UnboundedSender<WatchRequest>>,
}

struct Watch {
    what: Watched,
    open: bool,
    /// Who waits until it is open.
    waiting: Vec<oneshot::Sender<()>>,
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.close();
    }
}

impl Watches {
    pub(super) fn new(store: Arc<Store>, keys: Keys) -> Arc<Watches> {
        let table = Mutex::default();
        Arc::new(Watches { store, keys, table, sink: OnceLock::new(), task: OnceLock::new() })
    }

    /// Starts to listen. Called once.
    pub(super) fn start(
        self: &Arc<Self>,
        first: Option<Watched>,
        sink: impl Fn(Heard) + Send + Sync + 'static,
    ) {
        self.sink.set(Box::new(sink)).ok();
        if let Some(first) = first {
            self.add(first);
        }
        let task = tokio::spawn(run(Arc::downgrade(self), Arc::clone(&self.store)));
        self.task.set(task.abort_handle()).ok();
    }

    pub(super) fn close(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        // Those who wait are told.
        self.table().watches.clear();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, heard: Heard) {
        if let Some(sink) = self.sink.get() {
            sink(heard);
        }
    }

    /// True while ends of sessions are heard of.
    pub(super) fn hears_of_ends(&self) -> bool {
        self.is_open(&Watched::Sessions)
    }

    /// True while this is watched.
    pub(super) fn is_open(&self, what: &Watched) -> bool {
        self.table().watches.values().any(|watch| watch.what == *what && watch.open)
    }

    /// The elections and cells that are watched.
    pub(super) fn names(&self) -> Vec<Name> {
        let table = self.table();
        let names = table.watches.values().filter_map(|watch| match &watch.what {
            Watched::Name(name) => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }

    fn add(&self, what: Watched) -> i64 {
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        if let Some(requests) = &table.requests {
            requests.send(self.request(id, &what)).ok();
        }
        table.watches.insert(id, Watch { what, open: false, waiting: Vec::new() });
        id
    }

    /// Watches, and waits until the watch is open. The caller limits the wait.
    pub(super) async fn watch(&self, what: Watched) -> Result<()> {
        let known = self.table().watches.iter().find(|(_, watch)| watch.what == what).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| self.add(what));
        let opened = {
            let mut table = self.table();
            let Some(watch) = table.watches.get_mut(&id) else { return Err(Error::closed()) };
            if watch.open {
                return Ok(());
            }
            let (opened, waits) = oneshot::channel();
            watch.waiting.push(opened);
            waits
        };
        opened.await.map_err(|_| Error::closed())
    }

    pub(super) fn unwatch(&self, what: &Watched) {
        let mut table = self.table();
        let Some(id) = table.watches.iter().find(|(_, watch)| watch.what == *what).map(|(id, _)| *id) else {
            return;
        };
        table.watches.remove(&id);
        if let Some(requests) = &table.requests {
            let cancel = WatchCancel { watch_id: id };
            requests.send(WatchRequest { op: Some(WatchOp::Cancel(cancel)) }).ok();
        }
    }

    fn request(&self, watch_id: i64, what: &Watched) -> WatchRequest {
        let (key, range_end, filters) = match what {
            Watched::Sessions => {
                let key = self.keys.sessions();
                let end = after(&key);
                // Mail of others is none of our business.
                (key, end, vec![0])
            }
            Watched::Session(seat) => (self.keys.session(*seat), Vec::new(), Vec::new()),
            Watched::Name(name) => (self.keys.name(name), Vec::new(), Vec::new()),
            Watched::Contenders(name) | Watched::Contest(name) => {
                let key = [name.as_str().as_bytes(), b"/"].concat();
                let end = after(&key);
                let filters = if matches!(what, Watched::Contest(_)) { Vec::new() } else { vec![0] };
                (key, end, filters)
            }
        };
        let create = WatchCreate { key, range_end, start_revision: 0, filters, watch_id };
        WatchRequest { op: Some(WatchOp::Create(create)) }
    }

    /// Opens all watches on a new stream, and reads it until it ends.
    async fn listen(self: &Arc<Self>, connected: &Connected<Member>, first: bool) -> Result<(), Failure> {
        let (requests, sent) = unbounded_channel();
        {
            let mut table = self.table();
            let Table { watches, requests: place, .. } = &mut *table;
            for (id, watch) in watches.iter_mut() {
                watch.open = false;
                requests.send(self.request(*id, &watch.what)).ok();
            }
            *place = Some(requests);
        }
        let opened = connected.while_up(pin!(connected.watch(sent))).await;
        let given_up = || Status::unavailable("the connection was given up");
        let failed = |status: Status| self.store.failed(connected, &status);
        let mut stream = opened.unwrap_or_else(|| Err(given_up())).map_err(failed)?;
        let mut whole = false;
        loop {
            let message = connected.while_up(pin!(stream.message())).await;
            match message.unwrap_or_else(|| Err(given_up())).map_err(failed)? {
                Some(message) => self.take(message),
                None => return Ok(()),
            }
            if !whole && self.table().watches.values().all(|watch| watch.open) {
                whole = true;
                if !first {
                    self.tell(Heard::Missed);
                }
            }
        }
    }

    /// The stream has ended.
    fn deafen(&self) {
        let mut table = self.table();
        table.requests = None;
        table.watches.values_mut().for_each(|watch| watch.open = false);
    }

    fn take(self: &Arc<Self>, message: WatchResponse) {
        let id = message.watch_id;
        if message.canceled {
            self.reopen(id, &message);
            return;
        }
        let what = {
            let mut table = self.table();
            let Some(watch) = table.watches.get_mut(&id) else { return };
            if message.created {
                watch.open = true;
                watch.waiting.drain(..).for_each(|waiting| {
                    waiting.send(()).ok();
                });
            }
            watch.what.clone()
        };
        for Event { kind, kv } in message.events {
            let (Some(kv), deleted) = (kv, kind == 1) else { continue };
            match &what {
                Watched::Sessions | Watched::Session(_) if deleted => {
                    if let Some(seat) = self.keys.seat_of(&kv.key) {
                        self.tell(Heard::Ended(seat));
                    }
                }
                Watched::Sessions => {}
                Watched::Session(_) => self.tell(Heard::Mail(kv.value, kv.mod_revision)),
                Watched::Name(name) => self.tell(Heard::Changed(name.clone())),
                Watched::Contenders(name) => self.tell(Heard::Left(name.clone())),
                Watched::Contest(name) => self.tell(Heard::Event { name: name.clone(), kv, deleted }),
            }
        }
    }

    /// The server has cancelled a watch: it fell behind a compaction, or the user lacks a right.
    fn reopen(self: &Arc<Self>, id: i64, message: &WatchResponse) {
        {
            let mut table = self.table();
            let Some(watch) = table.watches.get_mut(&id) else { return };
            watch.open = false;
        }
        self.tell(Heard::Deaf);
        let (compacted, reason) = (message.compact_revision, &message.cancel_reason);
        tracing::debug!(target: "leasehold", compacted, reason, "etcd has cancelled a watch");
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(CANCELLED_PAUSE).await;
            let Some(this) = Weak::upgrade(&this) else { return };
            let opened = {
                let mut table = this.table();
                let Table { watches, requests, .. } = &mut *table;
                let Some(watch) = watches.get_mut(&id) else { return };
                if let Some(requests) = requests {
                    requests.send(this.request(id, &watch.what)).ok();
                }
                let (opened, waits) = oneshot::channel();
                watch.waiting.push(opened);
                waits
            };
            if opened.await.is_ok() {
                this.tell(Heard::Missed);
            }
        });
    }
}

/// Keeps a stream open until the watches are dropped.
async fn run(watches: Weak<Watches>, store: Arc<Store>) {
    let mut first = true;
    loop {
        let connected = match store.supervisor.connected().await {
            Ok(connected) => connected,
            Err(error) if error.is_retryable() => continue,
            // The server refuses us; that may change.
            Err(_) => {
                sleep(CANCELLED_PAUSE).await;
                if watches.strong_count() == 0 {
                    return;
                }
                continue;
            }
        };
        let Some(strong) = watches.upgrade() else { return };
        let ended = strong.listen(&connected, first).await;
        tracing::debug!(target: "leasehold", ?ended, "the stream of watches has ended");
        first = false;
        strong.deafen();
        strong.tell(Heard::Deaf);
        drop(strong);
        sleep(PAUSE).await;
    }
}
