//! Steps that the cases of several servers take.

use std::time::Duration;

use leasehold::{Client, Guard};

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
