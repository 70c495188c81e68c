//! Giving claims back, and what a majority makes of that.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::attempt::limit_of;
use super::node::insist;
use super::rules::{self, Left, Verdict, majority};
use super::scripts::SCRIPTS;
use super::{LIMIT, NameKeys, Redlock, owner_text};
use crate::claim::{OwnerId, Released};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::redis::link::Connected;

impl Redlock {
    /// Sends a release to every server, and goes on where it was not heard and matters.
    pub(super) fn leave(
        &self,
        keys: &Arc<NameKeys>,
        owner: OwnerId,
    ) -> mpsc::UnboundedReceiver<(usize, Result<i64>)> {
        let stamp = self.next_stamp();
        let (touched, lease) = match self.table().get(&owner) {
            Some(entry) => (entry.touched, entry.lease),
            None => (0, self.max_lease),
        };
        let limit = limit_of(lease, 4 * LIMIT);
        let until = Instant::now() + lease.mul_f64(1.01) + limit;
        let (send, answers) = mpsc::unbounded_channel();
        for node in self.nodes.iter() {
            let (node, send, keys) = (Arc::clone(node), send.clone(), Arc::clone(keys));
            let releasing = self.releasing.subscribe();
            self.runtime.spawn(async move {
                let script = |_: &Connected| {
                    let mut script = SCRIPTS.release.on(&keys.all());
                    script.arg(owner_text(owner)).arg(stamp).arg("all");
                    script
                };
                let answer = node.run_within(limit, script).await;
                let again =
                    touched & 1 << node.number != 0 && answer.as_ref().is_err_and(Error::is_retryable);
                send.send((node.number, answer)).ok();
                drop((send, releasing));
                let node = { Arc::downgrade(&node) };
                if again {
                    insist(node, until, limit, script).await;
                }
            });
        }
        answers
    }

    pub(super) async fn release_whole(&self, name: &Name, owner: OwnerId) -> Result<Released> {
        self.check_process()?;
        let keys = self.keys_of(name, owner)?;
        let mut answers = self.leave(&keys, owner);
        let before = self.table().get(&owner).map_or(0, |entry| entry.removed);
        let mut failures = Vec::new();
        // Given back already, when the same was asked before.
        let removed_before = |number: usize| before & 1 << number != 0;
        let mut seen: Vec<Option<Left>> =
            (0..self.nodes.len()).map(|number| removed_before(number).then_some(Left::Claim)).collect();
        let verdict = loop {
            let verdict = rules::released(&seen);
            // Whoever waits for the answer wants the name to be free for the next one.
            if !matches!(verdict, Verdict::Open | Verdict::Gone) {
                break verdict;
            }
            let Some((number, answer)) = answers.recv().await else { break verdict };
            if removed_before(number) {
                continue;
            }
            seen[number] = Some(match answer {
                Ok(1) => Left::Claim,
                Ok(2) => Left::Place,
                Ok(_) => Left::Nothing,
                Err(error) => {
                    failures.push((number, error));
                    Left::Silent
                }
            });
        };
        let mut table = self.table();
        match verdict {
            Verdict::Yes | Verdict::Gone => {
                table.remove(&owner);
            }
            Verdict::Unknown | Verdict::Open => {
                if let Some(entry) = table.get_mut(&owner) {
                    for (number, left) in seen.iter().enumerate() {
                        entry.removed |= u32::from(*left == Some(Left::Claim)) << number;
                    }
                }
                let silent = failures.len();
                // Somebody who only waited, or never got further than to ask, has left when a majority has heard.
                let held = table.get(&owner).is_some_and(|entry| entry.held.is_some());
                if held || self.nodes.len() - silent < majority(self.nodes.len()) {
                    drop(table);
                    return Err(self.no_majority(failures));
                }
                table.remove(&owner);
            }
        }
        // Those of which nothing was heard for long are forgotten.
        if table.len() > 4096 {
            let longest = 2 * self.max_lease;
            table.retain(|_, entry| entry.held.is_some() || entry.since.elapsed() < longest);
        }
        drop(table);
        Ok(match verdict {
            Verdict::Yes => Released::Claim,
            _ if seen.contains(&Some(Left::Place)) => Released::Place,
            _ => Released::Nothing,
        })
    }
}
