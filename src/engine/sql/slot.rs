//! A connection beside the first one of a client, which is made when it is needed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::engine::Connection;
use crate::engine::supervise::{CONNECT_LIMIT, Connector, Supervisor};
use crate::error::Result;

/// A server that has refused a connection is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// A place for a connection. While the server gives none, the first one does its work.
pub(crate) struct Slot<C: Connector> {
    made: OnceCell<Supervisor<C>>,
    /// When the server last refused one.
    refused: Mutex<Option<Instant>>,
}

impl<C: Connector> Slot<C> {
    pub(crate) fn new() -> Slot<C> {
        Slot { made: OnceCell::new(), refused: Mutex::default() }
    }

    /// The connection, if it was made.
    pub(crate) fn get(&self) -> Option<&Supervisor<C>> {
        self.made.get()
    }

    /// The connection; `None` if the server answers and refuses one.
    ///
    /// A name whose slot was empty changes its connection when the slot is filled. A release can
    /// then overtake a request of the last moment, which costs a lease and no more.
    pub(crate) async fn supervisor(
        &self,
        first: &Supervisor<C>,
        connector: impl Fn() -> C,
    ) -> Result<Option<&Supervisor<C>>> {
        let made = self.made.get_or_try_init(async || {
            // Others that have waited here have just learnt it.
            if self.is_refused() {
                return Err(None);
            }
            match Supervisor::open(connector()).await {
                Err(error) if error.is_retryable() && first.connected_now().is_none() => {
                    Supervisor::open_or_retry(connector(), CONNECT_LIMIT).await.map_err(Some)
                }
                Err(error) if error.is_retryable() => {
                    let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                    if refused.replace(Instant::now()).is_none() {
                        tracing::warn!(target: "leasehold", %error, "goes on with fewer connections");
                    }
                    Err(None)
                }
                opened => opened.map_err(Some),
            }
        });
        match made.await {
            Ok(made) => Ok(Some(made)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// Whether there is a connection for what goes here.
    pub(crate) fn connection(&self, first: &Supervisor<C>) -> Connection {
        match self.get() {
            Some(made) => made.connection(),
            None if self.is_refused() => first.connection(),
            // It is made when it is needed.
            None => Connection::Up,
        }
    }

    fn is_refused(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_some_and(|at| at.elapsed() < ASK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::engine::supervise::Attempt;
    use crate::error::Error;

    #[derive(Default)]
    struct Server {
        full: AtomicBool,
        asked: AtomicU32,
    }

    struct Client(Arc<Server>);

    impl Connector for Client {
        type Session = ();

        fn engine(&self) -> &'static str {
            "test"
        }

        fn server(&self) -> &str {
            "here"
        }

        async fn connect(&self, _: Attempt) -> Result<()> {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            if self.0.full.load(Ordering::Relaxed) {
                return Err(Error::Unavailable { engine: "test", what: "full".into(), source: None });
            }
            Ok(())
        }

        async fn probe(&self, (): &()) -> Result<(), String> {
            Ok(())
        }

        fn disconnected(&self, _: &str) {}

        fn connected_again(&self, _: String) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_full_is_asked_again_later() {
        let server = Arc::new(Server::default());
        let first = Supervisor::open(Client(Arc::clone(&server))).await.expect("there is room");
        let slot = Slot::new();
        let made = async || slot.supervisor(&first, || Client(Arc::clone(&server))).await.expect("an answer");
        server.full.store(true, Ordering::Relaxed);
        let all = futures_util::future::join_all((0..5).map(|_| made())).await;
        assert!(all.iter().all(Option::is_none));
        assert_eq!(server.asked.load(Ordering::Relaxed), 2, "those who wait together ask once");
        server.full.store(false, Ordering::Relaxed);
        assert!(made().await.is_none(), "that is remembered");
        tokio::time::advance(ASK_AGAIN).await;
        assert!(made().await.is_some());
        assert_eq!(server.asked.load(Ordering::Relaxed), 3);
    }
}
