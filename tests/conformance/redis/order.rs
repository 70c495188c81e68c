//! One connection: whatever is given up on is undone after it, never before.

use super::*;
use crate::bench::Ground;
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            a_client_has_one_connection,
            what_undoes_a_request_comes_after_it,
            who_stops_waiting_leaves_the_queue_after_joining_it,
            who_stops_waiting_at_any_instant_leaves_nothing,
            who_leaves_at_any_instant_leaves_nothing,
        ]
    )
    .cases
}

async fn take_turns(client: &Client, times: u32) {
    for _ in 0..times {
        lock(client, ms(30_000)).await.release().await.expect("held");
    }
}

async fn a_client_has_one_connection(mut ground: Ground) {
    let client = ground.client().await;
    let mut admin = ground.server().connect();
    // Room for these two, and no more.
    admin.command(&["CONFIG", "SET", "maxclients", "2"]).ok();
    take_turns(&client, 500).await;
    assert_eq!(admin.command(&["CLIENT", "LIST"]).text().lines().count(), 2);
    let rejected = admin.command(&["INFO", "stats"]).text();
    assert!(rejected.contains("rejected_connections:0\r"), "{rejected}");
    admin.command(&["CONFIG", "SET", "maxclients", "1000"]).ok();
    leave(ground.server(), [client]).await;
}

async fn what_undoes_a_request_comes_after_it(mut ground: Ground) {
    // How the text of a holder starts.
    const TAKE: &str = "\r\nleasehold/1 ";
    let proxy = Proxy::start(ground.server().port());
    let far = impatient(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let near = ground.client().await;
    for given_up in [false, true] {
        // The server must know the script, or it would ask for its text.
        take_turns(&far, 3).await;
        proxy.stall_requests_from(TAKE);
        if given_up {
            let asking = mutex(&far, ms(30_000));
            tokio::time::timeout(ms(50), asking.lock()).await.expect_err("no answer");
        } else {
            let error = mutex(&far, ms(30_000)).try_lock().await.expect_err("no answer");
            assert!(error.is_retryable(), "{error:?}");
        }
        // Long enough for a release on its way past the request to be there first.
        tokio::time::sleep(ms(200)).await;
        proxy.pass();
        free_within(&near, ms(3000)).await.release().await.expect("held");
        tokio::time::sleep(ms(200)).await;
        assert!(near.look(Family::Lock, "x").await.expect("a view").claims.is_empty(), "a ghost");
    }
    leave(ground.server(), [far, near]).await;
}

async fn who_stops_waiting_leaves_the_queue_after_joining_it(mut ground: Ground) {
    // How a waiter is written down begins like this.
    const JOIN: &str = "\r\n- ";
    let proxy = Proxy::start(ground.server().port());
    let (near, far) = (ground.client().await, connect(&format!("redis://127.0.0.1:{}", proxy.port())).await);
    // The server must know the script, or it would ask for its text.
    let held = lock(&near, ms(30_000)).await;
    let waiting = wait(&far, ms(30_000)).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    let held = lock(&near, ms(30_000)).await;
    proxy.stall_requests_from(JOIN);
    tokio::time::timeout(ms(100), mutex(&far, ms(30_000)).lock()).await.expect_err("no answer");
    // Long enough for a release on its way past the request to be there first, and then for the one
    // who joins to be seen.
    tokio::time::sleep(ms(200)).await;
    proxy.pass();
    tokio::time::sleep(ms(300)).await;
    let waiting = near.look(Family::Lock, "x").await.expect("a view").waiting;
    assert_eq!(waiting, 0, "a ghost waits");
    held.release().await.expect("held");
    free_within(&near, ms(1000)).await.release().await.expect("held");
    leave(ground.server(), [near, far]).await;
}

async fn who_leaves_at_any_instant_leaves_nothing(mut ground: Ground) {
    let (far, near) = (ground.client().await, ground.client().await);
    let (mut granted, mut last) = (0, 0);
    for round in 0..400_u32 {
        // A round trip takes about a hundred microseconds; the prime number makes them all come, in
        // no order.
        let long = Duration::from_micros(u64::from(round * 97 % 400));
        let locking = mutex(&far, ms(30_000));
        if let Ok(guard) = tokio::time::timeout(long, locking.lock()).await {
            let guard = guard.expect("granted");
            assert!(guard.token().get() > last, "tokens went back");
            (granted, last) = (granted + 1, guard.token().get());
            if round % 2 == 0 {
                tokio::time::timeout(long / 2, guard.release())
                    .await
                    .map_or_else(drop, |it| it.expect("held"));
            }
        }
        free_within(&near, ms(3000)).await.release().await.expect("held");
    }
    assert!(granted > 0, "none was granted");
    leave(ground.server(), [far, near]).await;
}

async fn who_stops_waiting_at_any_instant_leaves_nothing(mut ground: Ground) {
    let (far, near) = (ground.client().await, ground.client().await);
    let (mut granted, mut last) = (0, 0);
    for round in 0..400_u32 {
        // As above. Some get it while they wait, some just when they leave.
        let (long, held_for) = (round * 97 % 700, round * 61 % 300);
        let held = lock(&near, ms(30_000)).await;
        let waiting = tokio::spawn({
            let asking = mutex(&far, ms(30_000));
            async move {
                let guard =
                    tokio::time::timeout(Duration::from_micros(long.into()), asking.lock()).await.ok()?;
                let guard = guard.expect("granted");
                let token = guard.token().get();
                guard.release().await.expect("held");
                Some(token)
            }
        });
        tokio::time::sleep(Duration::from_micros(held_for.into())).await;
        assert!(held.token().get() > last, "tokens went back");
        last = held.token().get();
        held.release().await.expect("held");
        if let Some(token) = waiting.await.expect("no panic") {
            assert!(token > last, "tokens went back");
            (granted, last) = (granted + 1, token);
        }
        free_within(&near, ms(1000)).await.release().await.expect("held");
    }
    assert!(0 < granted && granted < 400, "{granted} of 400 were granted");
    leave(ground.server(), [far, near]).await;
}
