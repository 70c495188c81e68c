//! Statements that go to the server together, and what they give.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as Driver, Row};

/// What one statement of a packet gave.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Whether it changed rows.
    pub(super) affected: u64,
    pub(super) rows: Vec<Row>,
}

/// Statements that go to the server together.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) text: String,
    /// Whether a transaction is open in the middle of it.
    pub(super) transaction: bool,
}

impl Packet {
    /// Statements that are committed one by one.
    pub(super) fn plain(text: String) -> Packet {
        Packet { text, transaction: false }
    }

    /// Statements that begin and end a transaction.
    pub(super) fn transaction(text: String) -> Packet {
        Packet { text, transaction: true }
    }
}

/// Sends a packet, and reads all answers to it.
pub(super) async fn run(connection: &mut Conn, text: &str) -> Result<Vec<Answer>, Driver> {
    let mut answers = Vec::new();
    let mut result = connection.query_iter(text).await?;
    loop {
        let affected = result.affected_rows();
        let rows = result.collect::<Row>().await?;
        answers.push(Answer { affected, rows });
        // The answer to a last statement without rows is left out.
        if result.is_empty() {
            // The driver keeps the error of a later statement for whoever asks next. That must not
            // be the next packet.
            result.drop_result().await?;
            return Ok(answers);
        }
    }
}
