//! Requests to the cluster: reads, transactions and leases.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;

use super::connection::{Cluster, GRANT, Member, RANGE, REVOKE, TIME_TO_LIVE, TXN};
use super::errors::{Attempt, Failure, causes, failure, is_broken, unavailable};
use super::keys::after;
use super::messages::{
    Against, Compare, DeleteRequest, Done, Header, KeyValue, LeaseGrantRequest, LeaseRequest, LeaseResponse,
    Op, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::engine::supervise::{Connected, Supervisor};

/// How long one request may take. What was passed on to a leader that has just died is never
/// answered, and is asked again once there is another.
const LIMIT: Duration = Duration::from_secs(2);

/// The cluster, over one connection.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) supervisor: Supervisor<Cluster>,
}

/// A transaction: if all conditions hold, what is done, and what is read if not.
#[derive(Debug, Default)]
pub(super) struct Txn {
    pub(super) conditions: Vec<Compare>,
    pub(super) then: Vec<Op>,
    pub(super) otherwise: Vec<Op>,
}

/// What a transaction came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// All conditions held.
    pub(super) succeeded: bool,
    /// The revision of the store: that of the write, if something was written.
    pub(super) revision: u64,
    /// What was read, for each operation; nothing for a write.
    pub(super) found: Vec<Vec<KeyValue>>,
}

/// A key has not been written since it had that revision; 0 stands for a key that is not there.
pub(super) fn unchanged(key: Vec<u8>, revision: i64) -> Compare {
    Compare { result: 0, target: 2, key, against: Some(Against::ModRevision(revision)) }
}

/// A key is there.
pub(super) fn exists(key: Vec<u8>) -> Compare {
    Compare { result: 1, target: 1, key, against: Some(Against::CreateRevision(0)) }
}

/// A key was created by that revision, and is still there.
pub(super) fn created_by(key: Vec<u8>, revision: i64) -> Compare {
    Compare { result: 0, target: 1, key, against: Some(Against::CreateRevision(revision)) }
}

pub(super) fn get(key: Vec<u8>) -> Op {
    Op::Range(RangeRequest { key, ..RangeRequest::default() })
}

/// Whether a key is there.
pub(super) fn look_for(key: Vec<u8>) -> Op {
    Op::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() })
}

/// The first keys that start with `prefix`, in order; all of them if `limit` is 0.
pub(super) fn get_all(prefix: Vec<u8>, limit: usize) -> RangeRequest {
    let range_end = after(&prefix);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    RangeRequest { key: prefix, range_end, limit, ..RangeRequest::default() }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Op {
    Op::Put(PutRequest { key, value, lease })
}

pub(super) fn delete(key: Vec<u8>) -> Op {
    Op::Delete(DeleteRequest { key, range_end: Vec::new() })
}

/// Deletes all keys that start with `prefix`.
pub(super) fn delete_all(prefix: Vec<u8>) -> Op {
    let range_end = after(&prefix);
    Op::Delete(DeleteRequest { key: prefix, range_end })
}

fn revision_of(header: Option<&Header>) -> u64 {
    header.map_or(0, |header| header.revision.max(0).cast_unsigned())
}

impl Store {
    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Attempt<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let connected = self.supervisor.connected().await?;
        let request = pin!(connected.unary(path, message));
        match timeout(LIMIT, self.supervisor.answer(&connected, request)).await {
            Ok(answer) => answer?.map_err(|status| self.failed(&connected, &status)),
            Err(_) => Err(unavailable(format!("`{}` gave no answer in {LIMIT:?}", connected.server)).into()),
        }
    }

    /// Reads what an error means, and gives the connection up if it is of no use any more.
    pub(super) fn failed(&self, connected: &Connected<Member>, status: &Status) -> Failure {
        if is_broken(status) {
            self.supervisor.lost(connected.epoch, &causes(status));
        }
        failure(&connected.server, status)
    }

    /// Reads a range of keys, and the revision of the store.
    pub(super) async fn range(&self, range: RangeRequest) -> Attempt<(u64, Vec<KeyValue>)> {
        let answer: RangeResponse = self.call(RANGE, range).await?;
        Ok((revision_of(answer.header.as_ref()), answer.kvs))
    }

    /// Runs a transaction.
    pub(super) async fn txn(&self, txn: Txn) -> Attempt<Outcome> {
        let ops = |ops: Vec<Op>| ops.into_iter().map(|op| RequestOp { op: Some(op) }).collect();
        let request =
            TxnRequest { compare: txn.conditions, success: ops(txn.then), failure: ops(txn.otherwise) };
        let answer: TxnResponse = self.call(TXN, request).await?;
        let read = |op: ResponseOp| match op.done {
            Some(Done::Range(range)) => range.kvs,
            Some(Done::Put(_) | Done::Delete(_)) | None => Vec::new(),
        };
        Ok(Outcome {
            succeeded: answer.succeeded,
            revision: revision_of(answer.header.as_ref()),
            found: answer.responses.into_iter().map(read).collect(),
        })
    }

    /// Makes a lease of at least so many seconds: its number, and how long it lives.
    pub(super) async fn grant(&self, seconds: i64) -> Attempt<(i64, Duration)> {
        let answer: LeaseResponse = self.call(GRANT, LeaseGrantRequest { ttl: seconds, id: 0 }).await?;
        Ok((answer.id, time_of(answer.ttl)))
    }

    /// Ends a lease, and all that is attached to it.
    pub(super) async fn revoke(&self, id: i64) -> Attempt<()> {
        self.call::<_, LeaseResponse>(REVOKE, LeaseRequest { id }).await.map(|_| ())
    }

    /// How long a lease lives if nobody keeps it alive; zero if it is gone.
    pub(super) async fn time_to_live(&self, id: i64) -> Attempt<Duration> {
        let answer: LeaseResponse = self.call(TIME_TO_LIVE, LeaseRequest { id }).await?;
        Ok(time_of(answer.ttl))
    }

    /// Keeps a lease alive, and says how long it lives from then on.
    pub(super) async fn keep_alive(&self, id: i64) -> Attempt<Duration> {
        let connected = self.supervisor.connected().await?;
        let request = pin!(connected.keep_alive(id));
        let answer = self.supervisor.answer(&connected, request).await?;
        let answer = answer.map_err(|status| self.failed(&connected, &status))?;
        if answer.ttl <= 0 { Err(Failure::SessionEnded) } else { Ok(time_of(answer.ttl)) }
    }
}

fn time_of(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0).cast_unsigned())
}
