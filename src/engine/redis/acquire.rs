//! How a claim is taken: a lock that may be free by a short script, everything else by the rules.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::Value;

use super::release::release;
use super::reply;
use super::scripts::{self, ASK, Take};
use super::session::Session;
use crate::claim::{Answer, Ask, Grant, WHOLE};
use crate::clock::{Clock as _, SystemClock};
use crate::error::Result;
use crate::name::{Family, Name};
use crate::redis::keys::NameKeys;
use crate::redis::link::{Answered, Connected};
use crate::redis::script::Invocation;
use crate::redis::url::Copies;
use crate::redis::{holder, micros};

/// One request for a claim.
struct Acquisition<'a> {
    session: &'a Session,
    name: &'a Name,
    keys: Arc<NameKeys>,
    ask: &'a Ask,
    /// Seat, process, host and label.
    who: String,
}

/// Asks for a claim. Asking twice is harmless, so an unknown outcome is resolved by asking by the
/// rules.
pub(super) async fn acquire(session: &Session, name: &Name, ask: &Ask) -> Result<Answer> {
    let (keys, who) = (session.keys.of(name)?, holder::who(session.seat, &ask.holder));
    let acquisition = Acquisition { session, name, keys, ask, who };
    let taken = if acquisition.may_be_free() { acquisition.take().await } else { Ok(0) };
    match taken {
        Ok(token @ 1..) => Ok(Answer::Granted(Grant { token, tokens: 1 })),
        Err(error) if !error.is_retryable() => Err(error),
        // In a box: what is needed seldom is not carried around by every call.
        _ => Box::pin(acquisition.ask_until_known()).await,
    }
}

impl Acquisition<'_> {
    /// A plain mutex that is asked for the first time, and was not contended when last asked for.
    fn may_be_free(&self) -> bool {
        let Ask { weight, capacity, tokens, lock_delay, round, logged, .. } = self.ask;
        self.name.family() == Family::Lock
            && (*weight, *capacity) == (WHOLE, WHOLE)
            && *tokens <= 1
            && lock_delay.is_zero()
            && *round <= 1
            && !logged
            && !self.keys.crowded.load(Ordering::Relaxed)
    }

    /// Takes the lock if it is free. 0 if the rules must decide.
    async fn take(&self) -> Result<u64> {
        let take = Take {
            keys: Arc::clone(&self.keys),
            owner: self.ask.owner,
            lease: micros(self.ask.lease),
            who: self.who.clone(),
            until: SystemClock.now() + self.ask.answer_within,
        };
        let token = match &self.session.batcher {
            Some(batcher) => batcher.take(take).await?,
            None => Box::pin(self.take_confirmed(&take)).await?,
        };
        if token > 0 {
            self.keys.plain.store(true, Ordering::Relaxed);
        }
        Ok(token)
    }

    /// The same in a cluster, or where replicas must confirm: each lock on its own.
    async fn take_confirmed(&self, take: &Take) -> Result<u64> {
        let script = |connected: &Connected| scripts::take([take], connected);
        let mut answered: Answered<Vec<u64>> = self.session.topology.run(&self.keys.holder, script).await?;
        let token = answered.answer.first().copied().unwrap_or(0);
        if token > 0 {
            self.session.confirm(&mut answered).await?;
        }
        Ok(token)
    }

    /// Asks by the rules, once more if the connection broke meanwhile.
    async fn ask_until_known(&self) -> Result<Answer> {
        let (session, key) = (self.session, &self.keys.holder);
        let epoch = session.topology.epoch(key).await;
        let mut answer = self.ask_by_rules().await;
        if let Err(error) = &answer
            && error.is_retryable()
            && Some(session.topology.connected(key).await?.epoch) != epoch
        {
            answer = self.ask_by_rules().await;
        }
        if answer.is_err() && session.copies != Copies::None {
            // What may have been granted without enough copies is given back.
            release(session, self.name, self.ask.owner, 0).await.ok();
        }
        answer
    }

    /// Asks by the rules, and joins the queue if that is wanted.
    async fn ask_by_rules(&self) -> Result<Answer> {
        let Acquisition { session, keys, ask, .. } = self;
        let mut late = false;
        loop {
            let channel = || format!("leasehold:seat:{}:{}", session.seat, keys.state);
            // Before it is asked, so that no message is missed.
            let listens = ask.wait && session.topology.listen(&keys.holder, channel).await;
            let script = |connected: &Connected| {
                let not_after = connected.server_now().saturating_add(micros(ask.answer_within));
                self.script(listens, if late { 0 } else { not_after })
            };
            let mut answered: Answered<Value> = session.topology.run(&keys.holder, script).await?;
            match reply::asked(&answered.answer)? {
                Some(answer) => {
                    keys.plain.store(false, Ordering::Relaxed);
                    keys.crowded.store(matches!(answer, Answer::Queued(_)), Ordering::Relaxed);
                    if matches!(answer, Answer::Granted(_)) {
                        session.confirm(&mut answered).await?;
                    }
                    return Ok(answer);
                }
                // The server's clock was set since we connected, or the request was delayed. It is
                // still wanted, so it is sent again without a limit.
                None => late = true,
            }
        }
    }

    fn script(&self, listens: bool, not_after: u64) -> Invocation {
        let Acquisition { ask, session, .. } = *self;
        let mutex = ask.weight == WHOLE && ask.lock_delay.is_zero() && ask.value.is_empty();
        let letters = [("m", mutex), ("w", ask.wait), ("l", ask.logged), ("s", session.strangers)];
        let letters = letters.into_iter().filter(|(_, so)| *so).map(|(letter, _)| letter);
        let (capacity, round) = (ask.capacity.to_string(), ask.round.to_string());
        let terms = [self.name.family().word(), " ", &capacity, " ", &round, " "];
        let terms: String = terms.into_iter().chain(letters).collect();
        let (owner, waiter) = (holder::owner_text(ask.owner), self.waiter(listens));
        ASK.on(&self.keys.all()).arg(terms).arg(owner).arg(waiter).arg(not_after)
    }

    /// What a waiter is written as, but for the time.
    fn waiter(&self, listens: bool) -> Vec<u8> {
        let ask = self.ask;
        let terms = [
            u64::from(ask.weight),
            u64::from(ask.tokens.max(1)),
            micros(ask.lease),
            micros(ask.lock_delay),
            ask.value.len() as u64,
        ];
        let mut text = Vec::with_capacity(128 + ask.value.len());
        text.extend(if listens { b"s " } else { b"- " });
        for number in terms {
            text.extend(number.to_string().into_bytes());
            text.push(b' ');
        }
        text.extend(&*ask.value);
        text.extend(self.who.as_bytes());
        text
    }
}
