//! What happens to the names of a client, as it happens.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::error::Loss;
use crate::name::Name;

/// Something that happened to a name. Each is a `tracing` event too.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A caller joined the engine's queue.
    Waiting {
        /// For what.
        name: Name,
    },
    /// A caller holds the name.
    Granted {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
        /// After what wait.
        waited: Duration,
    },
    /// A renewal failed; the holder goes on until its deadline.
    InDoubt {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
        /// What failed.
        why: String,
    },
    /// A renewal succeeded after one that failed.
    Recovered {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
    },
    /// A holder lost the name.
    Lost {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
        /// How.
        why: Loss,
    },
    /// A holder gave the name back, or on to the next caller in this process.
    Released {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
    },
    /// A name that was given up was not given back to the engine in time. While its lease may stand that is tried
    /// again; at the latest the name is free when the lease ends.
    NotReleased {
        /// What.
        name: Name,
        /// Under which token; 0 if a request was given up before it was granted.
        token: u64,
        /// What failed.
        why: String,
    },
    /// The listener was too slow and missed this many events.
    Missed(u64),
}

/// The events of a client, from when it was asked for them. Made by [`crate::Client::events`].
#[derive(Debug)]
pub struct Events(pub(super) broadcast::Receiver<Event>);

impl Events {
    /// The next event; `None` once the client is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Event::Missed(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where events are put. Costs next to nothing while nobody listens; the room for them is made for the first who does.
#[derive(Debug, Default)]
pub(crate) struct Sink(OnceLock<broadcast::Sender<Event>>);

impl Sink {
    pub(super) fn subscribe(&self) -> Events {
        /// How far a listener can lag behind.
        const ROOM: usize = 1024;
        Events(self.0.get_or_init(|| broadcast::Sender::new(ROOM)).subscribe())
    }

    pub(crate) fn waiting(&self, name: &Name) {
        tracing::debug!(target: "leasehold", %name, "waiting");
        self.send(|| Event::Waiting { name: name.clone() });
    }

    pub(crate) fn granted(&self, name: &Name, token: u64, waited: Duration) {
        tracing::debug!(target: "leasehold", %name, token, ?waited, "granted");
        self.send(|| Event::Granted { name: name.clone(), token, waited });
    }

    pub(crate) fn in_doubt(&self, name: &Name, token: u64, why: &dyn std::fmt::Display) {
        tracing::warn!(target: "leasehold", %name, token, %why, "in doubt");
        self.send(|| Event::InDoubt { name: name.clone(), token, why: why.to_string() });
    }

    pub(crate) fn recovered(&self, name: &Name, token: u64) {
        tracing::info!(target: "leasehold", %name, token, "recovered");
        self.send(|| Event::Recovered { name: name.clone(), token });
    }

    pub(crate) fn lost(&self, name: &Name, token: u64, why: Loss) {
        tracing::error!(target: "leasehold", %name, token, %why, "lost");
        self.send(|| Event::Lost { name: name.clone(), token, why });
    }

    pub(crate) fn released(&self, name: &Name, token: u64) {
        tracing::debug!(target: "leasehold", %name, token, "released");
        self.send(|| Event::Released { name: name.clone(), token });
    }

    pub(crate) fn not_released(&self, name: &Name, token: u64, why: &dyn std::fmt::Display) {
        tracing::warn!(target: "leasehold", %name, token, %why, "not released; it ends with its lease at the latest");
        self.send(|| Event::NotReleased { name: name.clone(), token, why: why.to_string() });
    }

    fn send(&self, event: impl FnOnce() -> Event) {
        if let Some(listeners) = self.0.get().filter(|listeners| listeners.receiver_count() > 0) {
            // Fails only if the last of them has just gone.
            listeners.send(event()).ok();
        }
    }
}
