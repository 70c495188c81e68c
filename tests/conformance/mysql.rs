//! What only a MySQL or MariaDB server does to its clients.

mod access;
mod advisory;
pub(crate) mod guarding;
mod outage;
mod tables;
#[cfg(feature = "mysql-tls")]
mod tls;

use leasehold::{Client, Family, Guard};
use tokio::task::JoinHandle;

use crate::bench::{Ground, soon, until};
use crate::servers::{MariaDb, Pooled};
use crate::steps::{connect, lock, refused};
use crate::{Case, Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    let mut groups = advisory::groups();
    groups.extend(crate::shedlock::groups(crate::engines::mysql::shedlock()));
    groups.extend([
        group("access", access::cases()),
        group("guarding", guarding::cases()),
        group("outage", outage::cases()),
        group("round_trips", crate::round_trips::cases()),
        group("rules", crate::rules::cases()),
        group("tables", tables::cases()),
        #[cfg(feature = "cache")]
        group("outbox", crate::cache::outbox::cases()),
        #[cfg(feature = "once")]
        group("transactions", crate::transactions::cases()),
        #[cfg(all(feature = "mysql", feature = "once", feature = "postgres"))]
        crate::sqlx::group(),
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
