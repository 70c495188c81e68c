//! PostgreSQL: reached directly, and through PgBouncer in transaction mode.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{PgBouncer, Pool, Pooled, Postgres};
use crate::shedlock::{Database, Shedlock};

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

    /// Some of its own cases put a pooler before the server.
    fn missing(&self) -> Option<String> {
        Postgres::missing().or_else(PgBouncer::missing)
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

/// Locks of sessions, for those who share them with other programs. The server has neither names
/// that could be listed nor tokens, so this is no set-up of every case.
pub(crate) struct Advisory;

/// A server whose sessions hold the locks.
pub(crate) struct AdvisoryServer(pub(crate) Pooled<Postgres>);

impl Setup for Advisory {
    fn word(&self) -> &'static str {
        "postgres"
    }

    /// Some of its own cases put a pooler before the server.
    fn missing(&self) -> Option<String> {
        Postgres::missing().or_else(PgBouncer::missing)
    }

    fn promises(&self) -> Promises {
        Promises {
            engine: "postgres",
            reach: Reach::Network,
            after_death: AfterDeath::AtOnce,
            fair: true,
            counts: false,
            upgrades: false,
            elects: false,
            cells: false,
            delays: false,
            shares: true,
            fences: false,
        }
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Postgres> = Pool::new();
        let server = POOL.take(Postgres::start);
        server.fresh_database();
        Box::new(AdvisoryServer(server))
    }
}

impl Bench for AdvisoryServer {
    fn url(&self) -> String {
        Postgres::url(&self.0).replacen("://", "+advisory://", 1)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&*self.0]
    }

    fn spoil(&self) {
        Pooled::spoil(&self.0);
    }
}

/// A server with a table of ShedLock.
pub(crate) fn shedlock() -> Shedlock {
    let start = || -> Box<dyn Database> {
        static POOL: Pool<Postgres> = Pool::new();
        let server = POOL.take(Postgres::start);
        server.fresh_database();
        Box::new(server)
    };
    Shedlock { word: "postgres", missing: Postgres::missing, start }
}

impl Database for Pooled<Postgres> {
    fn query(&self, statements: &str) -> String {
        Postgres::query(self, statements)
    }

    fn jdbc(&self) -> String {
        format!("jdbc:postgresql://127.0.0.1:{}/leasehold?user=leasehold&password=secret", self.port())
    }

    fn create(&self) {
        Postgres::query(
            self,
            "alter default privileges in schema public grant all on tables to leasehold; \
             create table shedlock (name varchar(64) not null, lock_until timestamp not null, \
             locked_at timestamp not null, locked_by varchar(255) not null, primary key (name))",
        );
    }

    fn allow_app(&self, rights: &str) {
        if self.sql("select count(*) from pg_roles where rolname = 'app'") == "0" {
            self.sql("create role app login password 'secret'");
        }
        Postgres::query(self, &format!("revoke all on shedlock from app; grant {rights} on shedlock to app"));
    }
}
