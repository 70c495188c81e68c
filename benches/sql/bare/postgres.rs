//! The statements in PostgreSQL.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Bare, name};
use crate::kit::Result;

const TAKE: &str = "insert into bare as b (name, owner, token, expires) \
     values ($1, $2, 1, clock_timestamp() + interval '30 s') \
     on conflict (name) do update set owner = excluded.owner, token = b.token + 1, \
     expires = clock_timestamp() + interval '30 s' \
     where b.expires <= clock_timestamp() returning token";

/// A release need not be on disk, here as there.
const GIVE_BACK: &str = "update bare b set owner = null, expires = '-infinity' \
     from (select set_config('synchronous_commit', 'off', true)) c where b.name = $1 and b.owner = $2";

/// Two statements of ShedLock with the time of the database, for one name.
pub(crate) struct Shedlock {
    pub(crate) take: &'static str,
    pub(crate) give_back: &'static str,
}

pub(crate) const SHEDLOCK: Shedlock = Shedlock {
    take: "insert into shedlock as s (name, lock_until, locked_at, locked_by) \
         values ('processes', timezone('utc', current_timestamp) + interval '30 s', \
         timezone('utc', current_timestamp), $1) on conflict (name) do update set \
         lock_until = excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by \
         where s.lock_until <= timezone('utc', current_timestamp)",
    give_back: "update shedlock set lock_until = timezone('utc', current_timestamp) \
         where name = 'processes' and locked_by = $1",
};

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As a text, which the server parses and plans each time. A pooler may leave no choice.
    Text,
    /// The session has prepared them.
    Prepared,
}

/// A connection over which requests of several tasks go one after the other, without waiting for
/// each other's answers.
struct Connection {
    client: Client,
    prepared: Option<[Statement; 2]>,
}

pub(crate) struct Pool(Vec<Connection>);

impl Pool {
    pub(crate) async fn open(url: &str, way: Way, connections: usize) -> Result<Pool> {
        let mut opened = Vec::new();
        for _ in 0..connections {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client
                .batch_execute(
                    "create table if not exists bare (name bytea primary key, owner bigint, \
                     token bigint not null, expires timestamptz not null) with (fillfactor = 60); \
                     create table if not exists shedlock (name varchar(64) primary key, \
                     lock_until timestamp not null, locked_at timestamp not null, \
                     locked_by varchar(255) not null)",
                )
                .await?;
            let types = [Type::BYTEA, Type::INT8];
            let prepared = match way {
                Way::Text => None,
                Way::Prepared => Some([
                    client.prepare_typed(TAKE, &types).await?,
                    client.prepare_typed(GIVE_BACK, &types).await?,
                ]),
            };
            opened.push(Connection { client, prepared });
        }
        Ok(Pool(opened))
    }

    fn connection(&self, task: usize) -> &Connection {
        &self.0[task % self.0.len()]
    }
}

impl Bare for Pool {
    async fn take(&self, task: usize) -> Result<()> {
        let Connection { client, prepared } = self.connection(task);
        let (name, owner) = (name(task), task as i64);
        let rows = match prepared {
            Some([take, _]) => client.query(take, &[&name, &owner]).await?,
            None => client.query_typed(TAKE, &[(&name, Type::BYTEA), (&owner, Type::INT8)]).await?,
        };
        if rows.len() == 1 { Ok(()) } else { Err("not free".into()) }
    }

    async fn give_back(&self, task: usize) -> Result<()> {
        let Connection { client, prepared } = self.connection(task);
        let (name, owner) = (name(task), task as i64);
        let changed = match prepared {
            Some([_, give_back]) => client.execute(give_back, &[&name, &owner]).await?,
            None => client.execute_typed(GIVE_BACK, &[(&name, Type::BYTEA), (&owner, Type::INT8)]).await?,
        };
        if changed == 1 { Ok(()) } else { Err("not held".into()) }
    }
}
