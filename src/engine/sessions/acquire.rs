//! Asking for a claim.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::claims::{How, Ran};
use super::failure::{Attempt, Failure};
use super::found::{ALL, FEW, Found};
use super::held::{Held, Queued};
use super::names::{Names, now};
use super::record::{FOREVER, Shown, Stored};
use super::store::{Change, Purpose, RecordChange, Session, Store, Version, Written};
use super::writes::{Claimant, LONGEST_KEY};
use crate::claim::{Answer, Ask, Grant, MemoryQueue, Pause, World};
use crate::clock::Moment;
use crate::engine::table::Acquire;
use crate::engine::table::row::Record;
use crate::error::{Error, Result};
use crate::name::Name;

/// A waiter that hears nothing asks again after this long: the client asks sooner.
const ASK_AGAIN: Pause = Pause { at_most: Duration::from_secs(60) };
/// A waiter relies on its session until it has asked again.
const ASKS_WITHIN: Duration = Duration::from_secs(5);
/// The pause before a request is repeated that was not answered.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long a name that others waited for is believed to be in use.
const IN_USE: Duration = Duration::from_millis(50);
/// A session that ended while it was being used is replaced.
const TRIES: u32 = 3;

impl<S: Store> Names<S> {
    /// Asks, and asks again if nobody answered or a session of ours had ended: asking twice is
    /// harmless.
    ///
    /// It goes on if the caller is gone. Then the caller's release comes after it, because it waits
    /// at the gate of the name, and undoes what this has done.
    pub(crate) async fn acquire(self: Arc<Self>, name: Name, ask: Ask) -> Result<Answer> {
        if !ask.lock_delay.is_zero() && !self.store.guarantees().delays {
            let what = "can not keep a name closed after its holder is gone (a lock delay)".to_owned();
            return Err(Error::Unsupported { engine: self.store.engine(), what });
        }
        let key = self.store.key(&name);
        let _passed = self.gates.pass(&key).await;
        let give_up = now() + ask.answer_within;
        let mut tries = 1;
        loop {
            match self.acquire_once(&name, &ask).await {
                Err(Failure::SessionEnded) if tries < TRIES => tries += 1,
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    self.asked.update(ask.owner, |held| held.unsure = true);
                    if !matches!(failure, Failure::Unanswered(_)) || now() + AGAIN >= give_up {
                        return Err(failure.into_error(self.store.engine()));
                    }
                    sleep(AGAIN).await;
                }
            }
        }
    }

    async fn acquire_once(self: &Arc<Self>, name: &Name, ask: &Ask) -> Attempt<Answer> {
        let started = now();
        let lives = ask.lease + ask.lock_delay;
        let purpose = Purpose::Claims(lives);
        let session = self.store.session(purpose, started + ask.answer_within + lives).await?;
        let shown = Shown::now(ask.owner, ask.lease);
        // Sessions end claims, not leases. What a lock delay keeps closed is the session's, too.
        let counted = Ask {
            lease: FOREVER,
            lock_delay: Duration::ZERO,
            tokens: ask.tokens.min(S::ROOM.most),
            ..ask.clone()
        };
        let before = self.asked.queued(ask.owner);
        let mut held =
            Held::new(name, Some(&session), ask.lease, ask.lock_delay, started + ask.answer_within);
        let unsure = self.asked.held(ask.owner).is_some_and(|held| held.unsure);
        self.asked.note(ask.owner, held.clone());
        let mut found = None;
        let is_new = ask.round <= 1 && before.is_none() && !unsure;
        if is_new && ask.wait {
            found = self.seen.take(name, IN_USE, started);
        }
        if is_new && !ask.logged && found.is_none() {
            match self.take(name, &counted, &*session, shown).await {
                Ok(Taken::Granted(grant, version)) => {
                    self.granted(ask, &held, started, Some(version));
                    return Ok(Answer::Granted(grant));
                }
                Ok(Taken::InUse(in_use)) => found = Some(*in_use),
                Ok(Taken::No) => {}
                Err(Failure::SessionEnded) => {
                    self.store.session_ended(session.seat());
                    return Err(Failure::SessionEnded);
                }
                Err(error) => return Err(error),
            }
        }
        let mut seat = session.seat();
        if ask.wait {
            let waiting = self.store.session(Purpose::Waiting, now() + ASKS_WITHIN).await?;
            seat = waiting.seat();
        }
        let request = Acquire { ask: Cow::Borrowed(&counted), seat };
        // Where it stands is not known if an answer was lost: all are looked at.
        let lost = before.is_none() && (unsure || ask.round > 1);
        let how = How {
            most: if lost { ALL } else { FEW },
            claimant: Some(Claimant { seat: session.seat(), shown }),
            found: found.filter(|_| !lost),
            within: Some(ask.answer_within),
        };
        let Ran { answer, sole, joined, tokens_from, .. } = self.on_name(name, &request, how).await?;
        match answer {
            Answer::Granted(mut grant) => {
                grant.token += tokens_from;
                self.granted(ask, &held, started, sole);
                Ok(Answer::Granted(grant))
            }
            Answer::Queued(_) => {
                held.unsure = false;
                match joined.or(before.map(|before| before.place)) {
                    Some(place) => {
                        let queued = Queued { name: name.clone(), place, round: ask.round, held };
                        self.asked.queue(ask.owner, queued);
                        self.store.joined(name, ask.owner, place);
                    }
                    None => self.asked.asks_in(ask.owner, ask.round),
                }
                self.asked.forget(ask.owner);
                Ok(Answer::Queued(ASK_AGAIN))
            }
            Answer::Busy(_) => {
                self.forget(ask);
                Ok(Answer::Busy(ASK_AGAIN))
            }
            Answer::Refused(refused) => {
                self.forget(ask);
                Ok(Answer::Refused(refused))
            }
        }
    }

    fn forget(&self, ask: &Ask) {
        self.asked.forget(ask.owner);
        self.asked.unqueue(ask.owner);
    }

    /// Notes a claim that is held.
    fn granted(&self, ask: &Ask, held: &Held, started: Moment, sole: Option<Version>) {
        self.asked.unqueue(ask.owner);
        let mut held = held.clone();
        held.counts_from(started);
        held.sole = sole;
        self.asked.forget(ask.owner);
        self.asked.note(ask.owner, held);
    }

    /// Takes a name that nobody uses, by one write.
    async fn take(&self, name: &Name, ask: &Ask, session: &dyn Session, shown: Shown) -> Attempt<Taken> {
        // Decided on a name that nobody uses. The write finds out whether nobody does, and what
        // tokens count from.
        let mut record = Record::new(name, LONGEST_KEY, 0);
        let version = self.store.free_version(name);
        let world = World { now: S::time_of(version), tokens_from: 0, alive: &|_| true };
        let Ok(step) = record.state.ask(&mut MemoryQueue::default(), ask, session.seat(), world);
        let Answer::Granted(grant) = step.answer else { return Ok(Taken::No) };
        let bytes = Stored::relative(record, vec![shown]).encode();
        let bytes = bytes.map_err(|error| self.unwritable(name, error))?;
        let change = Change {
            version,
            record: RecordChange::Put { bytes, sole: Some(session.seat()) },
            seats: vec![session.seat()],
            ..Change::default()
        };
        match self.store.write(name, &change, FEW, None).await? {
            Written::Yes(version) => {
                let token = S::ROOM.first_of(version.written) + grant.token;
                Ok(Taken::Granted(Grant { token, ..grant }, version))
            }
            Written::No { alive, .. } if alive.contains(&false) => Err(Failure::SessionEnded),
            Written::No { read, .. } => {
                let found = self.found(name, FEW, Some(ask.owner), *read)?;
                Ok(Taken::InUse(Box::new(found)))
            }
        }
    }
}

/// What came of an attempt to take a name that may be free.
enum Taken {
    /// It was free. It was written by this version.
    Granted(Grant, Version),
    /// Somebody uses it.
    InUse(Box<Found>),
    /// It can not be granted as it was asked for, free or not.
    No,
}
