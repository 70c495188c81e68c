//! What only a MySQL or MariaDB server does to its clients.

mod access;
mod advisory;
pub(crate) mod guarding;
mod outage;
mod tables;
#[cfg(feature = "mysql-tls")]
mod tls;

use std::time::Duration;

use leasehold::{Client, Family, Guard};
use tokio::task::JoinHandle;

use crate::bench::{Ground, soon, until};
use crate::servers::{MariaDb, Pooled};
use crate::{Case, Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    let mut groups = advisory::groups();
    groups.extend(crate::shedlock::groups(crate::engines::mysql::shedlock()));
    groups.extend([
        group("access", access::cases()),
        group("guarding", guarding::cases()),
        group("sessions", outage::cases()),
        group("rules", crate::rules::cases()),
        group("tables", tables::cases()),
        #[cfg(feature = "cache")]
        group("outbox", crate::cache::outbox::cases()),
        #[cfg(feature = "once")]
        group("transactions", crate::transactions::cases()),
        #[cfg(feature = "mysql-tls")]
        group("tls", tls::cases()),
    ]);
    groups
}

/// The server of a case.
fn server(ground: &Ground) -> &MariaDb {
    ground.bench_of::<Pooled<MariaDb>>()
}

/// The server of a case that does something to it which another case must not meet.
fn server_to_hurt(ground: &Ground) -> &MariaDb {
    ground.bench_of::<Pooled<MariaDb>>().spoil();
    server(ground)
}

async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.expect("the engine is there")
}

/// What is said to somebody who can not connect.
async fn refused(url: &str) -> String {
    match soon("a refusal", leasehold::connect(url)).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => {
            crate::client::says_each_cause_once(&error);
            error.to_string()
        }
    }
}

async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    client.mutex(name).expect("a name").lease(lease).lock().await.expect("free")
}

/// Starts to wait for `x`, and returns when the server knows.
async fn wait(client: &Client) -> JoinHandle<Guard> {
    let mutex = client.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await.expect("granted") });
    until("it waits", async || client.look(Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1))
        .await;
    waiting
}

async fn granted(waiting: JoinHandle<Guard>) -> Guard {
    soon("its turn", waiting).await.expect("no panic")
}
