//! What is known of a name by the rules, and what of it was seen on the server.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::claim::{Grant, LOG_KEPT, MemoryQueue, OwnerId, PATIENCE, Seat, State, Waiter, World};
use leasehold::name::{Family, Name};

use crate::bench::Inspected;
use crate::sequence::{Dice, Which, Who};

pub(crate) const MS: u64 = 1000;
pub(crate) const HOUR: u64 = 3_600_000_000;
pub(crate) const DAY: u64 = 24 * HOUR;

/// A difference is told in words.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// All that is known of one name.
pub(crate) struct Book {
    pub(crate) name: Name,
    pub(crate) keys: [String; 6],
    /// By the rules; nothing if nobody uses it.
    pub(crate) known: Option<Known>,
    /// Everybody who ever asked.
    pub(crate) people: Vec<Person>,
    /// The highest token, and since when the server counts.
    pub(crate) counter: u64,
    pub(crate) counted_since: u64,
    /// Tokens of locks that were taken by the short script: when that was, the engine had to guess.
    pub(crate) guessed: BTreeSet<u64>,
    /// Its capacity was changed, which is remembered for longer.
    pub(crate) resized: bool,
    /// Waiters that had died when somebody took the lock without looking at the queue.
    pub(crate) ghosts: BTreeSet<OwnerId>,
    /// As last inspected.
    pub(crate) found: Option<Inspected>,
}

pub(crate) struct Known {
    pub(crate) state: State,
    pub(crate) queue: MemoryQueue,
    pub(crate) changed_at: u64,
    /// Waiters that were last heard of before the clock was set back: until when they seem to live,
    /// and when that is over.
    silent: Vec<(OwnerId, u64, u64)>,
}

/// Somebody who asked for a name.
pub(crate) struct Person {
    pub(crate) owner: OwnerId,
    pub(crate) seat: usize,
    /// How often it has asked.
    pub(crate) round: u32,
    /// What it was granted last.
    pub(crate) grant: Grant,
}

impl Book {
    pub(crate) fn new(number: usize, family: Family) -> Book {
        let text = format!("name-{number}");
        let holder = format!("lock:{text}");
        let beside = |what: &str| format!("{{{holder}}}:{family}:{what}");
        let shown = if family == Family::Lock { holder.clone() } else { beside("holder") };
        let keys = [shown, beside("token"), beside("state"), beside("ends"), beside("queue"), beside("log")];
        Book {
            name: Name::new(family, text).expect("a name"),
            keys,
            known: None,
            people: Vec::new(),
            counter: 0,
            counted_since: 0,
            guessed: BTreeSet::new(),
            resized: false,
            ghosts: BTreeSet::new(),
            found: None,
        }
    }

    pub(crate) fn found(&self) -> &Inspected {
        self.found.as_ref().expect("inspected before every request")
    }

    pub(crate) fn locks(&self) -> bool {
        self.name.family() == Family::Lock
    }

    /// The number of somebody; nobody if nobody ever asked.
    pub(crate) fn find(&self, who: Who) -> Option<usize> {
        let owners: Vec<OwnerId> = match (who, &self.known) {
            (Who::Holder(_), Some(known)) => known.state.claims(0).map(|claim| claim.owner).collect(),
            (Who::Waiter(_), Some(known)) => known.queue.iter().map(|waiter| waiter.owner).collect(),
            _ => Vec::new(),
        };
        let (Who::Newcomer(number) | Who::Holder(number) | Who::Waiter(number) | Who::Anybody(number)) = who;
        match owners.get(number % owners.len().max(1)) {
            Some(owner) => self.people.iter().position(|person| person.owner == *owner),
            None => (!self.people.is_empty()).then(|| number % self.people.len()),
        }
    }
}

impl Person {
    pub(crate) fn new(seed: u64, name: usize, number: usize, seat: usize) -> Person {
        let mut dice = Dice::new(Dice::new(seed).roll() ^ ((name as u64) << 32 | number as u64));
        let low = u128::from(dice.roll());
        // Short ones too: owners are compared as numbers by the rules, as text by the server.
        let high = if dice.roll().is_multiple_of(4) { 0 } else { u128::from(dice.roll()) };
        let grant = Grant { token: 0, tokens: 1 };
        Person { owner: OwnerId(high << 64 | low | 1), seat, round: 0, grant }
    }

    pub(crate) fn token(&self, which: Which) -> u64 {
        let Grant { token, tokens } = self.grant;
        let last = token + u64::from(tokens) - 1;
        match which {
            Which::Zero => 0,
            Which::Before => token.saturating_sub(1),
            Which::First => token,
            Which::Second => token + 1,
            Which::Last => last,
            Which::After => last + 1,
        }
    }
}

impl Known {
    pub(crate) fn new(floor: u64, now: u64) -> Known {
        Known { state: State::new(floor), queue: MemoryQueue::default(), changed_at: now, silent: Vec::new() }
    }

    /// The clock is set back. Who waits by the clock of before is silent when it should have asked
    /// again by the new one, and has not.
    pub(crate) fn set_back(&mut self, then: u64) {
        let over = then + micros(PATIENCE);
        let before = self.queue.iter().filter(|waiter| waiter.alive_until > over);
        self.silent.extend(before.map(|waiter| (waiter.owner, waiter.alive_until, over)));
    }

    /// The moments at which something ends by itself.
    fn ends(&self) -> impl Iterator<Item = u64> {
        let claims = self.state.claims(0).map(|claim| claim.expires);
        let delays = self.state.claims(0).map(|claim| claim.expires + claim.lock_delay);
        let waiters = self.queue.iter().map(|waiter| waiter.alive_until);
        claims
            .chain(delays)
            .chain(waiters)
            .chain([self.state.closed_until()])
            .chain(self.state.upgrading_until())
    }

    pub(crate) fn next_end(&self, now: u64) -> Option<u64> {
        self.ends().filter(|end| *end > now).min()
    }

    /// The time until something can change by itself.
    pub(crate) fn pause(&self, now: u64) -> Duration {
        let claims = self.state.claims(0).map(|claim| claim.expires);
        let closed = Some(self.state.closed_until()).filter(|closed| *closed > now);
        let used: u64 = self.state.claims(0).map(|claim| u64::from(claim.weight)).sum();
        let left = used < u64::from(self.state.capacity());
        let first = self.queue.iter().next().filter(|_| left && self.state.waiting() > 1);
        let first = first.map(|waiter| waiter.alive_until);
        let next = claims.chain(closed).chain(self.state.upgrading_until()).chain(first).min();
        Duration::from_micros(next.map_or(DAY, |next| next.saturating_sub(now)))
    }

    fn resized(&self, at: u64) -> bool {
        let (mut state, mut queue) = (self.state.clone(), self.queue.clone());
        let Ok(_) = state.sweep(&mut queue, world(at));
        state.retire(at + DAY).is_none()
    }

    /// Nobody holds it, nobody waits for it, and it is not closed.
    pub(crate) fn is_free(&self, now: u64) -> Checked {
        let (mut state, mut queue) = (self.state.clone(), self.queue.clone());
        // A waiter that seems to live for longer than it can was last heard of before the clock was
        // set back. Nobody cuts that until it is the first in the queue. It has not asked since,
        // and the holder's key has outlived it.
        let believed = now + micros(PATIENCE);
        let heard_before = |waiter: &Waiter| {
            let is_it = |(owner, until, _): &(OwnerId, u64, u64)| {
                (*owner, *until) == (waiter.owner, waiter.alive_until)
            };
            self.silent.iter().any(|silent| is_it(silent) && silent.2 <= now)
        };
        let silent = self.queue.iter().filter(|waiter| waiter.alive_until > believed || heard_before(waiter));
        for waiter in silent {
            let Ok(_) = state.release(&mut queue, waiter.owner, 0, world(now));
        }
        let Ok(step) = state.sweep(&mut queue, world(now));
        let free = step.wakes.is_empty()
            && state.claims(0).next().is_none()
            && state.waiting() == 0
            && state.closed_until() <= now;
        if free { Ok(()) } else { Err(self.not_over()) }
    }

    /// It is free, and nobody can miss what was known of it.
    pub(crate) fn may_be_forgotten(&self, now: u64) -> Checked {
        self.is_free(now)?;
        // The log of an election is kept for a day after somebody last took part.
        let last = self.state.claims(0).map(|claim| claim.expires).fold(self.changed_at, u64::max);
        let logged = self.state.change_count() > 0 && last + micros(LOG_KEPT) > now;
        if logged || self.resized(now) { Err(self.not_over()) } else { Ok(()) }
    }

    fn not_over(&self) -> String {
        format!("the server has forgotten what is not over:\n  {:?}\n  {:?}", self.state, self.queue)
    }
}

fn nobody_died(_: Seat) -> bool {
    true
}

pub(crate) fn world(now: u64) -> World<'static> {
    World::at(now, &nobody_died)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("some years")
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, server: &T, rules: &T) -> Checked {
    if server == rules {
        return Ok(());
    }
    Err(format!("{what} differ\n  server: {server:?}\n  rules:  {rules:?}"))
}
