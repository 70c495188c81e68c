//! Statements that a session has prepared.
//!
//! The server needs two to three times as long to parse and plan our statements as to run them. So
//! a session prepares a statement when it is used for the second time; a program that takes one
//! name and ends would gain nothing. It is prepared behind that use, in the same flush: over a slow
//! network nobody waits longer for that.
//!
//! A pooler in transaction mode gives each transaction another session of the server, which does
//! not know the statement, or knows somebody else's under the same name. So nothing is prepared
//! unless the server proves that the session was started for this client (see
//! [`super::connection::Server::connect`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join;
use tokio::sync::OnceCell;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

/// A parameter and its type: without it the server would have to be asked first.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The statements of one session, by their text. Those that were used once have an empty cell.
#[derive(Default)]
pub(super) struct Prepared(Mutex<HashMap<String, Arc<OnceCell<Statement>>>>);

impl Prepared {
    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        client: &Client,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let Some(statement) = self.used_before(text) else {
            return client.query_typed(text, parameters).await;
        };
        match statement.get() {
            Some(statement) => client.query(statement, &values(parameters)).await,
            None => {
                let prepared = statement.get_or_try_init(|| prepare(client, text, parameters));
                join(client.query_typed(text, parameters), prepared).await.0
            }
        }
    }

    /// How many rows a statement changes.
    pub(super) async fn execute(
        &self,
        client: &Client,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        let Some(statement) = self.used_before(text) else {
            return client.execute_typed(text, parameters).await;
        };
        match statement.get() {
            Some(statement) => client.execute(statement, &values(parameters)).await,
            None => {
                let prepared = statement.get_or_try_init(|| prepare(client, text, parameters));
                join(client.execute_typed(text, parameters), prepared).await.0
            }
        }
    }

    /// Where the prepared statement is, or will be; `None` if it is used for the first time.
    fn used_before(&self, text: &str) -> Option<Arc<OnceCell<Statement>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(text) {
            Some(cell) => Some(Arc::clone(cell)),
            None => {
                known.insert(text.to_owned(), Arc::default());
                None
            }
        }
    }
}

async fn prepare(client: &Client, text: &str, parameters: &[Parameter<'_>]) -> Result<Statement, Error> {
    let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
    client.prepare_typed(text, &types).await
}

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|(value, _)| *value).collect()
}
