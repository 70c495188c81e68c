//! What the engines share that keep a table of claims.
//!
//! Such an engine stores the state of each name and the rows of its queue. It does the same for
//! every request: load the state, run one rule of [`crate::claim`], store what the rule changed,
//! and notify those whom that concerns. Everything but the storing is here, so an engine is left
//! with its rows, its clock and its way to reach other clients.
//!
//! A [`Request`] is data and a rule is pure. So a request can be run again on a fresh copy of the
//! state: when a transaction has to be repeated, or when the rule needs more rows of the queue than
//! were read.
//!
//! Nothing here does I/O or reads a clock. docs/internals/table.md shows how an engine is built
//! from it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use crate::claim::{
    Alteration, Answer, Ask, Claim, MemoryQueue, Micros, OwnerId, Queue, Refused, Released, Seat, State,
    Step, Waiter, Wake, World,
};
use crate::engine::{HeldClaim, Hint, View, Waiting};

#[cfg(any(feature = "_sql", feature = "_sessions", all(test, feature = "_table")))]
pub(crate) mod buffered;
pub(crate) mod cell;
#[cfg(feature = "_table")]
pub(crate) mod row;

/// A queue that can also be listed, for [`Look`].
pub(crate) trait Waiters: Queue {
    /// All waiters, in order.
    fn waiters(&self) -> Result<Vec<Waiter>, Self::Error>;
}

impl Waiters for MemoryQueue {
    fn waiters(&self) -> Result<Vec<Waiter>, Infallible> {
        Ok(self.iter().cloned().collect())
    }
}

/// A request on one name, as data.
#[allow(dead_code, reason = "an engine uses what it needs, and a build has some engines only")]
pub(crate) trait Request {
    /// What it is answered with.
    type Answer;

    /// Runs the rule for it.
    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Self::Answer>, Q::Error>;

    /// Whose row the rule may look up in the queue. Of all other waiters it looks at the first ones
    /// only, in order.
    fn owner(&self) -> Option<OwnerId> {
        None
    }

    /// True if the answer is to wait until the holders give the name back.
    fn is_queued(_: &Self::Answer) -> bool {
        false
    }

    /// The claims that the request took away from their holders.
    fn broken(_: &Self::Answer) -> &[Claim] {
        &[]
    }
}

/// Asks for a claim, or asks again.
#[derive(Clone, Debug)]
pub(crate) struct Acquire<'a> {
    pub(crate) ask: Cow<'a, Ask>,
    /// Where the asker lives.
    pub(crate) seat: Seat,
}

impl Request for Acquire<'_> {
    type Answer = Answer;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        state.ask(queue, &self.ask, self.seat, world)
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.ask.owner)
    }

    fn is_queued(answer: &Answer) -> bool {
        matches!(answer, Answer::Queued(_))
    }
}

/// Gives a claim back, or leaves the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    pub(crate) owner: OwnerId,
    /// The highest token used of the claim's block.
    pub(crate) used: u64,
}

impl Request for Release {
    type Answer = Released;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Released>, Q::Error> {
        state.release(queue, self.owner, self.used, world)
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.owner)
    }
}

/// Changes a claim that is held.
#[derive(Clone, Debug)]
pub(crate) struct Alter {
    pub(crate) owner: OwnerId,
    pub(crate) alteration: Alteration,
}

impl Request for Alter {
    type Answer = Answer;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        state.alter(queue, self.owner, self.alteration.clone(), world)
    }

    fn is_queued(answer: &Answer) -> bool {
        matches!(answer, Answer::Queued(_))
    }
}

/// Changes the capacity of a name that is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resize {
    /// The capacity that the users of the name ask with.
    pub(crate) declared: u32,
    pub(crate) capacity: u32,
}

impl Request for Resize {
    type Answer = Result<(), Refused>;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Result<(), Refused>>, Q::Error> {
        state.resize(queue, self.declared, self.capacity, world)
    }
}

/// Looks at a name, after what is over was taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The last change of leadership that the caller knows of.
    pub(crate) seen: u64,
}

impl Request for Look {
    type Answer = View;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<View>, Q::Error> {
        let step = state.sweep(queue, world)?;
        let waiters = if state.waiting() > 0 { queue.waiters()? } else { Vec::new() };
        Ok(Step { answer: view(state, waiters, self.seen, world.now), wakes: step.wakes })
    }
}

/// Takes a name away from all who hold it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Break;

impl Request for Break {
    type Answer = Vec<Claim>;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Vec<Claim>>, Q::Error> {
        state.break_claims(queue, world)
    }

    fn broken(answer: &Vec<Claim>) -> &[Claim] {
        answer
    }
}

/// Takes away what is over and what the dead held, and hands it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep;

impl Request for Sweep {
    type Answer = ();

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<()>, Q::Error> {
        state.sweep(queue, world)
    }
}

/// A hint for a client, to be delivered once what caused it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) seat: Seat,
    pub(crate) hint: Hint,
}

/// What a request came to.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the state must be stored and the notices delivered"]
pub(crate) struct Outcome<T> {
    pub(crate) answer: T,
    /// Who was granted its claim while it waited, and who lost it. Delivered after the commit.
    pub(crate) notices: Vec<Notice>,
    /// The log of an election has changed: those who watch the name are told, after the commit.
    pub(crate) changed: bool,
    pub(crate) keep: Keep,
}

/// What is to become of the record of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is stored.
    Store,
    /// It can be thrown away.
    Forget {
        /// The record gave tokens that are ahead of the clock. Then the floor with which every new
        /// record starts must be raised to this first.
        floor: Option<u64>,
    },
}

/// Runs a request on the state of a name.
///
/// `state` is what is stored of the name, or [`State::new`] with the engine's floor. If the queue
/// fails, both must be thrown away.
pub(crate) fn run<R: Request, Q: Waiters>(
    state: &mut State,
    queue: &mut Q,
    world: World<'_>,
    request: &R,
) -> Result<Outcome<R::Answer>, Q::Error> {
    let changes = state.change_count();
    let Step { answer, wakes } = request.apply(state, queue, world)?;
    let woken = wakes.into_iter().map(|Wake { owner, seat }| Notice { seat, hint: Hint::Wake(owner) });
    let broken = R::broken(&answer).iter();
    let broken = broken.map(|claim| Notice { seat: claim.seat, hint: Hint::Broken(claim.owner) });
    let notices = woken.chain(broken).collect();
    let keep = match state.retire(world.now) {
        Some(last) => Keep::Forget { floor: (last >= world.tokens_from).then_some(last) },
        None => Keep::Store,
    };
    Ok(Outcome { answer, notices, changed: state.change_count() != changes, keep })
}

/// Shows a name's state as of `now`.
pub(crate) fn view(state: &State, waiters: Vec<Waiter>, seen: u64, now: Micros) -> View {
    let since = |then: u64| Duration::from_micros(now.saturating_sub(then));
    let held = |claim: &Claim| HeldClaim {
        claim: claim.clone(),
        held_for: since(claim.since),
        ends_in: Duration::from_micros(claim.expires - now),
    };
    let waits = |waiter: Waiter| Waiting { waited: since(waiter.since), waiter };
    View {
        capacity: state.capacity(),
        claims: state.claims(now).map(held).collect(),
        waiters: waiters.into_iter().map(waits).collect(),
        waiting: state.waiting(),
        closed_for: Duration::from_micros(state.closed_until().saturating_sub(now)),
        changes: state.changes(seen),
        change_count: state.change_count(),
    }
}
