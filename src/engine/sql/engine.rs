//! An engine on a database.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::claims::{How, MANY, grants_are_flushed};
use super::database::{Database, Durability, Failure};
use super::row::key_of;
use super::state::Sql;
use super::tries::jitter;
use crate::claim::{Alteration, Answer, Ask, Claim, Micros, OwnerId, Pause, Released, Seat};
use crate::engine::table::{Acquire, Alter, Break, Look, Resize};
use crate::engine::{
    AddSql, Cells, Connection, Engine, Guarantees, Hints, Renewal, Renewed, ReplaceSql, Reply, Rule, Swap,
    Swapped, VerifySql, View, Watching, refusal,
};
use crate::error::Result;
use crate::name::{Family, Name};

/// A waiter that nobody can call asks again after this long at first, and this long later.
const FIRST_POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_millis(100);

/// The engine that users get.
#[derive(Debug)]
pub(crate) struct SqlEngine<D>(Arc<Sql<D>>);

impl<D: Database> SqlEngine<D> {
    /// An engine on a database that can be reached. `seat` is a number that nobody else has.
    pub(crate) fn open(database: D, seat: Seat, now: Micros) -> Result<SqlEngine<D>> {
        Ok(SqlEngine(Arc::new(Sql::new(database, seat, now)?)))
    }
}

impl<D: Database> Sql<D> {
    /// The same answer, with a pause that suits a waiter that may not be called.
    fn pollable(self: &Arc<Self>, answer: Answer, round: u32) -> Answer {
        let Answer::Queued(pause) = answer else { return answer };
        self.database.start_listening();
        if self.database.hears() {
            return answer;
        }
        self.poll();
        let poll = jitter((FIRST_POLL * round.max(1)).min(LONGEST_POLL));
        Answer::Queued(Pause { at_most: pause.at_most.min(poll) })
    }

    /// Asks, and asks again by the rules if the connection broke on the way: asking twice is
    /// harmless.
    async fn acquire(self: &Arc<Self>, name: &Name, ask: &Ask) -> Result<Answer> {
        // Who asks again stands in the queue, or has been granted its claim.
        let is_new = ask.round <= 1;
        match self.acquire_once(name, ask, is_new).await {
            Err(error) if error.is_retryable() => Box::pin(self.acquire_once(name, ask, false)).await,
            answer => answer,
        }
    }

    async fn acquire_once(self: &Arc<Self>, name: &Name, ask: &Ask, is_new: bool) -> Result<Answer> {
        let key = key_of(name);
        let mut answer = None;
        if is_new && !ask.logged && !self.recent.is_busy(&key) {
            answer = self.take(name, &key, ask).await?.map(Answer::Granted);
        }
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let request = Acquire { ask: Cow::Borrowed(ask), seat: self.seat };
                let how = How {
                    within: Some(ask.answer_within),
                    from_memory: is_new,
                    round: Some(ask.round),
                    ..How::new(grants_are_flushed)
                };
                match self.attempt_on_name(name, &request, how).await {
                    Ok(answer) => answer,
                    // A transaction has the row locked, so nobody can take the name now.
                    Err(Failure::Conflict(_)) if ask.wait => Answer::Queued(Pause { at_most: LONGEST_POLL }),
                    Err(Failure::Conflict(_)) => Answer::Busy(Pause { at_most: LONGEST_POLL }),
                    Err(failure) => return Err(failure.into_error()),
                }
            }
        };
        if matches!(answer, Answer::Granted(_)) {
            self.askings.forget(ask.owner);
            self.polled.hold(ask.owner, &key);
            self.poll_if_wanted();
        }
        Ok(self.pollable(answer, ask.round))
    }
}

impl<D: Database> Engine for SqlEngine<D> {
    fn guarantees(&self) -> Guarantees {
        self.0.database.guarantees()
    }

    fn listen(&self, hints: Hints) {
        let askings = Arc::clone(&self.0.askings);
        let hints = Hints::new(move |hint| hints.give(askings.resolve(hint)));
        self.0.database.listen(hints.clone());
        // Called once; a second sink would never hear anything.
        self.0.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        self.0.sweep_now_and_then(1);
        Box::pin(self.0.acquire(name, ask))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        // Who holds for long is told when its claim is broken.
        self.0.database.start_listening();
        self.0.poll();
        self.0.sweep_now_and_then(renewals.len());
        Box::pin(self.0.renew_all(renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        self.0.polled.let_go(owner);
        Box::pin(self.0.give_back(name, owner, used))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move {
            let request = Alter { owner, alteration };
            let how = How::new(grants_are_flushed);
            Ok(self.0.pollable(self.0.on_name(name, &request, how).await?, 1))
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move {
            let resized = self.0.on_name(name, &Resize { declared, capacity }, How::flushed()).await?;
            resized.map_err(|refused| refusal(name, refused))
        })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        // What a look clears away would be cleared away again.
        let how = How { most: MANY, ..How::new(|_: &View| Durability::Soon) };
        Box::pin(async move { self.0.on_name(name, &Look { seen }, how).await })
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(self.0.list_names(family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move { self.0.on_name(name, &Break, How::flushed()).await })
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(self.0.read_cells(names))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(self.0.swap_cells(swaps))
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        Box::pin(self.0.apply_rule(names, &**rule))
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(self.0.list_cells(prefix, after, limit))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            match watching {
                Watching::On if self.0.database.watch(name).await => Ok(()),
                Watching::On => self.0.watch_by_polling(name).await,
                Watching::Off => {
                    self.0.database.unwatch(name);
                    self.0.unwatch_by_polling(name);
                    Ok(())
                }
            }
        })
    }

    fn connection(&self, name: &Name) -> Connection {
        self.0.database.connection(&key_of(name))
    }

    fn verify_sql(&self, name: &Name, token: u64) -> Option<VerifySql> {
        let (select, or_fail) = self.0.database.verify_statements();
        Some(VerifySql { select, or_fail, key: key_of(name), token: token.cast_signed() })
    }

    fn replace_sql(&self, cell: &Name) -> Option<ReplaceSql> {
        Some(ReplaceSql { update: self.0.database.replace_statement(), key: key_of(cell) })
    }

    fn add_sql(&self, cell: &Name) -> Option<AddSql> {
        Some(AddSql { insert: self.0.database.add_statement(), key: key_of(cell) })
    }

    fn close(&self) -> Reply<'_, ()> {
        self.0.database.close();
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<String> {
        self.0.database.trouble()
    }
}
