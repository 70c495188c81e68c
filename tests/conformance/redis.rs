//! What only a Redis server does to its clients: it dies, forgets, stops, refuses, and is far away.

mod access;
#[cfg(feature = "cache")]
mod cache;
mod cells;
mod foreign;
mod names;
mod order;
mod outage;
mod stall;
mod state;
#[cfg(feature = "redis-tls")]
mod tls;
pub(crate) mod topology;
mod wire;

use std::time::Duration;

use leasehold::{Client, Error, Family, Guard, Mutex, Name, Options};
use tokio::task::JoinHandle;

use crate::bench::{Ground, ms, soon, until};
use crate::servers::{Connection, Redis, not_installed};
use crate::{Case, Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    let server = [
        outage::cases(),
        stall::cases(),
        state::cases(),
        foreign::cases(),
        names::cases(),
        access::cases(),
        wire::cases(),
        order::cases(),
        cells::cases(),
        #[cfg(feature = "cache")]
        cache::cases(),
        #[cfg(feature = "redis-tls")]
        tls::cases(),
    ];
    // A clock that stands still and a disk that fails are compiled; certificates are made.
    let missing = not_installed(&["cc", "openssl"]);
    vec![
        Group { name: "server", missing, cases: server.concat() },
        Group { name: "topology", missing: None, cases: topology::cases() },
    ]
}

impl Ground {
    /// The server itself.
    fn server(&self) -> &Redis {
        self.bench_of()
    }
}

async fn connect(url: &str) -> Client {
    connect_with(url, Options::new()).await
}

async fn connect_with(url: &str, options: Options) -> Client {
    leasehold::connect_with(url, options).await.expect("the server is there")
}

/// A client that does not wait for long.
async fn impatient(url: &str) -> Client {
    connect_with(url, Options::new().call_limit(ms(400))).await
}

/// What is said to somebody who is not let in.
async fn refused(url: &str) -> Error {
    let error = soon("a refusal", leasehold::connect(url)).await.expect_err("it must be refused");
    crate::client::says_each_cause_once(&error);
    error
}

fn mutex(client: &Client, lease: Duration) -> Mutex {
    client.mutex("x").expect("a name").lease(lease)
}

async fn lock(client: &Client, lease: Duration) -> Guard {
    soon("the lock", mutex(client, lease).lock()).await.expect("granted")
}

async fn lock_named(client: &Client, name: &str) -> Guard {
    client.mutex(name).expect("a name").lease(ms(3000)).lock().await.expect("free")
}

async fn try_lock(client: &Client) -> Result<Option<Guard>, Error> {
    soon("an answer", client.mutex("x").expect("a name").try_lock()).await
}

/// Starts to wait for the name, and returns when the server knows.
async fn wait(client: &Client, lease: Duration) -> JoinHandle<Guard> {
    let mutex = mutex(client, lease);
    let waiting = tokio::spawn(async move { mutex.lock().await.expect("granted") });
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    waiting
}

async fn granted(waiting: JoinHandle<Guard>) -> Guard {
    soon("the next holder", waiting).await.expect("no panic")
}

/// Waits until the name is free, and takes it: nobody holds it who does not know.
async fn free_within(client: &Client, limit: Duration) -> Guard {
    let before = tokio::time::Instant::now();
    let guard = soon("the name", client.mutex("x").expect("a name").lock()).await.expect("granted");
    assert!(before.elapsed() < limit, "free after {:?}", before.elapsed());
    guard
}

/// Ends the clients, and expects that every key they leave ends by itself.
async fn leave(server: &Redis, clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        soon("the end", client.close()).await.expect("the server hears");
    }
    leaves_nothing(server).await;
}

async fn leaves_nothing(server: &Redis) {
    let mut connection = server.connect();
    until("every key ends by itself", async || keys_that_stay(&mut connection).is_empty()).await;
}

fn keys_that_stay(connection: &mut Connection) -> Vec<String> {
    let mut keys = connection.command(&["KEYS", "*"]).texts();
    keys.retain(|key| connection.command(&["PTTL", key]).int() == -1);
    keys
}

/// Says how long something took, to whoever wants to know.
fn took(what: &str, time: Duration) {
    if std::env::var_os("LEASEHOLD_MEASURE").is_some() {
        eprintln!("{what}: {time:?}");
    }
}
