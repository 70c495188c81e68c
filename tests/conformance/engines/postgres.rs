//! PostgreSQL: reached directly, and through PgBouncer in transaction mode.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{PgBouncer, Pool, Pooled, Postgres};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(Direct), Arc::new(Pooler)]
}

fn promises() -> Promises {
    Promises::everything("postgres", Reach::Network, AfterDeath::AfterLease)
}

struct Direct;

impl Setup for Direct {
    fn word(&self) -> &'static str {
        "postgres"
    }

    fn missing(&self) -> Option<String> {
        Postgres::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Postgres> = Pool::new();
        let server = POOL.take(Postgres::start);
        server.fresh_database();
        Box::new(server)
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::postgres::groups()
    }
}

impl Bench for Pooled<Postgres> {
    fn url(&self) -> String {
        Postgres::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&**self]
    }

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}

struct Pooler;

/// A server behind a pooler.
pub(crate) struct Pooling {
    // Dropped first.
    pub(crate) pooler: PgBouncer,
    pub(crate) server: Postgres,
}

impl Setup for Pooler {
    fn word(&self) -> &'static str {
        "pgbouncer"
    }

    fn missing(&self) -> Option<String> {
        Postgres::missing().or_else(PgBouncer::missing)
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Pooling> = Pool::new();
        let pooling = POOL.take(|| {
            let server = Postgres::start();
            Pooling { pooler: PgBouncer::start(&server), server }
        });
        pooling.server.fresh_database();
        // It remembers for a while that its sessions were ended.
        pooling.pooler.restart();
        Box::new(pooling)
    }
}

impl Bench for Pooled<Pooling> {
    fn url(&self) -> String {
        self.pooler.url()
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&self.pooler, &self.server]
    }

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}
