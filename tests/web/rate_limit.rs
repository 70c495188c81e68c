//! Rate limits before a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::request::Parts;
use http::{Request, StatusCode};
use leasehold::kit::rate::{Limit, Limiter, WhenAway};
use leasehold::kit::web::{Counted, Fields, RateLimitLayer};

use crate::{Answer, Case, Ground, cases, send, until};

pub(crate) fn cases() -> Vec<Case> {
    cases!([
        a_refused_request_does_not_reach_the_service,
        what_is_not_counted_passes_and_what_costs_too_much_never_does,
        a_leaky_bucket_lets_requests_wait,
        one_layer_inside_another_tells_of_both,
        a_limiter_that_can_not_decide_lets_nothing_pass,
    ])
}

pub(crate) fn outages() -> Vec<Case> {
    cases!([while_the_engine_is_away_each_mode_has_its_answer])
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A service that counts, and the count.
fn service() -> (Router, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let handler = move || async move { format!("{}", counted.fetch_add(1, Ordering::SeqCst) + 1) };
    (Router::new().route("/", get(handler)), count)
}

fn by_user(parts: &Parts) -> Counted {
    let user = parts.headers.get("x-user").map(|user| user.to_str().expect("a name").to_owned());
    let cost =
        parts.headers.get("x-cost").map(|cost| cost.to_str().expect("text").parse().expect("a number"));
    match (user, cost) {
        (None, _) => Counted::Not,
        (Some(user), None) => Counted::As(user),
        (Some(user), Some(cost)) => Counted::Costs(user, cost),
    }
}

fn request(user: &str) -> Request<Body> {
    Request::get("/").header("x-user", user).body(Body::empty()).expect("a request")
}

/// A limiter that waits for a slow machine.
fn limiter(ground: &Ground, limit: Limit) -> Limiter {
    ground.client.limiter("x", limit, WhenAway::Closed).expect("in range").deadline(Duration::from_secs(20))
}

fn seconds(answer: &Answer) -> u64 {
    answer.field("retry-after").expect("a time").parse().expect("whole seconds")
}

async fn a_refused_request_does_not_reach_the_service(ground: Ground) {
    let (service, count) = service();
    let limiter = limiter(&ground, Limit::fixed_window(2, HOUR));
    let service = service.layer(RateLimitLayer::new(limiter, by_user));
    for left in [1, 0] {
        let answer = send(&service, request("ada")).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("ratelimit-policy"), Some("\"x\";q=2;w=3600"));
        let standing = answer.field("ratelimit").expect("known");
        assert!(standing.starts_with(&format!("\"x\";r={left};t=")), "{standing}");
        assert_eq!(answer.field("retry-after"), None);
    }
    // The first refusal is the engine's, the second is remembered; they look alike.
    for _ in 0..2 {
        let answer = send(&service, request("ada")).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        let time = seconds(&answer);
        assert!((1..=3600).contains(&time));
        assert_eq!(answer.field("ratelimit"), Some(format!("\"x\";r=0;t={time}").as_str()));
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        assert!(answer.text().contains("#quota-exceeded"), "{}", answer.text());
        assert!(answer.text().contains("\"violated-policies\":[\"x\"]"), "{}", answer.text());
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!(send(&service, request("bob")).await.status, StatusCode::OK);
}

async fn what_is_not_counted_passes_and_what_costs_too_much_never_does(ground: Ground) {
    let (service, count) = service();
    let limiter = limiter(&ground, Limit::fixed_window(2, HOUR));
    let service = service.layer(RateLimitLayer::new(limiter, by_user));
    let nobody = || Request::get("/").body(Body::empty()).expect("a request");
    for _ in 0..5 {
        let answer = send(&service, nobody()).await;
        assert_eq!((answer.status, answer.field("ratelimit-policy")), (StatusCode::OK, None));
    }
    let costs = |cost: &str| {
        let mut request = request("ada");
        request.headers_mut().insert("x-cost", cost.parse().expect("a value"));
        request
    };
    let answer = send(&service, costs("3")).await;
    assert_eq!((answer.status, answer.field("retry-after")), (StatusCode::FORBIDDEN, None));
    assert_eq!(send(&service, costs("2")).await.status, StatusCode::OK);
    assert_eq!(send(&service, costs("1")).await.status, StatusCode::TOO_MANY_REQUESTS);
    // What costs nothing is not refused, and is told how it stands.
    let answer = send(&service, costs("0")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.field("ratelimit").expect("known").starts_with("\"x\";r=0;"));
    assert_eq!(count.load(Ordering::SeqCst), 7);
}

async fn a_leaky_bucket_lets_requests_wait(ground: Ground) {
    let (service, _) = service();
    let limiter = limiter(&ground, Limit::leaky_bucket(1, Duration::from_millis(300)).queue(1));
    let service = service.layer(RateLimitLayer::new(limiter, by_user));
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(send(&service, request("ada")).await.status, StatusCode::OK);
    }
    assert!(started.elapsed() >= Duration::from_millis(599), "{:?}", started.elapsed());
}

async fn one_layer_inside_another_tells_of_both(ground: Ground) {
    let (service, _) = service();
    let inside = ground.client.limiter("inside", Limit::fixed_window(1, HOUR), WhenAway::Closed);
    let outside = ground.client.limiter("outside", Limit::fixed_window(9, HOUR), WhenAway::Closed);
    let make =
        |limiter: leasehold::Result<Limiter>| limiter.expect("in range").deadline(Duration::from_secs(20));
    let (inside, outside) = (make(inside), make(outside));
    let both = service
        .clone()
        .layer(RateLimitLayer::new(inside.clone(), by_user))
        .layer(RateLimitLayer::new(outside.clone(), by_user));
    let answer = send(&both, request("ada")).await;
    let policies: Vec<_> = answer.headers.get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, ["\"inside\";q=1;w=3600", "\"outside\";q=9;w=3600"]);
    // The one that has refused speaks where there is room for one.
    let legacy = |limiter| RateLimitLayer::new(limiter, by_user).fields(Fields::Legacy);
    let both = service.layer(legacy(inside)).layer(legacy(outside));
    let answer = send(&both, request("ada")).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("x-ratelimit-limit"), Some("1"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
}

async fn a_limiter_that_can_not_decide_lets_nothing_pass(ground: Ground) {
    let (service, count) = service();
    let limiter = limiter(&ground, Limit::per_second(100));
    let service = service.layer(RateLimitLayer::new(limiter, by_user));
    assert_eq!(send(&service, request(&"x".repeat(5000))).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    ground.client.close().await.expect("closed");
    assert_eq!(send(&service, request("ada")).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

async fn while_the_engine_is_away_each_mode_has_its_answer(ground: Ground) {
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    for (mode, passes, otherwise) in [
        (WhenAway::Open, 6, StatusCode::OK),
        (WhenAway::Closed, 0, too_many),
        (WhenAway::Shed, 0, StatusCode::SERVICE_UNAVAILABLE),
        (WhenAway::LocalShare { nodes: 2 }, 2, too_many),
    ] {
        let (service, count) = service();
        let name = format!("{mode:?}");
        let limiter = ground.client.limiter(&name, Limit::fixed_window(4, HOUR), mode).expect("in range");
        let limiter = limiter.deadline(Duration::from_millis(500));
        let service = service.layer(RateLimitLayer::new(limiter, by_user));
        until(async || send(&service, request("warm")).await.field("ratelimit").is_some()).await;
        let before = count.load(Ordering::SeqCst);
        ground.server().pause();
        for number in 0..6 {
            let answer = send(&service, request("ada")).await;
            let expected = if number < passes { StatusCode::OK } else { otherwise };
            assert_eq!(answer.status, expected, "{mode:?}, request {number}");
            assert_eq!(answer.field("ratelimit"), None, "{mode:?}: nobody knows how it stands");
            assert!(answer.field("ratelimit-policy").is_some());
            assert_eq!(answer.field("retry-after").is_some(), expected != StatusCode::OK, "{mode:?}");
        }
        assert_eq!(count.load(Ordering::SeqCst) - before, passes, "{mode:?}");
        ground.server().resume();
        // Each time another key, so that none is used up.
        let mut number = 0;
        until(async || {
            number += 1;
            send(&service, request(&format!("back{number}"))).await.field("ratelimit").is_some()
        })
        .await;
    }
}
