//! MariaDB.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{MariaDb, Pool, Pooled};
use crate::shedlock::{Database, Shedlock};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(Maria)]
}

struct Maria;

impl Setup for Maria {
    fn word(&self) -> &'static str {
        "mysql"
    }

    fn missing(&self) -> Option<String> {
        MariaDb::missing()
    }

    fn promises(&self) -> Promises {
        Promises::everything("mysql", Reach::Network, AfterDeath::AfterLease)
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<MariaDb> = Pool::new();
        let server = POOL.take(MariaDb::start);
        server.fresh_database();
        Box::new(server)
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::mysql::groups()
    }
}

impl Bench for Pooled<MariaDb> {
    fn url(&self) -> String {
        MariaDb::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&**self]
    }

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}

/// Locks of sessions, for those who share them with other programs. The server has neither names
/// that could be listed nor tokens, so this is no set-up of every case.
pub(crate) struct Advisory;

/// A server whose sessions hold the locks.
pub(crate) struct AdvisoryServer(pub(crate) Pooled<MariaDb>);

impl Setup for Advisory {
    fn word(&self) -> &'static str {
        "mysql"
    }

    fn missing(&self) -> Option<String> {
        MariaDb::missing()
    }

    fn promises(&self) -> Promises {
        Promises {
            engine: "mysql",
            reach: Reach::Network,
            after_death: AfterDeath::AtOnce,
            fair: true,
            counts: false,
            upgrades: false,
            elects: false,
            cells: false,
            delays: false,
            shares: false,
            fences: false,
        }
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<MariaDb> = Pool::new();
        let server = POOL.take(MariaDb::start);
        server.fresh_database();
        Box::new(AdvisoryServer(server))
    }
}

impl Bench for AdvisoryServer {
    fn url(&self) -> String {
        MariaDb::url(&self.0).replacen("://", "+advisory://", 1)
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
        static POOL: Pool<MariaDb> = Pool::new();
        let server = POOL.take(MariaDb::start);
        server.fresh_database();
        Box::new(server)
    };
    Shedlock { word: "mysql", missing: MariaDb::missing, start }
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
