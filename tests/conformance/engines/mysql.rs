//! MariaDB.

use leasehold::engine::{AfterDeath, Reach};

use crate::servers::{MariaDb, Pool, Pooled};
use crate::setup::{AnyServer, Promises, Setup, Store, Under};
use crate::shedlock::Database;

pub(crate) fn setups() -> Vec<Setup> {
    static POOL: Pool<MariaDb> = Pool::new();
    let promises = Promises::everything("mysql", Reach::Network, AfterDeath::AfterLease);
    vec![Setup {
        missing: MariaDb::missing(),
        own_cases: crate::mysql::groups(),
        ..Setup::new("mysql", promises, || fresh(&POOL))
    }]
}

/// A server with an empty database. Users belong to the whole server: cases that make some have a
/// pool of their own.
fn fresh(pool: &'static Pool<MariaDb>) -> Pooled<MariaDb> {
    let server = pool.take(MariaDb::start);
    server.fresh_database();
    server
}

impl Store for MariaDb {
    fn url(&self) -> String {
        MariaDb::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

/// Locks of sessions, for those who share them with other programs. The server has neither names
/// that could be listed nor tokens, so this is no set-up of every case.
pub(crate) fn advisory() -> Setup {
    let promises = Promises { fair: true, ..Promises::exclusion("mysql", AfterDeath::AtOnce) };
    Setup::new("mysql", promises, || {
        static POOL: Pool<MariaDb> = Pool::new();
        let store = fresh(&POOL);
        Under { url: MariaDb::url(&store).replacen("://", "+advisory://", 1), store }
    })
}

/// A server with a table of ShedLock.
pub(crate) fn shedlock() -> Setup {
    static POOL: Pool<MariaDb> = Pool::new();
    crate::shedlock::setup("mysql", || fresh(&POOL))
}

impl Database for Pooled<MariaDb> {
    fn query(&self, statements: &str) -> String {
        MariaDb::query(self, statements)
    }

    fn jdbc(&self) -> String {
        format!("jdbc:mariadb://127.0.0.1:{}/leasehold?user=leasehold&password=secret", self.port())
    }

    fn create(&self) {
        MariaDb::query(
            self,
            "create table shedlock (name varchar(64) not null, lock_until timestamp(3) not null, \
             locked_at timestamp(3) not null default current_timestamp(3), \
             locked_by varchar(255) not null, primary key (name))",
        );
    }

    fn allow_app(&self, rights: &str) {
        self.sql(&format!(
            "create user if not exists app@'%' identified by 'secret'; \
             revoke all privileges, grant option from app@'%'; \
             grant {rights} on leasehold.shedlock to app@'%'"
        ));
    }
}
