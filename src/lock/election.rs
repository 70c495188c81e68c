//! One leader at a time, whom everybody can see.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Alteration, Change, Holder};
use crate::client::acquire::{Patience, Want};
use crate::client::clock::sleep_until;
use crate::client::{Client, Watched};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock::rwlock::alter;
use crate::lock::settings;
use crate::token::Token;

/// The longest value that a leader can carry, in bytes.
pub const LONGEST_VALUE: usize = 1024;

/// An observer that hears nothing looks again after this long.
const LOOK: Duration = Duration::from_secs(1);

/// One leader at a time, whom everybody can see. Made by [`Client::election`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler")?;
///
/// let candidate = election.campaign("10.0.0.7:9000").await?;
/// let leader = election.leader().await?.expect("there is one");
/// assert_eq!(leader.value, b"10.0.0.7:9000");
/// candidate.proclaim("10.0.0.7:9001").await?;
/// candidate.resign().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    want: Want,
}

impl Election {
    pub(crate) fn new(client: &Client, want: Want) -> Election {
        Election { client: client.clone(), want }
    }

    settings!();

    /// Waits until elected. `value` is what everybody can see of the leader: an address, usually.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and [`Error::Invalid`] for a value of more than [`LONGEST_VALUE`] bytes.
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Candidate> {
        loop {
            if let Some(candidate) = self.stand(value.as_ref(), Patience::Forever).await? {
                return Ok(candidate);
            }
        }
    }

    /// Is elected if there is no leader.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn try_campaign(&self, value: impl AsRef<[u8]>) -> Result<Option<Candidate>> {
        self.stand(value.as_ref(), Patience::None).await
    }

    /// Waits to be elected for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn campaign_for(&self, value: impl AsRef<[u8]>, limit: Duration) -> Result<Option<Candidate>> {
        let now = self.client.inner.clock.now();
        self.stand(value.as_ref(), Patience::lasting(limit, now)).await
    }

    async fn stand(&self, value: &[u8], patience: Patience) -> Result<Option<Candidate>> {
        check_value(value)?;
        let mut want = self.want.clone();
        want.value = Arc::from(value);
        let hold = self.client.inner.acquire(&want, patience).await?;
        Ok(hold.map(|hold| Candidate { guard: Guard::new(hold) }))
    }

    /// Who leads now.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let client = &self.client.inner;
        let view = client.call(client.engine.look(&self.want.name, u64::MAX)).await?;
        Ok(view
            .claims
            .first()
            .and_then(|held| Leader::new(held.claim.token, &held.claim.holder, &held.claim.value)))
    }

    /// Follows the election: who leads now, then every change, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn observe(&self) -> Result<Observer> {
        let client = &self.client.inner;
        client.check_open()?;
        let watched = client.watch(&self.want.name).await?;
        let view = client.call(client.engine.look(&self.want.name, u64::MAX)).await?;
        let now = view
            .claims
            .first()
            .and_then(|held| Leader::new(held.claim.token, &held.claim.holder, &held.claim.value));
        let first = now.map_or(Observed::Vacant, Observed::Leader);
        Ok(Observer {
            client: self.client.clone(),
            name: self.want.name.clone(),
            watched,
            seen: view.change_count,
            ready: VecDeque::from([first]),
        })
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > LONGEST_VALUE {
        return Err(Error::invalid(format!(
            "the value is {} bytes long, more than the {LONGEST_VALUE} that are allowed; store it elsewhere and \
             campaign with its address",
            value.len()
        )));
    }
    Ok(())
}

/// The leader, as everybody sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Names the term: every leadership has a greater one.
    pub token: Token,
    /// What the leader says.
    pub value: Vec<u8>,
    /// Who it is, for humans.
    pub holder: Holder,
}

impl Leader {
    fn new(token: u64, holder: &Holder, value: &[u8]) -> Option<Leader> {
        Some(Leader { token: Token::new(token)?, value: value.to_vec(), holder: holder.clone() })
    }
}

/// The elected one's [`Guard`]. Dropped, it resigns in the background.
#[derive(Debug)]
#[must_use = "a leader that is dropped resigns at once"]
pub struct Candidate {
    guard: Guard,
}

impl Candidate {
    /// The guard: token, standing, loss.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Names the term.
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// Changes what everybody sees, in the same term.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if somebody else may lead by now; [`Error::Invalid`] for a value that is too long;
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The change may have happened or not; it can be made again.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        check_value(value.as_ref())?;
        self.guard.check()?;
        alter(self.guard.hold(), Alteration::Value(Arc::from(value.as_ref()))).await?;
        Ok(())
    }

    /// Steps down, and waits until the engine has heard. The next candidate is elected in the same step.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}

/// What an observer sees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// This one leads, or says something new.
    Leader(Leader),
    /// Nobody leads.
    Vacant,
    /// The observer was so slow, or cut off so long, that this many changes are no longer known.
    Missed(u64),
}

/// Follows an election. Made by [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    client: Client,
    name: crate::Name,
    watched: Watched,
    seen: u64,
    ready: VecDeque<Observed>,
}

impl Observer {
    /// The next thing to see: at first who leads now, then every change, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer; asking again goes on where it stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Result<Observed> {
        let client = Arc::clone(&self.client.inner);
        loop {
            if let Some(observed) = self.ready.pop_front() {
                return Ok(observed);
            }
            client.check_open()?;
            let changed = Arc::clone(&self.watched.changed);
            let changed = changed.notified();
            tokio::pin!(changed);
            // Listening must start before the look, or a change in between is missed.
            changed.as_mut().enable();
            let view = client.call(client.engine.look(&self.name, self.seen)).await?;
            // The log was forgotten and begins anew.
            self.seen = self.seen.min(view.change_count);
            self.take_in(&view.changes, view.change_count);
            if self.ready.is_empty() {
                let again = client.clock.now() + LOOK;
                tokio::select! {
                    () = changed => {}
                    () = sleep_until(&*client.clock, again) => {}
                }
            }
        }
    }

    fn take_in(&mut self, changes: &[Change], count: u64) {
        let first = changes.first().map_or(count + 1, |change| change.number);
        let missed = first.saturating_sub(self.seen + 1);
        if missed > 0 {
            self.ready.push_back(Observed::Missed(missed));
        }
        for change in changes {
            let leader = Leader::new(change.token, &change.holder, &change.value);
            self.ready.push_back(leader.map_or(Observed::Vacant, Observed::Leader));
        }
        self.seen = count;
    }
}
