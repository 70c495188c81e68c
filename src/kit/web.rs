//! Rate limits and idempotency keys as layers of an HTTP service.
//!
//! They are `tower` layers, so they go into axum, tonic's routers, or anything else that is a
//! service from `http::Request` to `http::Response`.
//!
//! * [`RateLimitLayer`] asks a [`Limiter`](crate::kit::rate::Limiter) about each request. A refusal
//!   is 429 with `Retry-After`, or 503 while the engine is away and the limiter is to shed.
//! * [`IdempotencyLayer`] runs each request once, by its `Idempotency-Key`
//!   ([`Once`](crate::kit::once::Once)). A second request gets the response of the first.
//!
//! Where both are used, the rate limit goes outside: a refusal is then no response to be kept.
//!
//! Neither layer trusts the network: who a caller is says the program, never a default.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, routing::post};
//! use leasehold::kit::rate::{Limit, WhenAway};
//! use leasehold::kit::web::{Counted, IdempotencyLayer, RateLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! let client = leasehold::connect("memory:").await?;
//! // A program that authenticates puts the user into the request and reads that here.
//! let user = |parts: &http::request::Parts| match parts.headers.get("x-user") {
//!     Some(user) => String::from_utf8_lossy(user.as_bytes()).into_owned(),
//!     None => "nobody".to_owned(),
//! };
//! let limiter = client.limiter("orders", Limit::per_second(10), WhenAway::Shed)?;
//! let limit = RateLimitLayer::new(limiter, move |parts| Counted::As(user(parts)));
//! let once = IdempotencyLayer::new(client.once("orders")?, user);
//!
//! // The layer that is added last comes first.
//! let service: Router = Router::new()
//!     .route("/orders", post(|| async { "order 42" }))
//!     .layer(once)
//!     .layer(limit);
//! # Ok(())
//! # }
//! ```

mod fields;
mod idempotency;
mod idempotency_key;
mod problem;
mod rate_limit;
mod stored;

pub use self::fields::Fields;
pub use self::idempotency::{AfterResponse, Idempotency, IdempotencyLayer, MOST_OF_A_REQUEST, REPLAYED};
pub use self::idempotency_key::LONGEST_KEY;
pub use self::rate_limit::{Counted, RateLimit, RateLimitLayer, network};
