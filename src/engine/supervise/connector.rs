//! What an engine tells its supervisor: how to connect, and how to probe.

use crate::error::Result;

/// How to connect to a server, and how to find out whether it still answers.
pub(crate) trait Connector: Send + Sync + 'static {
    /// What a connection is: the driver's handle, and what was learnt of the server. Dropped, it
    /// must close the connection.
    type Session: Send + Sync + 'static;

    /// The engine's label, for errors.
    fn engine(&self) -> &'static str;

    /// The server, for errors and logs. Never with a secret.
    fn server(&self) -> &str;

    /// A text that must not be shown even if the server repeats it.
    fn secret(&self) -> Option<&str> {
        None
    }

    /// Connects, and checks that the server is fit. The supervisor limits the time.
    ///
    /// An error that is not retryable is given to all who want the connection, until a later
    /// attempt succeeds.
    fn connect(&self, attempt: Attempt) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Asks something that every server answers at once. The supervisor limits the time.
    fn probe(&self, session: &Self::Session) -> impl Future<Output = Result<(), String>> + Send;

    /// Waits until the connection must be given up although it works, and says why: another server
    /// has become the primary. By default that never happens.
    fn superseded(&self, _session: &Self::Session) -> impl Future<Output = String> + Send {
        std::future::pending()
    }

    /// The server of a session, where it is not always the same one.
    fn server_of(&self, _session: &Self::Session) -> String {
        self.server().to_owned()
    }

    /// Called when a connection was lost: the engine gives the hint that tells people.
    fn disconnected(&self, why: &str);

    /// Called after the connection was made anew, with the server. Messages of the server may have
    /// been lost, and so may claims: the engine gives the hints that follow from that.
    fn connected_again(&self, server: String);

    /// Called when the supervisor is closed.
    fn close(&self) {}
}

/// An attempt to connect, and the connection that may come of it.
pub(crate) struct Attempt {
    /// The number of the connection. The first attempt has number 1.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "postgres", feature = "redis")),
        allow(dead_code, reason = "not every engine counts them")
    )]
    pub(crate) epoch: u64,
    #[cfg_attr(
        not(any(feature = "_sql", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "some drivers report by their calls alone")
    )]
    report: Box<dyn Fn(&str) + Send + Sync>,
}

impl Attempt {
    pub(super) fn new(epoch: u64, report: impl Fn(&str) + Send + Sync + 'static) -> Attempt {
        Attempt { epoch, report: Box::new(report) }
    }

    /// Reports that the connection of this attempt is lost, for a driver that notices by itself.
    /// Once the connection is given up, it does nothing.
    #[cfg_attr(
        not(any(feature = "_sql", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "some drivers report by their calls alone")
    )]
    pub(crate) fn lost(&self, why: &str) {
        (self.report)(why);
    }
}
