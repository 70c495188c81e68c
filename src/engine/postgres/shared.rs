//! What requests and the listener of a client use: its connections.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::Server;
use super::errors::is_broken;
use super::pool::Pool;
use super::prepared::Parameter;
use crate::claim::Seat;
use crate::engine::sql::Attempt;

/// What requests and the listener use.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: Arc<Server>,
    pub(super) pool: Pool,
    pub(super) seat: Seat,
}

impl Shared {
    /// Runs a statement over the connection of a key; over the first one if it is for no key or
    /// many.
    pub(super) async fn rows(
        &self,
        key: &[u8],
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Attempt<Vec<Row>> {
        let (supervisor, connected) = self.pool.connected(key).await?;
        let request = pin!(connected.query(statement, parameters));
        supervisor.answer(&connected, request).await?.map_err(|error| {
            if is_broken(&error) {
                supervisor.lost(connected.epoch, &error.to_string());
            }
            self.server.names.statement(error)
        })
    }

    /// Runs a statement and understands its rows, which may not be as we would have written them: a
    /// table can be changed by hand.
    pub(super) async fn read<T>(
        &self,
        key: &[u8],
        statement: &str,
        parameters: &[Parameter<'_>],
        understand: impl FnOnce(&[Row]) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Attempt<T> {
        let rows = self.rows(key, statement, parameters).await?;
        understand(&rows).map_err(|error| self.server.names.strange_row(error))
    }

    /// How many rows a statement changed.
    pub(super) async fn count(
        &self,
        key: &[u8],
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Attempt<u64> {
        let (supervisor, connected) = self.pool.connected(key).await?;
        let request = pin!(connected.execute(statement, parameters));
        supervisor.answer(&connected, request).await?.map_err(|error| {
            if is_broken(&error) {
                supervisor.lost(connected.epoch, &error.to_string());
            }
            self.server.names.statement(error)
        })
    }

    /// Sends messages to channels, in a statement of their own: a transaction that notifies holds a
    /// lock of the whole server until it is on disk, and this one writes nothing. False if the
    /// server has not taken them.
    pub(super) async fn send(&self, messages: BTreeMap<String, String>) -> bool {
        let Some(connected) = self.pool.connected_now() else { return false };
        let (channels, texts): (Vec<String>, Vec<String>) = messages.into_iter().unzip();
        let parameters: [Parameter<'_>; 2] = [(&channels, Type::TEXT_ARRAY), (&texts, Type::TEXT_ARRAY)];
        let statement = "select pg_notify(n.channel, n.text) from unnest($1, $2) as n (channel, text)";
        let request = pin!(connected.query(statement, &parameters));
        match connected.while_up(request).await {
            Some(Ok(_)) => true,
            // Whom it would have woken asks again in time.
            Some(Err(error)) => {
                tracing::debug!(target: "leasehold", %error, "could not notify");
                false
            }
            None => false,
        }
    }
}
