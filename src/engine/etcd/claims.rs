//! Requests on names: read, run the rule, and write if nobody else has written.
//!
//! A name is one key, written by compare-and-swap on its revision. Its waiters are keys of their
//! own. The rules of `claim` are given the revision of the store in place of the time, and say that
//! a claim ends when its session has ended. Whoever is handed the name is told by the same
//! transaction, through the key of its session.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::errors::{Attempt, Failure, unavailable};
use super::found::{ALL, FEW, Found};
use super::mail::Letter;
use super::record::{Stored, tokens_of};
use super::session::now;
use super::state::Etcd;
use super::store::{Txn, delete_all, unchanged};
use super::writes::{Claimant, LONGEST_KEY};
use crate::claim::{Seat, World};
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
pub(super) struct How {
    /// How many waiters are read at first.
    pub(super) most: usize,
    /// Whose claim is put into which session, if the request grants or confirms one.
    pub(super) claimant: Option<Claimant>,
    /// What was read already.
    pub(super) found: Option<Found>,
    /// For how long it is tried; as long as is usual if it is not said.
    pub(super) within: Option<Duration>,
}

impl Default for How {
    fn default() -> How {
        How { most: FEW, claimant: None, found: None, within: None }
    }
}

/// What a request came to.
#[derive(Debug)]
pub(super) struct Ran<A> {
    pub(super) answer: A,
    /// The revision by which the name says that the claimant holds it and nothing else.
    pub(super) sole: Option<i64>,
    /// What the tokens in the answer count from.
    pub(super) tokens_from: u64,
    /// Where the claimant stands in the queue now, if it has joined it.
    pub(super) joined: Option<u64>,
    /// The name as it was written or found.
    pub(super) stored: Option<Stored>,
}

impl Etcd {
    /// Runs one request on a name, by the rules. The caller has passed the gate of the name.
    pub(super) async fn on_name<R: Request>(
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
                let conditions = vec![unchanged(self.keys.name(name), found.version)];
                let then = vec![delete_all(self.keys.waiters(name))];
                self.store.txn(Txn { conditions, then, ..Txn::default() }).await?;
                found = self.read_name(name, most, owner).await?;
                continue;
            }
            self.look_at_seats(&found.seats()).await?;
            let world = World {
                now: found.revision,
                // A name that is not there may be there, and be gone again, before this is written:
                // tokens count from the revision of the write then.
                tokens_from: if found.version == 0 { 0 } else { tokens_of(found.revision.cast_signed()) },
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
            let Some(txn) = write.txn.take() else {
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
            };
            let mut outcome = self.store.txn(txn).await?;
            if outcome.succeeded {
                let revision = outcome.revision.cast_signed();
                self.heard(outcome.revision);
                if let Some(known) = write.known.take() {
                    self.seen.note(name, Found::remembered(known, revision), now());
                }
                self.deliver(write.letters, revision);
                return Ok(Ran {
                    answer: plan.answer,
                    sole: write.sole.then_some(revision),
                    tokens_from: if found.version == 0 { tokens_of(revision) } else { 0 },
                    joined: write.joined,
                    stored: write.stored.map(|stored| stored.written_by(revision)),
                });
            }
            // Somebody else was faster, or a session has ended: this is how it is now.
            let seats = outcome.found.split_off(outcome.found.len() - write.seats.len());
            self.note_seats(&write.seats, &seats);
            if how.claimant.is_some_and(|claimant| self.is_alive(claimant.seat) == Some(false)) {
                return Err(Failure::LeaseGone);
            }
            found = self.found(name, found.most, owner, &mut outcome)?;
            if started.elapsed() > how.within.unwrap_or(TRIED_FOR) {
                return Err(unavailable(format!(
                    "could not write `{name}` in time: others write it all the time"
                ))
                .into());
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

    /// Passes on what concerns owners of this client. The others get mail.
    fn deliver(&self, letters: BTreeMap<Seat, Vec<Letter>>, revision: i64) {
        for (seat, letters) in letters {
            if self.sessions.own(seat).is_some() {
                letters.into_iter().for_each(|letter| self.take_letter(letter, revision));
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
