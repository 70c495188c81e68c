//! The servers together: what a majority of them answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::FromRedisValue;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::errors::ENGINE;
use super::keys::OwnerKeys;
use super::node::{Node, Nodes};
use super::owners::Owners;
use super::rules::majority;
use crate::claim::{OwnerId, Seat};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::redis::keys::Keys;
use crate::redis::script::Invocation;

/// How long a server has to answer what is not about a lease.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// How long the others have when a majority has answered.
pub(super) const STRAGGLERS: Duration = Duration::from_millis(50);

/// Why some servers did not do what they should, by their number.
pub(super) type Failures = Vec<(usize, Error)>;

/// One client's servers, and what all its calls share.
#[derive(Debug)]
pub(super) struct Quorum {
    pub(super) nodes: Nodes,
    pub(super) keys: Keys,
    pub(super) max_lease: Duration,
    pub(super) seat: Seat,
    pub(super) runtime: Handle,
    pub(super) owners: Arc<Owners>,
    /// Releases under way subscribe to it.
    pub(super) releasing: watch::Sender<()>,
    stamp: AtomicU64,
    /// The largest counter that was heard of, of any name.
    seen: AtomicU64,
    pid: u32,
}

impl Quorum {
    /// Must be called inside a runtime.
    pub(super) fn new(nodes: Nodes, keys: Keys, max_lease: Duration, seat: Seat) -> Quorum {
        Quorum {
            nodes,
            keys,
            max_lease,
            seat,
            runtime: Handle::current(),
            owners: Arc::default(),
            releasing: watch::Sender::new(()),
            stamp: AtomicU64::new(1),
            seen: AtomicU64::new(0),
            pid: std::process::id(),
        }
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// A number for a request: later ones are larger.
    pub(super) fn next_stamp(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::AcqRel)
    }

    /// Notes a counter: tokens that are proposed are above it.
    pub(super) fn saw(&self, counter: u64) {
        self.seen.fetch_max(counter, Ordering::AcqRel);
    }

    /// A token that is probably above all counters: the clock that most servers have, and more than
    /// all counters that were seen.
    pub(super) fn likely_token(&self) -> u64 {
        let mut clocks: Vec<u64> = self.nodes.iter().filter_map(|node| node.link.server_now()).collect();
        clocks.sort_unstable();
        // One clock that is far off does not count.
        let now = clocks.get(clocks.len() / 2).copied().unwrap_or(0);
        now.max(self.seen.load(Ordering::Acquire) + 1)
    }

    pub(super) fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::invalid("this client was made before a fork; a child process must connect for itself"))
    }

    pub(super) fn keys_of(&self, name: &Name, owner: OwnerId) -> Result<Arc<OwnerKeys>> {
        Ok(Arc::new(OwnerKeys::new(&self.keys, name, owner)?))
    }

    /// The error if too few servers do what they should.
    pub(super) fn no_majority(&self, mut failures: Failures) -> Error {
        let (servers, needed) = (self.nodes.len(), self.majority());
        let hopeless = failures.iter().filter(|(_, error)| !error.is_retryable()).count();
        failures.sort_by_key(|(number, _)| *number);
        let each: Vec<String> = failures.iter().map(|(_, error)| error.what()).collect();
        let what = format!(
            "no majority of the {servers} servers can answer ({needed} are needed): {}",
            each.join("; ")
        );
        let source = failures.into_iter().next().map(|(_, error)| error.into());
        if servers - hopeless >= needed {
            Error::Unavailable { engine: ENGINE, what, source }
        } else {
            Error::Engine { engine: ENGINE, what, source }
        }
    }

    /// Makes a call to every server, each in a task of its own: what was sent must be known to have
    /// been sent, whatever becomes of the caller. Gives the answers as they come.
    pub(super) fn broadcast<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        mut call: impl FnMut(Arc<Node>) -> F,
    ) -> mpsc::UnboundedReceiver<(usize, T)> {
        let (send, answers) = mpsc::unbounded_channel();
        for node in self.nodes.iter() {
            let (number, send) = (node.number, send.clone());
            let call = call(Arc::clone(node));
            self.runtime.spawn(async move {
                // Nobody listens any more when it is decided.
                send.send((number, call.await)).ok();
            });
        }
        answers
    }

    /// Runs a script at every server. Gives what was answered in time, and why the other servers
    /// have not answered; fewer than a majority are an error. A majority that has answered does not
    /// wait for long.
    pub(super) async fn everywhere<T: FromRedisValue + Send + 'static>(
        &self,
        script: impl Fn() -> Invocation + Send + Sync + 'static,
    ) -> Result<(Vec<T>, Failures)> {
        self.check_process()?;
        let script = Arc::new(script);
        let mut answers = self.broadcast(|node| {
            let script = Arc::clone(&script);
            async move { node.run_within(LIMIT, |_| script()).await }
        });
        let (mut good, mut failures) = (Vec::new(), Vec::new());
        loop {
            let patience = if good.len() >= self.majority() { STRAGGLERS } else { 2 * LIMIT };
            match tokio::time::timeout(patience, answers.recv()).await {
                Ok(Some((_, Ok(answer)))) => good.push(answer),
                Ok(Some((number, Err(error)))) => failures.push((number, error)),
                Ok(None) | Err(_) => break,
            }
        }
        if good.len() < self.majority() { Err(self.no_majority(failures)) } else { Ok((good, failures)) }
    }
}
