//! Loading a value: in a task of its own, so that a caller that goes away takes nothing from those
//! who wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::claim::Claim;
use super::core::Core;
use super::figures::Count;
use super::got::{Failure, Got, Origin, Outcome};
use super::loader::{LoadError, Loaded};
use super::local::Times;
use super::rule::{Answer, Ask};
use super::settings::LONGEST_VALUE;
use crate::clock::Moment;
use crate::error::Error;

/// What could not be stored is stored again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// Which name is loaded, and since when it is the caller's to do so.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: Arc<str>,
    pub(super) hash: u64,
    /// When the question was sent that was answered with the right to load.
    pub(super) sent: Moment,
}

impl Core {
    /// Begins to load, and tells what comes of it. The sender is gone if the loader has panicked.
    pub(super) fn begin_load(self: &Arc<Core>, wanted: Wanted, claim: Claim) -> oneshot::Receiver<Outcome> {
        let (sender, outcome) = oneshot::channel();
        let core = Arc::clone(self);
        self.client.inner.runtime.spawn(async move { core.load(wanted, claim, sender).await });
        outcome
    }

    async fn load(self: Arc<Core>, wanted: Wanted, mut claim: Claim, sender: oneshot::Sender<Outcome>) {
        let began = self.now();
        let loaded = tokio::select! {
            biased;
            loaded = self.load_from_source(&wanted.name) => loaded,
            () = claim.keep() => return,
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(failure) => {
                let outcome = Outcome { as_of: self.now(), got: Err(failure) };
                // First for others: who is told here may ask again at once.
                claim.give_back(self.settings.pause).await;
                sender.send(outcome).ok();
                return;
            }
        };
        let value = loaded.value.as_deref().map(Arc::from);
        let got = Got { value, version: loaded.version, origin: Origin::Loaded };
        let unstored = Outcome { as_of: wanted.sent, got: Ok(got.clone()) };
        if loaded.value.as_ref().is_some_and(|value| value.len() > LONGEST_VALUE) {
            let (cache, name) = (&self.settings.name, &wanted.name);
            tracing::warn!(target: "leasehold", cache, %name, "a value is too long to be kept");
            claim.give_back(Duration::ZERO).await;
            sender.send(unstored).ok();
            return;
        }
        let cost = self.now().since(began);
        let ask = self.store(claim.owner, &loaded, cost);
        let mut sender = Some(sender);
        let mut tell = |outcome| {
            if let Some(sender) = sender.take() {
                sender.send(outcome).ok();
            }
        };
        // If it is not heard in time, others load it.
        let end = claim.deadline(self.now());
        loop {
            let (mark, sent) = (self.local.mark(wanted.hash), self.now());
            match claim.store(ask.clone()).await {
                Ok(Answer::Done) => {
                    self.counters.add(Count::Stored);
                    if let Ask::Store { fresh, stale, .. } = ask {
                        let good = self.settings.local.min(fresh);
                        let times = Times { good, lives: fresh + stale };
                        self.local.keep(&wanted.name, &got, mark, sent, times);
                        self.listen();
                    }
                    // Nobody has invalidated it since the load began, so it is what the source has
                    // had until now.
                    return tell(Outcome { as_of: sent, got: Ok(got) });
                }
                Ok(Answer::Older(wanted)) => {
                    self.counters.add(Count::Behind);
                    return tell(Outcome { as_of: self.now(), got: Err(Failure::Behind { wanted }) });
                }
                // The lease was lost, or the name was invalidated: of use to those alone who asked
                // before it was loaded.
                Ok(_) => {
                    self.counters.add(Count::Discarded);
                    return tell(unstored);
                }
                Err(Error::Unavailable { .. }) if self.now() + AGAIN < end => {
                    tell(unstored.clone());
                    self.sleep_until(self.now() + AGAIN).await;
                }
                Err(_) => return tell(unstored),
            }
        }
    }

    fn store(&self, owner: u128, loaded: &Loaded, cost: Duration) -> Ask {
        let settings = &self.settings;
        let (life, stale) = match loaded.value {
            Some(_) => (settings.fresh, settings.stale),
            None => (settings.none, Duration::ZERO),
        };
        Ask::Store {
            owner,
            value: loaded.value.clone(),
            version: loaded.version,
            fresh: settings.jittered(life, self.dice.roll()),
            stale,
            cost: u32::try_from(cost.as_micros()).unwrap_or(u32::MAX),
            pause: settings.pause,
        }
    }

    /// Asks the source, behind the limits of loads.
    pub(super) async fn load_from_source(&self, name: &str) -> Result<Loaded, Failure> {
        let end = self.now() + self.settings.load_limit;
        let place = tokio::select! {
            biased;
            place = self.gate.enter() => place,
            () = self.sleep_until(end) => None,
        };
        let Some(_place) = place else { return Err(Failure::Busy) };
        self.counters.add(Count::Loads);
        let began = self.now();
        let loaded = tokio::select! {
            biased;
            loaded = self.loader.load(name) => loaded,
            () = self.sleep_until(began + self.settings.load_limit) => Err(self.took_too_long()),
        };
        self.counters.load_took(self.now().since(began));
        match loaded {
            Ok(loaded) if loaded.version >= super::entry::LARGEST => Err(Failure::from(Error::invalid(
                format!("the source gave `{name}` the version {}; versions are below 2^52", loaded.version),
            ))),
            Ok(loaded) => {
                self.gate.succeeded();
                Ok(loaded)
            }
            Err(error) => {
                self.counters.add(Count::LoadFailures);
                self.gate.failed(self.now());
                Err(Failure::Load(error))
            }
        }
    }

    fn took_too_long(&self) -> LoadError {
        let text = format!("the load took longer than {:?}", self.settings.load_limit);
        Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::decode;
    use super::*;

    /// Values, and that there is none: each for its own time, more or less.
    #[tokio::test]
    async fn what_is_stored_together_does_not_end_together() {
        let client = crate::connect("memory:").await.expect("an engine");
        let cache = client.cache("x", Duration::from_secs(100), |name: String| async move {
            Ok::<_, String>(if name.len() == 2 { Loaded::value(name) } else { Loaded::none() })
        });
        let cache = cache.and_then(|cache| cache.none_for(Duration::from_secs(10))).expect("in range");
        for (suffix, life) in [("", 100e6), ("-", 10e6)] {
            let names: Vec<String> = (0..40).map(|number| format!("{number:02}{suffix}")).collect();
            assert!(cache.get_many(&names).await.iter().all(Result::is_ok));
            let mut lives = Vec::new();
            for name in &names {
                let cell = cache.0.cell(name).expect("a name");
                let found = client.inner.read_cells(&[cell]).await.expect("an answer");
                let cell = &found.cells[0];
                let entry = decode(cell.value.as_deref().expect("stored")).expect("an entry");
                lives.push((entry.fresh_until - cell.changed_at) as f64 / life);
            }
            lives.sort_by(f64::total_cmp);
            assert!(lives[0] >= 0.9 && lives[39] <= 1.1, "{lives:?}");
            assert!(lives[39] - lives[0] > 0.1, "{lives:?}");
        }
    }
}
