//! Every future is dropped at every await point, and nothing is left behind.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use leasehold::{Client, Family};

use crate::bench::{Ground, counts, elects, ms, until, upgrades};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "cancel",
        [
            a_dropped_lock,
            a_dropped_lock_that_waits,
            a_dropped_try_lock,
            a_dropped_release,
            a_dropped_write_and_upgrade,
            a_dropped_acquire_of_permits,
            a_dropped_multi,
            a_dropped_campaign,
            a_dropped_observer,
            a_dropped_close,
        ]
    )
}

/// How many times a future is polled at the most before it is dropped.
const DEEPEST: usize = 12;

/// Polls a future `times` times and drops it. True if it was done before.
pub(crate) async fn poll_and_drop<T>(future: impl Future<Output = T>, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        let polled = std::future::poll_fn(|_| {
            let mut context = Context::from_waker(Waker::noop());
            Poll::Ready(future.as_mut().poll(&mut context).is_ready())
        });
        if polled.await {
            return true;
        }
        // What the future waits for goes on: other tasks run, and messages arrive.
        tokio::time::sleep(ms(1)).await;
    }
    false
}

/// Runs `drop_at` for each depth until the future is done by itself, and checks each time that
/// nothing is left.
async fn at_every_point(mut ground: Ground, drop_at: impl AsyncFn(&Client, &Client, usize) -> bool) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    wire.set(Fault::Stutter);
    let mut depths = 0;
    for depth in 0..DEEPEST {
        let done = drop_at(&client, &other, depth).await;
        until("nothing is left behind", async || {
            let mut left = client.held();
            for family in [Family::Lock, Family::Semaphore, Family::Election] {
                left += other.list(family, None, 100).await.expect("a list").len();
            }
            left == 0
        })
        .await;
        depths += 1;
        if done {
            break;
        }
    }
    assert!(depths >= 2, "the future was dropped at {depths} points only");
}

async fn a_dropped_lock(ground: Ground) {
    at_every_point(ground, async |client, _, depth| {
        poll_and_drop(client.mutex("x").expect("a name").lock(), depth).await
    })
    .await;
}

async fn a_dropped_lock_that_waits(ground: Ground) {
    at_every_point(ground, async |client, other, depth| {
        let held = other.mutex("x").expect("a name").lock().await.expect("free");
        let mutex = client.mutex("x").expect("a name");
        let mut waiting = pin!(mutex.lock());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..4 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            tokio::time::sleep(ms(1)).await;
        }
        // Granted while it waits, and dropped anywhere between the grant and the guard.
        held.release().await.expect("held");
        for _ in 0..depth {
            tokio::time::sleep(ms(1)).await;
            if waiting.as_mut().poll(&mut context).is_ready() {
                return true;
            }
        }
        false
    })
    .await;
}

async fn a_dropped_try_lock(ground: Ground) {
    at_every_point(ground, async |client, _, depth| {
        poll_and_drop(client.mutex("x").expect("a name").try_lock(), depth).await
    })
    .await;
}

async fn a_dropped_release(ground: Ground) {
    at_every_point(ground, async |client, _, depth| {
        let guard = client.mutex("x").expect("a name").lock().await.expect("free");
        poll_and_drop(guard.release(), depth).await
    })
    .await;
}

async fn a_dropped_write_and_upgrade(ground: Ground) {
    let Some(ground) = upgrades(ground).await else { return };
    at_every_point(ground, async |client, _, depth| {
        let rwlock = client.rwlock("x").expect("a name");
        poll_and_drop(
            async {
                let reader = rwlock.read().await.expect("free");
                let writer = reader.upgrade().await.expect("alone");
                let reader = writer.downgrade().await.expect("held");
                reader.release().await
            },
            depth,
        )
        .await
    })
    .await;
}

async fn a_dropped_acquire_of_permits(ground: Ground) {
    let Some(ground) = counts(ground).await else { return };
    at_every_point(ground, async |client, _, depth| {
        let semaphore = client.semaphore("x", 3).expect("a name");
        poll_and_drop(async { (semaphore.acquire_many(2).await, semaphore.acquire().await) }, depth).await
    })
    .await;
}

async fn a_dropped_multi(ground: Ground) {
    at_every_point(ground, async |client, _, depth| {
        let multi = client.multi(["a", "b", "c"]).expect("names");
        poll_and_drop(async { multi.lock().await.expect("free").release().await }, depth).await
    })
    .await;
}

async fn a_dropped_campaign(ground: Ground) {
    let Some(ground) = elects(ground).await else { return };
    at_every_point(ground, async |client, _, depth| {
        let election = client.election("x").expect("a name");
        poll_and_drop(
            async {
                let leader = election.campaign("a").await.expect("vacant");
                leader.proclaim("b").await.expect("leading");
                leader.resign().await
            },
            depth,
        )
        .await
    })
    .await;
}

async fn a_dropped_observer(ground: Ground) {
    let Some(ground) = elects(ground).await else { return };
    at_every_point(ground, async |client, _, depth| {
        let election = client.election("x").expect("a name");
        poll_and_drop(
            async {
                let mut observer = election.observe().await.expect("an observer");
                observer.next().await.expect("an answer");
                tokio::time::timeout(ms(5), observer.next()).await.is_err()
            },
            depth,
        )
        .await
    })
    .await;
}

async fn a_dropped_close(mut ground: Ground) {
    let other = ground.client().await;
    for depth in 0..6 {
        let options = ground.options();
        let (client, wire) = ground.client_on_wire(options).await;
        wire.set(Fault::Stutter);
        let guards = [
            client.mutex("a").expect("a name").lock().await.expect("free"),
            client.mutex("b").expect("a name").lock().await.expect("free"),
        ];
        poll_and_drop(client.close(), depth).await;
        drop(guards);
        until("nothing is left behind", async || {
            other.list(Family::Lock, None, 100).await.expect("a list").is_empty()
        })
        .await;
    }
}
