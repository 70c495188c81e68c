//! The judge: what the holders believe, against what the engine knows.
//!
//! Every guard that the workload gets is registered here until it is given back. A belief can only
//! shrink by itself, so two holders can only begin to overlap when one of them gets its guard, and
//! a belief can only become wrong when the engine ends a claim. The judge looks at both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use leasehold::claim::{Claim, WHOLE};
use leasehold::lock::{Candidate, Leadership};
use leasehold::lock::{MultiGuard, ReadGuard, WriteGuard};
use leasehold::{Clock, Guard, Moment, Standing};

use crate::clock::DriftingClock;

/// What can be asked whether it believes that it holds its name.
pub(crate) trait Believer: Send + Sync {
    fn standing(&self) -> Standing;
    /// On its client's clock, if it says.
    fn deadline(&self) -> Option<Moment>;
}

impl Believer for Guard {
    fn standing(&self) -> Standing {
        Guard::standing(self)
    }
    fn deadline(&self) -> Option<Moment> {
        Some(Guard::deadline(self))
    }
}

impl Believer for ReadGuard {
    fn standing(&self) -> Standing {
        Guard::standing(self)
    }
    fn deadline(&self) -> Option<Moment> {
        Some(Guard::deadline(self))
    }
}

impl Believer for WriteGuard {
    fn standing(&self) -> Standing {
        Guard::standing(self)
    }
    fn deadline(&self) -> Option<Moment> {
        Some(Guard::deadline(self))
    }
}

impl Believer for Candidate {
    fn standing(&self) -> Standing {
        self.guard().standing()
    }
    fn deadline(&self) -> Option<Moment> {
        Some(self.guard().deadline())
    }
}

impl Believer for MultiGuard {
    fn standing(&self) -> Standing {
        MultiGuard::standing(self)
    }
    fn deadline(&self) -> Option<Moment> {
        None
    }
}

impl Believer for Leadership {
    fn standing(&self) -> Standing {
        Leadership::standing(self)
    }
    fn deadline(&self) -> Option<Moment> {
        None
    }
}

/// Somebody who got a guard and has not given it back.
pub(crate) struct Belief {
    pub(crate) client: usize,
    pub(crate) weight: u32,
    pub(crate) token: u64,
    pub(crate) since: u64,
    pub(crate) clock: DriftingClock,
    pub(crate) guard: Weak<dyn Believer>,
    /// An operator took the name away; that holders go on until they are told is said in the docs.
    broken: bool,
}

impl Belief {
    pub(crate) fn new(
        client: usize,
        weight: u32,
        token: u64,
        clock: &DriftingClock,
        guard: Weak<dyn Believer>,
    ) -> Belief {
        Belief { client, weight, token, since: 0, clock: clock.clone(), guard, broken: false }
    }

    /// Whether its lease was over before this moment.
    pub(crate) fn is_over(&self) -> bool {
        let deadline = self.guard.upgrade().and_then(|guard| guard.deadline());
        deadline.is_some_and(|deadline| self.clock.now() > deadline + Duration::from_millis(2))
    }

    /// Whether it believes now that it holds the name.
    fn stands(&self, only_looks: bool) -> bool {
        let Some(guard) = self.guard.upgrade() else { return false };
        // Asked, a guard notes its loss. In half of the runs nobody asks, so that the client must
        // notice by itself.
        if only_looks && guard.deadline().is_some_and(|deadline| self.clock.now() >= deadline) {
            return false;
        }
        guard.standing() != Standing::Lost
    }
}

impl std::fmt::Display for Belief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client {} with token {}", self.client, self.token)?;
        if self.weight != WHOLE { write!(f, " and weight {}", self.weight) } else { Ok(()) }
    }
}

#[derive(Default)]
struct Record {
    capacity: u32,
    beliefs: BTreeMap<u64, Belief>,
    tokens: BTreeSet<u64>,
    by_owner: BTreeSet<(usize, u64)>,
    /// The highest token that a holder had, and that one who was alone had.
    highest: u64,
    highest_alone: u64,
    /// The blocks of claims that were broken, and when.
    broken: Vec<(u64, u64, u64)>,
    /// Until when claims that were broken may be believed in.
    broken_until: u64,
    /// The blocks of grants with a lock delay that ended without a delay.
    not_delayed: Vec<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct Judge {
    records: Vec<Record>,
    last: u64,
    pub(crate) only_looks: bool,
    pub(crate) violations: Vec<String>,
}

fn alone(record: &Record, weight: u32) -> bool {
    weight == WHOLE && record.capacity == WHOLE
}

fn last_token(claim: &Claim) -> u64 {
    claim.token + u64::from(claim.tokens) - 1
}

impl Judge {
    pub(crate) fn add_name(&mut self, capacity: u32) {
        self.records.push(Record { capacity, ..Record::default() });
    }

    pub(crate) fn found(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Somebody got a guard.
    pub(crate) fn gets(&mut self, name: usize, mut belief: Belief, now: u64) -> u64 {
        let only_looks = self.only_looks;
        let record = &mut self.records[name];
        let token = belief.token;
        belief.since = now;
        let in_block = |(first, last): (u64, u64)| (first..=last).contains(&token);
        belief.broken = record.broken.iter().any(|&(first, last, _)| in_block((first, last)))
            || (now <= record.broken_until && !alone(record, belief.weight));
        let mut found = Vec::new();
        if !record.tokens.insert(token) {
            found.push(format!("X2: token {token} was given twice; now to {belief}"));
        }
        let stands = belief.stands(only_looks);
        if stands && !belief.broken && now > record.broken_until {
            let before = if alone(record, belief.weight) { record.highest } else { record.highest_alone };
            if token < before {
                found.push(format!("X2: {belief} after one with token {before}"));
            }
            let others = record.beliefs.values().filter(|other| !other.broken && other.stands(only_looks));
            let others: Vec<&Belief> = others.collect();
            let sum: u64 = others.iter().map(|other| u64::from(other.weight)).sum();
            if sum + u64::from(belief.weight) > u64::from(record.capacity) {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                found.push(format!("X1: {belief} beside {}", others.join(", ")));
            }
        }
        if record.not_delayed.iter().any(|&block| in_block(block)) {
            found.push(format!("{belief} had a lock delay, and the name was given on without it"));
        }
        record.by_owner.insert((belief.client, token));
        record.highest = record.highest.max(token);
        if alone(record, belief.weight) {
            record.highest_alone = record.highest_alone.max(token);
        }
        self.last += 1;
        record.beliefs.insert(self.last, belief);
        self.violations.extend(found);
        self.last
    }

    /// Whether this client had a guard under this token before.
    pub(crate) fn has_had(&self, name: usize, belief: &Belief) -> bool {
        self.records[name].by_owner.contains(&(belief.client, belief.token))
    }

    /// A guard of a claim for which the owner got a guard before.
    pub(crate) fn gets_again(&mut self, name: usize, mut belief: Belief) -> u64 {
        let record = &mut self.records[name];
        let mut others = record.beliefs.values();
        if let Some(first) = others.find(|other| other.token == belief.token) {
            // One claim: the first guard stands for it.
            belief.broken = first.broken;
            belief.weight = 0;
        }
        self.last += 1;
        record.beliefs.insert(self.last, belief);
        self.last
    }

    /// A writer became a reader: the same token, another weight.
    pub(crate) fn shares(&mut self, name: usize, mut belief: Belief, now: u64) -> u64 {
        let record = &mut self.records[name];
        belief.since = now;
        belief.broken = now <= record.broken_until;
        self.last += 1;
        record.beliefs.insert(self.last, belief);
        self.last
    }

    pub(crate) fn gives_back(&mut self, name: usize, id: u64) {
        self.records[name].beliefs.remove(&id);
    }

    /// An operator took the name away.
    pub(crate) fn breaks(&mut self, name: usize, claims: &[Claim], now: u64, longest_lease: u64) {
        let record = &mut self.records[name];
        if claims.is_empty() {
            return;
        }
        for claim in claims {
            record.broken.push((claim.token, last_token(claim), now));
        }
        record.broken_until = now + longest_lease;
        for belief in record.beliefs.values_mut() {
            let mut blocks = claims.iter().map(|claim| claim.token..=last_token(claim));
            // Which of the shared claims a holder stands on is not to be seen from its token.
            if belief.weight != WHOLE || blocks.any(|block| block.contains(&belief.token)) {
                belief.broken = true;
            }
        }
    }

    /// A client was told that a claim was broken, and had the time to ask. Does its holder still
    /// believe in it?
    pub(crate) fn was_told(&mut self, name: usize, block: (u64, u64), told: u64, now: u64, grace: u64) {
        let only_looks = self.only_looks;
        let record = &self.records[name];
        let still = record.beliefs.values().find(|belief| {
            alone(record, belief.weight)
                && (block.0..=block.1).contains(&belief.token)
                && belief.since + grace <= now
                && belief.stands(only_looks)
        });
        if let Some(belief) = still {
            let since = (now - told) / 1000;
            let what = format!(
                "X5: {belief} still believes, although its client was told of the break {since} ms ago"
            );
            self.violations.push(what);
        }
    }

    /// A grant with a lock delay ended, and the engine never knew that its owner had heard of it.
    pub(crate) fn not_delayed(&mut self, name: usize, claim: &Claim) {
        let block = (claim.token, last_token(claim));
        let record = &mut self.records[name];
        if record.tokens.range(block.0..=block.1).next().is_some() {
            let what = format!("token {} had a lock delay, and the name was given on without it", block.0);
            self.violations.push(what);
        }
        record.not_delayed.push(block);
    }

    /// Whether every belief stands on a claim.
    pub(crate) fn check(&mut self, name: usize, live: &[&Claim]) {
        let only_looks = self.only_looks;
        let record = &self.records[name];
        let mut found = Vec::new();
        let mut shared = BTreeMap::<usize, (u64, Vec<String>)>::new();
        for belief in record.beliefs.values().filter(|belief| !belief.broken) {
            if alone(record, belief.weight) {
                let backs = |claim: &&&Claim| {
                    claim.weight == record.capacity
                        && (claim.token..=last_token(claim)).contains(&belief.token)
                };
                if !live.iter().any(|claim| backs(&claim)) && belief.stands(only_looks) {
                    found.push(format!("X5: {belief} believes that it holds what the engine has ended"));
                }
            } else if belief.stands(only_looks) {
                let (sum, who) = shared.entry(belief.client).or_default();
                *sum += u64::from(belief.weight);
                who.push(belief.to_string());
            }
        }
        for (client, (believed, who)) in shared {
            let claimed = live.iter().filter(|claim| claim.seat == client as u64);
            let claimed: u64 = claimed.map(|claim| u64::from(claim.weight)).sum();
            if believed > claimed {
                found.push(format!(
                    "X5: client {client} believes in {believed}, the engine in {claimed}: {}",
                    who.join(", ")
                ));
            }
        }
        self.violations.extend(found);
    }

    /// Who is still registered.
    pub(crate) fn registered(&self) -> usize {
        self.records.iter().map(|record| record.beliefs.len()).sum()
    }

    /// The names of which a client has guards that are lost. What the engine may still have of them
    /// is given back with the guard, not when the client is closed.
    pub(crate) fn lost_names(&self, client: usize) -> Vec<usize> {
        let lost = |belief: &Belief| belief.client == client && !belief.stands(true);
        let records = self.records.iter().enumerate();
        records.filter(|(_, record)| record.beliefs.values().any(lost)).map(|(name, _)| name).collect()
    }

    /// Beliefs of a client that was closed.
    pub(crate) fn believes(&self, client: usize) -> Option<String> {
        let beliefs = self.records.iter().flat_map(|record| record.beliefs.values());
        let mut of_client = beliefs.filter(|belief| belief.client == client);
        of_client.find(|belief| belief.stands(false)).map(ToString::to_string)
    }
}
