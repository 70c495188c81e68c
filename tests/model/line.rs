//! The queue of the name: the one that the memory engine uses, and two unfair ones for the hall of
//! bugs.

use std::convert::Infallible;

use leasehold::claim::{MemoryQueue, Micros, OwnerId, Queue, Waiter};

use crate::setup::Bug;

#[derive(Clone, Default)]
pub(crate) struct Line {
    queue: MemoryQueue,
    bug: Option<Bug>,
}

impl Line {
    pub(crate) fn new(bug: Option<Bug>) -> Line {
        Line { queue: MemoryQueue::default(), bug }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter()
    }

    pub(crate) fn find(&self, owner: OwnerId) -> Option<Waiter> {
        self.iter().find(|waiter| waiter.owner == owner).cloned()
    }
}

impl Queue for Line {
    type Error = Infallible;

    fn first(&self) -> Result<Option<Waiter>, Infallible> {
        if self.bug == Some(Bug::Lifo) { Ok(self.iter().last().cloned()) } else { self.queue.first() }
    }

    fn push(&mut self, waiter: Waiter) -> Result<(), Infallible> {
        self.queue.push(waiter)
    }

    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, Infallible> {
        if self.bug == Some(Bug::RequeuedOnPoll)
            && let Some(waiter) = self.find(owner)
        {
            let Ok(_) = self.queue.remove(owner);
            let Ok(()) = self.queue.push(waiter);
        }
        self.queue.touch(owner, alive_until)
    }

    fn remove(&mut self, owner: OwnerId) -> Result<bool, Infallible> {
        self.queue.remove(owner)
    }
}
