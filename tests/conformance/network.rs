//! The network between one client and its servers: cut, stalled, slow.
//!
//! Each address of the URL is behind a proxy. An engine without servers has no such address, and
//! must not promise names that are shared over a network. Servers that send their clients to other
//! addresses are reached whatever happens to the proxies; the cases then check just that.

use leasehold::engine::Reach;
use leasehold::{Client, Error, Family, Guard, Loss, Options, Standing};
use tokio::task::JoinHandle;

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::servers::Proxy;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "network",
        [
            a_holder_beyond_a_cut_is_lost_before_another_holds,
            a_grant_that_nobody_heard_of_is_given_back,
            a_slow_network_is_slow_and_no_more,
        ]
    )
}

/// A client behind proxies, and one beside them.
struct Clients {
    far: Client,
    near: Client,
    proxies: Vec<Proxy>,
}

impl Clients {
    /// `None` if no proxy can be in the way of a client, after a check that it is so.
    async fn connect(ground: &mut Ground, options: Options) -> Option<Clients> {
        let near = ground.client().await;
        let (url, proxies) = ground.behind_proxies();
        if proxies.is_empty() {
            assert_ne!(ground.promises().reach, Reach::Network);
            return None;
        }
        let far = leasehold::connect_with(&url, options).await.expect("the engine is there");
        if ground.redirects() {
            proxies.iter().for_each(Proxy::cut);
            let guard = soon("a lock", far.mutex("x").expect("a name").lock()).await.expect("granted");
            let taken = near.mutex("x").expect("a name").try_lock().await.expect("an answer");
            assert!(taken.is_none(), "the two share no name");
            guard.release().await.expect("held");
            return None;
        }
        Some(Clients { far, near, proxies })
    }

    fn each(&self, change: impl Fn(&Proxy)) {
        self.proxies.iter().for_each(change);
    }
}

async fn lock(client: &Client, lease: u64) -> Guard {
    let mutex = client.mutex("x").expect("a name").lease(ms(lease));
    soon("the lock", mutex.lock()).await.expect("granted")
}

/// Starts to wait for the name, and returns when the engine knows.
async fn wait(client: &Client) -> JoinHandle<Guard> {
    let mutex = client.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await.expect("granted") });
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    waiting
}

async fn a_holder_beyond_a_cut_is_lost_before_another_holds(mut ground: Ground) {
    let Some(clients) = Clients::connect(&mut ground, Options::new()).await else { return };
    for fault in [Proxy::cut, Proxy::stall] {
        let held = lock(&clients.far, 900).await;
        let waiting = wait(&clients.near).await;
        clients.each(fault);
        let next = soon("the next holder", waiting).await.expect("no panic");
        assert_eq!(held.standing(), Standing::Lost);
        assert!(next.token() > held.token());
        clients.each(Proxy::pass);
        let error = held.release().await.expect_err("it was lost");
        assert!(matches!(error, Error::Lost { why: Loss::Deadline, .. }), "{error}");
        next.release().await.expect("the other's release has not touched it");
    }
}

async fn a_grant_that_nobody_heard_of_is_given_back(mut ground: Ground) {
    let Some(clients) = Clients::connect(&mut ground, Options::new().call_limit(ms(400))).await else {
        return;
    };
    for reset in [false, true] {
        clients.each(Proxy::stall_replies);
        let mutex = clients.far.mutex("x").expect("a name").lease(ms(30_000));
        let error = soon("an error", mutex.try_lock()).await.expect_err("no answer");
        assert!(error.is_retryable(), "{error:?}");
        if reset {
            clients.each(Proxy::reset);
        }
        clients.each(Proxy::pass);
        // Not after the lease.
        lock(&clients.near, 30_000).await.release().await.expect("held");
    }
}

async fn a_slow_network_is_slow_and_no_more(mut ground: Ground) {
    let Some(clients) = Clients::connect(&mut ground, Options::new()).await else { return };
    clients.each(|proxy| proxy.delay(ms(100)));
    let held = lock(&clients.far, 3000).await;
    assert!(held.remaining() < ms(2800), "counted from before the request");
    let waiting = wait(&clients.near).await;
    not_within(ms(4000), "the lease was lost", held.lost()).await;
    held.release().await.expect("held");
    soon("the next holder", waiting).await.expect("no panic").release().await.expect("held");
}
