//! How a name is taken: votes, a token, and the undoing of what came to nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::keys::OwnerKeys;
use super::node::{Node, insist};
use super::owners::Held;
use super::quorum::{Failures, Quorum, STRAGGLERS};
use super::reply::{self, Said};
use super::rules::{Commit, Committed, Poll, Vote, committed, poll};
use super::scripts::{COMMIT, RELEASE, VOTE};
use crate::claim::{Answer, Ask, Grant, Pause};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::random;
use crate::redis::holder::{self, owner_text};
use crate::redis::micros;

/// How often a token is proposed before a round is given up. Only readers beside each other need
/// more than one.
const PROPOSALS: u32 = 6;
/// How many rounds of votes are held before a caller that met others is told.
const ROUNDS: u32 = 4;
/// A stranger's release is not told to us: waiters look this often.
const STRANGER: Duration = Duration::from_millis(50);

/// What a round of votes came to.
enum Outcome {
    Granted(Grant),
    Held { left: Duration },
    Split,
    Impossible(Error),
}

/// Votes as they come: from which server, the vote, and the server's counter.
type Votes = mpsc::UnboundedReceiver<(usize, Result<(Vote, u64)>)>;

/// One round of votes for one owner.
struct Round<'a> {
    quorum: &'a Quorum,
    keys: &'a Arc<OwnerKeys>,
    ask: &'a Ask,
    /// Later requests of the same owner have larger numbers.
    stamp: u64,
    /// How long a server has to answer.
    limit: Duration,
}

/// How long a server has to answer: not much of the lease, and not much of the caller's time.
pub(super) fn limit_of(lease: Duration, answer_within: Duration) -> Duration {
    let most = Duration::from_millis(500);
    (lease / 3).min(answer_within / 4).clamp(Duration::from_millis(10), most)
}

/// Some time up to `most`, another one each time.
fn random_pause(most: Duration) -> Duration {
    let number = random::number().unwrap_or(u64::MAX / 2);
    most.mul_f64((number >> 11) as f64 / (1_u64 << 53) as f64)
}

fn tokens_of(ask: &Ask) -> u32 {
    ask.tokens.max(1)
}

/// Asks for a claim, in several rounds if others ask at the same time.
pub(super) async fn acquire(quorum: &Quorum, name: &Name, ask: &Ask) -> Result<Answer> {
    let keys = quorum.keys_of(name, ask.owner)?;
    let limit = limit_of(ask.lease, ask.answer_within);
    let give_up = Instant::now() + ask.answer_within.mul_f64(0.75);
    let mut rounds = 0;
    let at_most = loop {
        rounds += 1;
        let round = Round { quorum, keys: &keys, ask, stamp: quorum.next_stamp(), limit };
        match round.run().await {
            Outcome::Granted(grant) => return Ok(Answer::Granted(grant)),
            Outcome::Held { left } => break left,
            // Nobody won, or somebody is just letting go. Whoever comes back first gets it.
            Outcome::Split if rounds < ROUNDS => {
                tokio::time::sleep(random_pause(Duration::from_millis(3 * u64::from(rounds)))).await;
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
    if ask.wait {
        return Ok(Answer::Queued(Pause { at_most }));
    }
    quorum.owners.lock().remove(&ask.owner);
    Ok(Answer::Busy(Pause { at_most }))
}

impl Round<'_> {
    async fn run(&self) -> Outcome {
        let Round { quorum, ask, stamp, .. } = *self;
        let who: Arc<str> = holder::who(quorum.seat, &ask.holder).into();
        let (proposed, tokens) = (quorum.likely_token(), tokens_of(ask));
        let (mut votes, voted) = self.ask_for_votes(&who, proposed);
        let mut seen: Vec<Option<Vote>> = vec![None; quorum.nodes.len()];
        let mut failures: Failures = Vec::new();
        let verdict = loop {
            let next = match poll(&seen) {
                Poll::Open => votes.recv().await,
                // The others have a moment to say what is the matter: the error names all.
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
            quorum.saw(counter);
            seen[number] = Some(vote);
        };
        let granted = match verdict {
            Poll::Committed => Some(Grant { token: proposed, tokens }),
            Poll::Majority { token } => self.commit(token, &voted).await,
            _ => None,
        };
        if let Some(grant) = granted {
            quorum.saw(grant.token + u64::from(tokens) - 1);
            let (shared, known) = (ask.weight != ask.capacity, vec![stamp; quorum.nodes.len()]);
            let held = Held { grant, shared, known, renewal: 0, who: who.to_string() };
            // Gone if the owner has left meanwhile.
            if let Some(entry) = quorum.owners.lock().get_mut(&ask.owner) {
                entry.held = Some(held);
            }
            return Outcome::Granted(grant);
        }
        // Also where the answer got lost; not where the answer was no.
        for (node, vote) in quorum.nodes.iter().zip(&seen) {
            if !matches!(vote, Some(Vote::Taken { .. })) {
                self.undo(node);
            }
        }
        match verdict {
            Poll::Held { left, stranger } => {
                let left = Duration::from_micros(left);
                Outcome::Held { left: if stranger { left.min(STRANGER) } else { left } }
            }
            Poll::Impossible => Outcome::Impossible(quorum.no_majority(failures)),
            Poll::Committed | Poll::Majority { .. } | Poll::Split | Poll::Open => Outcome::Split,
        }
    }

    /// Asks every server for its vote. Gives the votes as they come, and for each server a word
    /// when its vote is over.
    fn ask_for_votes(&self, who: &Arc<str>, proposed: u64) -> (Votes, Vec<watch::Receiver<()>>) {
        let Round { quorum, keys, ask, stamp, limit } = *self;
        // Nothing is sent to those who are not connected: it would come when all is long decided.
        let connected = quorum.nodes.iter().map(|node| node.must_be_connected());
        let mut connected: Vec<Result<()>> = connected.collect();
        let reached = connected.iter().enumerate().filter(|(_, connected)| connected.is_ok());
        let reached = reached.fold(0, |servers, (number, _)| servers | 1 << number);
        quorum.owners.touch(ask.owner, ask.lease, reached);
        let mut voted = Vec::with_capacity(quorum.nodes.len());
        let votes = quorum.broadcast(|node| {
            let (voting, over) = watch::channel(());
            voted.push(over);
            let (keys, who, ask) = (Arc::clone(keys), Arc::clone(who), ask.clone());
            let connected = std::mem::replace(&mut connected[node.number], Ok(()));
            async move {
                let _voting = voting;
                connected?;
                vote(&node, &keys, &ask, &who, (stamp, proposed), limit).await
            }
        });
        (votes, voted)
    }

    /// Gives back in the background what this round may have taken at a server. The owner keeps its
    /// place.
    fn undo(&self, node: &Arc<Node>) {
        let Round { quorum, ask, stamp, limit, .. } = *self;
        let (keys, owner) = (Arc::clone(self.keys), owner_text(ask.owner));
        // Until its claim would have ended by itself.
        let until = Instant::now() + ask.lease.mul_f64(1.01) + limit;
        let releasing = quorum.releasing.subscribe();
        let insisting = insist(Arc::downgrade(node), until, limit, move |_| {
            RELEASE.on(&keys.all()).arg(&owner).arg(stamp).arg("claim")
        });
        quorum.runtime.spawn(async move {
            insisting.await;
            drop(releasing);
        });
    }

    /// Writes the token to a majority. `None` if that is not possible: the claim is to be given
    /// back.
    async fn commit(&self, token: u64, voted: &[watch::Receiver<()>]) -> Option<Grant> {
        let Round { quorum, keys, ask, stamp, limit } = *self;
        let tokens = tokens_of(ask);
        let mut first = token;
        for proposal in 1..=PROPOSALS {
            let last = first + u64::from(tokens) - 1;
            let mut answers = quorum.broadcast(|node| {
                let (keys, owner) = (Arc::clone(keys), owner_text(ask.owner));
                let mut voted = voted[node.number].clone();
                async move {
                    // A token that overtakes the request for the vote finds no claim. The wait ends
                    // when nobody votes any more.
                    voted.changed().await.ok();
                    let answer = node
                        .run_within::<Vec<Vec<u8>>>(limit, |connected| {
                            let script = COMMIT.on(&keys.all()).arg(&owner).arg(stamp);
                            script.arg(first).arg(last).arg(&connected.facts.run_id)
                        })
                        .await;
                    match answer.and_then(|answer| reply::commit(&answer)) {
                        Ok(Some(answer)) => answer,
                        Ok(None) => {
                            node.not_a_member();
                            Commit::Silent
                        }
                        Err(_) => Commit::Silent,
                    }
                }
            });
            let mut seen: Vec<Option<Commit>> = vec![None; quorum.nodes.len()];
            let above = loop {
                match committed(&seen) {
                    Committed::Yes => return Some(Grant { token: first, tokens }),
                    Committed::No => return None,
                    Committed::Again { above } => break above,
                    Committed::Open => {}
                }
                let (number, answer) = answers.recv().await?;
                seen[number] = Some(answer);
            };
            first = last.max(above) + 1;
            tokio::time::sleep(random_pause(Duration::from_micros(500 * u64::from(proposal)))).await;
        }
        None
    }
}

/// Asks a server; its vote, and its counter.
async fn vote(
    node: &Node,
    keys: &OwnerKeys,
    ask: &Ask,
    who: &str,
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
                let not_after = clock.unwrap_or_else(|| connected.server_now()) + micros(limit);
                let script = VOTE.on(&keys.all()).arg(owner_text(ask.owner)).arg(stamp);
                let script = script.arg(if shared { "shared" } else { "all" }).arg(micros(ask.lease));
                let script = script.arg(tokens_of(ask)).arg(u8::from(ask.wait));
                script.arg(&connected.facts.run_id).arg(not_after).arg(who).arg(proposed)
            })
            .await?;
        match reply::vote(&answer)? {
            Said::Vote(vote, counter) => return Ok((vote, counter)),
            Said::Quarantine => return Err(node.not_a_member()),
            // The server's clock was set since we connected; we still wait, so it was not late.
            Said::Late(now) => clock = Some(now),
        }
    }
}
