//! A request to the server that has a key, and its answer.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use super::link::Connected;
use super::script::Invocation;

/// Something to be sent to whichever connection leads to a key.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    Script(&'a Invocation),
    /// A script that is likely to send a message to another client.
    Waking(&'a Invocation),
    /// A script whose arguments depend on the connection that it is sent over.
    PerConnection(&'a (dyn Fn(&Connected) -> Invocation + Send + Sync)),
}

impl Request<'_> {
    pub(crate) async fn send(
        self,
        connected: &Connected,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<Value> {
        match self {
            Request::Script(script) => script.call(connection).await,
            Request::Waking(script) => script.call_after_others(connection).await,
            Request::PerConnection(script) => script(connected).call(connection).await,
        }
    }

    /// Sends the whole text of the script, as one command.
    pub(crate) async fn send_text(
        self,
        connected: &Connected,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<Value> {
        match self {
            Request::Script(script) | Request::Waking(script) => script.call_by_text(connection).await,
            Request::PerConnection(script) => script(connected).call_by_text(connection).await,
        }
    }
}

/// An answer, and the connection that it came over: replicas can be waited for only there.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) connection: MultiplexedConnection,
    /// The server.
    pub(crate) connected: Arc<Connected>,
}
