//! The right to load a name.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::rule::{Answer, Ask, Step};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::name::Name;

/// The right to load a name, or the question for it. Dropped, it is given back in the background.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) core: Arc<Core>,
    pub(super) cell: Name,
    pub(super) owner: u128,
    /// The cell may say that we load.
    armed: bool,
}

impl Claim {
    pub(super) fn new(core: &Arc<Core>, cell: &Name) -> Claim {
        let owner = core.client.inner.next_owner().0;
        Claim { core: Arc::clone(core), cell: cell.clone(), owner, armed: false }
    }

    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let (core, rule) = (&self.core, Arc::new(Step(ask)));
        let inner = &core.client.inner;
        let answer = inner.update_within(core.settings.deadline, slice::from_ref(&self.cell), &rule).await;
        core.note(&answer);
        match answer? {
            Answer::Foreign => Err(core.foreign(&self.cell)),
            answer => Ok(answer),
        }
    }

    /// Looks at the entry, and asks to load it if there is need and the caller would.
    pub(super) async fn look(&mut self, at_least: u64) -> Result<Answer> {
        let core = &self.core;
        let may_load = core.gate.closed_for(core.now()).is_none();
        let early = core.settings.earliness(core.dice.roll());
        let (owner, lease) = (self.owner, core.settings.lease);
        self.armed = may_load;
        let answer = self.ask(Ask::Look { owner, lease, may_load, at_least, early }).await?;
        self.armed = matches!(answer, Answer::Load | Answer::Refresh(_));
        Ok(answer)
    }

    /// Stores what was loaded. After an answer there is nothing to give back.
    pub(super) async fn store(&mut self, ask: Ask) -> Result<Answer> {
        let answer = self.ask(ask).await?;
        self.armed = false;
        Ok(answer)
    }

    /// Gives the right back after a load that failed: nobody loads for a while.
    pub(super) async fn give_back(mut self, pause: Duration) {
        let owner = self.owner;
        if self.ask(Ask::Release { owner, pause }).await.is_ok() {
            self.armed = false;
        }
    }

    /// Keeps the right for as long as that is possible. It never returns: a load whose right is
    /// lost goes on for its caller, and is not stored.
    pub(super) async fn keep(&self) {
        let (core, lease) = (&self.core, self.core.settings.lease);
        let mut asked = core.now();
        loop {
            core.sleep_until(asked + lease / 3).await;
            asked = core.now();
            match self.ask(Ask::Extend { owner: self.owner, lease }).await {
                Ok(Answer::Done) => {}
                Err(Error::Unavailable { .. }) => asked = core.now() - lease / 4,
                _ => return std::future::pending().await,
            }
        }
    }

    /// Until when the engine may believe that we load, if it was last asked at `asked`.
    pub(super) fn deadline(&self, asked: Moment) -> Moment {
        asked + self.core.settings.lease
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (client, cell) = (Arc::clone(&self.core.client.inner), self.cell.clone());
        let rule = Arc::new(Step(Ask::Release { owner: self.owner, pause: Duration::ZERO }));
        self.core.client.inner.background(async move {
            // If it is not heard, others wait until the lease is over.
            client.update(slice::from_ref(&cell), &rule).await.ok();
        });
    }
}
