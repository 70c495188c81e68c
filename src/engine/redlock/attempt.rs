//! One attempt to take a name: votes, a token, and the undoing of what came to nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::node::{Node, insist};
use super::rules::{Commit, Committed, Poll, Vote, committed, poll};
use super::scripts::SCRIPTS;
use super::{Entry, Held, NameKeys, Redlock, STRAGGLERS, micros, random_pause};
use crate::claim::{Answer, Ask, Grant, Pause};
use crate::error::{Error, Result};
use crate::name::Name;

/// How often a token is proposed before an attempt is given up. Only readers beside each other need more than one.
const PROPOSALS: u32 = 6;
/// How often an attempt that met others is made again before the caller is told.
const TRIES: u32 = 4;
/// A stranger's release is not told to us: whoever waits looks this often.
const STRANGER: Duration = Duration::from_millis(50);

/// What an attempt came to.
enum Outcome {
    Granted(Grant),
    Held { left: Duration },
    Split,
    Impossible(Error),
}

/// How long a server has to answer: not much of the lease, and not much of the caller's time.
pub(super) fn limit_of(lease: Duration, answer_within: Duration) -> Duration {
    let most = Duration::from_millis(500);
    (lease / 3).min(answer_within / 4).clamp(Duration::from_millis(10), most)
}

impl Redlock {
    pub(super) async fn acquire_whole(&self, name: &Name, ask: &Ask) -> Result<Answer> {
        self.check_process()?;
        self.check(name, ask)?;
        let keys = self.keys_of(name, ask.owner)?;
        let limit = limit_of(ask.lease, ask.answer_within);
        let give_up = Instant::now() + ask.answer_within.mul_f64(0.75);
        let mut tries = 0;
        let answer = loop {
            tries += 1;
            match self.attempt(&keys, ask, limit).await? {
                Outcome::Granted(grant) => return Ok(Answer::Granted(grant)),
                Outcome::Held { left } => break left,
                // Nobody won, or somebody is just letting go. Whoever comes back first gets it.
                Outcome::Split if tries < TRIES => {
                    tokio::time::sleep(random_pause(Duration::from_millis(3 * u64::from(tries)))).await;
                }
                Outcome::Split => {
                    let longest = 20 * u64::from(ask.round.min(20));
                    break Duration::from_millis(3) + random_pause(Duration::from_millis(longest));
                }
                Outcome::Impossible(error) => {
                    let pause = Duration::from_millis(20) + random_pause(Duration::from_millis(60));
                    if !error.is_retryable() || Instant::now() + pause + 2 * limit > give_up {
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        };
        let pause = Pause { at_most: answer };
        if ask.wait {
            return Ok(Answer::Queued(pause));
        }
        self.table().remove(&ask.owner);
        Ok(Answer::Busy(pause))
    }

    async fn attempt(&self, keys: &Arc<NameKeys>, ask: &Ask, limit: Duration) -> Result<Outcome> {
        let stamp = self.next_stamp();
        let said = self.said(ask);
        let shared = ask.weight != ask.capacity;
        let tokens = ask.tokens.max(1);
        let proposed = self.likely_token();
        // Nothing is sent to those who are not there: it would come when somebody has long decided without it.
        let connected: Vec<Result<()>> = self.nodes.iter().map(|node| node.must_be_connected()).collect();
        self.touch(ask, &connected);
        let (send, mut votes) = mpsc::unbounded_channel();
        let mut voted = Vec::with_capacity(self.nodes.len());
        for (node, connected) in self.nodes.iter().zip(connected) {
            let (node, send) = (Arc::clone(node), send.clone());
            let (voting, over) = watch::channel(());
            voted.push(over);
            let (keys, said, ask) = (Arc::clone(keys), said.clone(), ask.clone());
            // Tasks of their own: what was sent must be known to have been sent, whatever becomes of the caller.
            self.runtime.spawn(async move {
                let vote = match connected {
                    Ok(()) => vote(&node, &keys, &ask, &said, (stamp, proposed), limit).await,
                    Err(error) => Err(error),
                };
                // Nobody listens when it is decided.
                send.send((node.number, vote)).ok();
                drop(voting);
            });
        }
        drop(send);
        let mut seen: Vec<Option<Vote>> = vec![None; self.nodes.len()];
        let mut failures: Vec<(usize, Error)> = Vec::new();
        let verdict = loop {
            let next = match poll(&seen) {
                Poll::Open => votes.recv().await,
                // The others have a moment to say what is the matter with them: the error names all.
                Poll::Impossible => tokio::time::timeout(STRAGGLERS, votes.recv()).await.ok().flatten(),
                verdict => break verdict,
            };
            let Some((number, vote)) = next else {
                break if poll(&seen) == Poll::Impossible { Poll::Impossible } else { Poll::Split };
            };
            let (vote, counter) = vote.unwrap_or_else(|error| {
                failures.push((number, error));
                (Vote::Silent, 0)
            });
            self.saw(counter);
            seen[number] = Some(vote);
        };
        let granted = match verdict {
            Poll::Committed => Some(Grant { token: proposed, tokens }),
            Poll::Majority { token } => self.commit(keys, ask, (stamp, token), &voted, limit).await?,
            _ => None,
        };
        if let Some(grant) = granted {
            self.saw(grant.token + u64::from(tokens) - 1);
            let held = Held { grant, shared, known: vec![stamp; self.nodes.len()], renewal: 0, said };
            // Gone if the owner has left meanwhile.
            if let Some(entry) = self.table().get_mut(&ask.owner) {
                entry.held = Some(held);
            }
            return Ok(Outcome::Granted(grant));
        }
        let outcome = match verdict {
            Poll::Held { left, stranger } => {
                let left = Duration::from_micros(left);
                Outcome::Held { left: if stranger { left.min(STRANGER) } else { left } }
            }
            Poll::Impossible => Outcome::Impossible(self.no_majority(failures)),
            Poll::Committed | Poll::Majority { .. } | Poll::Split | Poll::Open => Outcome::Split,
        };
        // Also where the answer got lost; not where the answer was no.
        for (node, vote) in self.nodes.iter().zip(&seen) {
            if !matches!(vote, Some(Vote::Taken { .. })) {
                self.undo(node, keys, ask, stamp, limit);
            }
        }
        Ok(outcome)
    }

    /// A token that is probably above all counters: what the clock says that most servers have, and more than all that were seen.
    fn likely_token(&self) -> u64 {
        let mut clocks: Vec<u64> = self.nodes.iter().filter_map(|node| node.link.server_now()).collect();
        clocks.sort_unstable();
        // One clock that is far off does not count.
        let now = clocks.get(clocks.len() / 2).copied().unwrap_or(0);
        now.max(self.seen.load(Ordering::Acquire) + 1)
    }

    /// Notes a counter: tokens that are proposed are above it.
    fn saw(&self, counter: u64) {
        self.seen.fetch_max(counter, Ordering::AcqRel);
    }

    /// Gives back in the background what an attempt may have taken at a server. The owner keeps its place.
    fn undo(&self, node: &Arc<Node>, keys: &Arc<NameKeys>, ask: &Ask, stamp: u64, limit: Duration) {
        let (keys, owner) = (Arc::clone(keys), super::owner_text(ask.owner));
        // Until its claim would have ended by itself.
        let until = Instant::now() + ask.lease.mul_f64(1.01) + limit;
        let releasing = self.releasing.subscribe();
        let insisting = insist(Arc::downgrade(node), until, limit, move |_| {
            let mut script = SCRIPTS.release.on(&keys.all());
            script.arg(&owner).arg(stamp).arg("claim");
            script
        });
        self.runtime.spawn(async move {
            insisting.await;
            drop(releasing);
        });
    }

    /// Writes the token to a majority. `None` if that is not possible: the claim is to be given back.
    async fn commit(
        &self,
        keys: &Arc<NameKeys>,
        ask: &Ask,
        (stamp, token): (u64, u64),
        voted: &[watch::Receiver<()>],
        limit: Duration,
    ) -> Result<Option<Grant>> {
        let tokens = ask.tokens.max(1);
        let mut first = token;
        for proposal in 1..=PROPOSALS {
            let last = first + u64::from(tokens) - 1;
            let (send, mut answers) = mpsc::unbounded_channel();
            for (node, voted) in self.nodes.iter().zip(voted) {
                let (node, send, keys) = (Arc::clone(node), send.clone(), Arc::clone(keys));
                let owner = super::owner_text(ask.owner);
                let mut voted = voted.clone();
                self.runtime.spawn(async move {
                    // A token that overtakes the request for the vote finds no claim. It ends when nobody votes any more.
                    voted.changed().await.ok();
                    let answer = node
                        .run_within::<Vec<Vec<u8>>>(limit, |connected| {
                            let mut script = SCRIPTS.commit.on(&keys.all());
                            script.arg(&owner).arg(stamp).arg(first).arg(last).arg(&connected.facts.run_id);
                            script
                        })
                        .await;
                    let answer = match answer.and_then(|answer| super::reply::commit(&answer)) {
                        Ok(None) => Err(node.not_a_member()),
                        answer => answer.map(|answer| answer.unwrap_or(Commit::Silent)),
                    };
                    send.send((node.number, answer)).ok();
                });
            }
            drop(send);
            let mut seen: Vec<Option<Commit>> = vec![None; self.nodes.len()];
            let above = loop {
                match committed(&seen) {
                    Committed::Yes => return Ok(Some(Grant { token: first, tokens })),
                    Committed::No => return Ok(None),
                    Committed::Again { above } => break above,
                    Committed::Open => {}
                }
                let Some((number, answer)) = answers.recv().await else { return Ok(None) };
                seen[number] = Some(answer.unwrap_or(Commit::Silent));
            };
            first = last.max(above) + 1;
            tokio::time::sleep(random_pause(Duration::from_micros(500 * u64::from(proposal)))).await;
        }
        Ok(None)
    }

    /// Notes that servers may hear of an owner from now on.
    fn touch(&self, ask: &Ask, connected: &[Result<()>]) {
        let touched = connected.iter().enumerate().filter(|(_, connected)| connected.is_ok());
        let touched = touched.fold(0, |touched, (number, _)| touched | 1 << number);
        let mut table = self.table();
        let entry = table.entry(ask.owner).or_insert_with(|| Entry::new(ask.lease));
        entry.touched |= touched;
    }
}

/// Asks a server; what it says, and its counter.
async fn vote(
    node: &Node,
    keys: &NameKeys,
    ask: &Ask,
    said: &[String; 4],
    (stamp, proposed): (u64, u64),
    limit: Duration,
) -> Result<(Vote, u64)> {
    let give_up = Instant::now() + limit;
    let shared = ask.weight != ask.capacity;
    let mut clock = None;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let answer: Vec<Vec<u8>> = node
            .run_within(left, |connected| {
                let mut script = SCRIPTS.vote.on(&keys.all());
                let not_after = clock.unwrap_or_else(|| connected.server_now()) + micros(limit);
                script
                    .arg(super::owner_text(ask.owner))
                    .arg(stamp)
                    .arg(if shared { "shared" } else { "all" })
                    .arg(micros(ask.lease))
                    .arg(ask.tokens.max(1))
                    .arg(u8::from(ask.wait))
                    .arg(&connected.facts.run_id)
                    .arg(not_after);
                said.iter().for_each(|word| {
                    script.arg(word);
                });
                script.arg(proposed);
                script
            })
            .await?;
        match super::reply::vote(&answer)? {
            super::reply::Said::Vote(vote, counter) => return Ok((vote, counter)),
            super::reply::Said::Quarantine => return Err(node.not_a_member()),
            // The server's clock is not what it was when we connected; we still wait, so it was not late.
            super::reply::Said::Late(now) => clock = Some(now),
        }
    }
}
