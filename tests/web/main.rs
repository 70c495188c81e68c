//! The layers of `kit::web` in a real axum service, on an engine inside the process and on a Redis
//! server that goes away; and its sessions, also on `file:` and in a database.

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

/// Where a case runs.
#[derive(Clone, Copy)]
enum On {
    Memory,
    Redis,
    #[cfg(all(feature = "file", feature = "tower-sessions"))]
    File,
    #[cfg(all(feature = "postgres", feature = "tower-sessions"))]
    Postgres,
}

impl On {
    fn word(self) -> &'static str {
        match self {
            On::Memory => "memory",
            On::Redis => "redis",
            #[cfg(all(feature = "file", feature = "tower-sessions"))]
            On::File => "file",
            #[cfg(all(feature = "postgres", feature = "tower-sessions"))]
            On::Postgres => "postgres",
        }
    }

    /// What is not installed here.
    fn missing(self) -> Option<String> {
        match self {
            On::Redis => Redis::missing(),
            #[cfg(all(feature = "postgres", feature = "tower-sessions"))]
            On::Postgres => servers::Postgres::missing(),
            _ => None,
        }
    }
}

/// What a case is given.
struct Ground {
    client: Client,
    store: Store,
}

/// What is kept for as long as a case runs.
#[allow(dead_code, reason = "some are only kept")]
enum Store {
    Memory,
    Redis(Redis),
    #[cfg(all(feature = "file", feature = "tower-sessions"))]
    File(tempfile::TempDir),
    #[cfg(all(feature = "postgres", feature = "tower-sessions"))]
    Postgres(servers::Postgres),
}

impl Ground {
    async fn start(on: On) -> Ground {
        let (store, url) = match on {
            On::Memory => (Store::Memory, "memory:".to_owned()),
            On::Redis => {
                let server = Redis::start();
                let url = server.url();
                (Store::Redis(server), url)
            }
            #[cfg(all(feature = "file", feature = "tower-sessions"))]
            On::File => {
                let dir = tempfile::tempdir().expect("a directory");
                let url = format!("file:{}", dir.path().join("store").display());
                (Store::File(dir), url)
            }
            #[cfg(all(feature = "postgres", feature = "tower-sessions"))]
            On::Postgres => {
                let server = servers::Postgres::start();
                let url = server.url();
                (Store::Postgres(server), url)
            }
        };
        let client = leasehold::connect(&url).await.expect("the engine is there");
        Ground { client, store }
    }

    /// The server, for cases in which it goes away.
    fn server(&self) -> &Redis {
        match &self.store {
            Store::Redis(server) => server,
            _ => panic!("such cases run on a server"),
        }
    }
}

fn trial(on: On, (name, case): Case) -> Trial {
    let ignored = on.missing().is_some() && std::env::var_os("CI").is_none();
    Trial::test(format!("{}::{name}", on.word()), move || run(on, case)).with_ignored_flag(ignored)
}

fn main() -> ExitCode {
    let missing = Redis::missing();
    if let Some(missing) = &missing {
        eprintln!("web: {missing} is missing; `./test.sh` installs it");
    }
    let mut trials = Vec::new();
    let cases = [
        rate_limit::cases(),
        idempotency::cases(),
        #[cfg(feature = "tower-sessions")]
        sessions::cases(),
    ];
    for case in cases.concat() {
        trials.extend([On::Memory, On::Redis].map(|on| trial(on, case)));
    }
    #[cfg(feature = "tower-sessions")]
    for case in sessions::cases() {
        #[cfg(feature = "file")]
        trials.push(trial(On::File, case));
        #[cfg(feature = "postgres")]
        trials.push(trial(On::Postgres, case));
    }
    let outages = [
        rate_limit::outages(),
        idempotency::outages(),
        #[cfg(feature = "tower-sessions")]
        sessions::outages(),
    ];
    for case in outages.concat() {
        trials.push(trial(On::Redis, case));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(on: On, case: fn(Ground) -> Running) -> Result<(), Failed> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(LIMIT, async { case(Ground::start(on).await).await }).await };
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
