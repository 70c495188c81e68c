//! Which servers may vote.
//!
//! A server that has forgotten its data could give a name away that somebody still holds, or a
//! token that was given before. So each server has a mark that names the run under which it was let
//! in, and every vote compares it with the run that the connection was made to. A server without
//! the right mark is looked at here, by the rules in `rules.rs`. It votes again when all leases
//! that relied on what it has forgotten are over, and with counters above those that a majority of
//! the others remembers.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::keys::{FLOOR, LONGEST, MEMBER, MISSED, TOP};
use super::node::{Node, Nodes};
use super::rules::{Seen, Standing, standings};
use super::scripts::{ADMIT, INSPECT};
use crate::error::{Error, Result};
use crate::redis::micros;
use crate::redis::requirements::field;

/// How long a server has to say what it knows.
const LIMIT: Duration = Duration::from_secs(2);
/// How often servers are looked at while one of them may not vote.
const AGAIN: Duration = Duration::from_secs(1);

/// A task that looks at the servers when there is a reason. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Admission(AbortHandle);

impl Admission {
    /// Looks at the servers now, and from then on when there is a reason.
    pub(super) async fn start(nodes: &Nodes, max_lease: Duration, look: Arc<Notify>) -> Result<Admission> {
        let mut next = review(nodes, max_lease).await;
        if let Some((one, other)) = same(nodes) {
            return Err(Error::invalid(format!(
                "`{}` and `{}` are the same server; its vote would count twice. Every server of `redlock:` must be another one",
                nodes[one].link.server(),
                nodes[other].link.server()
            )));
        }
        let weak: Vec<Weak<Node>> = nodes.iter().map(Arc::downgrade).collect();
        let task = tokio::spawn(async move {
            loop {
                let due = async {
                    match next {
                        Some(time) => tokio::time::sleep(time).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = look.notified() => {}
                    () = due => {}
                }
                let nodes: Option<Nodes> = weak.iter().map(Weak::upgrade).collect();
                let Some(nodes) = nodes else { return };
                next = review(&nodes, max_lease).await;
                drop(nodes);
                // Many may ask for it.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(Admission(task.abort_handle()))
    }

    /// Looks no more.
    pub(super) fn close(&self) {
        self.0.abort();
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.close();
    }
}

/// Two addresses of one server.
fn same(nodes: &Nodes) -> Option<(usize, usize)> {
    let mut runs = HashMap::new();
    nodes.iter().find_map(|node| {
        let run = node.link.connected_now()?.facts.run_id.clone();
        runs.insert(run, node.number).map(|before| (before, node.number))
    })
}

/// Looks at the servers and lets in who may vote. When to look again, if somebody may not.
async fn review(nodes: &Nodes, max_lease: Duration) -> Option<Duration> {
    let mut next = None;
    // One that is let in may be what another waits for.
    for _ in 0..=nodes.len() {
        let found =
            join_all(nodes.iter().map(|node| async {
                tokio::time::timeout(LIMIT, inspect(node, max_lease)).await.ok()?.ok()
            }))
            .await;
        let longest = found.iter().flatten().map(|(_, longest)| *longest).max().unwrap_or(max_lease);
        let mut seen: Vec<Option<Seen>> = found.into_iter().map(|found| Some(found?.0)).collect();
        // The same server behind two addresses votes once.
        let mut runs = BTreeMap::new();
        for (number, server) in seen.iter_mut().enumerate() {
            let run = server.as_ref().map(|seen| seen.run.clone());
            if let Some(first) = run.and_then(|run| runs.insert(run, number)) {
                let what = format!(
                    "`{}` and `{}` are the same server, and vote once",
                    nodes[number].link.server(),
                    nodes[first].link.server()
                );
                nodes[number].set_barred(Some(what));
                *server = None;
            }
        }
        // Longer than a lease lasts on a clock that is a little slow; a server tells its age in
        // whole seconds.
        let quarantine = longest.mul_f64(1.02) + Duration::from_millis(1100);
        let standings = standings(&seen, quarantine);
        let mut admitted = false;
        next = None;
        for (node, (standing, seen)) in nodes.iter().zip(standings.iter().zip(&seen)) {
            let server = node.link.server();
            match (standing, seen) {
                (Standing::Member, _) => node.set_barred(None),
                (Standing::Admit { floor }, Some(seen)) => {
                    if admit(node, seen, *floor).await.unwrap_or(false) {
                        tracing::info!(target: "leasehold", server, floor, "the server votes");
                        admitted = true;
                    }
                    next = Some(AGAIN);
                }
                (Standing::Quarantined { left }, _) => {
                    let what = format!("`{server}` is new, or has lost its data; it votes in {left:.1?}");
                    tracing::debug!(target: "leasehold", what);
                    node.set_barred(Some(what));
                    next = Some(next.unwrap_or(*left).min(*left).max(Duration::from_millis(10)));
                }
                (Standing::Alone, _) => {
                    let what = format!(
                        "`{server}` is new, or has lost its data; it votes when the others are there"
                    );
                    node.set_barred(Some(what));
                    next = Some(next.unwrap_or(AGAIN).min(AGAIN));
                }
                (Standing::Silent, _) | (Standing::Admit { .. }, None) => {}
            }
        }
        if !admitted {
            break;
        }
    }
    next
}

/// What a server knows of itself, and the longest lease that anybody has declared there.
async fn inspect(node: &Node, max_lease: Duration) -> Result<(Seen, Duration)> {
    // One that is not connected now is looked at when it is.
    let connected = node.link.connected_now().ok_or_else(|| node.silent())?;
    let mut connection = connected.connection.clone();
    let mut info = redis::cmd("INFO");
    info.arg("server");
    let info: String = node.link.call(&connected, pin!(info.query_async(&mut connection))).await?;
    let run = field(&info, "run_id").to_owned();
    if run != connected.facts.run_id {
        let what = format!(
            "`{}` is not always the same server: something stands before it that changes servers without ending connections",
            node.link.server()
        );
        node.set_barred(Some(what));
        return Err(node.silent());
    }
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("append*");
    // Not everybody may read it.
    let config: HashMap<String, String> = config.query_async(&mut connection).await.unwrap_or_default();
    let says = |name: &str, value: &str| config.get(name).is_some_and(|found| found == value);
    let script = INSPECT.on(&[MEMBER, TOP, FLOOR, MISSED, LONGEST]).arg(micros(max_lease));
    let (mark, top, now, missed, longest): (String, u64, u64, u64, u64) =
        node.link.call(&connected, pin!(script.call(&mut connection))).await?;
    let seen = Seen {
        run,
        mark: Some(mark).filter(|mark| !mark.is_empty()),
        forgets_nothing: says("appendonly", "yes") && says("appendfsync", "always"),
        up: Duration::from_secs(field(&info, "uptime_in_seconds").parse().unwrap_or(0)),
        missed: Duration::from_micros(missed),
        top,
        now,
    };
    Ok((seen, Duration::from_micros(longest)))
}

async fn admit(node: &Node, seen: &Seen, floor: u64) -> Result<bool> {
    let answer: u8 = node
        .run_within(LIMIT, |_| {
            // What was seen is old by then.
            let not_after = seen.now + micros(LIMIT);
            let mark = seen.mark.as_deref().unwrap_or_default();
            let script = ADMIT.on(&[MEMBER, TOP, FLOOR, MISSED]);
            script.arg(mark).arg(&seen.run).arg(floor).arg(not_after)
        })
        .await?;
    Ok(answer == 1)
}
