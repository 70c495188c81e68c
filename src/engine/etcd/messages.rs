//! The messages of etcd's API that the engine sends and reads.
//!
//! Written by hand after etcd's `rpc.proto` and `kv.proto`: the generated ones need the compiler
//! `protoc` on every machine that builds this crate. Fields that nobody here looks at are left out;
//! protobuf skips what it does not know.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    /// The revision of the whole store.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// Empty: one key.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// 0: no limit.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// 0 none, 1 ascending, 2 descending.
    #[prost(int32, tag = "5")]
    pub(super) sort_order: i32,
    /// 0 key, 2 create revision.
    #[prost(int32, tag = "6")]
    pub(super) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteResponse {
    #[prost(int64, tag = "2")]
    pub(super) deleted: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3")]
    pub(super) op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Done", tags = "1, 2, 3")]
    pub(super) done: Option<Done>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Done {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteResponse),
}

/// One condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0 equal, 1 greater.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// 1 create revision, 2 mod revision.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5, 6")]
    pub(super) against: Option<Against>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum Against {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

/// What a grant, a keep-alive and a look at a lease are answered with: the fields that they share.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// Names a lease: to revoke it, to keep it alive, to look at it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchOp", tags = "1, 2")]
    pub(super) op: Option<WatchOp>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchOp {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// 0: from now on.
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    /// 0: no events of writes.
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(super) watch_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(super) watch_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(int64, tag = "2")]
    pub(super) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0 written, 1 deleted.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}
