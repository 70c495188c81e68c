//! Taking a claim: without ado if nobody else wants the name, by the rules otherwise.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use redis::Value;

use super::fast_path::{self, Attempt, Counted, HolderText};
use super::scripts::SCRIPTS;
use super::{Redis, micros, reply};
use crate::claim::{Answer, Ask, Grant, Holder, OwnerId, WHOLE};
use crate::error::Result;
use crate::name::{Family, Name};
use crate::redis::holder;
use crate::redis::keys::NameKeys;
use crate::redis::script::Invocation;
use crate::redis::topology::{Answered, Request};
use crate::redis::url::Copies;

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
        let now = self.topology.server_now(&keys.holder).await?;
        let text = fast_path::holder_text(ask, &self.who(&ask.holder), now);
        let (attempt, text) = self.attempt(keys, text).await?;
        let token = match attempt {
            Some(Attempt { set: true, counted: Counted::Token(token) }) => token,
            Some(Attempt { set: true, counted: Counted::First | Counted::Doubtful }) => {
                match Box::pin(self.mend(name, keys, ask.owner)).await? {
                    0 => return Ok(Taken::No),
                    token @ 1.. => token.unsigned_abs(),
                    _ => return Ok(Taken::BeforeOthers),
                }
            }
            Some(Attempt { set: true, counted: Counted::Others }) => return Ok(Taken::BeforeOthers),
            Some(Attempt { set: false, .. }) | None => return Ok(Taken::No),
        };
        if !matches!(attempt, Some(Attempt { counted: Counted::Token(_), .. })) {
            keys.counted();
        }
        keys.took(token);
        self.notes.add(self.topology.writer(&keys.holder).await, keys, ask.owner, token, text);
        Ok(Taken::Yes(Grant { token, tokens: 1 }))
    }

    /// Takes a lock that nobody else wants, whose counter may have to be started.
    async fn take_first(&self, keys: &Arc<NameKeys>, ask: &Ask) -> Result<Taken> {
        let now = self.topology.server_now(&keys.holder).await?;
        let script = fast_path::holder_text(ask, &self.who(&ask.holder), now).script(keys);
        let mut answered: Answered<u64> = self.topology.call(&keys.holder, Request::Script(&script)).await?;
        let token = answered.answer;
        if token == 0 {
            return Ok(Taken::No);
        }
        self.confirm(&mut answered).await?;
        keys.counted();
        keys.took(token);
        self.notes.written(ask.owner, token);
        Ok(Taken::Yes(Grant { token, tokens: 1 }))
    }

    /// Tries to take a lock, together with others if there are any under way. `None` if it is not known what came of it. Gives
    /// back what stands at the holder's key if it was taken.
    async fn attempt(&self, keys: &Arc<NameKeys>, text: HolderText) -> Result<(Option<Attempt>, String)> {
        match &self.post {
            Some(post) => post.take(keys, text).await,
            // In a box of its own: what goes by post need not carry it around.
            None => Box::pin(self.attempt_confirmed(keys, text)).await,
        }
    }

    /// Tries to take a lock where others must hear of it before it counts, or in a cluster.
    async fn attempt_confirmed(
        &self,
        keys: &Arc<NameKeys>,
        text: HolderText,
    ) -> Result<(Option<Attempt>, String)> {
        let commands = fast_path::commands(keys, &text);
        let request = Request::Commands(&commands);
        let mut answered: Answered<Value> = self.topology.call(&keys.holder, request).await?;
        let attempt = fast_path::read(&mut fast_path::answers(&answered.answer), answered.connected.since);
        if attempt.is_some_and(|attempt| attempt.set && attempt.counted != Counted::Others) {
            self.confirm(&mut answered).await?;
        }
        Ok((attempt, text.text))
    }

    /// Whether a lock is still the owner's, and under which token: see the script.
    async fn mend(&self, name: &Name, keys: &NameKeys, owner: OwnerId) -> Result<i64> {
        let mut mend = SCRIPTS.mend.on(&keys.all());
        mend.arg(name.family().word()).arg(holder::owner_text(owner));
        self.run_confirmed(&keys.holder, &mend).await
    }

    /// Asks by the rules, and joins the queue if that is wanted.
    async fn ask(&self, name: &Name, keys: &NameKeys, ask: &Ask, taken: &Taken) -> Result<Answer> {
        let mut late = false;
        loop {
            let now = self.topology.server_now(&keys.holder).await?;
            let not_after = now.saturating_add(micros(ask.answer_within));
            let channel = || format!("leasehold:seat:{}:{}", self.seat, keys.state);
            // Before it is asked: what is said there from then on is heard.
            let listens = ask.wait && self.topology.listen(&keys.holder, channel).await;
            let not_after = if late { 0 } else { not_after };
            let invocation = self.ask_script(name, keys, ask, taken, listens, not_after);
            let mut answered: Answered<Value> =
                self.topology.call(&keys.holder, Request::Script(&invocation)).await?;
            match reply::asked(&answered.answer)? {
                Some(answer) => {
                    keys.took(0);
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
        let mut script = SCRIPTS.ask.on(&keys.all());
        let mutex = ask.weight == WHOLE && ask.lock_delay.is_zero() && ask.value.is_empty();
        let letters = [
            ("m", mutex),
            ("w", ask.wait),
            ("l", ask.logged),
            ("b", matches!(taken, Taken::BeforeOthers)),
            ("s", self.strangers),
        ];
        let how = letters.iter().filter(|(_, so)| *so).map(|(letter, _)| *letter);
        let words = [name.family().word(), " ", &ask.capacity.to_string(), " ", &ask.round.to_string(), " "];
        let terms: String = words.into_iter().chain(how).collect();
        script.arg(holder::owner_text(ask.owner)).arg(self.waiter(ask, listens)).arg(terms).arg(not_after);
        if let Some(token) = self.notes.token(ask.owner) {
            script.arg(token);
        }
        script
    }

    /// What a waiter is written down as, but for the time.
    fn waiter(&self, ask: &Ask, listens: bool) -> Vec<u8> {
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
        text.extend(self.who(&ask.holder).as_bytes());
        text
    }

    /// How a holder is written down: seat, process, host and label.
    fn who(&self, holder: &Arc<Holder>) -> Arc<str> {
        let mut last = self.who.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, text)) if Arc::ptr_eq(known, holder) => Arc::clone(text),
            _ => {
                let Holder { host, pid, label } = &**holder;
                let text: Arc<str> =
                    format!("{} {pid} {} {label}", self.seat, holder::host_text(host)).into();
                *last = Some((Arc::clone(holder), Arc::clone(&text)));
                text
            }
        }
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
        let epoch = self.topology.epoch(&keys.holder).await;
        let mut answer = match taken {
            Ok(taken) => self.ask(name, keys, ask, &taken).await,
            // Whether it was taken may not be known; the rules find out, and say better what is wrong.
            Err(error) if error.is_retryable() => self.ask(name, keys, ask, &Taken::No).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &answer
            && error.is_retryable()
            && Some(self.topology.connected(&keys.holder).await?.epoch) != epoch
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
