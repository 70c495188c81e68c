//! MariaDB.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{MariaDb, Pool, Pooled};

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
