//! Getting a value: from memory, from the shared level, or by a load.

use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::core::Core;
use super::figures::Count;
use super::flight::Landed;
use super::got::{Failure, Got, Origin, Outcome};
use super::hash::hash;
use super::load::Wanted;
use super::local::{Mark, Times};
use super::rule::{Answer, Found};
use super::settings::WhenAway;
use crate::client::watch::Awaited;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::name::Name;

/// The answer to a question, with what must be known of the moment before it was sent.
struct Looked {
    answer: Answer,
    claim: Claim,
    sent: Moment,
    mark: Mark,
}

/// One caller, or several that go together.
struct Question<'a> {
    core: &'a Arc<Core>,
    name: &'a Arc<str>,
    hash: u64,
    cell: Name,
    at_least: u64,
}

impl Landed {
    /// Whether it is good for a caller that began to wait for it then.
    fn suits(&self, started: Moment, at_least: u64) -> bool {
        match &self.outcome.got {
            Ok(got) => self.outcome.as_of > started && got.version >= at_least,
            // Others have waited for a shorter time.
            Err(Failure::TimedOut) => false,
            // One that wanted a later version may have failed for that reason alone.
            Err(_) => self.outcome.as_of >= started && self.at_least <= at_least,
        }
    }
}

impl Core {
    /// A hit in the memory of this process.
    fn hit(&self, name: &str, hash: u64, now: Moment, at_least: u64) -> Option<Got> {
        if self.settings.local.is_zero() {
            return None;
        }
        let got = self.local.get(name, hash, now).filter(|got| got.version >= at_least)?;
        self.counters.add(Count::Local);
        Some(got)
    }

    pub(super) async fn get(self: &Arc<Core>, name: &str, at_least: u64) -> Result<Got, Failure> {
        let (started, hash) = (self.now(), hash(name));
        self.client.inner.check_open()?;
        if let Some(got) = self.hit(name, hash, started, at_least) {
            return Ok(got);
        }
        // Whoever knows of a version knows that the name exists.
        if at_least == 0
            && let Some(filter) = &self.filter
            && !filter.may_have(name)
        {
            self.counters.add(Count::Filtered);
            return Ok(Got { value: None, version: 0, origin: Origin::Filter });
        }
        let cell = self.cell(name)?;
        let name: Arc<str> = Arc::from(name);
        let boarded = self.flights.board(&name, hash);
        let end = started + self.settings.wait_limit;
        let slot = tokio::select! {
            biased;
            slot = boarded.flight.lock() => Some(slot),
            () = self.sleep_until(end) => None,
        };
        let Some(mut slot) = slot else {
            self.counters.add(Count::Failed);
            return Err(Failure::TimedOut);
        };
        let outcome = match &*slot {
            Some(landed) if landed.suits(started, at_least) => landed.outcome.clone(),
            _ => {
                // The one before may have brought it into the memory, if it is still good.
                if let Some(got) = self.hit(&name, hash, started, at_least) {
                    return Ok(got);
                }
                let question = Question { core: self, name: &name, hash, cell, at_least };
                let outcome = question.ask(end).await;
                *slot = Some(Landed { outcome: outcome.clone(), at_least });
                outcome
            }
        };
        self.counters.got(&outcome);
        match outcome.got {
            Ok(got) if got.version < at_least => Err(Failure::Behind { wanted: at_least }),
            Err(Failure::Behind { wanted }) => Err(Failure::Behind { wanted: wanted.max(at_least) }),
            got => got,
        }
    }
}

impl Question<'_> {
    async fn look(&self) -> Result<Looked> {
        let core = self.core;
        let mut claim = Claim::new(core, &self.cell);
        let (mark, sent) = (core.local.mark(self.hash), core.now());
        let answer = claim.look(self.at_least).await?;
        Ok(Looked { answer, claim, sent, mark })
    }

    async fn ask(&self, end: Moment) -> Outcome {
        let core = self.core;
        if let Some(pause) = core.engine_is_away() {
            let engine = core.client.guarantees().engine;
            let what = format!("did not answer the last calls; it is asked again in {pause:?}");
            return self.while_away(Error::Unavailable { engine, what, source: None }).await;
        }
        let looked = match self.look().await {
            Ok(Looked { answer: Answer::Wait(_), .. }) => self.wait(end).await,
            looked => looked.map(Some),
        };
        match looked {
            Ok(Some(looked)) => self.conclude(looked, end).await,
            Ok(None) => Outcome { as_of: core.now(), got: Err(Failure::TimedOut) },
            Err(error @ Error::Unavailable { .. }) => self.while_away(error).await,
            Err(error) => Outcome { as_of: core.now(), got: Err(error.into()) },
        }
    }

    /// Waits for the load of another process; `None` if that takes too long.
    async fn wait(&self, end: Moment) -> Result<Option<Looked>> {
        let core = self.core;
        core.counters.add(Count::Waited);
        let began = core.now();
        let limit = Some(end.since(began).max(Duration::from_millis(1)));
        let looked = core.client.inner.wait_until(&self.cell, limit, self).await;
        core.counters.wait_took(core.now().since(began));
        looked
    }

    async fn conclude(&self, looked: Looked, end: Moment) -> Outcome {
        let core = self.core;
        let Looked { answer, claim, sent, mark } = looked;
        let paused = |retry_after| Outcome { as_of: core.now(), got: Err(Failure::Paused { retry_after }) };
        match answer {
            Answer::Fresh(found) => self.found(found, sent, mark),
            Answer::Stale(found) => self.found(found, sent, mark),
            Answer::Refresh(found) => {
                if core.gate.begin(core.now()).is_ok() {
                    // Nobody waits for it.
                    drop(core.begin_load(self.wanted(sent), claim));
                }
                self.found(found, sent, mark)
            }
            Answer::Load => match core.gate.begin(core.now()) {
                Ok(()) => {
                    let outcome = core.begin_load(self.wanted(sent), claim);
                    tokio::select! {
                        biased;
                        outcome = outcome => outcome.unwrap_or_else(|_| self.panicked()),
                        () = core.sleep_until(end) => {
                            Outcome { as_of: core.now(), got: Err(Failure::TimedOut) }
                        }
                    }
                }
                Err(pause) => paused(pause),
            },
            Answer::Pause(left) => paused(Duration::from_micros(left)),
            _ => paused(core.gate.closed_for(core.now()).unwrap_or_default()),
        }
    }

    fn wanted(&self, sent: Moment) -> Wanted {
        Wanted { name: Arc::clone(self.name), hash: self.hash, sent }
    }

    fn found(&self, found: Found, sent: Moment, mark: Mark) -> Outcome {
        let core = self.core;
        let (fresh, lives) = (Duration::from_micros(found.fresh), Duration::from_micros(found.lives));
        let origin = if fresh.is_zero() { Origin::Stale } else { Origin::Shared };
        let got = Got { value: found.value.map(Arc::from), version: found.version, origin };
        // What is not fresh is only remembered, for when the engine is away.
        let times = Times { good: core.settings.local.min(fresh), lives };
        core.local.keep(self.name, &got, mark, sent, times);
        core.listen();
        Outcome { as_of: sent, got: Ok(got) }
    }

    fn panicked(&self) -> Outcome {
        let error: Box<dyn std::error::Error + Send + Sync> = "the loader panicked".into();
        Outcome { as_of: self.core.now(), got: Err(Failure::Load(Arc::from(error))) }
    }

    /// What is left while the engine does not answer.
    async fn while_away(&self, error: Error) -> Outcome {
        let core = self.core;
        let began = core.now();
        let when_away = core.settings.when_away;
        let remembered = core.local.remembered(self.name, self.hash, began);
        if when_away != WhenAway::Fail
            && let Some(got) = remembered.as_ref().filter(|got| got.version >= self.at_least)
        {
            return Outcome { as_of: began, got: Ok(got.clone()) };
        }
        if when_away != WhenAway::Load {
            return Outcome { as_of: began, got: Err(error.into()) };
        }
        if let Err(retry_after) = core.gate.begin(began) {
            return Outcome { as_of: began, got: Err(Failure::Paused { retry_after }) };
        }
        let mark = core.local.mark(self.hash);
        match core.load_from_source(self.name).await {
            Ok(loaded) => {
                let (value, version) = (loaded.value.map(Arc::from), loaded.version);
                let lives = if value.is_some() { core.settings.fresh } else { core.settings.none };
                let got = Got { value, version, origin: Origin::Bypass };
                let times = Times { good: core.settings.local.min(lives), lives };
                // A source that lags behind does not replace what is remembered.
                if remembered.is_none_or(|before| before.version <= got.version) {
                    core.local.keep(self.name, &got, mark, began, times);
                }
                Outcome { as_of: began, got: Ok(got) }
            }
            Err(failure) => Outcome { as_of: core.now(), got: Err(failure) },
        }
    }
}

impl Awaited for &Question<'_> {
    type Found = Looked;

    async fn look(&mut self) -> Result<Option<Looked>> {
        let looked = Question::look(self).await?;
        Ok((!matches!(looked.answer, Answer::Wait(_))).then_some(looked))
    }
}
