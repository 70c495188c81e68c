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
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

/// A parameter and its type: without it the server would have to be asked first.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The statements of one session, by their text.
#[derive(Default)]
pub(super) struct Prepared(Mutex<HashMap<String, Progress>>);

/// How far a statement has come that was used before.
///
/// Nobody waits for what another request prepares: that request may be one that its caller has put
/// aside, and does not go on.
#[derive(Clone)]
enum Progress {
    /// It was used once.
    Used,
    /// A request prepares it.
    Preparing,
    Ready(Statement),
}

/// A statement that a request prepares. If the request is given up, the next one does.
struct Preparing<'a> {
    prepared: &'a Prepared,
    text: &'a str,
    became: Progress,
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        let became = std::mem::replace(&mut self.became, Progress::Used);
        self.prepared.known().insert(self.text.to_owned(), became);
    }
}

/// How a statement is sent.
enum Way<'a> {
    /// As a text.
    Text,
    /// As a text, and it is prepared behind that.
    AndPrepare(Preparing<'a>),
    Prepared(Statement),
}

impl Prepared {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        client: &Client,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        match self.way(text) {
            Way::Text => client.query_typed(text, parameters).await,
            Way::AndPrepare(preparing) => {
                let prepared = preparing.run(client, parameters);
                join(client.query_typed(text, parameters), prepared).await.0
            }
            Way::Prepared(statement) => client.query(&statement, &values(parameters)).await,
        }
    }

    /// How many rows a statement changes.
    pub(super) async fn execute(
        &self,
        client: &Client,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Error> {
        match self.way(text) {
            Way::Text => client.execute_typed(text, parameters).await,
            Way::AndPrepare(preparing) => {
                let prepared = preparing.run(client, parameters);
                join(client.execute_typed(text, parameters), prepared).await.0
            }
            Way::Prepared(statement) => client.execute(&statement, &values(parameters)).await,
        }
    }

    fn way<'a>(&'a self, text: &'a str) -> Way<'a> {
        let mut known = self.known();
        let next = match known.get(text) {
            Some(Progress::Ready(statement)) => return Way::Prepared(statement.clone()),
            Some(Progress::Preparing) => return Way::Text,
            Some(Progress::Used) => Progress::Preparing,
            None => Progress::Used,
        };
        let is_second = matches!(next, Progress::Preparing);
        known.insert(text.to_owned(), next);
        if is_second {
            Way::AndPrepare(Preparing { prepared: self, text, became: Progress::Used })
        } else {
            Way::Text
        }
    }
}

impl Preparing<'_> {
    async fn run(mut self, client: &Client, parameters: &[Parameter<'_>]) {
        let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        // What can not be prepared is sent as a text, and says itself what is wrong.
        if let Ok(statement) = client.prepare_typed(self.text, &types).await {
            self.became = Progress::Ready(statement);
        }
    }
}

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|(value, _)| *value).collect()
}
