//! A connection of the user's own to a database.

use leasehold::kit::cache::OutboxSql;
#[cfg(feature = "mysql")]
use mysql_async::prelude::Queryable as _;

pub(super) enum Database {
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Client),
    #[cfg(feature = "mysql")]
    Mysql(mysql_async::Conn),
}

impl Database {
    pub(super) async fn open(url: &str) -> Database {
        match url.split_once(':') {
            #[cfg(feature = "postgres")]
            Some(("postgres", _)) => {
                let opened = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
                let (client, connection) = opened.expect("the server");
                tokio::spawn(connection);
                Database::Postgres(client)
            }
            #[cfg(feature = "mysql")]
            Some(("mysql", _)) => {
                Database::Mysql(mysql_async::Conn::from_url(url).await.expect("the server"))
            }
            _ => panic!("{url} is no database"),
        }
    }

    pub(super) async fn run(&mut self, statement: &str) {
        match self {
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => database.batch_execute(statement).await.expect(statement),
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => database.query_drop(statement).await.expect(statement),
        }
    }

    /// Writes a row down.
    pub(super) async fn write(&mut self, row: &OutboxSql) {
        let OutboxSql { insert, key, lives, value, .. } = row;
        match self {
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => {
                assert_eq!(database.execute(insert, &[key, lives, value]).await.expect("an answer"), 1);
            }
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => {
                database.exec_drop(insert, (key, lives, value)).await.expect("an answer");
            }
        }
    }

    /// The number that a query gives.
    pub(super) async fn number(&mut self, query: &str) -> i64 {
        match self {
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => database.query_one(query, &[]).await.expect(query).get(0),
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => database.query_first(query).await.expect(query).expect("a row"),
        }
    }
}
