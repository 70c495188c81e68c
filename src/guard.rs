//! The guard: what a caller holds.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::client::hold::Hold;
pub use crate::client::hold::Standing;
use crate::clock::Moment;
use crate::engine::VerifySql;
use crate::error::{Error, Loss, Result};
use crate::token::Token;

/// A name that is held.
///
/// Dropped, it is released in the background; [`Guard::release`] also waits for the engine's word.
/// The lease is renewed for as long as the guard lives.
///
/// What the guard says is judged by the clock at the moment it is asked: a process that was paused
/// for longer than its lease is told *lost* by the first call it makes. What no guard can do is
/// stop work that is already on its way; for that, give [`Guard::token`] to the resource and let it
/// check ([`crate::Fence`]).
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct Guard {
    hold: Shared,
}

#[derive(Debug)]
enum Shared {
    Alone(Hold),
    /// Taken again by the same owner: ends with the last of them.
    Again(Arc<Hold>),
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Guard {
        Guard { hold: Shared::Alone(hold) }
    }

    pub(crate) fn again(hold: Arc<Hold>) -> Guard {
        Guard { hold: Shared::Again(hold) }
    }

    pub(crate) fn hold(&self) -> &Hold {
        match &self.hold {
            Shared::Alone(hold) => hold,
            Shared::Again(hold) => hold,
        }
    }

    /// For what only one guard of the claim may do.
    pub(crate) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.hold {
            Shared::Alone(hold) => Some(hold),
            Shared::Again(_) => None,
        }
    }

    /// What is held.
    pub fn name(&self) -> &str {
        self.hold().lease().name.as_str()
    }

    /// The fencing token: greater than that of any earlier holder of the name. For those who share
    /// a name see [`crate::Semaphore`] and [`crate::RwLock`].
    ///
    /// An engine may have none ([`crate::engine::Guarantees::fences`]): then it is a number that
    /// tells the holders of one client apart, and no resource must rely on it.
    pub fn token(&self) -> Token {
        Token::granted(self.hold().token())
    }

    /// Held, in doubt or lost, at this moment.
    pub fn standing(&self) -> Standing {
        self.hold().lease().standing()
    }

    /// True unless lost.
    pub fn is_held(&self) -> bool {
        self.standing() != Standing::Lost
    }

    /// When the lease ends if it is not renewed, on the client's clock.
    pub fn deadline(&self) -> Moment {
        self.hold().lease().deadline()
    }

    /// How long the lease lasts if it is not renewed.
    pub fn remaining(&self) -> Duration {
        let lease = self.hold().lease();
        match lease.loss() {
            Some(_) => Duration::ZERO,
            None => lease.deadline().since(lease.client.clock.now()),
        }
    }

    /// An error if the name is lost: put it before each step that must not be made too late.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Lost`].
    pub fn check(&self) -> Result<()> {
        self.hold().check()
    }

    /// Waits until the name is lost; for ever if it never is.
    ///
    /// Fires no later than the deadline, even while a renewal hangs; at once if it is lost already;
    /// never because of a release. The future does not borrow the guard.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and made again at any time.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let (lease, token) = (Arc::clone(self.hold().lease()), self.hold().token());
        async move { lease.lost(token).await }
    }

    /// Waits until the name is in doubt or lost.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and made again at any time.
    pub fn endangered(&self) -> impl Future<Output = Standing> + Send + 'static {
        let (lease, token) = (Arc::clone(self.hold().lease()), self.hold().token());
        async move { lease.endangered(token).await }
    }

    /// Does the work, and stops it (drops its future) if the name is lost before it is done.
    ///
    /// It gives what the work gives. Work that can fail gives a result inside the result: the outer
    /// error says that the name was lost, the inner one is the work's own.
    /// `guard.run(work).await??` passes on both.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Lost`] if the work was stopped, or if the name was lost by the time the work
    /// was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("report")?.lock().await?;
    /// let sum = guard.run(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # guard.release().await
    /// # }
    /// ```
    ///
    /// Work that can fail:
    ///
    /// ```
    /// async fn count(text: &str) -> Result<u32, std::num::ParseIntError> {
    ///     text.parse()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("report")?.lock().await?;
    /// let seven = guard.run(count("7")).await??;
    /// assert_eq!(seven, 7);
    /// // The name was held, and the work failed:
    /// assert!(guard.run(count("seven")).await?.is_err());
    /// # Ok(guard.release().await?)
    /// # }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let lease = self.hold().lease();
        let lost = lease.lost(self.hold().token());
        let done = tokio::select! {
            biased;
            why = lost => return Err(lease.lost_error(self.hold().token(), why)),
            done = work => done,
        };
        self.check()?;
        Ok(done)
    }

    /// Statements that check, inside a transaction of the caller's in the same database, that this
    /// guard still holds its name. For engines that are databases.
    ///
    /// A transaction that runs one of them first, and then its own statements, commits only what
    /// was done while the name was held: until it ends, nobody else can take the name, even if the
    /// lease is over by then. This is stronger than a fencing token, and needs no column in the
    /// caller's tables.
    ///
    /// The guard must hold the name alone. While such a transaction is open the lease can not be
    /// renewed, and the guard is *in doubt*; so keep it shorter than the lease. Release the guard
    /// after the transaction has ended. If tasks of this process pass the name among themselves
    /// without the engine ([`crate::Options::hand_over`]), the statements can not tell these tasks
    /// apart: make them from the guard that is held, and run them before it is released.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unsupported`] if the engine is no database, or the guard shares its name
    /// with others; [`crate::Error::Lost`] if it is lost already.
    ///
    /// # Examples
    ///
    /// With `tokio-postgres`; docs/postgres.md has the same with `sqlx`:
    ///
    /// ```ignore
    /// let verify = guard.verify_sql()?;
    /// let transaction = database.transaction().await?;
    /// // Fails if the name is not held any more.
    /// transaction.query(&verify.or_fail, &[&verify.key, &verify.token]).await?;
    /// transaction.execute("update stock set amount = amount - 1 where id = 42", &[]).await?;
    /// transaction.commit().await?;
    /// ```
    pub fn verify_sql(&self) -> Result<VerifySql> {
        self.check()?;
        let lease = self.hold().lease();
        let engine = &lease.client.engine;
        let unsupported =
            |what: &str| Error::Unsupported { engine: engine.guarantees().engine, what: what.to_owned() };
        if lease.terms.weight < lease.terms.capacity {
            return Err(unsupported("statements can only check a guard that holds its name alone"));
        }
        engine.verify_sql(&lease.name, self.hold().token()).ok_or_else(|| {
            unsupported(match engine.guarantees().fences {
                true => "is no SQL database; check the token with a `Fence`",
                false => "has neither rows nor tokens that could be checked in this mode",
            })
        })
    }

    /// Gives the name back and waits until the engine has heard.
    ///
    /// If others in this process wait for the name it goes to the first of them, within the budget
    /// of [`crate::Options::hand_over`], and the engine need not hear. A guard that was taken again
    /// by the same [`crate::Owner`] only ends the hold when it is the last.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Lost`] if the name was lost before; [`crate::Error::Unavailable`] if the
    /// engine did not answer within [`crate::Options::call_limit`]. Then it is told again in the
    /// background for as long as the lease may stand.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background.
    pub async fn release(self) -> Result<()> {
        match self.hold {
            Shared::Alone(hold) => hold.release().await,
            Shared::Again(hold) => match Arc::into_inner(hold) {
                Some(hold) => hold.release().await,
                None => Ok(()),
            },
        }
    }
}
