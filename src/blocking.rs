//! The same locks for programs without async.
//!
//! ```
//! # fn main() -> leasehold::Result<()> {
//! let client = leasehold::blocking::connect("memory:")?;
//! let guard = client.mutex("stock/42")?.lock()?;
//! println!("held under token {}", guard.token());
//! // … compute for as long as it takes: the lease is renewed meanwhile …
//! guard.check()?; // before each step that must not be made too late
//! guard.release()
//! # }
//! ```
//!
//! Every type here is a thin cover of the one with the same name in [`crate::lock`] and keeps its
//! promises. A client has one thread of its own, on which leases are renewed, messages are heard
//! and releases are sent, whatever the callers do. Calls wait on the caller's own thread.
//!
//! Calls can be made from any plain thread, from `tokio::task::spawn_blocking` and from
//! `tokio::task::block_in_place`. Inside an async task they are refused with [`Error::Invalid`],
//! because they would stop the runtime's thread; use the async client there.
//!
//! What a blocking call can not do is to be stopped: there is no future to drop. Use the calls with
//! a time limit. And work under a guard can not be stopped from outside when the name is lost: look
//! at [`Guard::check`] between its steps, or set a flag with [`Guard::on_lost`].
//!
//! When the last client, lock and guard is dropped, what is still held is given back, and the drop
//! waits until the engine has heard, no longer than [`Client::close`] would. A guard that is
//! dropped while others live is released in the background.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Claim;
use crate::client::events::Event;
use crate::client::{Client as AsyncClient, Options};
use crate::engine::{Guarantees, View};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

mod election;
mod guard;
mod latch;
mod multi;
mod mutex;
mod runtime;
mod rwlock;
mod semaphore;

pub use election::{Candidate, Election, Leadership, Observer};
pub use guard::Guard;
pub use latch::Latch;
pub use multi::{Multi, MultiGuard};
pub use mutex::Mutex;
pub use rwlock::{NotUpgraded, ReadGuard, RwLock, WriteGuard};
pub use semaphore::Semaphore;

use runtime::Runtime;

/// Connects to an engine: see [`crate::connect`].
///
/// # Errors
///
/// As [`crate::connect`], and [`Error::Invalid`] inside an async task.
pub fn connect(url: &str) -> Result<Client> {
    connect_with(url, Options::default())
}

/// Connects to an engine, with options: see [`crate::connect_with`].
///
/// # Errors
///
/// As [`connect`].
pub fn connect_with(url: &str, options: Options) -> Result<Client> {
    let runtime = Runtime::start()?;
    let client = runtime.wait(crate::connect_with(url, options))??;
    runtime.closes(&client);
    Ok(Client { client, runtime: Arc::new(runtime) })
}

/// A connection to an engine, from which locks are made: see [`crate::Client`].
///
/// Cheap to clone; all clones are one client.
#[derive(Clone)]
pub struct Client {
    client: AsyncClient,
    runtime: Arc<Runtime>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// A lock that is covered: its settings, written once.
macro_rules! settings {
    () => {
        /// Another lease than the client's: see [`crate::Options::lease`].
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.inner = self.inner.lease(lease);
            self
        }

        /// What the holder is called for humans.
        #[must_use]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.inner = self.inner.label(label);
            self
        }

        /// How long the name stays closed after a holder's lease *expired*: see
        /// [`crate::Mutex::lock_delay`].
        #[must_use]
        pub fn lock_delay(mut self, delay: std::time::Duration) -> Self {
            self.inner = self.inner.lock_delay(delay);
            self
        }
    };
}
use settings;

impl Client {
    /// The same client with every name put under `prefix/`: see [`crate::Client::namespace`].
    #[must_use]
    pub fn namespace(&self, prefix: impl AsRef<str>) -> Client {
        Client { client: self.client.namespace(prefix), runtime: Arc::clone(&self.runtime) }
    }

    /// What happens to this client's names from now on.
    pub fn events(&self) -> Events {
        Events(self.client.events())
    }

    /// What the engine promises.
    pub fn guarantees(&self) -> Guarantees {
        self.client.guarantees()
    }

    /// Who holds a name, and who waits for it.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::look`].
    pub fn look(&self, family: Family, name: impl AsRef<str>) -> Result<View> {
        self.runtime.wait(self.client.look(family, name))?
    }

    /// The names in use, in order, after `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::list`].
    pub fn list(&self, family: Family, after: Option<&str>, limit: usize) -> Result<Vec<(Name, View)>> {
        self.runtime.wait(self.client.list(family, after, limit))?
    }

    /// Takes a name away from all who hold it, and says who they were: see
    /// [`crate::Client::break_claims`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::break_claims`].
    pub fn break_claims(&self, family: Family, name: impl AsRef<str>) -> Result<Vec<Claim>> {
        self.runtime.wait(self.client.break_claims(family, name))?
    }

    /// A descriptor that keeps what this client holds for as long as any process has it open: see
    /// [`crate::Client::lifeline`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::lifeline`].
    pub fn lifeline(&self) -> Result<Option<OwnedFd>> {
        self.client.lifeline()
    }

    /// How many names this client holds.
    pub fn held(&self) -> usize {
        self.client.held()
    }

    /// Ends the client and gives back what is still held: see [`crate::Client::close`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::close`].
    pub fn close(&self) -> Result<()> {
        self.runtime.wait(self.client.close())?
    }
}

/// The events of a client, from when it was asked for them: an iterator that waits for the next.
///
/// It ends when the client is gone, and does not keep it.
#[derive(Debug)]
pub struct Events(crate::Events);

impl Events {
    /// Waits for the next event for at most `limit`; `None` if there was none in that time.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] inside an async task, or once the client is gone.
    pub fn next_for(&mut self, limit: Duration) -> Result<Option<Event>> {
        match runtime::wait_for(limit, self.0.next())? {
            Some(Some(event)) => Ok(Some(event)),
            Some(None) => Err(Error::closed()),
            None => Ok(None),
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    /// Waits for the next event; `None` once the client is gone, and inside an async task.
    fn next(&mut self) -> Option<Event> {
        runtime::wait(self.0.next()).ok()??
    }
}
