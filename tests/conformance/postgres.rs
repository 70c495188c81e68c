//! What only a PostgreSQL server does to its clients.

mod access;
mod advisory;
pub(crate) mod guarding;
mod outage;
mod tables;
#[cfg(feature = "postgres-tls")]
mod tls;

use std::time::Duration;

use leasehold::{Client, Guard, Options};

use crate::bench::Ground;
use crate::servers::{Pooled, Postgres};
use crate::{Case, Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    let mut groups = advisory::groups();
    groups.extend(crate::shedlock::groups(crate::engines::postgres::shedlock()));
    groups.extend([
        group("access", access::cases()),
        group("guarding", guarding::cases()),
        group("outage", outage::cases()),
        group("rules", crate::rules::cases()),
        group("tables", tables::cases()),
        #[cfg(feature = "cache")]
        group("outbox", crate::cache::outbox::cases()),
        #[cfg(feature = "once")]
        group("transactions", crate::transactions::cases()),
        #[cfg(feature = "postgres-tls")]
        group("tls", tls::cases()),
    ]);
    groups
}

/// The server of a case.
fn server(ground: &Ground) -> &Postgres {
    ground.bench_of::<Pooled<Postgres>>()
}

/// The server of a case that does something to it which another case must not meet.
fn server_to_hurt(ground: &Ground) -> &Postgres {
    ground.bench_of::<Pooled<Postgres>>().spoil();
    server(ground)
}

async fn connect(url: &str) -> Client {
    leasehold::connect_with(url, Options::new()).await.expect("the engine is there")
}

/// What is said to somebody who can not connect.
async fn refused(url: &str) -> String {
    match leasehold::connect(url).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => error.to_string(),
    }
}

async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    client.mutex(name).expect("a name").lease(lease).lock().await.expect("free")
}
