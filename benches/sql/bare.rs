//! What an application writes by hand: a table, one statement to take a lease and one to give it
//! back.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use crate::kit::Result;

const TAKE: &str = "insert into bare as b (name, owner, token, expires) \
     values ($1, $2, 1, clock_timestamp() + interval '30 s') \
     on conflict (name) do update set owner = excluded.owner, token = b.token + 1, \
     expires = clock_timestamp() + interval '30 s' \
     where b.expires <= clock_timestamp() returning token";

/// A release need not be on disk, here as there.
const GIVE_BACK: &str = "update bare b set owner = null, expires = '-infinity' \
     from (select set_config('synchronous_commit', 'off', true)) c where b.name = $1 and b.owner = $2";

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
        Ok(Pool(clients))
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
