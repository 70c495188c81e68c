//! Cells as locks and the kit use them: decided by a rule, or looked at.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Micros;
use crate::client::{Client, Inner};
use crate::engine::{Cell, Cells, Rule};
use crate::error::{Error, Result};
use crate::name::Name;

/// A rule whose answer has a type.
pub(crate) trait TypedRule: Rule {
    /// What the caller is told.
    type Answer;

    /// Understands what [`Rule::step`] or its twin has answered.
    fn read(&self, answer: &[u8]) -> Option<Self::Answer>;
}

impl Client {
    /// The cells of this client's namespace whose names in it are wanted: each as it was when it
    /// was read, and the time. All names are listed, and no other cells are read.
    ///
    /// For people: what others write meanwhile may be there or not.
    pub(crate) async fn find_cells(
        &self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Cell, Micros)>> {
        const PAGE: usize = 1000;
        let Client { inner, prefix } = self;
        inner.check_open()?;
        let mut found = Vec::new();
        let mut after: Option<Name> = None;
        loop {
            let from = after.as_ref().map(Name::as_str);
            let page = inner.call(inner.engine.list_cells(prefix, from, PAGE)).await?;
            for name in &page {
                let text = name.as_str().strip_prefix(&**prefix).unwrap_or_default();
                if !wanted(text) {
                    continue;
                }
                // One by one: in a cluster they are on different servers.
                let Cells { now, cells } = inner.read_cells(slice::from_ref(name)).await?;
                found.extend(cells.into_iter().map(|cell| (text.to_owned(), cell, now)));
            }
            after = page.into_iter().nth(PAGE - 1);
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}

impl Inner {
    /// Refuses an engine without cells.
    pub(crate) fn needs_cells(&self, for_what: &str) -> Result<()> {
        let guarantees = self.engine.guarantees();
        if guarantees.cells {
            return Ok(());
        }
        Err(Error::Unsupported {
            engine: guarantees.engine,
            what: format!("has no cells, which {for_what}; use another engine"),
        })
    }

    /// Lets a rule decide over cells, all or none, in one atomic step.
    ///
    /// If the engine does not answer, or the future is dropped, the rule was applied or was not:
    /// see [`crate::engine::cell`].
    pub(crate) async fn update<R: TypedRule>(&self, names: &[Name], rule: &Arc<R>) -> Result<R::Answer> {
        self.update_within(self.options.call_limit, names, rule).await
    }

    /// The same with another time limit than the client's.
    pub(crate) async fn update_within<R: TypedRule>(
        &self,
        limit: Duration,
        names: &[Name],
        rule: &Arc<R>,
    ) -> Result<R::Answer> {
        self.check_open()?;
        let erased: Arc<dyn Rule> = Arc::<R>::clone(rule);
        let answer = self.call_within(limit, self.engine.apply(names, &erased)).await?;
        rule.read(&answer).ok_or_else(|| Error::Engine {
            engine: self.engine.guarantees().engine,
            what: format!("{rule:?} was answered with {answer:?}, which is not an answer to it"),
            source: None,
        })
    }

    /// Reads cells at one moment.
    pub(crate) async fn read_cells(&self, names: &[Name]) -> Result<Cells> {
        self.check_open()?;
        self.call(self.engine.read(names)).await
    }
}
