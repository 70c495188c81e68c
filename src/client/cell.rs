//! Cells as locks and the kit use them: decided by a rule, or looked at.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Inner;
use crate::engine::{Cells, Rule};
use crate::error::{Error, Result};
use crate::name::Name;

/// A rule whose answer has a type.
pub(crate) trait TypedRule: Rule {
    /// What the caller is told.
    type Answer;

    /// Understands what [`Rule::step`] or its twin has answered.
    fn read(&self, answer: &[u8]) -> Option<Self::Answer>;
}

impl Inner {
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
