//! The store of `tower-sessions` behind a real service.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::{Request, StatusCode};
use leasehold::kit::sessions::TowerStore;
use std::time::Duration;
use tower_sessions::cookie::time::Duration as CookieDuration;
use tower_sessions::{Expiry, Session, SessionManagerLayer};

use crate::{Answer, Case, Ground, cases, send, until};

pub(crate) fn cases() -> Vec<Case> {
    cases!([
        a_session_goes_on_from_request_to_request,
        a_session_that_is_not_used_ends,
        signing_in_changes_the_cookie,
        all_sessions_of_a_user_end_together,
        a_request_that_runs_while_the_session_ends_does_not_bring_it_back,
        signing_out_takes_it_from_the_list,
    ])
}

pub(crate) fn outages() -> Vec<Case> {
    cases!([nobody_is_signed_in_while_the_engine_is_away])
}

fn store(ground: &Ground) -> TowerStore {
    TowerStore::new(ground.client.sessions("web").expect("a name")).user_in("user")
}

/// The service: `/count` counts in the session, `/in/NAME` signs in, `/out` signs out, `/who` tells
/// who is signed in, and `/slow` ends all sessions of its own user before it saves something.
fn service(store: &TowerStore, expiry: CookieDuration) -> Router {
    let ender = store.clone();
    let count = |session: Session| async move {
        let count = session.get::<u32>("count").await.expect("a session").unwrap_or(0) + 1;
        session.insert("count", count).await.expect("a session");
        count.to_string()
    };
    let sign_in = |Path(name): Path<String>, session: Session| async move {
        session.cycle_id().await.expect("a session");
        session.insert("user", name).await.expect("a session");
    };
    let sign_out = |session: Session| async move { session.flush().await.expect("a session") };
    let who = |session: Session| async move {
        match session.get::<String>("user").await {
            Ok(user) => user.unwrap_or_else(|| "nobody".to_owned()).into_response(),
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    };
    let slow = move |session: Session| async move {
        let user = session.get::<String>("user").await.expect("a session").expect("signed in");
        session.insert("late", true).await.expect("a session");
        ender.end_all(user).await.expect("an answer").to_string()
    };
    let layer = SessionManagerLayer::new(store.clone())
        .with_secure(false)
        .with_always_save(true)
        .with_expiry(Expiry::OnInactivity(expiry));
    Router::new()
        .route("/count", get(count))
        .route("/in/{name}", get(sign_in))
        .route("/out", get(sign_out))
        .route("/who", get(who))
        .route("/slow", get(slow))
        .layer(layer)
}

/// A browser: it sends the cookie that it was given last.
struct Browser {
    service: Router,
    cookie: Option<String>,
}

impl Browser {
    fn new(service: &Router) -> Browser {
        Browser { service: service.clone(), cookie: None }
    }

    async fn get(&mut self, path: &str) -> Answer {
        let mut request = Request::get(path);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        let answer = send(&self.service, request.body(Body::empty()).expect("a request")).await;
        if let Some(set) = answer.field("set-cookie") {
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        answer
    }

    async fn text(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.text()
    }
}

async fn listed(store: &TowerStore, user: &str) -> usize {
    store.sessions().list(user).await.expect("a list").len()
}

async fn a_session_goes_on_from_request_to_request(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let (mut one, mut two) = (Browser::new(&service), Browser::new(&service));
    for count in 1..=3 {
        assert_eq!(one.text("/count").await, count.to_string());
    }
    assert_eq!(two.text("/count").await, "1");
    assert_eq!(one.text("/count").await, "4");
    let mut guesses = Browser::new(&service);
    guesses.cookie = Some(format!("id={}", "A".repeat(22)));
    assert_eq!(guesses.text("/count").await, "1");
}

async fn a_session_that_is_not_used_ends(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::seconds(2));
    let mut browser = Browser::new(&service);
    browser.text("/in/ada").await;
    // Used again and again for longer than its lifetime.
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(3500) {
        assert_eq!(browser.text("/who").await, "ada", "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(listed(&store, "ada").await, 1);
    until(async || listed(&store, "ada").await == 0).await;
    assert_eq!(browser.text("/who").await, "nobody");
}

async fn signing_in_changes_the_cookie(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let mut browser = Browser::new(&service);
    browser.text("/count").await;
    let mut thief = Browser { service: service.clone(), cookie: browser.cookie.clone() };
    browser.text("/in/ada").await;
    assert_ne!(browser.cookie, thief.cookie);
    assert_eq!((browser.text("/who").await, browser.text("/count").await), ("ada".into(), "2".into()));
    assert_eq!(thief.text("/who").await, "nobody");
    // Another user in the same session is listed under the new name alone.
    browser.text("/in/bob").await;
    assert_eq!((listed(&store, "ada").await, listed(&store, "bob").await), (0, 1));
}

async fn all_sessions_of_a_user_end_together(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let mut browsers = [(); 20].map(|()| Browser::new(&service));
    for browser in &mut browsers {
        browser.text("/in/ada").await;
    }
    let mut other = Browser::new(&service);
    other.text("/in/bob").await;
    assert_eq!(listed(&store, "ada").await, 20);
    assert_eq!(store.end_all("ada").await.expect("an answer"), 20);
    for browser in &mut browsers {
        let mut replayed = Browser { service: service.clone(), cookie: browser.cookie.clone() };
        assert_eq!(replayed.text("/who").await, "nobody");
    }
    assert_eq!((other.text("/who").await, listed(&store, "ada").await), ("bob".into(), 0));
}

async fn a_request_that_runs_while_the_session_ends_does_not_bring_it_back(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let mut browser = Browser::new(&service);
    browser.text("/in/ada").await;
    let before = browser.cookie.clone();
    assert_eq!(browser.text("/slow").await, "1");
    for cookie in [before, browser.cookie.clone()] {
        let mut replayed = Browser { service: service.clone(), cookie };
        assert_eq!(replayed.text("/who").await, "nobody");
    }
    assert_eq!(listed(&store, "ada").await, 0);
}

async fn signing_out_takes_it_from_the_list(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let mut browser = Browser::new(&service);
    browser.text("/in/ada").await;
    assert_eq!(listed(&store, "ada").await, 1);
    let before = browser.cookie.clone();
    browser.text("/out").await;
    assert_eq!(listed(&store, "ada").await, 0);
    assert_eq!(Browser { service, cookie: before }.text("/who").await, "nobody");
}

async fn nobody_is_signed_in_while_the_engine_is_away(ground: Ground) {
    let store = store(&ground);
    let service = service(&store, CookieDuration::hours(1));
    let mut browser = Browser::new(&service);
    browser.text("/in/ada").await;
    ground.server().pause();
    let status = browser.get("/who").await.status;
    ground.server().resume();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    until(async || browser.get("/who").await.text() == "ada").await;
}
