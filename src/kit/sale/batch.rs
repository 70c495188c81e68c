//! Callers of one process that ask at the same time share a step.
//!
//! Every reservation changes the head of its shard, so an engine decides them one after the other
//! anyway. While as many steps as [`UNDER_WAY`] are in flight, the next callers queue, and whoever
//! goes next takes along those behind it. A step for seven costs an engine little more than one for
//! two, and seven that compare and swap the same head would be in each other's way.
//!
//! A caller that finds a free turn asks at once and alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};

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
#[derive(Debug)]
pub(super) struct Batcher {
    turns: Semaphore,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    last_ticket: u64,
    /// In the order of their tickets. Those that gave up stay until the next batch is made.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    wish: Wish,
    /// If it is dropped without an answer, the caller asks alone.
    answer: oneshot::Sender<Result<Reserved>>,
}

/// A step for the caller that makes it, and behind it for the others.
struct Batch {
    step: Reserve,
    others: Vec<Waiting>,
}

impl Default for Batcher {
    fn default() -> Batcher {
        Batcher { turns: Semaphore::new(UNDER_WAY), queue: Mutex::default() }
    }
}

impl Batcher {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, wish: Wish) -> (u64, oneshot::Receiver<Result<Reserved>>) {
        let (answer, told) = oneshot::channel();
        let mut queue = self.queue();
        queue.last_ticket += 1;
        let ticket = queue.last_ticket;
        queue.waiting.push_back(Waiting { ticket, wish, answer });
        (ticket, told)
    }

    /// A batch of the caller with this ticket and of as many others as there is room for; `None` if
    /// another one has taken it along already.
    fn batch(&self, ticket: u64) -> Option<Batch> {
        let waiting = &mut self.queue().waiting;
        let own = waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()?;
        let own = waiting.remove(own)?.wish;
        let (mut step, mut others) = (own.alone(), Vec::new());
        while let Some(next) = waiting.pop_front() {
            if next.answer.is_closed() {
                continue;
            }
            if next.wish.layout != own.layout || !next.wish.add_to(&mut step) {
                waiting.push_front(next);
                break;
            }
            others.push(next);
        }
        Some(Batch { step, others })
    }
}

impl Sale {
    /// Asks for units, together with others if there are any.
    ///
    /// If the future is dropped, those that it took along ask alone. They have the same ids again,
    /// so it does not matter whether the step was made.
    pub(super) async fn ask(&self, wish: Wish) -> Result<Reserved> {
        let batcher = &self.batchers[usize::from(wish.shard()) % self.batchers.len()];
        // A turn that ends is given to the next in the queue: one is free only if nobody waits.
        if let Ok(_turn) = batcher.turns.try_acquire() {
            return self.ask_alone(&wish).await;
        }
        // One limit for all of it: waiting for those ahead does not add to the time of a call.
        let inner = &self.client.inner;
        inner.call_within(inner.options.call_limit, self.ask_in_turn(batcher, wish)).await
    }

    async fn ask_in_turn(&self, batcher: &Batcher, wish: Wish) -> Result<Reserved> {
        let (ticket, mut told) = batcher.join(wish.clone());
        let told = tokio::select! {
            biased;
            told = &mut told => told,
            turn = batcher.turns.acquire() => {
                if let Some(batch) = batcher.batch(ticket) {
                    return self.ask_together(&wish, batch).await;
                }
                drop(turn);
                told.await
            }
        };
        match told {
            Ok(answer) => answer,
            Err(_) => self.ask_alone(&wish).await,
        }
    }

    async fn ask_alone(&self, wish: &Wish) -> Result<Reserved> {
        let mut answers = self.take_step(wish.shard(), wish.alone()).await?;
        answers.pop().ok_or_else(|| self.foreign())
    }

    async fn ask_together(&self, wish: &Wish, Batch { step, others }: Batch) -> Result<Reserved> {
        match self.take_step(wish.shard(), step).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let own = answers.next().ok_or_else(|| self.foreign());
                for (waiting, answer) in others.into_iter().zip(answers) {
                    // One that has gone meanwhile does not want to know.
                    waiting.answer.send(Ok(answer)).ok();
                }
                own
            }
            Err(Error::Unavailable { engine, what, source }) => {
                for waiting in others {
                    let what = what.clone();
                    waiting.answer.send(Err(Error::Unavailable { engine, what, source: None })).ok();
                }
                Err(Error::Unavailable { engine, what, source })
            }
            // The cell of one of them may be the cause, which does not concern the others.
            Err(_) if !others.is_empty() => {
                drop(others);
                self.ask_alone(wish).await
            }
            Err(error) => Err(error),
        }
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
