//! Where a sale is kept: the names of its cells, and what this process remembers of them.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::head::{Head, Layout};
use super::heads::{self, Ask, Heads};
use super::sell::Sale;
use super::terms::MOST_SHARDS;
use crate::claim::Micros;
use crate::clock::Moment;
use crate::engine::Cells;
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// What this process remembers of the sale.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) layout: Option<Layout>,
    pub(super) sold_out_until: Option<Moment>,
}

impl Sale {
    pub(super) async fn ask_heads(&self, ask: Ask) -> Result<heads::Answer> {
        let names = self.all_heads()?;
        let answer = self.client.inner.update(&names, &Arc::new(Heads { ask })).await?;
        let mut known = self.known();
        (known.layout, known.sold_out_until) = (None, None);
        Ok(answer)
    }

    /// How the sale is laid out, as far as this process knows; `None` if there is none.
    pub(super) async fn layout(&self) -> Result<Option<Layout>> {
        let known = self.known().layout;
        match known {
            Some(layout) => Ok(Some(layout)),
            None => self.look_up_layout().await,
        }
    }

    pub(super) async fn look_up_layout(&self) -> Result<Option<Layout>> {
        let head = self.read_head(0).await?.map(|(_, head)| head);
        let layout = head.map(|head| head.layout);
        self.known().layout = layout;
        Ok(layout)
    }

    /// The head of a shard that is not gone, and the time.
    pub(super) async fn read_head(&self, shard: u8) -> Result<Option<(Micros, Head)>> {
        let Cells { now, cells } = self.client.inner.read_cells(&[self.head_cell(shard)?]).await?;
        match cells.first().and_then(|cell| cell.value.as_deref()) {
            None => Ok(None),
            Some(bytes) => {
                let head = Head::decode(bytes).ok_or_else(|| self.foreign())?;
                Ok((!head.is_gone(now)).then_some((now, head)))
            }
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all_heads(&self) -> Result<Vec<Name>> {
        (0..MOST_SHARDS).map(|shard| self.head_cell(shard)).collect()
    }

    pub(super) fn head_cell(&self, shard: u8) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/head/{shard}", self.prefix))
    }

    pub(super) fn bucket_cell(&self, shard: u8, bucket: u16) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/bucket/{shard}/{bucket}", self.prefix))
    }

    pub(super) fn buyer_cell(&self, buyer: &str) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/buyer/{buyer}", self.prefix))
    }

    /// Buckets and buyers of a sale that was forgotten would be taken for those of the new one.
    pub(super) fn forgotten(&self, epoch: u32) -> Error {
        Error::invalid(format!(
            "the sale `{}` of epoch {epoch} was forgotten; open it with `Terms::epoch({})` or greater",
            self.name,
            epoch.saturating_add(1)
        ))
    }

    pub(super) fn foreign(&self) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!(
                "a cell of the sale `{}` holds something that is not a part of it; choose another name",
                self.name
            ),
            source: None,
        }
    }
}
