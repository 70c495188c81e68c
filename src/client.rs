//! The client: one per process and engine. It makes locks, renews their leases and tells what
//! happens.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

use crate::claim::{Claim, Holder, OwnerId};
use crate::client::acquire::{Wakes, Want};
use crate::client::background::{Count, RuntimeEnd};
use crate::client::backlog::Backlog;
use crate::client::close::Closing;
use crate::client::events::{Events, Sink};
use crate::client::keeper::Keeper;
use crate::client::metrics::Meter;
use crate::client::options::{check_label, check_lease};
use crate::client::queue::{Line, Terms};
use crate::client::watch::WatchedNames;
use crate::clock::{Clock, tokio_time_is_paused};
use crate::engine::{Engine, Guarantees, Hint, Hints, View};
use crate::error::{Error, Loss, Result};
use crate::name::{Family, Name};
use crate::random;

pub(crate) mod acquire;
mod background;
pub(crate) mod backlog;
pub(crate) mod cell;
mod close;
pub mod events;
pub(crate) mod hold;
pub(crate) mod keeper;
mod metrics;
mod options;
pub(crate) mod queue;
pub(crate) mod watch;

pub use self::options::{DEFAULT_LEASE, LONGEST_LABEL, LONGEST_LEASE, Options, SHORTEST_LEASE};

/// A connection to an engine, from which locks are made.
///
/// Cheap to clone; all clones are one client. When the last clone, lock and guard is gone, nothing
/// is left running; [`Client::close`] also waits for what is on its way.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    prefix: Arc<str>,
}

pub(crate) struct Inner {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    pub(crate) options: Options,
    pub(crate) events: Sink,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) backlog: Backlog,
    pub(crate) closing: Closing,
    /// Callers that wait for the engine.
    requests: Arc<Count>,
    /// What runs in the background.
    in_background: Arc<Count>,
    runtime_ended: Arc<AtomicBool>,
    pub(crate) holder: Arc<Holder>,
    /// Half of every owner's number; the other half counts.
    id: u64,
    owners: AtomicU64,
    lines: Mutex<Lines>,
    watched: WatchedNames,
    keeper_task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Lines {
    by_name: HashMap<Name, Weak<Line>>,
    swept_at: usize,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("engine", &self.inner.engine)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Client {
    /// A client on an engine of your own. Most use [`crate::connect`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] outside a tokio runtime, if an option is out of its range, or if tokio's
    /// time is paused and the client has no clock that follows it ([`Options::clock`]).
    pub fn new(engine: Box<dyn Engine>, options: Options) -> Result<Client> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("a client must be made inside a tokio runtime with time enabled"))?;
        check_lease(options.lease)?;
        check_label(&options.label)?;
        if !options.clock_chosen && tokio_time_is_paused() {
            return Err(Error::invalid(
                "tokio's time is paused, and this client would count leases by the machine's clock, which goes on; \
                 connect with `Options::new().clock(TokioClock::new())`",
            ));
        }
        let keeper = Arc::new(Keeper::new());
        let engine_word = engine.guarantees().engine;
        let inner = Arc::new(Inner {
            engine,
            clock: Arc::clone(&options.clock),
            runtime,
            events: Sink::new(engine_word, Meter::new(engine_word, &options)),
            keeper,
            wakes: Arc::default(),
            backlog: Backlog::default(),
            closing: Closing::default(),
            requests: Arc::default(),
            in_background: Arc::default(),
            runtime_ended: Arc::default(),
            holder: Arc::new(Holder { host: host(), pid: std::process::id(), label: options.label.clone() }),
            id: random::number()?,
            owners: AtomicU64::new(0),
            lines: Mutex::default(),
            watched: WatchedNames::default(),
            keeper_task: OnceLock::new(),
            options,
        });
        let keeping = keeper::run(Arc::downgrade(&inner), Arc::clone(&inner.keeper));
        let end = RuntimeEnd(Arc::clone(&inner.runtime_ended));
        let keeping = async move {
            keeping.await;
            drop(end);
        };
        inner.keeper_task.get_or_init(|| inner.runtime.spawn(keeping).abort_handle());
        let weak = Arc::downgrade(&inner);
        inner.engine.listen(Hints::new(move |hint| {
            if let Some(inner) = weak.upgrade() {
                inner.hear(hint);
            }
        }));
        Ok(Client { inner, prefix: Arc::from("") })
    }

    /// The same client with every name put under `prefix/`.
    ///
    /// Namespaces keep programs apart that share an engine. They nest, and are part of the name in
    /// listings: `client.namespace("shop").mutex("stock/42")` is what others call `shop/stock/42`.
    /// The slash is added to whatever `prefix` is.
    #[must_use]
    pub fn namespace(&self, prefix: impl AsRef<str>) -> Client {
        let prefix = prefix.as_ref();
        Client { inner: Arc::clone(&self.inner), prefix: format!("{}{prefix}/", self.prefix).into() }
    }

    /// What happens to this client's names from now on.
    pub fn events(&self) -> Events {
        self.inner.events.subscribe()
    }

    /// What the engine promises.
    pub fn guarantees(&self) -> Guarantees {
        self.inner.engine.guarantees()
    }

    /// Who holds a name, and who waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn look(&self, family: Family, name: impl AsRef<str>) -> Result<View> {
        self.inner.check_open()?;
        let name = self.name(family, name.as_ref())?;
        self.inner.call(self.inner.engine.look(&name, u64::MAX)).await
    }

    /// The names in use, in order, after `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn list(&self, family: Family, after: Option<&str>, limit: usize) -> Result<Vec<(Name, View)>> {
        self.inner.check_open()?;
        self.inner.call(self.inner.engine.list(family, &self.prefix, after, limit)).await
    }

    /// Takes a name away from all who hold it, and says who they were.
    ///
    /// For an operator who knows that the holders are gone or must stop. They are told as soon as
    /// their engine can tell them, at the latest when they renew; until then they go on, and their
    /// guards say [`Standing::Held`](crate::Standing::Held). Guards of this client and its clones
    /// are lost when this returns. Only a fencing token protects against what the holders do in
    /// between.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The name may have been taken away or not; it can be asked for again.
    pub async fn break_claims(&self, family: Family, name: impl AsRef<str>) -> Result<Vec<Claim>> {
        self.inner.check_open()?;
        let name = self.name(family, name.as_ref())?;
        let broken = self.inner.call(self.inner.engine.break_claims(&name)).await?;
        // Holders of this client need not wait for a hint or a renewal to learn what is known here.
        for claim in &broken {
            if let Some(lease) = self.inner.keeper.find(claim.owner) {
                lease.lose(Loss::Gone);
            }
        }
        Ok(broken)
    }

    /// A descriptor that keeps what this client holds for as long as any process has it open, even
    /// after this process was killed; `None` if the engine can not do that.
    ///
    /// It is for a program that takes a name and starts another program to do the work, and whose
    /// death must not free the name while that work goes on: `flock` behaves like this. Only
    /// `file:` can do it.
    ///
    /// The descriptor is closed on exec. Clear that flag (`FD_CLOEXEC`) for the program that is to
    /// inherit it. Programs that this one starts inherit it in turn, unless they close descriptors
    /// that they do not know.
    ///
    /// * While this process lives, leases end as they always do: one that is stopped loses its
    ///   names.
    /// * When it has ended without closing its client, all names that the client held stay held,
    ///   without an end, until the last copy of the descriptor is closed. Then they are free at
    ///   once.
    /// * A release, [`Client::close`] and [`Client::break_claims`] free a name whoever has the
    ///   descriptor open.
    ///
    /// A copy in a process that was forked without exec counts as this process: while it is there,
    /// leases end as they always do.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the client is closed or was made before a fork; [`Error::Unavailable`]
    /// if the engine can not make the descriptor.
    pub fn lifeline(&self) -> Result<Option<OwnedFd>> {
        self.inner.check_open()?;
        self.inner.engine.lifeline()
    }

    /// How many names this client holds.
    pub fn held(&self) -> usize {
        self.inner.keeper.count()
    }

    pub(crate) fn name(&self, family: Family, name: &str) -> Result<Name> {
        if self.prefix.is_empty() {
            return Name::new(family, name);
        }
        Name::new(family, format!("{}{name}", self.prefix))
    }

    pub(crate) fn want(&self, family: Family, name: &str, weight: u32, capacity: u32) -> Result<Want> {
        let name = self.name(family, name)?;
        Ok(Want {
            line: self.inner.line(&name),
            name,
            terms: Terms { weight, capacity, lease: self.inner.options.lease, lock_delay: Duration::ZERO },
            holder: Arc::clone(&self.inner.holder),
            value: Arc::default(),
            logged: false,
        })
    }
}

impl Inner {
    pub(crate) fn next_owner(&self) -> OwnerId {
        let count = self.owners.fetch_add(1, Ordering::Relaxed);
        OwnerId(u128::from(self.id) << 64 | u128::from(count))
    }

    /// Tells this client from every other one that is alive.
    pub(crate) fn engine_id(self: &Arc<Inner>) -> usize {
        Arc::as_ptr(self).addr()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.has_begun() { Err(Error::closed()) } else { Ok(()) }
    }

    /// Whether this process is a fork of the one that connected.
    #[cfg(feature = "sale")]
    pub(crate) fn is_forked(&self) -> bool {
        self.holder.pid != std::process::id()
    }

    /// Refuses what is out of range.
    pub(crate) fn check_want(&self, want: &Want) -> Result<()> {
        let terms = &want.terms;
        if !Arc::ptr_eq(&want.holder, &self.holder) {
            check_label(&want.holder.label)?;
        }
        if terms.lease != self.options.lease {
            check_lease(terms.lease)?;
        }
        if terms.lock_delay > LONGEST_LEASE {
            return Err(Error::invalid(format!(
                "a lock delay of {:?} is out of range: up to {LONGEST_LEASE:?}",
                terms.lock_delay
            )));
        }
        Ok(())
    }

    /// A call to the engine with the client's time limit.
    pub(crate) async fn call<T>(&self, reply: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.call_within(self.options.call_limit, reply).await
    }

    pub(crate) async fn call_within<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let mut reply = pin!(reply);
        let mut timer = pin!(None::<Sleep>);
        let answer = poll_fn(|context| {
            if let Poll::Ready(answer) = reply.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            // An embedded engine has answered when it is first asked; that needs no timer.
            if timer.is_none() {
                timer.set(Some(tokio::time::sleep(limit)));
            }
            timer.as_mut().as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(context).map(|()| None))
        });
        answer.await.unwrap_or_else(|| Err(self.no_answer(limit)))
    }

    /// The error for a call that was not answered in time.
    pub(crate) fn no_answer(&self, limit: Duration) -> Error {
        let limit = Duration::from_millis(limit.as_millis().try_into().unwrap_or(u64::MAX));
        let engine = self.engine.guarantees().engine;
        let what = match self.engine.trouble() {
            Some(trouble) => {
                // The message starts with the engine's word already.
                let trouble =
                    trouble.strip_prefix(engine).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&trouble);
                format!("no answer within {limit:?}; {trouble}")
            }
            None => format!("no answer within {limit:?}"),
        };
        Error::Unavailable { engine, what, source: None }
    }

    fn line(&self, name: &Name) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.by_name.get(name).and_then(Weak::upgrade) {
            return line;
        }
        if lines.by_name.len() >= lines.swept_at {
            lines.by_name.retain(|_, line| line.strong_count() > 0);
            lines.swept_at = lines.by_name.len() * 2 + 64;
        }
        let line = Arc::new(Line::default());
        lines.by_name.insert(name.clone(), Arc::downgrade(&line));
        line
    }

    fn hear(self: Arc<Inner>, hint: Hint) {
        match hint {
            Hint::Wake(owner) => self.wakes.wake(owner),
            Hint::Granted { owner, grant, round } => self.wakes.grant(owner, grant, round),
            Hint::WakeAll => self.wakes.wake_all(),
            Hint::Verify => {
                self.keeper.all().iter().for_each(|lease| lease.renew_soon());
                self.keeper.look_now();
            }
            Hint::Broken(owner) => {
                // One that is not kept yet finds this when it is.
                self.wakes.broken(owner);
                // A hint is not proof: the keeper asks the engine.
                if let Some(lease) = self.keeper.find(owner) {
                    self.wakes.woken_early(owner);
                    lease.renew_soon();
                    self.keeper.look_now();
                }
            }
            Hint::Disconnected { server, why } => self.events.disconnected(server, why),
            Hint::Reconnected { server } => self.events.reconnected(server),
            Hint::Changed(name) => self.watched.notify(&name),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(keeping) = self.keeper_task.get() {
            keeping.abort();
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
