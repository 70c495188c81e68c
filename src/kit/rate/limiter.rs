//! A limiter: limits with a name, kept by an engine.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::algorithm::{Algorithm, Outcome, Request, Shape};
use super::away::WhenAway;
use super::limit::Limit;
use super::shared::{Part, Settings, Shared};
use super::together::{away, decide};
use super::verdict::{Allowed, Mode, Taken, Verdict, after, quotas, verdict};
use crate::client::Client;
use crate::clock::{Moment, sleep_until};
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};
use crate::kit::breaker::Permit;
use crate::kit::cells;
use crate::name::Family;

/// How long the engine has to answer a limiter that does not say.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);
/// Of how many keys a limiter that does not say remembers something in the process.
pub const DEFAULT_KEYS: usize = 10_000;

/// One limit or several, with a name, shared by all processes. Made by [`Client::limiter`].
///
/// Cheap to clone; clones share what they remember.
///
/// # Examples
///
/// ```
/// use leasehold::kit::rate::{Limit, Verdict, WhenAway};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let search = client.limiter("search", Limit::per_second(100).burst(20), WhenAway::Open)?;
///
/// match search.check("user7").await? {
///     Verdict::Allowed(allowed) => println!("{} left", allowed.left()),
///     Verdict::Denied { retry_after, .. } => println!("come back in {retry_after:?}"),
///     _ => println!("never"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
}

/// The limits of a limiter: one, or several that must all allow a request.
#[derive(Clone, Debug)]
pub struct Limits(Vec<Limit>);

impl From<Limit> for Limits {
    fn from(limit: Limit) -> Limits {
        Limits(vec![limit])
    }
}

impl From<Vec<Limit>> for Limits {
    fn from(limits: Vec<Limit>) -> Limits {
        Limits(limits)
    }
}

impl<const N: usize> From<[Limit; N]> for Limits {
    fn from(limits: [Limit; N]) -> Limits {
        Limits(limits.into())
    }
}

impl Client {
    /// A limiter: one limit, or several (`[Limit::per_second(10), Limit::per_day(1000)]`) that must
    /// all allow a request.
    ///
    /// What is to happen while the engine is away must be said: see [`WhenAway`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a number of a limit is out of range, if two limits have the same
    /// algorithm and period, or if the name is too long; [`Error::Unsupported`] if the engine has
    /// no cells.
    pub fn limiter(
        &self,
        name: impl AsRef<str>,
        limits: impl Into<Limits>,
        when_away: WhenAway,
    ) -> Result<Limiter> {
        let (name, Limits(limits)) = (name.as_ref(), limits.into());
        self.inner.needs_cells("rate limits are kept in")?;
        if limits.is_empty() || limits.len() > MOST_CELLS {
            return Err(Error::invalid(format!(
                "`{name}` has {} limits; one to {MOST_CELLS} can be decided together",
                limits.len()
            )));
        }
        if limits.len() > 1 && limits.iter().any(|limit| limit.batch.is_some()) {
            return Err(Error::invalid(format!(
                "`{name}` has several limits; batches can be taken of one alone"
            )));
        }
        let mut parts: Vec<Part> = Vec::with_capacity(limits.len());
        for limit in limits {
            let algorithm = limit.algorithm()?;
            let prefix = prefix(name, &limit, algorithm);
            if parts.iter().any(|part| part.prefix == prefix) {
                return Err(Error::invalid(format!(
                    "two limits of `{name}` have the same algorithm and period; the lower one is enough"
                )));
            }
            // Also finds a name that is too long.
            self.name(Family::Cell, &cells::cell(&prefix, ""))?;
            parts.push(Part { limit, algorithm, prefix });
        }
        if let WhenAway::LocalShare { nodes: 0 } = when_away {
            return Err(Error::invalid(format!(
                "`{name}` can not be shared by 0 processes; give at least 1"
            )));
        }
        let (deadline, keys) = (DEFAULT_DEADLINE, DEFAULT_KEYS);
        let settings = Settings { name: name.to_owned(), parts, when_away, deadline, keys };
        Ok(Limiter::new(self, settings))
    }
}

impl Limiter {
    fn new(client: &Client, settings: Settings) -> Limiter {
        Limiter { client: client.clone(), shared: Arc::new(Shared::new(client, settings)) }
    }

    /// The name that it was made with.
    #[cfg(feature = "tower")]
    pub(crate) fn name(&self) -> &str {
        &self.shared.settings.name
    }

    /// Waits by the client's clock.
    #[cfg(feature = "tower")]
    pub(crate) async fn wait(&self, time: Duration) {
        let clock = &*self.client.inner.clock;
        sleep_until(clock, clock.now() + time).await;
    }

    /// The limits that it was made with, in their order.
    #[cfg(feature = "tower")]
    pub(crate) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.shared.settings.parts.iter().map(|part| &part.limit)
    }

    /// How long the engine has to answer: 50 milliseconds by default. After that the verdict is
    /// made as [`WhenAway`] says, and after some such calls at once.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Limiter {
        Limiter::new(&self.client, Settings { deadline, ..self.shared.settings.clone() })
    }

    /// Of how many keys something is remembered in this process: 10,000 by default. What is
    /// remembered are refusals until they can change, batches, and what has passed while the engine
    /// is away. With 0 the engine is asked each time.
    #[must_use]
    pub fn remember(self, keys: usize) -> Limiter {
        Limiter::new(&self.client, Settings { keys, ..self.shared.settings.clone() })
    }

    /// Asks whether one more may go.
    ///
    /// If it is refused, nothing is taken; see [`Limiter::check_cost`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check_cost`].
    pub async fn check(&self, key: impl AsRef<str>) -> Result<Verdict> {
        self.check_cost(key, 1).await
    }

    /// Asks whether something that counts as `cost` may go.
    ///
    /// If the engine does not answer in time, the verdict is made as [`WhenAway`] says. The request
    /// may then count in the engine although it was refused here. A refusal is remembered in this
    /// process until it can change by itself: what another process gives back is seen after that.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a cost of 0 or a key that is too long, or if the client is closed;
    /// [`Error::Engine`] if the cell of the key holds something else.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it was taken or not.
    pub async fn check_cost(&self, key: impl AsRef<str>, cost: u32) -> Result<Verdict> {
        let key = key.as_ref();
        if let Some(verdict) = self.shared.known(key, cost)? {
            return Ok(verdict);
        }
        if self.shared.settings.parts[0].limit.batch.is_some() {
            return self.check_batch(key, cost).await;
        }
        decide(&[(self, key)], cost).await
    }

    /// Asks for several keys at once, each for itself. The verdicts are in the order of the keys.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, each was taken or not.
    pub async fn check_many<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Verdict>> {
        let check = |key| (Box::pin(async move { self.check(key).await }), None);
        let mut checks: Vec<_> = keys.into_iter().map(check).collect();
        poll_fn(|context| {
            let mut missing = false;
            for (check, verdict) in checks.iter_mut().filter(|(_, verdict)| verdict.is_none()) {
                match check.as_mut().poll(context) {
                    Poll::Ready(ready) => *verdict = Some(ready),
                    Poll::Pending => missing = true,
                }
            }
            if missing { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        checks.into_iter().filter_map(|(_, verdict)| verdict).collect()
    }

    /// Asks several limiters about one request: either all allow it, or nothing is taken from any.
    ///
    /// It is one call to the engine. In a Redis Cluster the keys must have the same hash tag, as in
    /// `{tenant3}` and `{tenant3}/user7`. Batches are not used. While the engine is away, each
    /// limiter answers as it was told to, and all must allow it.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`]; also [`Error::Invalid`] if the limiters are of different
    /// clients, have more than [`MOST_CELLS`] limits together, or the same cell twice.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it was taken from all or from none.
    pub async fn check_all(requests: &[(&Limiter, &str)], cost: u32) -> Result<Verdict> {
        let Some((first, _)) = requests.first() else {
            return Err(Error::invalid("there is no limiter to ask; give at least one"));
        };
        let id = first.client.inner.engine_id();
        if requests.iter().any(|(limiter, _)| limiter.client.inner.engine_id() != id) {
            return Err(Error::invalid(
                "limiters of different clients can not decide together; make them from one client",
            ));
        }
        let mut before = 0;
        for (limiter, key) in requests {
            if let Some(verdict) = limiter.shared.known(key, cost)? {
                return Ok(after(verdict, before));
            }
            before += limiter.shared.settings.parts.len();
        }
        decide(requests, cost).await
    }

    /// What [`Limiter::check_cost`] would answer, by the engine and nobody else. Nothing is taken.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`]; also [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn peek(&self, key: impl AsRef<str>, cost: u32) -> Result<Verdict> {
        let names = self.shared.names(key.as_ref())?;
        let outcomes = self.shared.ask(&names, Request::Peek(cost)).await?;
        Ok(verdict(&outcomes, Mode::Engine, Taken::Nothing))
    }

    /// Forgets what was used of a key, in the engine and in this process. Other processes forget
    /// what they remember of refusals when it is over.
    ///
    /// # Errors
    ///
    /// As [`Limiter::peek`].
    ///
    /// # Cancel safety
    ///
    /// It was forgotten or not; it can be done again.
    pub async fn reset(&self, key: impl AsRef<str>) -> Result<()> {
        let (shared, key) = (&self.shared, key.as_ref());
        let names = shared.names(key)?;
        shared.ask(&names, Request::Reset).await?;
        shared.forget_refusal(key);
        shared.batches.forget(key);
        shared.share().forget(key);
        Ok(())
    }

    /// Waits until one more may go, for at most `limit`, and until it goes if it is told when (a
    /// leaky bucket). If it is known that it can not go in time, the refusal is given back at once.
    ///
    /// Those who wait are not in a queue: who asks first after it is free goes first.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, one was taken or not.
    pub async fn until_allowed(&self, key: impl AsRef<str>, limit: Duration) -> Result<Verdict> {
        let (key, clock) = (key.as_ref(), &*self.client.inner.clock);
        let end = clock.now() + limit;
        loop {
            let verdict = self.check(key).await?;
            let now = clock.now();
            match verdict.retry_after() {
                Some(wait) if now + wait <= end => {
                    sleep_until(clock, now + wait).await;
                    if verdict.is_allowed() {
                        return Ok(verdict);
                    }
                }
                _ if verdict.is_allowed() => {
                    // It would go too late. The place in the queue is for somebody else.
                    let (quotas, left) = (verdict.quotas().to_vec(), 0);
                    let (by, retry_after) = (verdict.by(), verdict.retry_after().unwrap_or_default());
                    if let Some(allowed) = verdict.allowed() {
                        allowed.refund().await?;
                    }
                    return Ok(Verdict::Denied { retry_after, left, limit: 0, quotas, by });
                }
                _ => return Ok(verdict),
            }
        }
    }

    /// Spends from the batch of a key, and fills it if there is not enough.
    async fn check_batch(&self, key: &str, cost: u32) -> Result<Verdict> {
        let shared = &self.shared;
        let Part { limit, algorithm, .. } = &shared.settings.parts[0];
        let Some(batch) = limit.batch else { return decide(&[(self, key)], cost).await };
        let clock = &*self.client.inner.clock;
        let now = clock.now();
        let Some(held) = shared.batches.of(key, now, now + batch.hold) else {
            // Too many keys have one.
            return decide(&[(self, key)], cost).await;
        };
        let mut tokens = match held.try_lock() {
            Ok(tokens) => tokens,
            // Somebody fills it, and has as long for that as everybody has.
            Err(_) => match tokio::time::timeout(shared.settings.deadline, held.lock()).await {
                Ok(tokens) => tokens,
                Err(_) => return Ok(away(&[(self, key)], cost, shared.settings.deadline)),
            },
        };
        let sent = clock.now();
        let from_batch = |left, number, cost, quotas| {
            let taken = Taken::Batch { limiter: Arc::clone(shared), key: key.into(), cost, number };
            Verdict::Allowed(Allowed { left, delay: Duration::ZERO, quotas, by: Mode::Batch, taken })
        };
        if tokens.spend(cost, sent) {
            return Ok(from_batch(tokens.left, tokens.number, cost, Vec::new()));
        }
        if let Some(pause) = self.may_not_ask(sent) {
            return Ok(away(&[(self, key)], cost, pause));
        }
        let names = shared.names(key)?;
        let least = cost - tokens.left;
        let outcomes = match shared.ask(&names, Request::Take { least, most: batch.size.max(least) }).await {
            Err(Error::Unavailable { .. }) => {
                return Ok(away(&[(self, key)], cost, shared.settings.deadline));
            }
            outcomes => outcomes?,
        };
        let [Outcome::Allowed { receipt, reset_after, .. }] = outcomes[..] else {
            let refused = verdict(&outcomes, Mode::Engine, Taken::Nothing);
            shared.remember_refusal(key, cost, &refused, 0, sent);
            return Ok(refused);
        };
        tokens.left = tokens.left + receipt.cost - cost;
        tokens.number += 1;
        // Counted from before the send: the engine's time for it began no earlier.
        tokens.until = sent + batch.hold;
        if let Shape::FixedWindow(_) = algorithm.0 {
            // They are tokens of this window, and not of the next.
            tokens.until = tokens.until.min(sent + Duration::from_micros(reset_after));
        }
        shared.batches.keep(key, &held, sent, sent + batch.hold);
        // What was left of the batch before has less time; it is not given back to this one.
        Ok(from_batch(tokens.left, tokens.number, least, quotas(&outcomes)))
    }

    /// How long the engine must not be asked, if so. Then somebody tries in the background whether
    /// it is back.
    pub(super) fn may_not_ask(&self, now: Moment) -> Option<Duration> {
        match self.shared.breaker.permit(now) {
            Permit::Ask => None,
            Permit::Away(pause) => Some(pause),
            Permit::Probe(pause) => {
                let shared = Arc::clone(&self.shared);
                self.client.inner.background(async move {
                    if let Ok(names) = shared.names("") {
                        // What comes of it is noted by the breaker.
                        shared.ask(&names, Request::Peek(0)).await.ok();
                    }
                });
                Some(pause)
            }
        }
    }
}

/// What the names of the cells of one limit start with.
///
/// Algorithm and period are part of it: a limit that gets another one starts anew. One that gets
/// another amount goes on with what was used.
fn prefix(name: &str, limit: &Limit, algorithm: Algorithm) -> String {
    let mut text = String::from("limit/");
    cells::part(name, &mut text);
    let (micros, word) = (limit.period().as_micros(), algorithm.word());
    if micros.is_multiple_of(1_000_000) {
        text + &format!("/{word}-{}s/", micros / 1_000_000)
    } else {
        text + &format!("/{word}-{micros}us/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep these: they never change.
    #[test]
    fn names_are_pinned() {
        let (second, day) = (Limit::per_second(5), Limit::fixed_window(5, Duration::from_secs(86_400)));
        let odd = Limit::sliding_window(5, Duration::from_micros(1500));
        for (limit, expected) in [
            (second, "limit/search/bucket-1s/"),
            (day, "limit/search/window-86400s/"),
            (odd, "limit/search/sliding-1500us/"),
        ] {
            assert_eq!(prefix("search", &limit, limit.algorithm().expect("in range")), expected);
        }
    }
}
