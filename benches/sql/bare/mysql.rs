//! The statements in MySQL and MariaDB, prepared.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, params};
use tokio::sync::Mutex;

use super::{Bare, NAMES, name};
use crate::kit::Result;

/// The token comes with the count of changed rows, in the same answer.
const TAKE: &str = "update bare set owner = :owner, token = last_insert_id(token + 1), \
     expires = utc_timestamp(6) + interval 30 second \
     where name = :name and expires <= utc_timestamp(6)";

const GIVE_BACK: &str =
    "update bare set owner = null, expires = '2000-01-01' where name = :name and owner = :owner";

/// Connections that have one request at a time, as the driver wants it.
pub(crate) struct Pool(Vec<Mutex<Conn>>);

impl Pool {
    pub(crate) async fn open(url: &str, connections: usize) -> Result<Pool> {
        let mut opened = Vec::new();
        for _ in 0..connections {
            opened.push(Mutex::new(Conn::from_url(url).await?));
        }
        let mut first = opened[0].lock().await;
        first
            .query_drop(
                "create table if not exists bare (name varbinary(512) not null primary key, owner bigint, \
                 token bigint not null, expires datetime(6) not null) engine = InnoDB",
            )
            .await?;
        for task in 0..NAMES {
            let row = "insert ignore into bare values (?, null, 0, '2000-01-01')";
            first.exec_drop(row, (name(task),)).await?;
        }
        drop(first);
        Ok(Pool(opened))
    }

    async fn change(&self, statement: &str, task: usize) -> Result<()> {
        let mut connection = self.0[task % self.0.len()].lock().await;
        let values = params! { "name" => name(task), "owner" => task as i64 };
        connection.exec_drop(statement, values).await?;
        if connection.affected_rows() == 1 { Ok(()) } else { Err("not changed".into()) }
    }
}

impl Bare for Pool {
    async fn take(&self, task: usize) -> Result<()> {
        self.change(TAKE, task).await
    }

    async fn give_back(&self, task: usize) -> Result<()> {
        self.change(GIVE_BACK, task).await
    }
}
