//! Renewing claims: one call to each server for many, and what a majority makes of them.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::member::{MEMBER, TOP};
use super::rules::{self, Kept, Verdict};
use super::scripts::SCRIPTS;
use super::{Held, NameKeys, Redlock, micros, owner_text};
use crate::engine::{Renewal, Renewed};
use crate::error::Result;

impl Redlock {
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        self.check_process()?;
        // How long servers have to answer depends on the lease: long ones do not suffer from short ones.
        let kind = |at: usize| renewals[at].lease.as_millis().max(1).ilog(4);
        let mut order: Vec<usize> = (0..renewals.len()).collect();
        order.sort_by_key(|at| kind(*at));
        let alike: Vec<&[usize]> = order.chunk_by(|one, other| kind(*one) == kind(*other)).collect();
        let verdicts = join_all(alike.iter().map(|places| {
            let some: Vec<&Renewal> = places.iter().map(|at| &renewals[*at]).collect();
            async move { self.renew_some(&some).await }
        }));
        let mut found = vec![Renewed::Unknown; renewals.len()];
        for (places, verdicts) in alike.iter().zip(verdicts.await) {
            for (at, verdict) in places.iter().zip(verdicts?) {
                found[*at] = verdict;
            }
        }
        Ok(found)
    }

    /// Renews claims with leases that are much alike.
    async fn renew_some(&self, renewals: &[&Renewal]) -> Result<Vec<Renewed>> {
        let Some(shortest) = renewals.iter().map(|renewal| renewal.lease).min() else {
            return Ok(Vec::new());
        };
        let limit = shortest / 7;
        let round = self.next_stamp();
        let mut keys: Vec<Arc<NameKeys>> = Vec::with_capacity(renewals.len());
        let mut args: Vec<String> = Vec::with_capacity(renewals.len() * 6);
        for renewal in renewals {
            keys.push(self.keys_of(&renewal.name, renewal.owner)?);
            let held = self.table().get(&renewal.owner).and_then(|entry| entry.held.clone());
            let (first, last, shared, said) = match held {
                Some(Held { grant, shared, said, .. }) => {
                    (grant.token, grant.token + u64::from(grant.tokens) - 1, shared, said.join(" "))
                }
                // Nothing is known of it: it is renewed where it is, and not taken again where it is not.
                None => (0, 0, false, String::new()),
            };
            args.extend([owner_text(renewal.owner), first.to_string(), last.to_string()]);
            args.extend([
                if shared { "shared" } else { "all" }.to_owned(),
                micros(renewal.lease).to_string(),
                said,
            ]);
        }
        let (keys, args) = (Arc::new(keys), Arc::new(args));
        let (send, mut answers) = mpsc::unbounded_channel();
        for node in self.nodes.iter() {
            let (node, send, keys, args) =
                (Arc::clone(node), send.clone(), Arc::clone(&keys), Arc::clone(&args));
            self.runtime.spawn(async move {
                let answer: Result<Vec<u64>> = node
                    .run_within(limit, |connected| {
                        let mut all = vec![MEMBER, TOP];
                        for NameKeys { holder, token, state, ends, gone, .. } in
                            keys.iter().map(|keys| &**keys)
                        {
                            all.extend([holder, token, state, ends, gone].map(String::as_str));
                        }
                        let mut script = SCRIPTS.renew.on(&all);
                        script.arg(&connected.facts.run_id).arg(round);
                        args.iter().for_each(|word| {
                            script.arg(word);
                        });
                        script
                    })
                    .await;
                send.send((node.number, answer)).ok();
            });
        }
        drop(send);
        let known: Vec<Option<Vec<u64>>> = {
            let table = self.table();
            let held = |renewal: &Renewal| table.get(&renewal.owner)?.held.as_ref();
            renewals.iter().map(|renewal| held(renewal).map(|held| held.known.clone())).collect()
        };
        let mut since: Vec<Vec<u64>> = vec![vec![0; self.nodes.len()]; renewals.len()];
        let mut seen: Vec<Vec<Option<Kept>>> = vec![vec![None; self.nodes.len()]; renewals.len()];
        let mut verdicts = vec![Verdict::Open; renewals.len()];
        let asked_at = Instant::now();
        loop {
            // All are decided when a majority has answered. The others have a moment more: what is heard of them counts the next time, when
            // one of these may be gone.
            let open = verdicts.contains(&Verdict::Open);
            let patience = if open { limit } else { (limit / 2).saturating_sub(asked_at.elapsed()) };
            let Ok(Some((number, answer))) = tokio::time::timeout(patience, answers.recv()).await else {
                break;
            };
            if answer.as_ref().is_ok_and(Vec::is_empty) {
                self.nodes[number].not_a_member();
            }
            let answer = answer.unwrap_or_default();
            for (at, seen) in seen.iter_mut().enumerate() {
                since[at][number] = answer.get(at).copied().unwrap_or(0);
                seen[number] = Some(match answer.get(at) {
                    None => Kept::Silent,
                    Some(0) => Kept::Gone,
                    Some(since) if known[at].as_ref().is_none_or(|known| known[number] == *since) => {
                        Kept::Still
                    }
                    Some(_) => Kept::Healed,
                });
                verdicts[at] = rules::renewed(seen);
            }
        }
        for (at, verdict) in verdicts.iter().enumerate() {
            match verdict {
                // What was taken again on the way counts from now on.
                Verdict::Yes => {
                    let mut table = self.table();
                    if let Some(held) =
                        table.get_mut(&renewals[at].owner).and_then(|entry| entry.held.as_mut())
                    {
                        let heard = held.known.iter_mut().zip(&since[at]).filter(|(_, since)| **since > 0);
                        heard.for_each(|(known, since)| *known = *since);
                    }
                }
                // What is left of it is in the way of others.
                Verdict::Gone => drop(self.leave(&keys[at], renewals[at].owner)),
                Verdict::Unknown | Verdict::Open => {}
            }
        }
        let verdict = |verdict: &Verdict| match verdict {
            Verdict::Yes => Renewed::Yes,
            Verdict::Gone => Renewed::Gone,
            Verdict::Unknown | Verdict::Open => Renewed::Unknown,
        };
        Ok(verdicts.iter().map(verdict).collect())
    }
}
