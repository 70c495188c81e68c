//! Requests on names: read, run the rule, and write if nobody else has written.
//!
//! A name is one record, written by compare-and-swap. Its waiters are rows of their own. The rules
//! of `claim` are given a number of the store in place of the time, and are told that a claim ends
//! when its session has ended. Whoever is handed the name is told by the same write.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failure::{Attempt, Failure};
use super::found::{ALL, FEW, Found};
use super::names::{Names, now};
use super::record::Stored;
use super::store::{Store, Version, Written};
use super::writes::{Claimant, LONGEST_KEY};
use crate::claim::World;
use crate::engine::table::Request;
use crate::engine::table::buffered::{self, MoreWaiters, RowChange};
use crate::name::Name;
use crate::random;

/// For how long it is tried to write before others do.
const TRIED_FOR: Duration = Duration::from_secs(4);
/// After so many conflicts there is a pause.
const AT_ONCE: u32 = 8;
const PAUSE: Duration = Duration::from_millis(2);

/// How a request is carried out.
#[derive(Debug)]
pub(crate) struct How {
    /// How many waiters are read at first.
    pub(crate) most: usize,
    /// Whose claim is put into which session, if the request grants or confirms one.
    pub(crate) claimant: Option<Claimant>,
    /// What was read already.
    pub(crate) found: Option<Found>,
    /// For how long it is tried; as long as is usual if it is not said.
    pub(crate) within: Option<Duration>,
}

impl Default for How {
    fn default() -> How {
        How { most: FEW, claimant: None, found: None, within: None }
    }
}

/// What a request came to.
#[derive(Debug)]
pub(crate) struct Ran<A> {
    pub(crate) answer: A,
    /// The version by which the name says that the claimant holds it and nothing else.
    pub(crate) sole: Option<Version>,
    /// What the tokens in the answer count from.
    pub(crate) tokens_from: u64,
    /// Where the claimant stands in the queue now, if it has joined it.
    pub(crate) joined: Option<u64>,
    /// The name as it was written or found.
    pub(crate) stored: Option<Stored>,
}

impl<S: Store> Names<S> {
    /// Runs one request on a name, by the rules. The caller has passed the gate of the name.
    pub(crate) async fn on_name<R: Request>(
        &self,
        name: &Name,
        request: &R,
        how: How,
    ) -> Attempt<Ran<R::Answer>> {
        let started = Instant::now();
        let mut conflicts = 0;
        let mut most = how.most;
        let owner = request.owner();
        let mut found = match how.found {
            Some(found) => found,
            None => self.read_name(name, most, owner).await?,
        };
        loop {
            if found.has_orphans() {
                self.store.clear_waiters(name, found.version).await?;
                found = self.read_name(name, most, owner).await?;
                continue;
            }
            self.look_at_seats(&found.seats()).await?;
            let is_free = found.known.stored.is_none();
            let world = World {
                now: found.now,
                // A name that nobody uses may be used, and be free again, before this is written:
                // tokens count from the write then.
                tokens_from: if is_free { 0 } else { S::ROOM.first_of(found.number) },
                // What could not be found out is as good as alive: its end will be heard of.
                alive: &|seat| self.is_alive(seat).unwrap_or(true),
            };
            let mut plan = match buffered::plan(name, LONGEST_KEY, &found.snapshot(), world, request) {
                Ok(plan) => plan,
                Err(MoreWaiters) => {
                    most = if most > 512 { ALL } else { most * 8 };
                    found = self.read_name(name, most, owner).await?;
                    continue;
                }
            };
            if let (RowChange::Put(record), Some(claimant)) = (&mut plan.row, how.claimant) {
                record.state.reseat(claimant.shown.owner, claimant.seat);
            }
            let mut write = self.write_of(name, &found, &mut plan, how.claimant)?;
            if write.change.is_empty() {
                if !found.fresh {
                    found = self.read_name(name, most, owner).await?;
                    continue;
                }
                return Ok(Ran {
                    answer: plan.answer,
                    sole: None,
                    tokens_from: 0,
                    joined: None,
                    stored: found.known.stored,
                });
            }
            let own = found.own.as_ref().map(|(place, _)| *place);
            let (read, alive) = match self.store.write(name, &write.change, found.most, own).await? {
                Written::Yes(version) => {
                    if let Some(known) = write.known.take() {
                        let found = Found::remembered(known, version, S::time_of(version));
                        self.seen.note(name, found, now());
                    }
                    // The others get mail.
                    for letter in write.own_letters.into_values().flatten() {
                        self.take_letter(letter, version);
                    }
                    let first_token = S::ROOM.first_of(version.written);
                    return Ok(Ran {
                        answer: plan.answer,
                        sole: write.sole.then_some(version),
                        tokens_from: if is_free { first_token } else { 0 },
                        joined: write.joined,
                        stored: write.stored.map(|stored| stored.written_by(first_token)),
                    });
                }
                Written::No { read, alive } => (read, alive),
            };
            // Somebody else was faster, or a session has ended: this is how it is now.
            self.note_seats(&write.change.seats, &alive);
            if how.claimant.is_some_and(|claimant| self.is_alive(claimant.seat) == Some(false)) {
                return Err(Failure::SessionEnded);
            }
            found = self.found(name, found.most, owner, *read)?;
            if started.elapsed() > how.within.unwrap_or(TRIED_FOR) {
                let what = format!("could not write `{name}` in time: others write it all the time");
                return Err(self.unavailable(what).into());
            }
            // At once, while nobody has written since: whoever pauses here loses again. A crowd
            // spreads out, and reads anew.
            conflicts += 1;
            if conflicts % AT_ONCE == 0 {
                sleep(jitter(PAUSE)).await;
                found = self.read_name(name, most, owner).await?;
            }
        }
    }
}

/// Up to half as long again.
fn jitter(pause: Duration) -> Duration {
    const STEPS: u64 = 1024;
    let share = random::number().unwrap_or(0) % STEPS;
    pause + pause.mul_f64(share as f64 / (2 * STEPS) as f64)
}
