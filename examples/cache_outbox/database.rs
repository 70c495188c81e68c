//! The database whose rows are cached: what a program has of its own, with the driver that it uses.

use leasehold::kit::cache::Outbox;
use mysql_async::prelude::Queryable as _;
use tokio_postgres::NoTls;

use crate::processes::Result;

pub(crate) enum Database {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
}

impl Database {
    pub(crate) async fn open(url: &str) -> Result<Database> {
        if url.starts_with("mysql:") {
            return Ok(Database::Mysql(mysql_async::Conn::from_url(url).await?));
        }
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Database::Postgres(client))
    }

    pub(crate) async fn run(&mut self, statement: &str) -> Result<()> {
        match self {
            Database::Postgres(client) => client.batch_execute(statement).await?,
            Database::Mysql(connection) => connection.query_drop(statement).await?,
        }
        Ok(())
    }

    /// The version of a row.
    pub(crate) async fn version(&mut self, table: &str, name: &str) -> Result<Option<i64>> {
        let select = format!("select version from {table} where name = ");
        Ok(match self {
            Database::Postgres(client) => {
                client.query_opt(&(select + "$1"), &[&name]).await?.map(|row| row.get(0))
            }
            Database::Mysql(connection) => connection.exec_first(select + "?", (name,)).await?,
        })
    }

    /// Changes a row, and writes down in the same transaction that it is to be invalidated.
    pub(crate) async fn change(&mut self, table: &str, name: &str, outbox: &Outbox) -> Result<()> {
        let row = outbox.row([(name, 0)])?;
        let update = format!("update {table} set version = version + 1 where name = ");
        match self {
            Database::Postgres(client) => {
                let transaction = client.transaction().await?;
                transaction.execute(&(update + "$1"), &[&name]).await?;
                transaction.execute(&row.insert, &[&row.key, &row.lives, &row.value]).await?;
                transaction.commit().await?;
            }
            Database::Mysql(connection) => {
                let mut transaction = connection.start_transaction(mysql_async::TxOpts::new()).await?;
                transaction.exec_drop(update + "?", (name,)).await?;
                transaction.exec_drop(&row.insert, (&row.key, row.lives, &row.value)).await?;
                transaction.commit().await?;
            }
        }
        Ok(())
    }
}
