//! Callers of one process that ask at the same time share a step.
//!
//! Every reservation changes the head of its shard, so an engine decides them one after the other
//! anyway. While as many steps as [`UNDER_WAY`] are in flight, the next callers queue, and the next
//! step takes along those who wait. A step for seven costs an engine little more than one for two,
//! and seven that compare and swap the same head would be in each other's way.
//!
//! Steps are taken by tasks of their own: a caller that leaves, or that nobody polls for a while,
//! is in nobody's way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::bucket::ReservationId;
use super::head::Layout;
use super::reserve::{Part, Reserve, Reserved};
use super::sell::Sale;
use crate::error::{Error, Result};

/// So many steps of a process are in flight for one shard. More of them keep a distant server busy;
/// fewer of them make larger batches.
const UNDER_WAY: usize = 4;

/// A wish for units.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) layout: Layout,
    pub(super) id: ReservationId,
    pub(super) buyer: Arc<str>,
    pub(super) quantity: u32,
}

impl Wish {
    fn shard(&self) -> u8 {
        self.layout.place(self.id.0).0
    }

    /// False if the step has no room for it.
    fn add_to(&self, step: &mut Reserve) -> bool {
        step.add(self.id, &self.buyer, self.quantity)
    }

    fn alone(&self) -> Reserve {
        let mut step = Reserve::of(self.layout);
        self.add_to(&mut step);
        step
    }
}

/// Makes batches of what is wanted from one shard.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Tasks that take steps. There are some as long as somebody waits.
    under_way: usize,
    /// Those that gave up stay until the next batch is made.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    wish: Wish,
    answer: oneshot::Sender<Result<Reserved>>,
}

impl Batcher {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue. True if the caller must send a task.
    fn join(&self, wish: Wish) -> (bool, oneshot::Receiver<Result<Reserved>>) {
        let (answer, told) = oneshot::channel();
        let mut queue = self.queue();
        queue.waiting.push_back(Waiting { wish, answer });
        let more = queue.under_way < UNDER_WAY;
        queue.under_way += usize::from(more);
        (more, told)
    }
}

/// The right to take steps. It ends with this value, also if the task panics or its runtime ends.
struct Turn {
    sale: Sale,
    shard: u8,
    is_over: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut queue = self.sale.batcher(self.shard).queue();
        queue.under_way -= 1;
        if queue.under_way == 0 {
            // Nobody is left to answer them: they ask alone.
            let left = std::mem::take(&mut queue.waiting);
            drop(queue);
            drop(left);
        }
    }
}

impl Turn {
    /// A step for those who wait first, as many as there is room for. If nobody waits, the turn is
    /// over.
    fn next(&mut self) -> Option<(Reserve, Vec<Waiting>)> {
        let mut queue = self.sale.batcher(self.shard).queue();
        let mut batch: Option<(Reserve, Vec<Waiting>)> = None;
        while let Some(next) = queue.waiting.pop_front() {
            if next.answer.is_closed() {
                continue;
            }
            let Some((step, members)) = &mut batch else {
                batch = Some((next.wish.alone(), vec![next]));
                continue;
            };
            if next.wish.layout != members[0].wish.layout || !next.wish.add_to(step) {
                queue.waiting.push_front(next);
                break;
            }
            members.push(next);
        }
        if batch.is_none() {
            // Behind the same lock as the look at the queue: whoever joins next sends a task.
            queue.under_way -= 1;
            self.is_over = true;
        }
        batch
    }

    async fn take_steps(mut self) {
        while let Some((step, members)) = self.next() {
            self.sale.answer(self.shard, step, members).await;
        }
    }
}

impl Sale {
    /// Asks for units, together with others if there are any.
    ///
    /// If the future is dropped, the step may be taken all the same.
    pub(super) async fn ask(&self, wish: Wish) -> Result<Reserved> {
        let shard = wish.shard();
        let inner = &self.client.inner;
        if inner.is_forked() {
            // The tasks of the parent do not run here. Engines refuse to be asked, and say why.
            return inner.call_within(inner.options.call_limit, self.ask_alone(&wish)).await;
        }
        let (more, told) = self.batcher(shard).join(wish.clone());
        if more {
            let turn = Turn { sale: self.clone(), shard, is_over: false };
            inner.runtime.spawn(turn.take_steps());
        }
        // Waiting for those ahead does not add to the time of a call.
        let answered = async {
            match told.await {
                Ok(answer) => answer,
                Err(_) => self.ask_alone(&wish).await,
            }
        };
        inner.call_within(inner.options.call_limit, answered).await
    }

    fn batcher(&self, shard: u8) -> &Batcher {
        &self.batchers[usize::from(shard) % self.batchers.len()]
    }

    /// Takes a step and tells those who asked.
    async fn answer(&self, shard: u8, step: Reserve, mut members: Vec<Waiting>) {
        let Some(taken) = self.take_step_for(&mut members, shard, step).await else { return };
        match taken {
            Ok(answers) => {
                for (member, answer) in members.into_iter().zip(answers) {
                    member.answer.send(Ok(answer)).ok();
                }
            }
            Err(Error::Unavailable { engine, what, .. }) => {
                for member in members {
                    let what = what.clone();
                    member.answer.send(Err(Error::Unavailable { engine, what, source: None })).ok();
                }
            }
            // The cells of one of them may be the cause, or there are too many of them. That does
            // not concern the others.
            Err(_) if members.len() > 1 => {
                for mut member in members {
                    let (step, asks) = (member.wish.alone(), std::slice::from_mut(&mut member));
                    let Some(taken) = self.take_step_for(asks, shard, step).await else { continue };
                    member.answer.send(taken.and_then(|answers| self.only(answers))).ok();
                }
            }
            Err(error) => {
                if let Some(one) = members.into_iter().next() {
                    one.answer.send(Err(error)).ok();
                }
            }
        }
    }

    /// Takes a step for as long as one of those who asked waits for it: a step that hangs is in the
    /// way of others.
    async fn take_step_for(
        &self,
        members: &mut [Waiting],
        shard: u8,
        step: Reserve,
    ) -> Option<Result<Vec<Reserved>>> {
        let all_gone = async {
            for member in members {
                member.answer.closed().await;
            }
        };
        tokio::select! {
            biased;
            taken = self.take_step(shard, step) => Some(taken),
            () = all_gone => None,
        }
    }

    async fn ask_alone(&self, wish: &Wish) -> Result<Reserved> {
        self.take_step(wish.shard(), wish.alone()).await.and_then(|answers| self.only(answers))
    }

    fn only(&self, mut answers: Vec<Reserved>) -> Result<Reserved> {
        answers.pop().ok_or_else(|| self.foreign())
    }

    async fn take_step(&self, shard: u8, step: Reserve) -> Result<Vec<Reserved>> {
        let mut names = vec![self.head_cell(shard)?];
        for part in step.parts() {
            names.push(match part {
                Part::Buyer(buyer) => self.buyer_cell(buyer)?,
                Part::Bucket(bucket) => self.bucket_cell(shard, *bucket)?,
            });
        }
        self.client.inner.update(&names, &Arc::new(step)).await
    }
}
