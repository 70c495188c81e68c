//! A quorum of Redis servers that is hurt: minorities and majorities that die, hang, forget, and
//! tell the wrong time.

mod access;
mod claim;
mod data_loss;
mod failure;

mod scripts;
#[cfg(feature = "redis-tls")]
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, Guard, Options, Standing};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Group;
use crate::bench::{ms, soon};
use crate::history::{self, Rules, Section};
use crate::servers::{Proxy, Quorum, Redis, not_installed};

/// Cases that start their own servers, as many as they are told.
macro_rules! quorum_cases {
    ($servers:expr, [$($case:ident),* $(,)?]) => {{
        let servers: usize = $servers;
        vec![$((stringify!($case), crate::case(move |_| $case(servers)))),*]
    }};
}
use quorum_cases;

pub(crate) fn groups(servers: usize) -> Vec<Group> {
    let own =
        quorum_cases!(servers, [what_is_no_quorum_is_refused, a_closed_client_lets_go_of_its_connections,]);
    let cases = [
        own,
        failure::cases(servers),
        claim::cases(servers),
        access::cases(servers),
        data_loss::cases(servers),
        scripts::cases(servers),
        #[cfg(feature = "redis-tls")]
        tls::cases(servers),
    ];
    // A clock that stands still is compiled; certificates are made.
    let missing = not_installed(&["cc", "openssl"]);
    vec![Group { name: "faults", missing, cases: cases.concat() }]
}

/// The largest number of servers that can be missed.
fn minority(servers: usize) -> usize {
    (servers - 1) / 2
}

async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.expect("a majority is there")
}

/// A client that does not wait for long.
async fn impatient(url: &str) -> Client {
    let options = Options::new().call_limit(ms(1500));
    leasehold::connect_with(url, options).await.expect("a majority is there")
}

async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    let mutex = client.mutex(name).expect("a name").lease(lease);
    soon("the lock", mutex.lock()).await.expect("granted")
}

async fn taken(client: &Client, name: &str) -> bool {
    client.mutex(name).expect("a name").try_lock().await.expect("an answer").is_none()
}

/// Servers behind lines that can be cut.
struct Lines {
    quorum: Quorum,
    proxies: Vec<Proxy>,
}

impl Lines {
    fn start(servers: usize) -> Lines {
        let quorum = Quorum::start(servers);
        let proxies = quorum.servers.iter().map(|server| Proxy::start(server.port())).collect();
        Lines { quorum, proxies }
    }

    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("redlock://{}", hosts.join(","))
    }
}

/// How many turns everybody must have had at the end: nobody starves, however slow the machine is.
const TURNS: usize = 8;

/// Clients that take turns until they are told to stop. What fails because servers are missing is
/// tried again.
struct Hammer {
    stop: Arc<AtomicBool>,
    workers: JoinSet<Vec<Section>>,
}

impl Hammer {
    async fn start(url: &str, workers: u64, lease: Duration) -> Hammer {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for worker in 0..workers {
            let options = Options::new().hand_over(Duration::ZERO, 0).call_limit(ms(1500));
            let client = leasehold::connect_with(url, options).await.expect("a majority is there");
            let mutex = client.mutex("hammered").expect("a name").lease(lease);
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let now = || u64::try_from(start.elapsed().as_micros()).expect("a short test");
                let mut sections = Vec::new();
                while !stop.load(Ordering::Acquire) || sections.len() < TURNS {
                    let asked = now();
                    let guard = match mutex.lock_for(ms(2000)).await {
                        Ok(Some(guard)) => guard,
                        Ok(None) => continue,
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            continue;
                        }
                    };
                    let granted = now();
                    tokio::time::sleep(ms(1)).await;
                    // What is lost is not held, and counts until it was.
                    let held = guard.standing() != Standing::Lost;
                    let (released, token) = (now(), guard.token().get());
                    guard.release().await.ok();
                    let released = if held { released } else { granted };
                    sections.push(Section { worker, asked, granted, released, token, weight: 1 });
                }
                sections
            });
        }
        Hammer { stop, workers: tasks }
    }

    /// Checks what has happened: one at a time, and tokens that rise.
    async fn stop(self) {
        self.stop_after(1).await;
    }

    /// The same, if so many may have been in at once.
    async fn stop_after(self, capacity: u64) {
        self.stop.store(true, Ordering::Release);
        let sections = self.workers.join_all().await.concat();
        history::check(&sections, Rules { capacity, rising_beyond: 0, fifo_beyond: None })
            .expect("a good history");
    }
}

async fn what_is_no_quorum_is_refused(servers: usize) {
    let quorum = Quorum::start(servers);
    let proxy = Proxy::start(quorum.servers[0].port());
    let error = leasehold::connect(&format!("{},127.0.0.1:{}", quorum.url(), proxy.port())).await;
    let error = error.expect_err("one of them twice");
    assert!(
        matches!(error, Error::Invalid { .. }) && error.to_string().contains("the same server"),
        "{error}"
    );
    for hosts in ["redlock://127.0.0.1", "redlock://127.0.0.1:1,127.0.0.1:2"] {
        let error = leasehold::connect(hosts).await.expect_err("too few");
        assert!(error.to_string().contains("three servers"), "{error}");
    }
    let client = connect(&format!("{}?max_lease=2s", quorum.url())).await;
    let error = client.mutex("x").expect("a name").lease(ms(2001)).lock().await.expect_err("too long");
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("max_lease"), "{error}");
}

async fn a_closed_client_lets_go_of_its_connections(servers: usize) {
    let quorum = Quorum::start(servers);
    let all: Vec<&Redis> = quorum.servers.iter().collect();
    crate::redis::topology::close::lets_go(&quorum.url(), &all, &quorum.servers[..minority(servers)]).await;
}
