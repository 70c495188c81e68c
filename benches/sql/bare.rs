//! What an application writes by hand: a table, one statement to take a lease and one to give it
//! back.

use std::time::Instant;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use crate::kit::{Result, median};

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

/// Connections over which requests of several tasks go one after the other, without waiting for
/// each other's answers.
pub(crate) struct Pool(Vec<Client>);

impl Pool {
    pub(crate) async fn open(url: &str, connections: usize) -> Result<Pool> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            clients.push(client);
        }
        let create = "create table if not exists bare (name bytea primary key, owner bigint, \
             token bigint not null, expires timestamptz not null) with (fillfactor = 60)";
        clients[0].batch_execute(create).await?;
        let shedlock = "create table if not exists shedlock (name varchar(64) primary key, \
             lock_until timestamp not null, locked_at timestamp not null, locked_by varchar(255) not null)";
        clients[0].batch_execute(shedlock).await?;
        Ok(Pool(clients))
    }

    /// How long it takes to take a lease, in seconds: the median of some.
    pub(crate) async fn commit_time(&self) -> Result<f64> {
        let mut times = Vec::new();
        for number in 0..200_i64 {
            let name = number.to_be_bytes().to_vec();
            let started = Instant::now();
            self.0[0].query_typed(TAKE, &[(&name, Type::BYTEA), (&number, Type::INT8)]).await?;
            times.push(started.elapsed().as_secs_f64());
            self.0[0].execute_typed(GIVE_BACK, &[(&name, Type::BYTEA), (&number, Type::INT8)]).await?;
        }
        Ok(median(times))
    }

    pub(crate) async fn cycle(&self, task: usize) -> Result<()> {
        let client = &self.0[task % self.0.len()];
        let (name, owner) = (format!("n{task}").into_bytes(), task as i64);
        let rows = client.query_typed(TAKE, &[(&name, Type::BYTEA), (&owner, Type::INT8)]).await?;
        if rows.len() != 1 {
            return Err("not free".into());
        }
        client.execute_typed(GIVE_BACK, &[(&name, Type::BYTEA), (&owner, Type::INT8)]).await?;
        Ok(())
    }
}
