//! What only a PostgreSQL server does to its clients.

mod access;
mod advisory;
pub(crate) mod guarding;
mod listening;
mod outage;
mod statements;
mod tables;
#[cfg(feature = "postgres-tls")]
mod tls;

use leasehold::{Client, Guard};

use crate::bench::Ground;
use crate::servers::{Pooled, Postgres};
use crate::steps::{connect, lock, refused};
use crate::{Case, Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    let mut groups = advisory::groups();
    groups.extend(crate::shedlock::groups(crate::engines::postgres::shedlock()));
    groups.extend([
        group("access", access::cases()),
        group("guarding", guarding::cases()),
        group("listening", listening::cases()),
        group("outage", outage::cases()),
        group("round_trips", crate::round_trips::cases()),
        group("rules", crate::rules::cases()),
        group("statements", statements::cases()),
        group("tables", tables::cases()),
        #[cfg(feature = "cache")]
        group("outbox", crate::cache::outbox::cases()),
        #[cfg(feature = "once")]
        group("transactions", crate::transactions::cases()),
        #[cfg(all(feature = "mysql", feature = "once", feature = "postgres"))]
        crate::sqlx::group(),
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

/// Counts sessions that listen. Beside that they only answer probes.
const LISTENING: &str = "select count(*) from pg_stat_activity \
     where application_name = 'leasehold' and (query like 'listen %' or query = 'select 1')";
