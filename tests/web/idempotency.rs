//! Idempotency keys before a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Path;
use axum::response::{AppendHeaders, IntoResponse as _};
use axum::routing::post;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use leasehold::kit::once::{IfRunning, LONGEST_RESULT, Once};
use leasehold::kit::web::{AfterResponse, IdempotencyLayer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::{Answer, Case, Ground, cases, send, until};

pub(crate) fn cases() -> Vec<Case> {
    cases!([
        a_second_request_gets_the_first_response_byte_for_byte,
        a_key_is_needed_and_must_be_valid,
        the_same_key_with_something_else_is_refused,
        callers_and_paths_are_apart,
        a_request_in_progress_is_told_of_or_waited_for,
        a_caller_that_hangs_up_does_not_stop_its_request,
        the_status_says_what_becomes_of_the_key,
        what_is_too_large_is_refused_or_not_kept,
        a_handler_that_panics_leaves_the_request_unknown,
        a_service_that_gives_no_response_leaves_the_request_unknown,
    ])
}

pub(crate) fn outages() -> Vec<Case> {
    cases!([nothing_runs_while_the_engine_is_away])
}

/// What the service does, and how often it did it.
#[derive(Clone)]
struct Shop {
    count: Arc<AtomicU32>,
    /// Lets one slow order after the other go on.
    slow: Arc<Semaphore>,
}

impl Shop {
    fn new() -> Shop {
        Shop { count: Arc::new(AtomicU32::new(0)), slow: Arc::new(Semaphore::new(0)) }
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// The service: `/orders/ok`, `/orders/slow`, `/orders/panic`, and a path for each status.
    fn service(&self) -> Router {
        let shop = self.clone();
        let order = move |Path(what): Path<String>, body: Bytes| async move {
            let number = shop.count.fetch_add(1, Ordering::SeqCst) + 1;
            match what.as_str() {
                "slow" => shop.slow.acquire().await.expect("open").forget(),
                "panic" => panic!("as it was asked to"),
                "large" => return "x".repeat(LONGEST_RESULT).into_response(),
                _ => {}
            }
            let status =
                what.parse().map_or(StatusCode::CREATED, |code| StatusCode::from_u16(code).expect("one"));
            let cookies = AppendHeaders([("set-cookie", "a=1"), ("set-cookie", "b=2")]);
            let body = [format!("order {number} of ").as_bytes(), &body, b"\0\xff"].concat();
            (status, cookies, body).into_response()
        };
        Router::new().route("/orders/{what}", post(order.clone()).get(order))
    }
}

fn once(ground: &Ground) -> Once {
    ground.client.once("orders").expect("a name")
}

fn caller(parts: &Parts) -> String {
    parts.headers.get("x-user").map(|user| user.to_str().expect("a name").to_owned()).unwrap_or_default()
}

fn request(path: &str, key: &str, body: &'static str) -> Request<Body> {
    Request::post(path).header("idempotency-key", key).body(Body::from(body)).expect("a request")
}

/// The problem that a refusal tells of.
fn refused(answer: &Answer, status: StatusCode, what: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.field("content-type"), Some("application/problem+json"));
    assert!(answer.text().contains(what), "{}", answer.text());
}

async fn a_second_request_gets_the_first_response_byte_for_byte(ground: Ground) {
    let shop = Shop::new();
    let service = shop.service().layer(IdempotencyLayer::new(once(&ground), caller));
    let first = send(&service, request("/orders/ok", "k", "apples")).await;
    assert_eq!((first.status, &first.body[..]), (StatusCode::CREATED, &b"order 1 of apples\0\xff"[..]));
    assert_eq!(first.field("idempotent-replayed"), None);
    // In quotes it is the same key.
    for key in ["k", "\"k\""] {
        let mut again = send(&service, request("/orders/ok", key, "apples")).await;
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        again.headers.remove("idempotent-replayed");
        assert_eq!(
            (again.status, again.headers, again.body),
            (first.status, first.headers.clone(), first.body.clone())
        );
    }
    assert_eq!(shop.count(), 1);
    assert_eq!(send(&service, request("/orders/ok", "l", "apples")).await.field("idempotent-replayed"), None);
}

async fn a_key_is_needed_and_must_be_valid(ground: Ground) {
    let shop = Shop::new();
    let layer = IdempotencyLayer::new(once(&ground), caller);
    let service = shop.service().layer(layer.clone());
    let without = |method: Method| {
        Request::builder().method(method).uri("/orders/ok").body(Body::empty()).expect("a request")
    };
    refused(&send(&service, without(Method::POST)).await, StatusCode::BAD_REQUEST, "is missing");
    refused(&send(&service, request("/orders/ok", "a b", "")).await, StatusCode::BAD_REQUEST, "not valid");
    assert_eq!(shop.count(), 0);
    // A method that changes nothing needs none.
    assert_eq!(send(&service, without(Method::GET)).await.status, StatusCode::CREATED);
    let service = shop.service().layer(layer.clone().optional());
    assert_eq!(send(&service, without(Method::POST)).await.status, StatusCode::CREATED);
    let service = shop.service().layer(layer.methods([Method::GET]));
    refused(&send(&service, without(Method::GET)).await, StatusCode::BAD_REQUEST, "is missing");
    assert_eq!(shop.count(), 2);
}

async fn the_same_key_with_something_else_is_refused(ground: Ground) {
    let shop = Shop::new();
    let service = shop.service().layer(IdempotencyLayer::new(once(&ground), caller));
    send(&service, request("/orders/ok?a=1", "k", "apples")).await;
    for (path, body) in
        [("/orders/ok?a=1", "pears"), ("/orders/ok?a=2", "apples"), ("/orders/ok?a=", "1apples")]
    {
        let answer = send(&service, request(path, "k", body)).await;
        refused(&answer, StatusCode::UNPROCESSABLE_ENTITY, "already used");
    }
    assert_eq!(shop.count(), 1);
}

async fn callers_and_paths_are_apart(ground: Ground) {
    let shop = Shop::new();
    let service = shop.service().layer(IdempotencyLayer::new(once(&ground), caller));
    let by = |user: &str, path: &str, key: &str| {
        let mut request = request(path, key, "apples");
        request.headers_mut().insert("x-user", user.parse().expect("a value"));
        request
    };
    let requests = [
        ("ada", "/orders/ok", "k"),
        ("bob", "/orders/ok", "k"),
        ("ada", "/orders/200", "k"),
        // The name of the first, put together in another way.
        ("ada POST /orders/ok", "/orders/ok", "k"),
        ("ada", "/orders/ok", "\"POST /orders/ok k\""),
    ];
    for (user, path, key) in requests {
        let answer = send(&service, by(user, path, key)).await;
        assert_eq!(answer.field("idempotent-replayed"), None, "{user} {path} {key}");
    }
    assert_eq!(shop.count(), 5);
}

async fn a_request_in_progress_is_told_of_or_waited_for(ground: Ground) {
    let shop = Shop::new();
    let service = shop.service().layer(IdempotencyLayer::new(once(&ground), caller));
    let patient = once(&ground).if_running(IfRunning::Wait(Duration::from_secs(50)));
    let patient = shop.service().layer(IdempotencyLayer::new(patient, caller));
    let slow = || request("/orders/slow", "k", "apples");
    let (one, two) = (service.clone(), patient.clone());
    let first = tokio::spawn(async move { send(&one, slow()).await });
    until(async || shop.count() == 1).await;
    let answer = send(&service, slow()).await;
    refused(&answer, StatusCode::CONFLICT, "outstanding");
    assert_eq!(answer.field("retry-after"), Some("1"));
    let waiting = tokio::spawn(async move { send(&two, slow()).await });
    shop.slow.add_permits(1);
    let (first, waiting) = (first.await.expect("no panic"), waiting.await.expect("no panic"));
    assert_eq!((first.status, &first.body), (StatusCode::CREATED, &waiting.body));
    assert_eq!(waiting.field("idempotent-replayed"), Some("true"));
    assert_eq!(shop.count(), 1);
}

async fn a_caller_that_hangs_up_does_not_stop_its_request(ground: Ground) {
    let shop = Shop::new();
    let service = shop.service().layer(IdempotencyLayer::new(once(&ground), caller));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(axum::serve(listener, service.clone()).into_future());
    const REQUEST: &[u8] = b"POST /orders/slow HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\n\
        connection: close\r\ncontent-length: 6\r\n\r\napples";
    let mut line = TcpStream::connect(address).await.expect("it listens");
    line.write_all(REQUEST).await.expect("sent");
    until(async || shop.count() == 1).await;
    drop(line);
    shop.slow.add_permits(1);
    // It is done, and its response is kept for whoever asks again.
    let again = || request("/orders/slow", "k", "apples");
    until(async || send(&service, again()).await.status == StatusCode::CREATED).await;
    let mut line = TcpStream::connect(address).await.expect("it listens");
    line.write_all(REQUEST).await.expect("sent");
    let mut response = Vec::new();
    line.read_to_end(&mut response).await.expect("a response");
    let text = String::from_utf8_lossy(&response).to_lowercase();
    assert!(text.starts_with("http/1.1 201") && text.contains("\r\nidempotent-replayed: true\r\n"), "{text}");
    assert!(response.ends_with(b"\r\n\r\norder 1 of apples\0\xff"), "{text}");
    assert_eq!(shop.count(), 1);
    server.abort();
}

async fn the_status_says_what_becomes_of_the_key(ground: Ground) {
    let shop = Shop::new();
    let lease = Duration::from_millis(400);
    let layer = IdempotencyLayer::new(once(&ground).lease(lease), caller);
    let service = shop.service().layer(layer.clone());
    let status = |code: u16| StatusCode::from_u16(code).expect("one");
    for (code, replayed) in [(400, true), (500, true), (503, true), (429, false)] {
        for again in [false, true] {
            let answer = send(&service, request(&format!("/orders/{code}"), "k", "")).await;
            assert_eq!(answer.status, status(code));
            assert_eq!(answer.field("idempotent-replayed").is_some(), again && replayed, "{code}");
        }
    }
    assert_eq!(shop.count(), 5);
    let service = shop.service().layer(layer.after_response(|status| match status.as_u16() {
        503 => AfterResponse::Forget,
        500.. => AfterResponse::Unknown,
        _ => AfterResponse::Keep,
    }));
    for _ in 0..2 {
        assert_eq!(send(&service, request("/orders/503", "l", "")).await.field("idempotent-replayed"), None);
    }
    let first = send(&service, request("/orders/500", "l", "")).await;
    assert!(first.text().starts_with("order"), "the first caller sees what happened");
    let count = shop.count();
    until(async || {
        let answer = send(&service, request("/orders/500", "l", "")).await;
        // Until the lease ends it seems to be in progress.
        refused(&answer, StatusCode::CONFLICT, "");
        answer.text().contains("is unknown") && answer.field("retry-after").is_none()
    })
    .await;
    assert_eq!(shop.count(), count, "nobody has run it again");
}

async fn what_is_too_large_is_refused_or_not_kept(ground: Ground) {
    let shop = Shop::new();
    let layer = IdempotencyLayer::new(once(&ground), caller).largest_request(6);
    let service = shop.service().layer(layer);
    let answer = send(&service, request("/orders/ok", "k", "apples!")).await;
    refused(&answer, StatusCode::PAYLOAD_TOO_LARGE, "at most 6 bytes");
    assert_eq!(shop.count(), 0);
    assert_eq!(send(&service, request("/orders/ok", "k", "apples")).await.status, StatusCode::CREATED);
    let first = send(&service, request("/orders/large", "l", "")).await;
    assert_eq!((first.status, first.body.len()), (StatusCode::OK, LONGEST_RESULT));
    let again = send(&service, request("/orders/large", "l", "")).await;
    refused(&again, StatusCode::GONE, "too large to be kept");
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
    assert_eq!(shop.count(), 2);
}

async fn a_handler_that_panics_leaves_the_request_unknown(ground: Ground) {
    let shop = Shop::new();
    let once = once(&ground).lease(Duration::from_millis(400));
    let service = shop.service().layer(IdempotencyLayer::new(once, caller));
    let panics = || request("/orders/panic", "k", "");
    let first = service.clone();
    let first = tokio::spawn(async move { send(&first, panics()).await }).await;
    assert!(first.expect_err("it panics").is_panic());
    until(async || send(&service, panics()).await.text().contains("is unknown")).await;
    assert_eq!(shop.count(), 1);
}

/// A service whose backend hangs up.
#[derive(Clone, Default)]
struct HangsUp(Arc<AtomicU32>);

impl Service<Request<Body>> for HangsUp {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Response<Body>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Err(std::io::ErrorKind::BrokenPipe.into()))
    }
}

async fn a_service_that_gives_no_response_leaves_the_request_unknown(ground: Ground) {
    let backend = HangsUp::default();
    let once = once(&ground).lease(Duration::from_millis(400));
    let mut service = IdempotencyLayer::new(once, caller).layer(backend.clone());
    let order = || request("/orders/ok", "k", "apples");
    let error = service.call(order()).await.expect_err("its backend hangs up");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    until(async || {
        let answer = service.clone().call(order()).await.expect("a response");
        let told = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        String::from_utf8_lossy(&told).contains("is unknown")
    })
    .await;
    assert_eq!(backend.0.load(Ordering::SeqCst), 1);
}

async fn nothing_runs_while_the_engine_is_away(ground: Ground) {
    let shop = Shop::new();
    let options = leasehold::Options::new().call_limit(Duration::from_millis(500));
    let client = leasehold::connect_with(&ground.server().url(), options).await.expect("it is there");
    let once = client.once("orders").expect("a name");
    let service = shop.service().layer(IdempotencyLayer::new(once, caller));
    ground.server().pause();
    let answer = send(&service, request("/orders/ok", "k", "apples")).await;
    refused(&answer, StatusCode::SERVICE_UNAVAILABLE, "was not run");
    assert_eq!((answer.field("retry-after"), shop.count()), (Some("1"), 0));
    ground.server().resume();
    // What was on its way may have begun a run that never was; another key is free.
    until(async || send(&service, request("/orders/ok", "l", "apples")).await.status == StatusCode::CREATED)
        .await;
    assert_eq!(shop.count(), 1);
}
