//! What the client is told without asking: that its turn has come, and that something has changed.
//!
//! A waiter watches its own place in the queue, and nobody else's. A hand-over deletes that place
//! in the same step. A watch is opened after the place was made; if the place is gone by then, the
//! turn has come already. Watches end with their connection: those of places are opened again by
//! those who wait, who are all told to ask again; the others by the link.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::messages::{Event, Get, Request, What};
use super::requests::{Fresh, Requests, into_value};
use super::wire::Said;
use crate::claim::OwnerId;
use crate::engine::Hint;
use crate::engine::sessions::store::{Session as _, Version};
use crate::engine::sessions::{Heard, read_letters};
use crate::error::Result;
use crate::name::Name;

/// The watches of a client.
#[derive(Debug)]
pub(super) struct Watches {
    requests: Arc<Requests>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The places of our waiters, by path.
    places: HashMap<String, Place>,
    /// Elections and cells, by path.
    names: HashMap<String, Name>,
    /// The session and the connection that watches of places were opened over last.
    over: (u64, u64),
    /// How often our session was written to, as far as that was read.
    mail: i32,
}

#[derive(Clone, Debug)]
struct Place {
    name: Name,
    owner: OwnerId,
    place: u64,
}

impl Watches {
    pub(super) fn new(requests: Arc<Requests>) -> Arc<Watches> {
        let watches = Arc::new(Watches { requests, table: Mutex::default() });
        let weak = Arc::downgrade(&watches);
        watches.requests.supervisor.connector().ears.watch(move |event| {
            if let Some(watches) = Weak::upgrade(&weak) {
                watches.take(event);
            }
        });
        watches
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when the place of a waiter is gone, unless that is watched already.
    pub(super) fn watch_place(self: &Arc<Self>, name: &Name, owner: OwnerId, place: u64) {
        let Some(connected) = self.requests.supervisor.connected_now() else { return };
        let Some(number) = connected.connection() else { return };
        let over = (connected.session.seat(), number);
        let path = self.requests.paths.waiter(name, place);
        {
            let mut table = self.table();
            if table.over != over {
                // Those of another connection are gone with it.
                table.over = over;
                table.places.clear();
            }
            if table.places.contains_key(&path) {
                return;
            }
            table.places.insert(path.clone(), Place { name: name.clone(), owner, place });
        }
        // Sent at once: the server answers in order.
        let opened = connected.link.send(Request::Exists { path: path.clone(), watch: true });
        let watches = Arc::downgrade(self);
        tokio::spawn(async move {
            // If the connection is lost, all are told to ask again when there is one.
            if opened.await == Err(Said::NoNode)
                && let Some(watches) = watches.upgrade()
            {
                watches.place_gone(&path);
            }
        });
    }

    fn place_gone(&self, path: &str) {
        let place = self.table().places.remove(path);
        if let Some(Place { name, owner, place, .. }) = place {
            self.requests.supervisor.connector().ears.tell(Heard::Left { name, owner, place });
        }
    }

    /// Tells of changes to a name, over this connection and those after it.
    pub(super) async fn watch_name(&self, name: &Name) -> Result<()> {
        let path = self.requests.paths.name(name);
        self.table().names.insert(path.clone(), name.clone());
        let watched = self.requests.add_watch(path).await;
        watched.map_err(|failure| failure.into_error(super::promises::ENGINE))
    }

    pub(super) fn unwatch_name(&self, name: &Name) {
        let path = self.requests.paths.name(name);
        self.table().names.remove(&path);
        self.requests.remove_watch(&path);
    }

    /// The names that are watched.
    pub(super) fn names(&self) -> Vec<Name> {
        self.table().names.values().cloned().collect()
    }

    pub(super) fn close(&self) {
        *self.table() = Table::default();
    }

    fn take(self: &Arc<Self>, Event { what, path }: Event) {
        let paths = &self.requests.paths;
        let ears = &self.requests.supervisor.connector().ears;
        if let Some(seat) = paths.seat_of(&path) {
            let is_own = || {
                let connected = self.requests.supervisor.connected_now();
                connected.is_some_and(|connected| connected.session.seat() == seat)
            };
            match what {
                What::Deleted => ears.tell(Heard::Ended(seat)),
                What::Written if is_own() => self.fetch_mail(path),
                _ => {}
            }
            return;
        }
        let name = self.table().names.get(&path).cloned();
        if let Some(name) = name
            && what != What::Children
        {
            ears.tell(Heard::Changed(name));
            return;
        }
        let place = self.table().places.get(&path).cloned();
        match (place, what) {
            (Some(_), What::Deleted) => self.place_gone(&path),
            // It was written again, which is all that this watch could tell.
            (Some(Place { name, owner, place, .. }), What::Written | What::Created) => {
                self.table().places.remove(&path);
                self.watch_place(&name, owner, place);
            }
            _ => {}
        }
    }

    /// Reads what others have written to our session.
    fn fetch_mail(self: &Arc<Self>, path: String) {
        let watches = Arc::clone(self);
        tokio::spawn(async move {
            let ears = &watches.requests.supervisor.connector().ears;
            let got = watches.requests.read(&[Get::Data(path)], Fresh::Already).await;
            let value = got.ok().and_then(|mut got| got.pop()).map(into_value).unwrap_or_default();
            let before = std::mem::replace(&mut watches.table().mail, value.version.count);
            let letters = value.bytes.map(|bytes| read_letters(&bytes)).unwrap_or_default();
            ears.tell(Heard::Mail(letters, Version::default()));
            // Something was written over before it was read: all make sure.
            if value.version.count != before.wrapping_add(1) {
                ears.hint(Hint::Verify);
                ears.hint(Hint::WakeAll);
            }
        });
    }
}
