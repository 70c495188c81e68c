//! Requests over a session that a pooler may share: the next one is sent when the one before is
//! answered.
//!
//! When a client dies whose first request is answered and whose second one is not, PgBouncer before
//! 1.21 takes the session for idle, and gives the second answer to the next client on it. That one
//! would take it for its own, and perhaps for a grant. With one request at a time there is nothing
//! to mix up: a session whose only request is not answered is closed.
//!
//! A request whose caller is gone still has its turn until it is answered, so callers hand theirs
//! to a task, in order.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::{IsNull, ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::prepared::Parameter;

/// The requests of one session, in order.
pub(super) struct OneByOne {
    client: Arc<Client>,
    requests: mpsc::UnboundedSender<Request>,
}

struct Request {
    statement: String,
    parameters: Vec<(Encoded, Type)>,
    answer: Answer,
}

/// What the caller wants to know.
enum Answer {
    Rows(oneshot::Sender<Result<Vec<Row>, Error>>),
    Count(oneshot::Sender<Result<u64, Error>>),
}

/// A parameter as it is sent.
#[derive(Debug)]
struct Encoded(Option<BytesMut>);

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let Some(bytes) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// The parameters as they are sent; `None` if one can not be encoded.
fn encode(parameters: &[Parameter<'_>]) -> Option<Vec<(Encoded, Type)>> {
    let encode = |(value, kind): &Parameter<'_>| {
        let mut bytes = BytesMut::new();
        let encoded = match value.to_sql_checked(kind, &mut bytes).ok()? {
            IsNull::Yes => None,
            IsNull::No => Some(bytes),
        };
        Some((Encoded(encoded), kind.clone()))
    };
    parameters.iter().map(encode).collect()
}

impl OneByOne {
    /// Sends requests over a connection until this is dropped.
    pub(super) fn over(client: Arc<Client>) -> OneByOne {
        let (requests, mut next) = mpsc::unbounded_channel::<Request>();
        let over = Arc::clone(&client);
        tokio::spawn(async move {
            while let Some(request) = next.recv().await {
                request.run(&over).await;
            }
        });
        OneByOne { client, requests }
    }

    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let Some(encoded) = encode(parameters) else {
            // Says what is wrong, and sends nothing.
            return self.client.query_typed(statement, parameters).await;
        };
        let (answer, answered) = oneshot::channel();
        self.send(statement, encoded, Answer::Rows(answer));
        given(answered).await
    }

    /// How many rows a statement changes.
    pub(super) async fn execute(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        let Some(encoded) = encode(parameters) else {
            return self.client.execute_typed(statement, parameters).await;
        };
        let (answer, answered) = oneshot::channel();
        self.send(statement, encoded, Answer::Count(answer));
        given(answered).await
    }

    fn send(&self, statement: &str, parameters: Vec<(Encoded, Type)>, answer: Answer) {
        // The task is there as long as this is; if its runtime is not, nobody waits for the answer.
        self.requests.send(Request { statement: statement.to_owned(), parameters, answer }).ok();
    }
}

/// The answer. The task gives one unless its runtime has ended, and then there is none.
async fn given<T>(answered: oneshot::Receiver<T>) -> T {
    match answered.await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

impl Request {
    /// Sends it, and waits for the answer even if nobody else does.
    async fn run(self, client: &Client) {
        let parameters: Vec<Parameter<'_>> = self
            .parameters
            .iter()
            .map(|(encoded, kind)| (encoded as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        match self.answer {
            Answer::Rows(caller) if !caller.is_closed() => {
                caller.send(client.query_typed(&self.statement, &parameters).await).ok();
            }
            Answer::Count(caller) if !caller.is_closed() => {
                caller.send(client.execute_typed(&self.statement, &parameters).await).ok();
            }
            // The caller has gone before it was sent.
            Answer::Rows(_) | Answer::Count(_) => {}
        }
    }
}
