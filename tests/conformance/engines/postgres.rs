//! PostgreSQL: reached directly, and through PgBouncer in transaction mode.

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::servers::{PgBouncer, Pool, Pooled, Postgres};
use crate::setup::{AnyServer, Promises, Setup, Store, Under};
use crate::shedlock::Database;

pub(crate) fn setups() -> Vec<Setup> {
    static POOL: Pool<Postgres> = Pool::new();
    let promises = Promises::everything("postgres", Reach::Network, AfterDeath::AfterLease);
    let direct =
        Setup { own_cases: crate::postgres::groups(), ..Setup::new("postgres", promises, || fresh(&POOL)) };
    let rules = Group { name: "rules", missing: None, cases: crate::rules::cases() };
    let pooler = Setup { own_cases: vec![rules], ..Setup::new("pgbouncer", promises, pooling) };
    // Some of the own cases of the first put a pooler before the server.
    let missing = || Postgres::missing().or_else(PgBouncer::missing);
    [direct, pooler].map(|setup| Setup { missing: missing(), ..setup }).into()
}

/// A server with an empty database. Users belong to the whole server: cases that make some have a
/// pool of their own.
fn fresh(pool: &'static Pool<Postgres>) -> Pooled<Postgres> {
    let server = pool.take(Postgres::start);
    server.fresh_database();
    server
}

impl Store for Postgres {
    fn url(&self) -> String {
        Postgres::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

/// A server behind a pooler.
struct Pooling {
    // Dropped first.
    pooler: PgBouncer,
    server: Postgres,
}

fn pooling() -> Pooled<Pooling> {
    static POOL: Pool<Pooling> = Pool::new();
    let pooling = POOL.take(|| {
        let server = Postgres::start();
        Pooling { pooler: PgBouncer::start(&server), server }
    });
    pooling.server.fresh_database();
    // It remembers for a while that its sessions were ended.
    pooling.pooler.restart();
    pooling
}

impl Store for Pooling {
    fn url(&self) -> String {
        self.pooler.url()
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&self.pooler, &self.server]
    }
}

/// Locks of sessions, for those who share them with other programs. The server has neither names
/// that could be listed nor tokens, so this is no set-up of every case.
pub(crate) fn advisory() -> Setup {
    let exclusion = Promises::exclusion("postgres", AfterDeath::AtOnce);
    Setup::new("postgres", Promises { fair: true, shares: true, ..exclusion }, || {
        static POOL: Pool<Postgres> = Pool::new();
        let store = fresh(&POOL);
        Under { url: Postgres::url(&store).replacen("://", "+advisory://", 1), store }
    })
}

/// A server with a table of ShedLock.
pub(crate) fn shedlock() -> Setup {
    static POOL: Pool<Postgres> = Pool::new();
    crate::shedlock::setup("postgres", || fresh(&POOL))
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
