//! A layer that runs each request once, by its key.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_layer::Layer;
use tower_service::Service;

use super::idempotency_key;
use super::problem::Problem;
use super::stored::Stored;
use crate::error::Error;
use crate::kit::once::{Ending, LONGEST_RESULT, Once, Submission};

/// The largest request body that is taken by a layer that does not say, in bytes.
pub const MOST_OF_A_REQUEST: usize = 1024 * 1024;
/// The field of a response that was given before: `Idempotent-Replayed: true`.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// When to come back for a response that is in progress.
const SOON: Duration = Duration::from_secs(1);

/// What becomes of the key after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterResponse {
    /// The response is kept, and given to all who send the request again.
    Keep,
    /// The request had no effect: it can be sent again, and is then run.
    Forget,
    /// It may have had an effect or not: it is not run again, and whoever sends it again is
    /// told so.
    Unknown,
}

/// Runs each request once, by its `Idempotency-Key`. See [`crate::kit::web`] for an example.
///
/// The first request with a key runs, also to its end if its caller hangs up. Its response is kept
/// for as long as the [`Once`] says ([`Once::kept_for`]) and is given to all who send the request
/// again, byte for byte, with `Idempotent-Replayed: true`. Others are answered without running it:
///
/// | | |
/// | --- | --- |
/// | no key, or one that is not valid | 400 |
/// | the first is still in progress | 409 with `Retry-After`, or its response if the `Once` waits ([`Once::if_running`]) |
/// | the key was used with another query or body | 422 |
/// | the first fell silent: it has had its effect or not | 409 without `Retry-After` |
/// | the first had a response too large to be kept | 410 |
/// | the body is larger than [`IdempotencyLayer::largest_request`] | 413 |
/// | the engine is away | 503 with `Retry-After`; nothing is run |
///
/// A key belongs to a caller, a method and a path. Bodies are read whole, so what streams does not
/// belong behind this layer; trailers are not kept. Fields of a response go into the store with its
/// body, cookies too.
#[derive(Clone)]
pub struct IdempotencyLayer<C> {
    settings: Arc<Settings<C>>,
}

struct Settings<C> {
    once: Once,
    caller: C,
    methods: Vec<Method>,
    required: bool,
    largest: usize,
    after: fn(StatusCode) -> AfterResponse,
}

impl<C> IdempotencyLayer<C>
where
    C: Fn(&Parts) -> String,
{
    /// A layer that keeps its records in `once`. Two callers may choose the same key, and one must
    /// not get the response of the other: `caller` says whose request it is, by what the program
    /// has checked. If there is only one, it is always the same text.
    pub fn new(once: Once, caller: C) -> IdempotencyLayer<C> {
        let methods = vec![Method::POST, Method::PATCH];
        let (required, largest, after) = (true, MOST_OF_A_REQUEST, after_response as fn(_) -> _);
        let settings = Settings { once, caller, methods, required, largest, after };
        IdempotencyLayer { settings: Arc::new(settings) }
    }
}

impl<C: Clone> IdempotencyLayer<C> {
    fn with(self, change: impl FnOnce(&mut Settings<C>)) -> IdempotencyLayer<C> {
        let mut settings = Arc::unwrap_or_clone(self.settings);
        change(&mut settings);
        IdempotencyLayer { settings: Arc::new(settings) }
    }

    /// The methods whose requests have keys: POST and PATCH by default. Others pass.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> IdempotencyLayer<C> {
        self.with(|settings| settings.methods = methods.into_iter().collect())
    }

    /// Lets requests without a key pass. They run each time.
    #[must_use]
    pub fn optional(self) -> IdempotencyLayer<C> {
        self.with(|settings| settings.required = false)
    }

    /// The largest request body that is taken, in bytes: [`MOST_OF_A_REQUEST`] by default. It is
    /// read into memory to be compared.
    #[must_use]
    pub fn largest_request(self, bytes: usize) -> IdempotencyLayer<C> {
        self.with(|settings| settings.largest = bytes)
    }

    /// What becomes of the key after a response with a status.
    ///
    /// By default every response is kept, also those of 5xx, which may have had an effect; only 429
    /// is forgotten. A service that is sure that its 503 has no effect forgets it, and one whose
    /// 5xx must be looked at by somebody says [`AfterResponse::Unknown`]. If the service gives no
    /// response but an error, that is always unknown.
    #[must_use]
    pub fn after_response(self, decide: fn(StatusCode) -> AfterResponse) -> IdempotencyLayer<C> {
        self.with(|settings| settings.after = decide)
    }
}

fn after_response(status: StatusCode) -> AfterResponse {
    match status {
        StatusCode::TOO_MANY_REQUESTS => AfterResponse::Forget,
        _ => AfterResponse::Keep,
    }
}

impl<C: Clone> Clone for Settings<C> {
    fn clone(&self) -> Settings<C> {
        let Settings { once, caller, methods, required, largest, after } = self;
        Settings {
            once: once.clone(),
            caller: caller.clone(),
            methods: methods.clone(),
            required: *required,
            largest: *largest,
            after: *after,
        }
    }
}

impl<C> fmt::Debug for IdempotencyLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("methods", &self.settings.methods).finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for IdempotencyLayer<C> {
    type Service = Idempotency<S, C>;

    fn layer(&self, inner: S) -> Idempotency<S, C> {
        Idempotency { inner, settings: Arc::clone(&self.settings) }
    }
}

/// A service behind an [`IdempotencyLayer`].
pub struct Idempotency<S, C> {
    inner: S,
    settings: Arc<Settings<C>>,
}

impl<S: Clone, C> Clone for Idempotency<S, C> {
    fn clone(&self) -> Idempotency<S, C> {
        Idempotency { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Idempotency<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, C, B, R> Service<Request<B>> for Idempotency<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    C: Fn(&Parts) -> String + Send + Sync + 'static,
    B: Body<Data: Send> + From<Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body<Data: Send> + From<Bytes> + Send + 'static,
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
        let settings = Arc::clone(&self.settings);
        if !settings.methods.contains(request.method()) {
            return Box::pin(inner.call(request));
        }
        let key = match idempotency_key::key(request.headers()) {
            Ok(Some(key)) => key,
            Ok(None) if settings.required => {
                return refused(
                    StatusCode::BAD_REQUEST,
                    "Idempotency-Key is missing",
                    "this resource needs one",
                );
            }
            Ok(None) => return Box::pin(inner.call(request)),
            Err(why) => return refused(StatusCode::BAD_REQUEST, "Idempotency-Key is not valid", why),
        };
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match Limited::new(body, settings.largest).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) if error.is::<LengthLimitError>() => {
                    let detail = format!("at most {} bytes are taken here", settings.largest);
                    let title = "The request is too large";
                    return Ok(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, title, detail).response());
                }
                Err(_) => {
                    let title = "The request can not be read";
                    return Ok(
                        Problem::new(StatusCode::BAD_REQUEST, title, "its body ended early").response()
                    );
                }
            };
            let name = name(&(settings.caller)(&parts), &parts, &key);
            let payload = payload(&parts, &body);
            let request = Request::from_parts(parts, B::from(body));
            // A task of its own: a caller that hangs up must not leave something half done that
            // nobody knows the end of.
            let run = async move { run(&settings, inner, &name, &payload, request).await };
            match tokio::spawn(run).await {
                Ok(response) => response,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is being shut down.
                    Err(_) => Ok(unknown("the server is going down").response()),
                },
            }
        })
    }
}

type Answer<R, E> = Pin<Box<dyn Future<Output = Result<Response<R>, E>> + Send>>;

fn refused<R, E>(status: StatusCode, title: &'static str, detail: &'static str) -> Answer<R, E>
where
    R: From<Bytes> + Send + 'static,
{
    Box::pin(async move { Ok(Problem::new(status, title, detail).response()) })
}

/// The key of the record. The caller and the path have no spaces here, so no two are the same.
fn name(caller: &str, parts: &Parts, key: &str) -> String {
    let caller = caller.replace('%', "%25").replace(' ', "%20");
    format!("{caller} {} {} {key}", parts.method, parts.uri.path())
}

/// What must be the same when a request is sent again.
fn payload(parts: &Parts, body: &[u8]) -> Vec<u8> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    [&query.len().to_be_bytes(), query, body].concat()
}

fn unknown(detail: &'static str) -> Problem<'static> {
    Problem::new(StatusCode::CONFLICT, "The outcome of the request is unknown", detail)
}

/// Runs a request, or says what became of it before.
async fn run<S, C, B, R>(
    settings: &Settings<C>,
    mut inner: S,
    name: &str,
    payload: &[u8],
    request: Request<B>,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body + From<Bytes>,
{
    // What the first caller gets, also if it is more than can be kept.
    let mut first = None;
    let effect = async |_| {
        let response = match inner.call(request).await {
            Ok(response) => response,
            Err(error) => return Ending::Unknown(Err(error)),
        };
        let after = (settings.after)(response.status());
        if after == AfterResponse::Forget {
            return Ending::Forget(Ok(response));
        }
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            let detail = "it has run, and its response could not be read";
            return Ending::Unknown(Ok(unknown(detail).response()));
        };
        let body = body.to_bytes();
        let (status, headers) = (parts.status, parts.headers.clone());
        let stored = Stored::Response { status, headers, body: body.clone() }.encode();
        let response = Response::from_parts(parts, R::from(body));
        if after == AfterResponse::Unknown {
            return Ending::Unknown(Ok(response));
        }
        first = Some(response);
        Ending::Keep(if stored.len() > LONGEST_RESULT { Stored::TooLarge.encode() } else { stored })
    };
    let submission = settings.once.run_to_ending(name, payload, effect).await;
    Ok(match submission {
        Ok(Submission::Done { result, recorded, .. }) => {
            if !recorded {
                tracing::warn!(key = name, "a request has run, and that could not be recorded");
            }
            first.unwrap_or_else(|| again(result))
        }
        Ok(Submission::Failed(response)) => response?,
        Ok(Submission::InProgress { .. }) => {
            let title = "A request is outstanding for this Idempotency-Key";
            let problem = Problem::new(StatusCode::CONFLICT, title, "ask again for its response");
            problem.retry_after(SOON).response()
        }
        Ok(Submission::Mismatch) => {
            let title = "Idempotency-Key is already used";
            let detail = "the key was sent with another query or body";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, title, detail).response()
        }
        Ok(Submission::Unknown { .. }) => unknown("it was begun, and nobody knows how it ended").response(),
        Err(Error::Lost { .. }) => unknown("it was stopped because its lease was lost").response(),
        Err(error) => {
            tracing::warn!(%error, key = name, "a request with an idempotency key was not run");
            let (status, title) = match error {
                Error::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "Keys can not be looked up"),
                Error::Invalid { .. } => (StatusCode::BAD_REQUEST, "Idempotency-Key can not be used here"),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "Keys can not be looked up"),
            };
            let problem = Problem::new(status, title, "the request was not run");
            match status {
                StatusCode::SERVICE_UNAVAILABLE => problem.retry_after(SOON).response(),
                _ => problem.response(),
            }
        }
    })
}

/// A response from its record.
fn again<R: From<Bytes>>(result: Vec<u8>) -> Response<R> {
    let Some(stored) = Stored::decode(result) else {
        let title = "The record of this Idempotency-Key is not a response";
        return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, title, "the request was run before")
            .response();
    };
    let mut response = stored.response().unwrap_or_else(|| {
        let title = "The request was run, and its response was too large to be kept";
        Problem::new(StatusCode::GONE, title, "it is not run again").response()
    });
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
