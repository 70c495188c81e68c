//! One leader at a time, whom everybody can see.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Alteration, Change, Holder, WHOLE};
use crate::client::acquire::{Patience, Want};
use crate::client::hold::Lease;
use crate::client::watch::{Awaited, Watched};
use crate::client::{Client, Inner};
use crate::clock::sleep_until;
use crate::engine::View;
use crate::error::{Error, Loss, Result};
use crate::guard::{Guard, Standing};
use crate::lock::rwlock::alter;
use crate::lock::settings;
use crate::name::{Family, Name};
use crate::token::Token;

/// The longest value that a leader can carry, in bytes.
pub const LONGEST_VALUE: usize = 1024;

/// [`Election::lead`] tries again after this long if the engine can not be reached, and then after
/// longer pauses.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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

impl Client {
    /// An election: one leader at a time, which everybody can see.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// elections.
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        let guarantees = self.inner.engine.guarantees();
        if !guarantees.elects {
            return Err(Error::Unsupported {
                engine: guarantees.engine,
                what: "has no elections; use another engine, or a mutex if nobody needs to see who leads"
                    .into(),
            });
        }
        let mut want = self.want(Family::Election, name.as_ref(), WHOLE, WHOLE)?;
        want.logged = true;
        Ok(Election::new(self, want))
    }
}

impl Election {
    pub(crate) fn new(client: &Client, want: Want) -> Election {
        Election { client: client.clone(), want }
    }

    settings!();

    /// Waits until elected. `value` is what everybody can see of the leader: an address, usually.
    ///
    /// If the engine goes away while a candidate waits, it waits on, as [`crate::Mutex::lock`]
    /// does.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and [`Error::Invalid`] for a value of more than [`LONGEST_VALUE`]
    /// bytes.
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

    /// Leads whenever it can: campaigns, does the work while it leads, and campaigns again.
    ///
    /// The work gets a [`Leadership`] for each term. It is stopped (its future is dropped) when the
    /// leadership is lost. When it ends by itself the leader resigns; `ControlFlow::Continue`
    /// campaigns again, `Break` ends with its value. Outages are waited for, with growing pauses;
    /// that a release was not heard is told as [`crate::Event::NotReleased`].
    ///
    /// A lease can not stop work that has left this process. Give [`Leadership::token`] to whatever
    /// the work changes.
    ///
    /// # Errors
    ///
    /// What waiting can not mend: [`Error::Invalid`], [`Error::Unsupported`] and [`Error::Engine`],
    /// and the end of the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and resigns in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::connect("memory:").await?;
    /// let election = client.election("scheduler")?;
    /// let term = election
    ///     .lead("10.0.0.7:9000", |leadership| async move {
    ///         // The work: until there is no more of it, or the leadership is lost.
    ///         ControlFlow::Break(leadership.token())
    ///     })
    ///     .await?;
    /// assert!(term.get() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<T, F>(
        &self,
        value: impl AsRef<[u8]>,
        mut work: impl FnMut(Leadership) -> F,
    ) -> Result<T>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        let value = value.as_ref();
        let client = &self.client.inner;
        let mut pause = FIRST_PAUSE;
        loop {
            let candidate = match self.campaign(value).await {
                Ok(candidate) => candidate,
                Err(error) if error.is_retryable() => {
                    let name = &self.want.name;
                    tracing::warn!(target: "leasehold", %name, %error, ?pause, "no election; trying again");
                    sleep_until(&*client.clock, client.clock.now() + pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                Err(error) => return Err(error),
            };
            pause = FIRST_PAUSE;
            let token = candidate.token();
            let done = candidate.guard.run(work(candidate.leadership())).await;
            match done {
                Ok(done) => {
                    if let Err(error) = candidate.resign().await {
                        client.events.not_released(&self.want.name, token.get(), &error);
                    }
                    if let ControlFlow::Break(value) = done {
                        return Ok(value);
                    }
                }
                Err(Error::Lost { why: Loss::Closed, .. }) => return Err(Error::closed()),
                // Lost: whoever leads now is waited for.
                Err(_) => drop(candidate),
            }
        }
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
        client.check_open()?;
        let view = client.call(client.engine.look(&self.want.name, u64::MAX)).await?;
        Ok(Leader::in_view(&view))
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
        let view = client.call(client.engine.look(&self.want.name, 0)).await?;
        let progress = Progress::starting_from(&view);
        Ok(Observer { client: self.client.clone(), name: self.want.name.clone(), watched, progress })
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

    fn in_view(view: &View) -> Option<Leader> {
        let claim = &view.claims.first()?.claim;
        Leader::new(claim.token, &claim.holder, &claim.value)
    }
}

/// The elected one's [`Guard`]. Dropped, it resigns in the background.
#[derive(Debug)]
#[must_use = "a leader that is dropped resigns at once"]
pub struct Candidate {
    guard: Guard,
}

impl Deref for Candidate {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
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
    /// [`Error::Lost`] if somebody else may lead by now; [`Error::Invalid`] for a value that is too
    /// long; [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The change may have happened or not; it can be made again.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.leadership().proclaim(value).await
    }

    fn leadership(&self) -> Leadership {
        let hold = self.guard.hold();
        Leadership { lease: Arc::clone(hold.lease()), token: self.token() }
    }

    /// Steps down, and waits until the engine has heard. The next candidate is elected in the same
    /// step.
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

/// One term of a leader, as its work sees it. Made by [`Election::lead`].
///
/// It does not keep the leadership: that ends when the work ends.
#[derive(Debug)]
pub struct Leadership {
    lease: Arc<Lease>,
    token: Token,
}

impl Leadership {
    /// Names the term: every leadership has a greater one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// An error if the term is over: put it before each step that must not be made too late.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn check(&self) -> Result<()> {
        let over = (self.lease.token() != self.token.get()).then_some(Loss::Gone);
        match self.lease.loss().or(over) {
            Some(why) => Err(self.lease.lost_error(self.token.get(), why)),
            None => Ok(()),
        }
    }

    /// How sure this leader can be, at this moment.
    pub fn standing(&self) -> Standing {
        match self.check() {
            Ok(()) => self.lease.standing(),
            Err(_) => Standing::Lost,
        }
    }

    /// How long the term lasts if the lease is not renewed.
    pub fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.lease.deadline().since(self.lease.client.clock.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Changes what everybody sees, in the same term.
    ///
    /// # Errors
    ///
    /// As [`Candidate::proclaim`].
    ///
    /// # Cancel safety
    ///
    /// As [`Candidate::proclaim`].
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        check_value(value.as_ref())?;
        self.check()?;
        alter(&self.lease, self.token.get(), Alteration::Value(Arc::from(value.as_ref()))).await?;
        Ok(())
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
    /// The observer was so slow, or cut off so long, that this many changes, or more, are no longer
    /// known. What follows says who leads now.
    Missed(u64),
}

/// Follows an election. Made by [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    client: Client,
    name: Name,
    watched: Watched,
    progress: Progress,
}

/// How far an observer has followed the log, and what it has not told yet.
#[derive(Debug, Default)]
struct Progress {
    /// The number of the last change that was seen.
    seen: u64,
    /// The highest token that was seen. Tokens rise although the engine may have lost the log, so a
    /// higher one at a number that was seen already is of another log.
    newest: u64,
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
        let Observer { client, name, watched, progress } = self;
        let client = &client.inner;
        client.check_open()?;
        let mut next = NextChange { client, name, progress };
        let observed = client.unless_closed(watched.until(Patience::Forever, &mut next)).await?;
        // Patience without an end is not over before something was found.
        observed.ok_or_else(Error::closed)
    }
}

/// The next thing to tell an observer.
struct NextChange<'a> {
    client: &'a Inner,
    name: &'a Name,
    progress: &'a mut Progress,
}

impl Awaited for NextChange<'_> {
    type Found = Observed;

    async fn look(&mut self) -> Result<Option<Observed>> {
        self.progress.next(self.client, self.name).await
    }
}

impl Progress {
    /// Begins with who leads now.
    fn starting_from(view: &View) -> Progress {
        let mut progress = Progress::default();
        progress.start_from(view);
        progress
    }

    /// The next thing to tell, if there is one by now.
    async fn next(&mut self, client: &Inner, name: &Name) -> Result<Option<Observed>> {
        if let Some(observed) = self.ready.pop_front() {
            return Ok(Some(observed));
        }
        // With two changes that were seen before, of which one has a leader: they show whether this
        // is still the same log.
        let view = client.call(client.engine.look(name, self.seen.saturating_sub(2))).await?;
        if self.is_another_log(&view) {
            let view = client.call(client.engine.look(name, 0)).await?;
            self.ready.push_back(Observed::Missed(1));
            self.start_from(&view);
        } else {
            self.take_in(&view.changes, view.change_count);
        }
        Ok(self.ready.pop_front())
    }

    /// True if the engine has lost the log, or forgotten it, since the last look.
    fn is_another_log(&self, view: &View) -> bool {
        let rewritten = |change: &Change| change.number <= self.seen && change.token > self.newest;
        view.change_count < self.seen || view.changes.iter().any(rewritten)
    }

    /// Begins with who leads now.
    fn start_from(&mut self, view: &View) {
        let leader = Leader::in_view(view);
        let tokens = view.changes.iter().map(|change| change.token);
        self.newest = tokens.chain(leader.as_ref().map(|leader| leader.token.get())).max().unwrap_or(0);
        self.seen = view.change_count;
        self.ready.push_back(leader.map_or(Observed::Vacant, Observed::Leader));
    }

    fn take_in(&mut self, changes: &[Change], count: u64) {
        let new = changes.iter().filter(|change| change.number > self.seen);
        let first = new.clone().next().map_or(count + 1, |change| change.number);
        let missed = first.saturating_sub(self.seen + 1);
        if missed > 0 {
            self.ready.push_back(Observed::Missed(missed));
        }
        for change in new {
            let leader = Leader::new(change.token, &change.holder, &change.value);
            self.ready.push_back(leader.map_or(Observed::Vacant, Observed::Leader));
            self.newest = self.newest.max(change.token);
        }
        self.seen = count;
    }
}
