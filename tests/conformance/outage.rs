//! Servers that die and come back.
//!
//! An engine without servers must not promise names that are shared over a network; that is what
//! these cases check then.

use std::time::Duration;

use leasehold::engine::Reach;
use leasehold::{Error, Loss, Options, Standing};
use tokio::time::Instant;

use crate::bench::{Ground, ms, soon};
use crate::setup::AnyServer;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "outage",
        [
            servers_that_are_gone_cost_the_lease_and_no_more,
            servers_that_are_gone_are_named_and_used_again_when_they_are_back,
        ]
    )
}

/// Servers that belong together may have to find each other first.
const BACK: Duration = ms(30_000);

/// All servers, or the check that the engine needs none.
fn servers(ground: &Ground) -> Option<Vec<&AnyServer>> {
    let servers = ground.servers();
    if servers.is_empty() {
        assert_ne!(ground.promises().reach, Reach::Network);
        return None;
    }
    Some(servers)
}

async fn servers_that_are_gone_cost_the_lease_and_no_more(mut ground: Ground) {
    let client = ground.client().await;
    let mutex = client.mutex("x").expect("a name").lease(ms(2400));
    let held = soon("the lock", mutex.lock()).await.expect("granted");
    let Some(servers) = servers(&ground) else { return };
    servers.iter().for_each(|server| server.kill());
    assert_eq!(soon("the doubt", held.endangered()).await, Standing::InDoubt);
    let deadline = held.deadline();
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    assert_eq!(held.deadline(), deadline, "nobody can have renewed it");
    assert!(held.remaining().is_zero());
    let error = soon("a release", held.release()).await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { why: Loss::Deadline, .. }), "{error}");
}

async fn servers_that_are_gone_are_named_and_used_again_when_they_are_back(mut ground: Ground) {
    const CALL_LIMIT: Duration = ms(700);
    let options = ground.options();
    let client = ground.client_with(options.call_limit(CALL_LIMIT)).await;
    let mutex = client.mutex("x").expect("a name").lease(ms(1000));
    let held = soon("the lock", mutex.lock()).await.expect("granted");
    let Some(servers) = servers(&ground) else { return };
    servers.iter().for_each(|server| server.kill());
    soon("the loss", held.lost()).await;
    for _ in 0..3 {
        let asked = Instant::now();
        let error = soon("an error", client.mutex("y").expect("a name").try_lock()).await;
        let error = error.expect_err("nobody answers");
        assert!(error.is_retryable() && error.to_string().contains(&ground.culprit()), "{error}");
        assert!(asked.elapsed() < CALL_LIMIT + ms(1000), "said after {:?}", asked.elapsed());
    }
    servers.iter().for_each(|server| server.restart());
    let back = Instant::now();
    // The old client, and one that comes now.
    let newcomer = loop {
        match leasehold::connect_with(ground.url(), Options::new()).await {
            Ok(client) => break client,
            Err(error) => assert!(error.is_retryable() && back.elapsed() < BACK, "{error}"),
        }
    };
    let mut last = held.token();
    for client in [&client, &newcomer] {
        let guard = loop {
            match client.mutex("x").expect("a name").lock_for(ms(1000)).await {
                Ok(Some(guard)) => break guard,
                Ok(None) => assert!(back.elapsed() < BACK, "still taken"),
                Err(error) => assert!(error.is_retryable() && back.elapsed() < BACK, "{error}"),
            }
        };
        assert!(guard.token() > last, "tokens rise over a restart");
        last = guard.token();
        // What fails in the middle of a fail-over ends with its lease.
        guard.release().await.map_or_else(|error| assert!(error.is_retryable(), "{error}"), drop);
    }
}
