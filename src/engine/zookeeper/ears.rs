//! Where what is heard goes: hints for the client, and what watches tell.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::messages::{Event, Request};
use crate::engine::sessions::Heard;
use crate::engine::{Hint, Hints};

/// Who is told what is heard.
#[derive(Default)]
pub(super) struct Ears {
    pub(super) hints: OnceLock<Hints>,
    sink: OnceLock<Box<dyn Fn(Heard) + Send + Sync>>,
    events: OnceLock<Box<dyn Fn(Event) + Send + Sync>>,
    /// The watches that every connection has.
    standing: Arc<Mutex<Vec<Request>>>,
    /// People were told that there is no connection.
    told_down: AtomicBool,
    /// How many connections there were.
    connections: AtomicU64,
    closed: AtomicBool,
}

impl Ears {
    /// Passes on what is heard from now on. Called once.
    pub(super) fn listen(&self, sink: impl Fn(Heard) + Send + Sync + 'static) {
        self.sink.set(Box::new(sink)).ok();
    }

    /// Passes on what watches tell from now on. Called once.
    pub(super) fn watch(&self, sink: impl Fn(Event) + Send + Sync + 'static) {
        self.events.set(Box::new(sink)).ok();
    }

    /// A watch that all connections have from now on.
    pub(super) fn stand(&self, watch: Request) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
    }

    /// The same no more.
    pub(super) fn stand_no_more(&self, watch: &Request) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != watch);
    }

    /// A watch tells something.
    pub(super) fn event(&self, event: Event) {
        if let Some(sink) = self.events.get() {
            sink(event);
        }
    }

    pub(super) fn hint(&self, hint: Hint) {
        if let Some(hints) = self.hints.get()
            && !self.is_closed()
        {
            hints.give(hint);
        }
    }

    pub(super) fn tell(&self, heard: Heard) {
        if let Some(sink) = self.sink.get()
            && !self.is_closed()
        {
            sink(heard);
        }
    }

    /// The client is closed: nobody is told anything any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// There is no connection.
    pub(super) fn disconnected(&self, server: &str, why: &str) {
        if !self.told_down.swap(true, Ordering::AcqRel) {
            self.hint(Hint::Disconnected { server: server.to_owned(), why: why.to_owned() });
        }
        self.tell(Heard::Deaf);
    }

    /// There is one again.
    pub(super) fn connected_again(&self, server: String) {
        self.connections.fetch_add(1, Ordering::AcqRel);
        self.told_down.store(false, Ordering::Release);
        self.hint(Hint::Reconnected { server });
        self.tell(Heard::Missed);
    }

    /// A session was made.
    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::AcqRel);
    }

    /// The watches that every connection has.
    pub(super) fn standing(&self) -> Arc<Mutex<Vec<Request>>> {
        Arc::clone(&self.standing)
    }
}
