//! One leader at a time, whom everybody can see.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{Watches, guard};
use super::runtime::Runtime;
use super::{Client, settings};
use crate::error::Result;
use crate::guard::Standing;
use crate::lock::{self, Leader, Observed};
use crate::token::Token;

/// One leader at a time, whom everybody can see: see [`crate::Election`]. Made by
/// [`Client::election`].
#[derive(Clone, Debug)]
pub struct Election {
    inner: lock::Election,
    runtime: Arc<Runtime>,
}

impl Client {
    /// An election: see [`crate::Client::election`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        Ok(Election { inner: self.client.election(name)?, runtime: Arc::clone(&self.runtime) })
    }
}

impl Election {
    settings!();

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Waits until elected. `value` is what everybody can see of the leader: an address, usually.
    ///
    /// # Errors
    ///
    /// As [`crate::Election::campaign`], and [`crate::Error::Invalid`] inside an async task.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Candidate> {
        Ok(self.elected(self.runtime.wait(self.inner.campaign(value))??))
    }

    /// Is elected if there is no leader.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    pub fn try_campaign(&self, value: impl AsRef<[u8]>) -> Result<Option<Candidate>> {
        Ok(self.runtime.wait(self.inner.try_campaign(value))??.map(|candidate| self.elected(candidate)))
    }

    /// Waits to be elected for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    pub fn campaign_for(&self, value: impl AsRef<[u8]>, limit: Duration) -> Result<Option<Candidate>> {
        let candidate = self.runtime.wait(self.inner.campaign_for(value, limit))??;
        Ok(candidate.map(|candidate| self.elected(candidate)))
    }

    fn elected(&self, candidate: lock::Candidate) -> Candidate {
        Candidate { guard: candidate, watches: Watches::default(), runtime: Arc::clone(&self.runtime) }
    }

    /// Leads whenever it can: campaigns, does the work on this thread while it leads, and campaigns
    /// again: see [`crate::Election::lead`].
    ///
    /// The work is not stopped when the leadership is lost: it asks [`Leadership::check`] between
    /// its steps and returns. If it returned after the loss, whatever it said, the next term is
    /// campaigned for.
    ///
    /// # Errors
    ///
    /// As [`crate::Election::lead`], and [`crate::Error::Invalid`] inside an async task.
    pub fn lead<T>(
        &self,
        value: impl AsRef<[u8]>,
        mut work: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<T> {
        let lead = self.inner.lead(value, |term| {
            let done = work(&Leadership { inner: term, runtime: Arc::clone(&self.runtime) });
            std::future::ready(done)
        });
        self.runtime.wait(lead)?
    }

    /// Who leads now.
    ///
    /// # Errors
    ///
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.runtime.wait(self.inner.leader())?
    }

    /// Follows the election: who leads now, then every change, in order.
    ///
    /// # Errors
    ///
    /// As [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Observer> {
        let inner = self.runtime.wait(self.inner.observe())??;
        Ok(Observer { inner, runtime: Arc::clone(&self.runtime) })
    }
}

/// The elected one's guard: see [`lock::Candidate`]. Dropped, it resigns in the background.
#[derive(Debug)]
#[must_use = "a leader that is dropped resigns at once"]
pub struct Candidate {
    guard: lock::Candidate,
    watches: Watches,
    // Last: what is dropped before needs the thread.
    runtime: Arc<Runtime>,
}

impl Candidate {
    guard!();

    /// Changes what everybody sees, in the same term.
    ///
    /// # Errors
    ///
    /// As [`lock::Candidate::proclaim`].
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.runtime.wait(self.guard.proclaim(value))?
    }

    /// Steps down, and waits until the engine has heard. The next candidate is elected in the same
    /// step.
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::release`], and [`crate::Error::Invalid`] inside an async task, where it
    /// resigns in the background.
    pub fn resign(self) -> Result<()> {
        self.runtime.wait(self.guard.resign())?
    }
}

/// One term of a leader, as its work sees it. Made by [`Election::lead`].
#[derive(Debug)]
pub struct Leadership {
    inner: lock::Leadership,
    runtime: Arc<Runtime>,
}

impl Leadership {
    /// Names the term: every leadership has a greater one.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// An error if the term is over: put it before each step that must not be made too late.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Lost`].
    pub fn check(&self) -> Result<()> {
        self.inner.check()
    }

    /// How sure this leader can be, at this moment.
    pub fn standing(&self) -> Standing {
        self.inner.standing()
    }

    /// How long the term lasts if the lease is not renewed.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Changes what everybody sees, in the same term.
    ///
    /// # Errors
    ///
    /// As [`lock::Candidate::proclaim`].
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.runtime.wait(self.inner.proclaim(value))?
    }
}

/// Follows an election. Made by [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    inner: lock::Observer,
    runtime: Arc<Runtime>,
}

impl Observer {
    /// Waits for the next thing to see: at first who leads now, then every change, in order.
    ///
    /// # Errors
    ///
    /// As [`lock::Observer::next`].
    // Not an iterator: an error does not end it.
    #[expect(clippy::should_implement_trait, reason = "it fails, and goes on after that")]
    pub fn next(&mut self) -> Result<Observed> {
        self.runtime.wait(self.inner.next())?
    }

    /// Waits for at most `limit`; `None` if nothing has changed in that time.
    ///
    /// # Errors
    ///
    /// As [`Observer::next`].
    pub fn next_for(&mut self, limit: Duration) -> Result<Option<Observed>> {
        let next = async { tokio::time::timeout(limit, self.inner.next()).await };
        self.runtime.wait(next)?.ok().transpose()
    }
}
