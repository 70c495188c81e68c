//! The engine of raw names.

use std::sync::Arc;

use super::promises::RAW;
use super::raw::{Raw, unsupported};
use super::url::Place;
use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use crate::engine::{
    Cells, Connection, Engine, Guarantees, Hints, Renewal, Renewed, Reply, Swap, Swapped, View, Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

const NO_CELLS: &str = "has no cells in raw mode; leave out `raw`";
const NO_NAMES: &str = "can not list names in raw mode: any key may be a contender for one";
const NO_CHANGE: &str = "can not change a claim in raw mode; leave out `raw`";

/// Connects to the cluster.
pub(super) async fn open(place: Place) -> Result<Box<dyn Engine>> {
    Ok(Box::new(RawEngine { raw: Raw::open(place).await? }))
}

#[derive(Debug)]
struct RawEngine {
    raw: Arc<Raw>,
}

impl Drop for RawEngine {
    fn drop(&mut self) {
        self.raw.watches.close();
    }
}

fn refused<'a, T: Send + 'a>(what: &str) -> Reply<'a, T> {
    Box::pin(std::future::ready(Err(unsupported(what))))
}

impl Engine for RawEngine {
    fn guarantees(&self) -> Guarantees {
        RAW
    }

    fn listen(&self, hints: Hints) {
        self.raw.listen(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(Arc::clone(&self.raw).acquire(name.clone(), ask.clone()))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            Ok(futures_util::future::join_all(renewals.iter().map(|one| self.raw.renew(one))).await)
        })
    }

    fn release<'a>(&'a self, _: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(Arc::clone(&self.raw).release(owner))
    }

    fn alter<'a>(&'a self, _: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        match alteration {
            Alteration::Value(value) => Box::pin(Arc::clone(&self.raw).proclaim(owner, value)),
            _ => refused(NO_CHANGE),
        }
    }

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        refused(NO_CHANGE)
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.raw.look(name, seen))
    }

    fn list<'a>(
        &'a self,
        _: Family,
        _: &'a str,
        _: Option<&'a str>,
        _: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        refused(NO_NAMES)
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.raw.break_claims(name))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        refused(NO_CELLS)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        refused(NO_CELLS)
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
        refused(NO_CELLS)
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        if name.family() != Family::Election {
            return refused(NO_CELLS);
        }
        Box::pin(async move {
            match watching {
                Watching::On => self.raw.observe(name).await,
                Watching::Off => {
                    self.raw.ignore(name);
                    Ok(())
                }
            }
        })
    }

    fn connection(&self, _: &Name) -> Connection {
        self.raw.store.supervisor.connection()
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.raw.close().await;
            self.raw.watches.close();
            self.raw.store.supervisor.close();
            Ok::<(), Error>(())
        })
    }

    fn trouble(&self) -> Option<String> {
        Some(self.raw.store.supervisor.trouble())
    }
}
