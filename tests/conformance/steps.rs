//! Steps that the cases of several servers take.

use std::time::Duration;

use leasehold::{Client, Error, Guard};

use crate::bench::soon;

pub(crate) async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.expect("the engine is there")
}

/// What is said to somebody who can not connect.
pub(crate) async fn refused(url: &str) -> String {
    match soon("a refusal", leasehold::connect(url)).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => {
            crate::client::says_each_cause_once(&error);
            error.to_string()
        }
    }
}

pub(crate) async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    client.mutex(name).expect("a name").lease(lease).lock().await.expect("granted")
}

/// Expects that an engine without cells refuses each part of the kit, and says why.
pub(crate) fn refuses_the_kit(client: &Client) {
    #[track_caller]
    fn refused<T>(made: leasehold::Result<T>) {
        let error = made.err().expect("what is not promised is refused");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("has no cells"), "{error}");
    }
    assert!(!client.guarantees().cells);
    refused(client.latch("x", 1));
    let limit = leasehold::kit::rate::Limit::token_bucket(1, Duration::from_secs(1));
    refused(client.limiter("x", limit, leasehold::kit::rate::WhenAway::Closed));
    #[cfg(feature = "cache")]
    refused(client.cache("x", Duration::from_secs(1), async |_| Ok::<_, String>(b"x".to_vec())));
    #[cfg(feature = "cache")]
    refused(client.filter("x"));
    #[cfg(feature = "leaderboards")]
    refused(client.leaderboard("x"));
    #[cfg(feature = "once")]
    refused(client.once("x"));
    #[cfg(feature = "sale")]
    refused(client.sale("x"));
    #[cfg(feature = "sessions")]
    refused(client.sessions("x"));
    #[cfg(feature = "topics")]
    refused(client.topic("x"));
}
