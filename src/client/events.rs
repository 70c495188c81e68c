//! What happens to the names of a client, as it happens: events, `tracing` and metrics.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{self, Receiver};

use crate::client::metrics::Meter;
use crate::engine::Renewed;
use crate::error::Loss;
use crate::name::Name;

/// Something that happened to a name, or to the connection. Each is a `tracing` event too.
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
    /// A caller's time was over before it got the name.
    TimedOut {
        /// What it waited for.
        name: Name,
        /// How long.
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
        /// How long it was held.
        held: Duration,
    },
    /// A holder gave the name back, or on to the next caller in this process.
    Released {
        /// What.
        name: Name,
        /// Under which token.
        token: u64,
        /// How long it was held.
        held: Duration,
    },
    /// A name that was given up was not given back to the engine in time. While its lease may stand
    /// that is tried again; at the latest the name is free when the lease ends.
    NotReleased {
        /// What.
        name: Name,
        /// Under which token; 0 if a request was given up before it was granted.
        token: u64,
        /// What failed.
        why: String,
    },
    /// The connection to a server was lost, or is of no use any more. It is made again as soon as
    /// possible; names that are held stand until their deadlines.
    Disconnected {
        /// Which server, as the URL names it.
        server: String,
        /// Why.
        why: String,
    },
    /// There is a connection to a server again.
    Reconnected {
        /// Which server.
        server: String,
    },
    /// The listener was too slow and missed this many events.
    Missed(u64),
}

/// The events of a client, from when it was asked for them. Made by [`crate::Client::events`].
///
/// It is a [`Stream`] too, for those who merge it with others.
pub struct Events(Listening);

/// A listener, at rest or in the middle of a wait.
enum Listening {
    Idle(Receiver<Event>),
    Waiting(Pin<Box<dyn Future<Output = Received> + Send + Sync>>),
    /// Only inside a poll, and once the client is gone.
    Ended,
}

type Received = (Result<Event, RecvError>, Receiver<Event>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Events>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match std::mem::replace(&mut self.0, Listening::Ended) {
                Listening::Ended => return Poll::Ready(None),
                Listening::Idle(mut receiver) => match receiver.try_recv() {
                    Ok(event) => {
                        self.0 = Listening::Idle(receiver);
                        return Poll::Ready(Some(event));
                    }
                    Err(TryRecvError::Lagged(missed)) => {
                        self.0 = Listening::Idle(receiver);
                        return Poll::Ready(Some(Event::Missed(missed)));
                    }
                    Err(TryRecvError::Closed) => return Poll::Ready(None),
                    Err(TryRecvError::Empty) => {
                        // The receiver has nothing to poll but this future, which borrows it.
                        self.0 = Listening::Waiting(Box::pin(async move {
                            let received = receiver.recv().await;
                            (received, receiver)
                        }));
                    }
                },
                Listening::Waiting(mut next) => {
                    let polled = next.as_mut().poll(context);
                    if polled.is_pending() {
                        self.0 = Listening::Waiting(next);
                    }
                    let (received, receiver) = ready!(polled);
                    let event = match received {
                        Ok(event) => event,
                        Err(RecvError::Lagged(missed)) => Event::Missed(missed),
                        Err(RecvError::Closed) => return Poll::Ready(None),
                    };
                    self.0 = Listening::Idle(receiver);
                    return Poll::Ready(Some(event));
                }
            }
        }
    }
}

impl Events {
    /// The next event; `None` once the client is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

/// Where events are put. Costs next to nothing while nobody listens; the room for them is made for
/// the first who does.
#[derive(Debug)]
pub(crate) struct Sink {
    listeners: OnceLock<broadcast::Sender<Event>>,
    engine: &'static str,
    meter: Meter,
}

impl Sink {
    pub(super) fn new(engine: &'static str, meter: Meter) -> Sink {
        Sink { listeners: OnceLock::new(), engine, meter }
    }

    pub(super) fn subscribe(&self) -> Events {
        /// How far a listener can lag behind.
        const ROOM: usize = 1024;
        let listeners = self.listeners.get_or_init(|| broadcast::Sender::new(ROOM));
        Events(Listening::Idle(listeners.subscribe()))
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn waiting(&self, name: &Name) {
        tracing::debug!(target: "leasehold", %name, "waiting");
        self.send(|| Event::Waiting { name: name.clone() });
    }

    pub(crate) fn granted(&self, name: &Name, token: u64, waited: Duration) {
        tracing::debug!(target: "leasehold", %name, token, ?waited, "granted");
        self.meter.granted(name);
        self.send(|| Event::Granted { name: name.clone(), token, waited });
    }

    pub(crate) fn timed_out(&self, name: &Name, waited: Duration) {
        tracing::debug!(target: "leasehold", %name, ?waited, "timed out");
        self.send(|| Event::TimedOut { name: name.clone(), waited });
    }

    pub(crate) fn in_doubt(&self, name: &Name, token: u64, why: &dyn fmt::Display) {
        tracing::warn!(target: "leasehold", %name, token, %why, "in doubt");
        self.meter.in_doubt(name);
        self.send(|| Event::InDoubt { name: name.clone(), token, why: why.to_string() });
    }

    pub(crate) fn recovered(&self, name: &Name, token: u64) {
        tracing::info!(target: "leasehold", %name, token, "recovered");
        self.meter.recovered(name);
        self.send(|| Event::Recovered { name: name.clone(), token });
    }

    pub(crate) fn lost(&self, name: &Name, token: u64, why: Loss, held: Duration) {
        tracing::error!(target: "leasehold", %name, token, %why, ?held, "lost");
        self.meter.lost(name, why, held);
        self.send(|| Event::Lost { name: name.clone(), token, why, held });
    }

    /// `held` says how long, if somebody wants to know: it looks at the clock, and this is on the
    /// way of every release.
    pub(crate) fn released(&self, name: &Name, token: u64, held: impl Fn() -> Duration) {
        tracing::debug!(target: "leasehold", %name, token, held = ?held(), "released");
        self.meter.released(name, &held);
        self.send(|| Event::Released { name: name.clone(), token, held: held() });
    }

    pub(crate) fn not_released(&self, name: &Name, token: u64, why: &dyn fmt::Display) {
        tracing::warn!(target: "leasehold", %name, token, %why, "not released; it ends with its lease at the latest");
        self.meter.not_released(name);
        self.send(|| Event::NotReleased { name: name.clone(), token, why: why.to_string() });
    }

    /// A renewal was answered, or failed. Too many to be events: metrics alone.
    pub(crate) fn renewal(&self, name: &Name, verdict: Option<Renewed>) {
        self.meter.renewal(name, verdict);
    }

    pub(crate) fn disconnected(&self, server: String, why: String) {
        tracing::warn!(target: "leasehold", engine = self.engine, server, why, "connection lost");
        self.meter.disconnected();
        self.send(|| Event::Disconnected { server, why });
    }

    pub(crate) fn reconnected(&self, server: String) {
        tracing::info!(target: "leasehold", engine = self.engine, server, "connected again");
        self.meter.reconnected();
        self.send(|| Event::Reconnected { server });
    }

    fn send(&self, event: impl FnOnce() -> Event) {
        if let Some(listeners) = self.listeners.get().filter(|listeners| listeners.receiver_count() > 0) {
            // Fails only if the last of them has just gone.
            listeners.send(event()).ok();
        }
    }
}
