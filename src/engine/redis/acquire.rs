//! Taking a claim: without ado if nobody else wants the name, by the rules otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::attempt::{self, Attempt, HolderText};
use super::fleet::{Answered, Request};
use super::keys::NameKeys;
use super::place::Copies;
use super::post::{Alone, Post};
use super::scripts::{Invocation, SCRIPTS};
use super::{Redis, micros, reply};
use crate::claim::{Answer, Ask, Grant, OwnerId, WHOLE};
use crate::error::Result;
use crate::name::{Family, Name};

/// Counters below this have not been started at the server's time.
const STARTED: u64 = 1 << 40;

/// How long a counter is kept. The scripts say the same.
const COUNTER_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of the attempt to take a lock without ado.
#[derive(Debug)]
enum Taken {
    Yes(Grant),
    No,
    /// Over the heads of those who wait: a stranger had just released it, or it was left free for strangers. It must be
    /// given back by the rules.
    BeforeOthers,
}

impl Redis {
    /// Takes a lock that nobody else wants.
    async fn take(&self, name: &Name, keys: &Arc<NameKeys>, ask: &Ask) -> Result<Taken> {
        if !keys.has_counter() {
            return Box::pin(self.take_first(keys, ask)).await;
        }
        let Some(Attempt { set, counter, fresh, others }) = self.attempt(keys, ask).await? else {
            return Ok(Taken::No);
        };
        if !set || others {
            if counter < STARTED {
                // It ended while the lock was held, and was made anew just now. Whoever gets the lock starts it.
                let mut expire = redis::cmd("EXPIRE");
                expire.arg(&keys.token).arg(COUNTER_KEPT.as_secs());
                Box::pin(self.fleet.tell(&keys.holder, &expire)).await?;
            }
            return Ok(if set { Taken::BeforeOthers } else { Taken::No });
        }
        let token = if fresh { counter } else { Box::pin(self.mend(name, keys, ask.owner)).await? };
        if token == 0 {
            return Ok(Taken::No);
        }
        if !fresh {
            keys.counted();
        }
        self.notes.add(self.fleet.writer(&keys.holder).await, keys, ask.owner, token);
        Ok(Taken::Yes(Grant { token, tokens: 1 }))
    }

    /// Takes a lock that nobody else wants, whose counter may have to be started.
    async fn take_first(&self, keys: &Arc<NameKeys>, ask: &Ask) -> Result<Taken> {
        let now = self.fleet.server_now(&keys.holder).await?;
        let script = attempt::holder_text(ask, self.seat, now).script(keys);
        let mut answered: Answered<u64> = self.fleet.call(&keys.holder, Request::Script(&script)).await?;
        let token = answered.answer;
        if token == 0 {
            return Ok(Taken::No);
        }
        self.confirm(&mut answered).await?;
        keys.counted();
        self.notes.written(ask.owner, token);
        Ok(Taken::Yes(Grant { token, tokens: 1 }))
    }

    /// Tries to take a lock, together with others if there are any under way. `None` if it is not known what came of it.
    async fn attempt(&self, keys: &Arc<NameKeys>, ask: &Ask) -> Result<Option<Attempt>> {
        let now = self.fleet.server_now(&keys.holder).await?;
        let text = attempt::holder_text(ask, self.seat, now);
        let alone = self.post.as_ref().and_then(Post::alone);
        match &self.post {
            Some(post) if alone.is_none() => Ok(post.take(keys, text).await),
            // In a box of its own: what goes by post need not carry it around.
            _ => Box::pin(self.attempt_alone(keys, text, alone)).await,
        }
    }

    async fn attempt_alone(
        &self,
        keys: &Arc<NameKeys>,
        text: HolderText,
        alone: Option<Alone<'_>>,
    ) -> Result<Option<Attempt>> {
        let transaction = attempt::transaction([(&**keys, &text)].into_iter());
        let mut answered: Answered<Value> =
            self.fleet.call(&keys.holder, Request::Transaction(&transaction)).await?;
        drop(alone);
        let found = attempt::answers(&answered.answer, answered.since).pop().flatten();
        if found.is_some_and(|found| found.set && !found.others) {
            self.confirm(&mut answered).await?;
        }
        Ok(found)
    }

    /// Starts the counter of a name at the server's time.
    async fn mend(&self, name: &Name, keys: &NameKeys, owner: OwnerId) -> Result<u64> {
        let mut mend = SCRIPTS.mend.prepare();
        keys.all().iter().for_each(|key| {
            mend.key(*key);
        });
        mend.arg(name.family().word()).arg(reply::owner_text(owner));
        self.run(&keys.holder, &mend).await
    }

    /// Asks by the rules, and joins the queue if that is wanted.
    async fn ask(&self, name: &Name, keys: &NameKeys, ask: &Ask, taken: &Taken) -> Result<Answer> {
        let mut late = false;
        loop {
            let connected = self.fleet.connected(&keys.holder).await?;
            let not_after = connected.server_now().saturating_add(micros(ask.answer_within));
            let channel = || format!("leasehold:seat:{}:{}", self.seat, keys.state);
            // Before it is asked: what is said there from then on is heard.
            let listens = ask.wait && self.fleet.listen(&keys.holder, channel).await;
            let not_after = if late { 0 } else { not_after };
            let invocation = self.ask_script(name, keys, ask, taken, listens, not_after);
            let mut answered: Answered<Vec<i64>> =
                self.fleet.call(&keys.holder, Request::Script(&invocation)).await?;
            match reply::answer(&answered.answer)? {
                Some(answer) => {
                    keys.crowded.store(matches!(answer, Answer::Queued(_)), Ordering::Relaxed);
                    if matches!(answer, Answer::Granted(_)) {
                        self.confirm(&mut answered).await?;
                    }
                    return Ok(answer);
                }
                // The server's clock is not what it was when we connected, or our own request came late; if it is still
                // wanted, then without a limit.
                None => late = true,
            }
        }
    }

    fn ask_script(
        &self,
        name: &Name,
        keys: &NameKeys,
        ask: &Ask,
        taken: &Taken,
        listens: bool,
        not_after: u64,
    ) -> Invocation {
        let mut script = SCRIPTS.ask.prepare();
        for key in keys.all() {
            script.key(key);
        }
        script
            .arg(name.family().word())
            .arg(reply::owner_text(ask.owner))
            .arg(ask.weight)
            .arg(ask.capacity)
            .arg(micros(ask.lease))
            .arg(micros(ask.lock_delay))
            .arg(ask.tokens.max(1))
            .arg(u8::from(ask.wait))
            .arg(ask.round)
            .arg(self.seat)
            .arg(ask.holder.pid)
            .arg(reply::host_text(&ask.holder.host))
            .arg(&ask.holder.label)
            .arg(&*ask.value)
            .arg(u8::from(ask.logged))
            .arg(not_after)
            .arg(u8::from(matches!(taken, Taken::BeforeOthers)))
            .arg(u8::from(self.strangers))
            .arg(if listens { "s" } else { "-" })
            .arg(self.notes.token(ask.owner).unwrap_or(0));
        script
    }

    /// Asks, and asks again if the connection broke on the way: asking twice is harmless.
    pub(super) async fn acquire_whole(&self, name: &Name, ask: &Ask) -> Result<Answer> {
        let keys = self.keys.of(name)?;
        let simple = name.family() == Family::Lock
            && ask.weight == WHOLE
            && ask.capacity == WHOLE
            && ask.tokens <= 1
            && ask.lock_delay.is_zero()
            && ask.round <= 1
            && !ask.logged
            && !keys.crowded.load(Ordering::Relaxed);
        let taken = if simple { self.take(name, &keys, ask).await } else { Ok(Taken::No) };
        match taken {
            Ok(Taken::Yes(grant)) => Ok(Answer::Granted(grant)),
            // In a box of its own: what is needed seldom is not carried around by every call.
            taken => Box::pin(self.ask_well(name, &keys, ask, taken)).await,
        }
    }

    /// Asks by the rules, once more if the connection broke meanwhile: asking twice is harmless.
    async fn ask_well(
        &self,
        name: &Name,
        keys: &NameKeys,
        ask: &Ask,
        taken: Result<Taken>,
    ) -> Result<Answer> {
        let epoch = self.fleet.connected(&keys.holder).await?.epoch;
        let mut answer = match taken {
            Ok(taken) => self.ask(name, keys, ask, &taken).await,
            // Whether it was taken may not be known; the rules find out, and say better what is wrong.
            Err(error) if error.is_retryable() => self.ask(name, keys, ask, &Taken::No).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &answer
            && error.is_retryable()
            && self.fleet.connected(&keys.holder).await?.epoch != epoch
        {
            answer = self.ask(name, keys, ask, &Taken::No).await;
        }
        if answer.is_err() && self.copies != Copies::None {
            // What may have been granted without enough copies is given back.
            self.release_whole(name, ask.owner, 0).await.ok();
        }
        answer
    }
}
