//! One connection to one member of the cluster, and the calls that are made over it.
//!
//! Any member will do: it passes requests on to the leader. Which one it is changes when the
//! connection breaks, or when the member is cut off from the others.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::stream::unfold;
use http::uri::PathAndQuery;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::errors::{causes, error, failure, hint, is_broken, unavailable};
use super::keys::Keys;
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse,
    StatusRequest, StatusResponse, WatchRequest, WatchResponse,
};
use super::promises::ENGINE;
use super::url::Place;
use super::version::warn_of_version;
use crate::engine::supervise::{Attempt, CONNECT_LIMIT, Connector};
use crate::engine::url::Secret;
use crate::engine::{Hint, Hints};
use crate::error::{Error, Result};
use crate::random;

/// A server that does not answer a ping in this time is given up. A call waits five seconds by
/// default, and should find another member before that.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_LIMIT: Duration = Duration::from_millis(1500);
/// The pause before the members are asked again that have no leader.
const PAUSE: Duration = Duration::from_millis(200);
/// The largest answer: that of a listing.
const LARGEST: usize = 64 << 20;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// How the cluster is reached.
pub(super) struct Cluster {
    place: Place,
    server: String,
    endpoints: Vec<(String, Endpoint)>,
    /// Read to find out whether a member can reach the others.
    probed: Vec<u8>,
    pub(super) hints: OnceLock<Hints>,
}

/// A connection to one member.
pub(super) struct Member {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    /// `HOST:PORT`.
    pub(super) server: String,
}

/// Why a member was not joined, and whether somebody was there.
struct Unjoined {
    error: Error,
    reached: bool,
}

impl Cluster {
    pub(super) fn new(place: Place, keys: &Keys) -> Result<Cluster> {
        let scheme = if place.tls.is_some() { "https" } else { "http" };
        let endpoints = place.hosts.iter().map(|host| {
            let wrong = |error: tonic::transport::Error| {
                Error::invalid(format!("`{host}` can not be connected to: {}", causes(&error)))
            };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(wrong)?;
            let endpoint = endpoint
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_LIMIT)
                .keep_alive_while_idle(true);
            #[cfg(feature = "etcd-tls")]
            let endpoint = match &place.tls {
                Some(certificates) => {
                    endpoint.tls_config(super::tls::config(certificates)?).map_err(wrong)?
                }
                None => endpoint,
            };
            Ok((host.to_string(), endpoint))
        });
        let endpoints = endpoints.collect::<Result<_>>()?;
        let server = place.server();
        Ok(Cluster { place, server, endpoints, probed: keys.sessions(), hints: OnceLock::new() })
    }

    pub(super) fn hint(&self, hint: Hint) {
        if let Some(hints) = self.hints.get() {
            hints.give(hint);
        }
    }

    /// Connects to one member, and makes sure that it can reach a majority.
    async fn join(&self, server: &str, endpoint: &Endpoint) -> Result<Member, Unjoined> {
        let channel = endpoint.connect().await.map_err(|error| Unjoined {
            error: unavailable(format!("can not reach `{server}`: {}{}", causes(&error), hint(&error))),
            reached: false,
        })?;
        let mut member = Member { channel, token: None, server: server.to_owned() };
        let reached = |error: Error| Unjoined { error, reached: true };
        let said = |status: Status| reached(error(failure(server, &status)));
        if let (Some(user), Some(password)) = (&self.place.login.user, &self.place.login.password) {
            let login = AuthenticateRequest { name: user.clone(), password: password.reveal().to_owned() };
            let answer: AuthenticateResponse = member.unary(AUTHENTICATE, login).await.map_err(said)?;
            let mut token: MetadataValue<Ascii> = answer
                .token
                .parse()
                .map_err(|_| reached(unavailable(format!("`{server}` gave an unusable token"))))?;
            token.set_sensitive(true);
            member.token = Some(token);
        }
        let status: StatusResponse = member.unary(STATUS, StatusRequest {}).await.map_err(said)?;
        self.ask(&member).await.map_err(said)?;
        warn_of_version(server, &status.version);
        Ok(member)
    }

    /// Reads something that only a member that can reach a majority can answer.
    async fn ask(&self, member: &Member) -> Result<(), Status> {
        let range = RangeRequest { key: self.probed.clone(), keys_only: true, ..RangeRequest::default() };
        match member.unary::<_, RangeResponse>(RANGE, range).await {
            // Which keys raw names will be is not known yet.
            Err(status) if self.place.raw && status.code() == Code::PermissionDenied => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

impl Connector for Cluster {
    type Session = Member;

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn server(&self) -> &str {
        &self.server
    }

    fn secret(&self) -> Option<&str> {
        self.place.login.password.as_ref().map(Secret::reveal)
    }

    async fn connect(&self, attempt: Attempt) -> Result<Member> {
        let count = self.endpoints.len();
        // Another one each time, and clients do not all choose the same one.
        let first = (random::number()? as usize).wrapping_add(attempt.epoch as usize) % count;
        // A member that does not answer leaves time for the next one.
        let whole = CONNECT_LIMIT.mul_f64(0.9);
        let limit = whole / u32::try_from(count).unwrap_or(u32::MAX);
        let give_up = Instant::now() + whole;
        loop {
            let mut errors = Vec::new();
            let mut elects = false;
            for (server, endpoint) in self.endpoints.iter().cycle().skip(first).take(count) {
                let limit = limit.min(give_up.saturating_duration_since(Instant::now()));
                match timeout(limit, self.join(server, endpoint)).await {
                    Ok(Ok(member)) => return Ok(member),
                    Ok(Err(Unjoined { error, .. })) if !error.is_retryable() => return Err(error),
                    Ok(Err(Unjoined { error, reached })) => {
                        elects |= reached;
                        errors.push(error.what());
                    }
                    Err(_) => errors.push(format!("can not reach `{server}`: no answer in {limit:?}")),
                }
            }
            errors.sort_unstable();
            // One that answers, but can not serve, may be electing a leader with the others.
            if !elects || Instant::now() + PAUSE >= give_up {
                return Err(unavailable(errors.join("; ")));
            }
            sleep(PAUSE).await;
        }
    }

    async fn probe(&self, member: &Member) -> Result<(), String> {
        match self.ask(member).await {
            Err(status) if is_broken(&status) => Err(causes(&status)),
            _ => Ok(()),
        }
    }

    fn server_of(&self, member: &Member) -> String {
        member.server.clone()
    }

    fn disconnected(&self, why: &str) {
        self.hint(Hint::Disconnected { server: self.server.clone(), why: why.to_owned() });
    }

    fn connected_again(&self, server: String) {
        self.hint(Hint::Reconnected { server });
    }
}

impl Member {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member that has lost its leader says so at once, and does not wait for another.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// One request and its answer.
    pub(super) async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc.unary(self.request(message), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Keeps a lease alive. A lease that is gone has no time to live.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<LeaseResponse, Status> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        // The stream stays open until the answer is there: a request whose end has been seen may be
        // dropped by the server.
        let requests = unfold(Some(LeaseRequest { id }), |request| async move {
            match request {
                Some(request) => Some((request, None)),
                None => std::future::pending().await,
            }
        });
        let codec: ProstCodec<LeaseRequest, LeaseResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(KEEP_ALIVE);
        let mut answers = grpc.streaming(self.request(requests), path, codec).await?.into_inner();
        answers.message().await?.ok_or_else(|| Status::unavailable("the stream of keep-alives has ended"))
    }

    /// Opens a stream of watches.
    pub(super) async fn watch(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let requests = unfold(requests, |mut requests| async move {
            requests.recv().await.map(|request| (request, requests))
        });
        let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(WATCH);
        Ok(grpc.streaming(self.request(requests), path, codec).await?.into_inner())
    }
}
