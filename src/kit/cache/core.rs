//! What the clones of a cache share.

use std::sync::Arc;
use std::time::Duration;

use super::figures::Counters;
use super::filter::Filter;
use super::flight::Flights;
use super::gate::Gate;
use super::loader::Loader;
use super::local::Local;
use super::news::News;
use super::settings::{Dice, Settings};
use crate::client::Client;
use crate::clock::{Clock, Moment, sleep_until};
use crate::error::{Error, Result};
use crate::kit::breaker::{Breaker, Permit};
use crate::kit::cells;
use crate::name::{Family, Name};

/// What the clones of a cache share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) loader: Loader,
    pub(super) filter: Option<Filter>,
    pub(super) local: Local,
    pub(super) flights: Flights,
    /// Whether the engine answers.
    pub(super) engine: Breaker,
    pub(super) gate: Gate,
    pub(super) counters: Counters,
    pub(super) news: News,
    pub(super) dice: Dice,
}

impl Core {
    pub(super) fn new(
        client: &Client,
        settings: Settings,
        loader: Loader,
        filter: Option<Filter>,
        dice: Dice,
    ) -> Core {
        Core {
            client: client.clone(),
            local: Local::new(settings.local_bytes),
            flights: Flights::default(),
            engine: Breaker::default(),
            gate: Gate::new(settings.loads_at_once),
            counters: Counters::new(client.guarantees().engine, &settings.name),
            news: News::default(),
            dice,
            settings,
            loader,
            filter,
        }
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.client.inner.clock
    }

    pub(super) fn now(&self) -> Moment {
        self.clock().now()
    }

    pub(super) async fn sleep_until(&self, moment: Moment) {
        sleep_until(self.clock(), moment).await;
    }

    /// The cell of an entry.
    pub(super) fn cell(&self, name: &str) -> Result<Name> {
        self.client.name(Family::Cell, &cells::cell(&self.settings.prefix, name))
    }

    /// The cell of the news.
    pub(super) fn news_cell(&self) -> Result<Name> {
        self.client.name(Family::Cell, &cells::cell("cache-news/", &self.settings.name))
    }

    /// Notes whether the engine has answered.
    pub(super) fn note<T>(&self, answer: &Result<T>) {
        match answer {
            Err(Error::Unavailable { .. }) => self.engine.failed(self.now()),
            _ => self.engine.succeeded(),
        }
    }

    /// How long the engine must not be asked, if so. Then somebody tries in the background whether
    /// it is back.
    pub(super) fn engine_is_away(self: &Arc<Core>) -> Option<Duration> {
        match self.engine.permit(self.now()) {
            Permit::Ask => None,
            Permit::Away(pause) => Some(pause),
            Permit::Probe(pause) => {
                let core = Arc::clone(self);
                self.client.inner.background(async move {
                    if let Ok(cell) = core.news_cell() {
                        let inner = &core.client.inner;
                        let read = inner.engine.read(std::slice::from_ref(&cell));
                        core.note(&inner.call_within(core.settings.deadline, read).await);
                    }
                });
                Some(pause)
            }
        }
    }

    pub(super) fn foreign(&self, cell: &Name) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!("the cell `{cell}` holds something that is not an entry of a cache"),
            source: None,
        }
    }
}
