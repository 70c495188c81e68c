//! A layer that asks a limiter about each request.

use std::fmt;
use std::future::Future;
use std::mem;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::fields::{Fields, Policies, Told};
use super::problem::{Problem, seconds};
use crate::kit::rate::{Limiter, Mode, Verdict};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// How a request is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// As one more of this key: a user, a tenant, an address (see [`network`]).
    As(String),
    /// As so much of this key.
    Costs(String, u32),
    /// Not at all: it passes.
    Not,
}

/// Asks a limiter about each request. See [`crate::kit::web`] for an example.
///
/// A request that is refused does not reach the service:
///
/// | | |
/// | --- | --- |
/// | used up | 429 with `Retry-After` |
/// | the engine is away, [`WhenAway::Closed`](crate::kit::rate::WhenAway::Closed) | 429 with `Retry-After` |
/// | the engine is away, [`WhenAway::Shed`](crate::kit::rate::WhenAway::Shed) | 503 with `Retry-After` |
/// | it costs more than there ever is | 403: it can never pass |
/// | the limiter can not decide (its client is closed, a key of more than 4 KiB) | 500 |
///
/// A leaky bucket lets requests wait for their turn here. Whether the body of a refusal is read by
/// anybody or not, it is a problem document (RFC 9457).
#[derive(Clone)]
pub struct RateLimitLayer<K> {
    limiter: Limiter,
    key: K,
    fields: Fields,
}

impl<K> RateLimitLayer<K>
where
    K: Fn(&Parts) -> Counted,
{
    /// A layer that asks `limiter`. How a request is counted is for `key` to say: there is no
    /// default, because nothing in a request is true before the program has checked it.
    pub fn new(limiter: Limiter, key: K) -> RateLimitLayer<K> {
        RateLimitLayer { limiter, key, fields: Fields::default() }
    }

    /// Which fields tell callers how their limits stand.
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> RateLimitLayer<K> {
        self.fields = fields;
        self
    }
}

impl<K> fmt::Debug for RateLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("fields", &self.fields).finish_non_exhaustive()
    }
}

impl<S, K: Clone> Layer<S> for RateLimitLayer<K> {
    type Service = RateLimit<S, K>;

    fn layer(&self, inner: S) -> RateLimit<S, K> {
        let policies = Arc::new(Policies::new(&self.limiter, self.fields));
        RateLimit { inner, limiter: self.limiter.clone(), key: self.key.clone(), policies }
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Clone)]
pub struct RateLimit<S, K> {
    inner: S,
    limiter: Limiter,
    key: K,
    policies: Arc<Policies>,
}

impl<S: fmt::Debug, K> fmt::Debug for RateLimit<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, K, B, R> Service<Request<B>> for RateLimit<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    K: Fn(&Parts) -> Counted,
    B: Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // It is this one that was ready, not its clone.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let (parts, body) = request.into_parts();
        let counted = (self.key)(&parts);
        let request = Request::from_parts(parts, body);
        let (limiter, policies) = (self.limiter.clone(), Arc::clone(&self.policies));
        Box::pin(async move {
            let (key, cost) = match counted {
                Counted::As(key) => (key, 1),
                Counted::Costs(key, cost) => (key, cost),
                Counted::Not => return inner.call(request).await,
            };
            // Something that costs nothing passes, and is told how it stands.
            let verdict = match cost {
                0 => limiter.peek(&key, 0).await,
                cost => limiter.check_cost(&key, cost).await,
            };
            let verdict = match verdict {
                Ok(verdict) => verdict,
                Err(_) if cost == 0 => return inner.call(request).await,
                Err(error) => {
                    tracing::warn!(%error, limiter = limiter.name(), "a rate limit can not decide");
                    let title = "The rate limit can not decide";
                    return Ok(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, title, "").response());
                }
            };
            let told = Told::new(&verdict);
            let mut response = match &verdict {
                Verdict::Allowed(allowed) => {
                    let delay = allowed.delay();
                    if !delay.is_zero() {
                        limiter.wait(delay).await;
                    }
                    inner.call(request).await?
                }
                Verdict::Denied { retry_after, by, limit, .. } => {
                    later(*retry_after, *by, policies.name(*limit))
                }
                Verdict::Impossible { capacity, limit } => never(cost, *capacity, policies.name(*limit)),
            };
            policies.add(&told, response.headers_mut());
            Ok(response)
        })
    }
}

/// It costs more than there ever is.
fn never<R: From<Bytes>>(cost: u32, capacity: u32, policy: &str) -> Response<R> {
    let detail = format!("it costs {cost}, and there are never more than {capacity}");
    let problem = Problem::new(StatusCode::FORBIDDEN, "The request can never be allowed", detail);
    Problem { violated: &[policy], ..problem }.response()
}

fn later<R: From<Bytes>>(retry_after: Duration, by: Mode, policy: &str) -> Response<R> {
    if by == Mode::Shed {
        let title = "The request can not be counted at the moment";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, title, "it is not the caller's fault");
        return Problem { kind: Some(REDUCED_CAPACITY), ..problem.retry_after(retry_after) }.response();
    }
    let title = "The request can not be allowed yet";
    let detail = format!("come back in {} s", seconds(retry_after));
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, title, detail).retry_after(retry_after);
    Problem { kind: Some(QUOTA_EXCEEDED), violated: &[policy], ..problem }.response()
}

/// The key of an address. Of an IPv6 address it is the network (/64): whoever has one address of it
/// has all of them.
///
/// # Examples
///
/// ```
/// use leasehold::kit::web::network;
///
/// assert_eq!(network("192.0.2.7".parse().unwrap()), "192.0.2.7");
/// assert_eq!(network("::ffff:192.0.2.7".parse().unwrap()), "192.0.2.7");
/// assert_eq!(network("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001:db8:1:2::/64");
/// ```
pub fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}
