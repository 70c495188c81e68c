//! Running a submission once.

use std::future::Future;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use sha2::Digest as _;

use super::record::Fingerprint;
use super::recorder::Recorder;
use super::rule::{Answer, Ask, Step};
use crate::client::Client;
use crate::client::watch::Awaited;
use crate::clock::{Moment, sleep_until};
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::name::{Family, Name};
use crate::token::Token;

/// The longest result that is kept, in bytes.
pub const LONGEST_RESULT: usize = 256 * 1024;
/// How long a record is kept by a [`Once`] that does not say.
const DEFAULT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A record that could not be written is written again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// Runs submissions once. Made by [`Client::once`].
///
/// # Examples
///
/// ```
/// use leasehold::kit::once::Submission;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let orders = client.once("orders")?;
/// for _ in 0..2 {
///     let order = orders.run("key-from-the-client", b"two apples", |_token| async {
///         println!("placed"); // printed once
///         Ok::<_, std::io::Error>(b"order 42".to_vec())
///     });
///     match order.await? {
///         Submission::Done { result, .. } => assert_eq!(result, b"order 42"),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    client: Client,
    prefix: String,
    kept: Duration,
    lease: Duration,
    if_running: IfRunning,
    if_unknown: IfUnknown,
    release_errors: bool,
}

/// What a caller wants if somebody else runs the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfRunning {
    /// To be told: [`Submission::InProgress`].
    Tell,
    /// To wait for its result, for at most this long.
    Wait(Duration),
}

/// What a caller wants if it is not known whether a submission has had its effect, because whoever
/// ran it fell silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfUnknown {
    /// To be told: [`Submission::Unknown`].
    Tell,
    /// To run it again. Only for an effect that does no harm if it happens twice, or that checks
    /// its token.
    RunAgain,
}

/// How an effect ended, for whoever knows better than by success and error: see
/// [`Once::run_to_ending`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending<E> {
    /// It has happened, and this is the result.
    Keep(Vec<u8>),
    /// It has not happened: the submission is forgotten.
    Forget(E),
    /// It may have happened: the submission is unknown.
    Unknown(E),
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission<E> {
    /// It has had its effect, now or before.
    Done {
        /// The result, byte for byte as the first caller got it.
        result: Vec<u8>,
        /// The token under which it ran.
        token: Token,
        /// True if it ran before, and not for this call.
        replayed: bool,
        /// False if it ran now and that could not be recorded: others are told that it is unknown.
        recorded: bool,
    },
    /// It ran now and failed. Unless [`Once::errors_leave_unknown`] was said, it can be submitted
    /// again.
    Failed(E),
    /// Somebody runs it.
    InProgress {
        /// When to ask again at the latest.
        retry_after: Duration,
    },
    /// Whoever ran it fell silent before it was recorded, so long ago. It may have had its effect
    /// or not.
    Unknown {
        /// Since when.
        since: Duration,
    },
    /// The key was used for something else. Nothing was run.
    Mismatch,
}

impl Client {
    /// Submissions with a name, which scopes their keys.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn once(&self, name: impl AsRef<str>) -> Result<Once> {
        self.inner.needs_cells("submissions are recorded in")?;
        let mut prefix = String::from("once/");
        cells::part(name.as_ref(), &mut prefix);
        prefix.push('/');
        self.name(Family::Cell, &cells::cell(&prefix, ""))?;
        Ok(Once {
            client: self.clone(),
            prefix,
            kept: DEFAULT_KEPT,
            lease: self.inner.options.lease,
            if_running: IfRunning::Tell,
            if_unknown: IfUnknown::Tell,
            release_errors: true,
        })
    }
}

impl Once {
    /// How long a record is kept: a day by default. It must be longer than anybody sends a request
    /// again.
    #[must_use]
    pub fn kept_for(mut self, time: Duration) -> Once {
        self.kept = time;
        self
    }

    /// How long after its last word whoever runs a submission counts as silent: the client's lease
    /// by default. It is renewed while the effect runs.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Once {
        self.lease = lease;
        self
    }

    /// What to do if somebody else runs it: by default it is told.
    #[must_use]
    pub fn if_running(mut self, what: IfRunning) -> Once {
        self.if_running = what;
        self
    }

    /// What to do if it is unknown whether it has had its effect: by default it is told.
    #[must_use]
    pub fn if_unknown(mut self, what: IfUnknown) -> Once {
        self.if_unknown = what;
        self
    }

    /// An error of the effect does not mean that nothing has happened: the submission is unknown
    /// after it. Otherwise it is forgotten, and can be submitted again.
    #[must_use]
    pub fn errors_leave_unknown(mut self) -> Once {
        self.release_errors = false;
        self
    }

    /// Runs `effect`, unless a submission with this key was run before.
    ///
    /// `payload` is what was submitted: the same key with another payload is a
    /// [`Submission::Mismatch`]. The effect is given a token that is greater than that of any
    /// earlier run with this key, unless the engine's clock was set back after a run that failed.
    /// If the lease can not be renewed in time, the effect is dropped before anybody else is told
    /// that it is unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: the effect was not run.
    /// [`Error::Lost`] if it was run and the lease was lost: the effect was dropped, and may have
    /// happened. [`Error::Invalid`] if the result is longer than [`LONGEST_RESULT`]: then it is
    /// unknown.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the effect has started, nothing is left behind. After that
    /// the effect is dropped too, and the submission is unknown when its lease is over.
    pub async fn run<E, F>(
        &self,
        key: impl AsRef<str>,
        payload: impl AsRef<[u8]>,
        effect: impl FnOnce(Token) -> F,
    ) -> Result<Submission<E>>
    where
        F: Future<Output = std::result::Result<Vec<u8>, E>>,
    {
        let forget = self.release_errors;
        let effect = |token| {
            let running = effect(token);
            async move {
                match running.await {
                    Ok(result) => Ending::Keep(result),
                    Err(error) if forget => Ending::Forget(error),
                    Err(error) => Ending::Unknown(error),
                }
            }
        };
        self.run_to_ending(key, payload, effect).await
    }

    /// As [`Once::run`], for an effect that says how it ended: some of its errors mean that nothing
    /// has happened, and others that it is not known.
    ///
    /// # Errors
    ///
    /// As [`Once::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Once::run`].
    pub async fn run_to_ending<E, F>(
        &self,
        key: impl AsRef<str>,
        payload: impl AsRef<[u8]>,
        effect: impl FnOnce(Token) -> F,
    ) -> Result<Submission<E>>
    where
        F: Future<Output = Ending<E>>,
    {
        self.run_attempt(key.as_ref(), payload.as_ref(), |_, token| effect(token)).await
    }

    /// Runs an effect that is given how it is recorded.
    async fn run_attempt<E, F>(
        &self,
        key: &str,
        payload: &[u8],
        effect: impl FnOnce(&Attempt<'_>, Token) -> F,
    ) -> Result<Submission<E>>
    where
        F: Future<Output = Ending<E>>,
    {
        let clock = &*self.client.inner.clock;
        let mut attempt = self.attempt(key, payload)?;
        let mut answer = attempt.begin().await?;
        if let (Answer::Running { .. }, IfRunning::Wait(limit)) = (&answer, self.if_running) {
            let name = attempt.name.clone();
            let found = self.client.inner.wait_until(&name, Some(limit), Begun(&mut attempt)).await?;
            if let Some(found) = found {
                answer = found;
            }
        }
        let token = match answer {
            Answer::Yes { token } => token,
            Answer::Done { token, result } => {
                let token = Token::granted(token);
                return Ok(Submission::Done { result, token, replayed: true, recorded: true });
            }
            other => return self.refused(&other, &attempt.name),
        };
        // From here on a dropped future must not say that nothing has happened.
        attempt.armed = false;
        let mut deadline = attempt.sent + self.lease;
        let ended = {
            let mut running = pin!(effect(&attempt, Token::granted(token)));
            tokio::select! {
                biased;
                ended = &mut running => Some(ended),
                () = attempt.keep(&mut deadline) => None,
            }
        };
        let Some(ended) = ended else {
            let name = attempt.name.as_str().to_owned();
            return Err(Error::Lost { name, token, why: crate::error::Loss::Deadline });
        };
        let result = match ended {
            Ending::Keep(result) => result,
            Ending::Forget(error) => {
                return Ok(match attempt.repeat(&Ask::Release, clock.now() + self.lease).await {
                    Some(Answer::Done { token, result }) => {
                        let token = Token::granted(token);
                        Submission::Done { result, token, replayed: false, recorded: true }
                    }
                    _ => Submission::Failed(error),
                });
            }
            Ending::Unknown(error) => return Ok(Submission::Failed(error)),
        };
        if result.len() > LONGEST_RESULT {
            return Err(Error::invalid(format!(
                "the result of `{}` has {} bytes, more than the {LONGEST_RESULT} that are kept; it had its \
                 effect, and others are told that it is unknown",
                attempt.name,
                result.len()
            )));
        }
        let complete = Ask::Complete { result: result.clone() };
        let recorded = attempt.repeat(&complete, clock.now() + self.lease).await;
        let recorded = matches!(recorded, Some(Answer::Yes { .. }));
        Ok(Submission::Done { result, token: Token::granted(token), replayed: false, recorded })
    }

    /// Runs an effect that is a transaction in the engine's own database, and records its result in
    /// that transaction: the effect happens exactly once. For `postgres:` and `mysql:`.
    ///
    /// The effect runs the statement of [`Recorder::record`] before it commits. If that changes no
    /// row, somebody else runs the submission by now: the effect must roll back. After a crash
    /// nothing is unknown: what is not recorded has not happened, so it runs again, and while a
    /// transaction of the one before is still open, that is waited for as long as a call may take.
    /// An error after a commit that was not heard does no harm: what is recorded is done.
    ///
    /// While the transaction is open the lease can not be renewed from the moment that the
    /// statement was run; so keep it shorter than the lease.
    ///
    /// # Errors
    ///
    /// As [`Once::run`], and [`Error::Unsupported`] if the engine is no SQL database.
    ///
    /// # Cancel safety
    ///
    /// The transaction is committed and the submission done, or neither.
    ///
    /// # Examples
    ///
    /// With `tokio-postgres`; docs/once.md has the same with `sqlx`:
    ///
    /// ```ignore
    /// let order = orders.run_in_transaction(key, &request, async |recorder| {
    ///     let transaction = database.transaction().await?;
    ///     transaction.execute("insert into orders (what) values ('two apples')", &[]).await?;
    ///     let record = recorder.record(b"order 42")?;
    ///     let parameters = [&record.value as _, &record.lives as _, &record.key as _, &record.run as _];
    ///     if transaction.execute(&record.update, &parameters).await? != 1 {
    ///         return Err(Stale); // dropped, and so rolled back
    ///     }
    ///     transaction.commit().await?;
    ///     Ok(b"order 42".to_vec())
    /// });
    /// ```
    pub async fn run_in_transaction<E, F>(
        &self,
        key: impl AsRef<str>,
        payload: impl AsRef<[u8]>,
        effect: impl FnOnce(Recorder) -> F,
    ) -> Result<Submission<E>>
    where
        F: Future<Output = std::result::Result<Vec<u8>, E>>,
    {
        let engine = &self.client.inner.engine;
        let name = self.client.name(Family::Cell, &cells::cell(&self.prefix, key.as_ref()))?;
        let sql = engine.replace_sql(&name).ok_or_else(|| Error::Unsupported {
            engine: engine.guarantees().engine,
            what: "is no SQL database, so a submission can not be recorded in a transaction; use `run`"
                .into(),
        })?;
        // What has not been recorded has not happened.
        let once = Once { if_unknown: IfUnknown::RunAgain, ..self.clone() };
        let effect = |attempt: &Attempt<'_>, token: Token| {
            let Attempt { owner, fingerprint, .. } = *attempt;
            let running = effect(Recorder { sql, owner, fingerprint, token, kept: self.kept });
            async move {
                match running.await {
                    Ok(result) => Ending::Keep(result),
                    Err(error) => Ending::Forget(error),
                }
            }
        };
        once.run_attempt(key.as_ref(), payload.as_ref(), effect).await
    }

    /// Records what is known from elsewhere of a submission that is unknown: its result, or with
    /// `None` that it had no effect and can be submitted again. True if it was recorded: false if
    /// it is not unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It was recorded or not; it can be done again.
    pub async fn resolve(&self, key: impl AsRef<str>, result: Option<Vec<u8>>) -> Result<bool> {
        let attempt = self.attempt(key.as_ref(), &[])?;
        let answer = attempt.ask(Ask::Resolve { result }).await?;
        match answer {
            Answer::Foreign => self.refused::<()>(&answer, &attempt.name).map(|_| false),
            answer => Ok(matches!(answer, Answer::Yes { .. })),
        }
    }

    fn attempt(&self, key: &str, payload: &[u8]) -> Result<Attempt<'_>> {
        let name = self.client.name(Family::Cell, &cells::cell(&self.prefix, key))?;
        let hash = sha2::Sha256::digest(payload);
        let mut fingerprint: Fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hash[..16]);
        let owner = self.client.inner.next_owner().0;
        let sent = self.client.inner.clock.now();
        Ok(Attempt { once: self, name, owner, fingerprint, sent, armed: false })
    }

    fn refused<E>(&self, answer: &Answer, name: &Name) -> Result<Submission<E>> {
        Ok(match *answer {
            Answer::Running { left } => Submission::InProgress { retry_after: Duration::from_micros(left) },
            Answer::Unknown { since } => Submission::Unknown { since: Duration::from_micros(since) },
            Answer::Mismatch => Submission::Mismatch,
            _ => {
                return Err(Error::Engine {
                    engine: self.client.guarantees().engine,
                    what: format!("the cell `{name}` holds something that is not a submission"),
                    source: None,
                });
            }
        })
    }
}

/// One call of [`Once::run`].
struct Attempt<'a> {
    once: &'a Once,
    name: Name,
    owner: u128,
    fingerprint: Fingerprint,
    /// When it was last asked to begin.
    sent: Moment,
    /// The record may say that we run it, and we have not started.
    armed: bool,
}

impl Attempt<'_> {
    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let rule = Arc::new(Step { owner: self.owner, ask, kept: self.once.kept });
        self.once.client.inner.update(slice::from_ref(&self.name), &rule).await
    }

    async fn begin(&mut self) -> Result<Answer> {
        let (fingerprint, lease) = (self.fingerprint, self.once.lease);
        let if_unknown = self.once.if_unknown == IfUnknown::RunAgain;
        self.sent = self.once.client.inner.clock.now();
        self.armed = true;
        let answer = self.ask(Ask::Begin { fingerprint, lease, if_unknown }).await?;
        self.armed = matches!(answer, Answer::Yes { .. });
        Ok(answer)
    }

    /// Renews the lease for as long as that is possible, and returns a moment before it ends.
    async fn keep(&self, deadline: &mut Moment) {
        let (client, lease) = (&self.once.client.inner, self.once.lease);
        let clock = &*client.clock;
        let margin = lease / 10;
        loop {
            sleep_until(clock, (*deadline - lease) + lease / 3).await;
            loop {
                let asked = clock.now();
                let answer = tokio::select! {
                    biased;
                    answer = self.ask(Ask::Extend { lease }) => answer,
                    () = sleep_until(clock, *deadline - margin) => return,
                };
                match answer {
                    Ok(Answer::Yes { .. }) => {
                        // Counted from before the send: the engine's lease began no earlier.
                        *deadline = asked + lease;
                        break;
                    }
                    Err(Error::Unavailable { .. }) => sleep_until(clock, asked + lease / 10).await,
                    // Recorded already: nothing is left to be lost.
                    Ok(Answer::Done { .. }) => return std::future::pending().await,
                    _ => return,
                }
                if clock.now() >= *deadline - margin {
                    return;
                }
            }
        }
    }

    /// Asks until there is an answer, or no time is left.
    async fn repeat(&self, ask: &Ask, end: Moment) -> Option<Answer> {
        let clock = &*self.once.client.inner.clock;
        loop {
            match self.ask(ask.clone()).await {
                Ok(answer) => return Some(answer),
                Err(Error::Unavailable { .. }) if clock.now() + AGAIN < end => {
                    sleep_until(clock, clock.now() + AGAIN).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (client, name) = (Arc::clone(&self.once.client.inner), self.name.clone());
        let rule = Arc::new(Step { owner: self.owner, ask: Ask::Release, kept: self.once.kept });
        self.once.client.inner.background(async move {
            // If it is not heard, the submission is unknown after its lease, although nothing has
            // happened: rather that than the other way round.
            client.update(slice::from_ref(&name), &rule).await.ok();
        });
    }
}

/// That there is something else to say than that somebody runs it.
struct Begun<'a, 'b>(&'a mut Attempt<'b>);

impl Awaited for Begun<'_, '_> {
    type Found = Answer;

    async fn look(&mut self) -> Result<Option<Answer>> {
        let answer = self.0.begin().await?;
        Ok((!matches!(answer, Answer::Running { .. })).then_some(answer))
    }
}
