//! The layers of `kit::web` in a real axum service, on an engine inside the process and on a Redis
//! server that goes away.

mod idempotency;
mod rate_limit;
#[path = "../servers/mod.rs"]
mod servers;
#[cfg(feature = "tower-sessions")]
mod sessions;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Request, StatusCode};
use leasehold::Client;
use libtest_mimic::{Arguments, Failed, Trial};
use servers::Redis;
use tower_service::Service as _;

/// No case takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// A case that runs.
type Running = Pin<Box<dyn Future<Output = ()>>>;
/// A case by its name.
type Case = (&'static str, fn(Ground) -> Running);

/// The cases of a module, named as they are.
macro_rules! cases {
    ([$($case:ident),* $(,)?]) => {
        vec![$((
            stringify!($case),
            (|ground: crate::Ground| -> crate::Running { Box::pin($case(ground)) })
                as fn(crate::Ground) -> crate::Running,
        )),*]
    };
}
use cases;

/// What a case is given.
struct Ground {
    client: Client,
    /// `None` if the engine is inside the process.
    server: Option<Redis>,
}

impl Ground {
    async fn start(on_redis: bool) -> Ground {
        let server = on_redis.then(Redis::start);
        let url = server.as_ref().map_or("memory:".to_owned(), Redis::url);
        let client = leasehold::connect(&url).await.expect("the engine is there");
        Ground { client, server }
    }

    /// The server, for cases in which it goes away.
    fn server(&self) -> &Redis {
        self.server.as_ref().expect("such cases run on a server")
    }
}

fn main() -> ExitCode {
    let missing = Redis::missing();
    if let Some(missing) = &missing {
        eprintln!("web: {missing} is missing; `./test.sh` installs it");
    }
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    let mut trials = Vec::new();
    let cases = [
        rate_limit::cases(),
        idempotency::cases(),
        #[cfg(feature = "tower-sessions")]
        sessions::cases(),
    ];
    for (name, case) in cases.concat() {
        trials.push(Trial::test(format!("memory::{name}"), move || run(false, case)));
        trials
            .push(Trial::test(format!("redis::{name}"), move || run(true, case)).with_ignored_flag(ignored));
    }
    let outages = [
        rate_limit::outages(),
        idempotency::outages(),
        #[cfg(feature = "tower-sessions")]
        sessions::outages(),
    ];
    for (name, case) in outages.concat() {
        trials
            .push(Trial::test(format!("redis::{name}"), move || run(true, case)).with_ignored_flag(ignored));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(on_redis: bool, case: fn(Ground) -> Running) -> Result<(), Failed> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let limited =
        async { tokio::time::timeout(LIMIT, async { case(Ground::start(on_redis).await).await }).await };
    runtime.block_on(limited).map_err(|_| Failed::from("the case takes too long"))
}

/// A response that was read.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// A field, if there is one.
    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("printable"))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request to a service.
async fn send(service: &Router, request: Request<Body>) -> Answer {
    let Ok(response) = service.clone().call(request).await;
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    Answer { status: parts.status, headers: parts.headers, body: body.to_vec() }
}

/// Waits until something is so; the limit is that of the case.
async fn until(mut so: impl AsyncFnMut() -> bool) {
    while !so().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
