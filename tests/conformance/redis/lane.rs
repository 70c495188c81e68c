//! The second connection of those who are often alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::bench::Ground;
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    crate::cases!(
        "server",
        [
            who_is_often_alone_gets_a_lane_for_as_long,
            what_undoes_a_request_comes_after_it,
            who_stops_waiting_leaves_the_queue_whichever_way_is_faster,
            who_stops_waiting_at_any_instant_leaves_nothing,
            who_leaves_at_any_instant_leaves_nothing,
            a_lane_knows_the_password_and_the_database,
            a_lane_that_ends_costs_nothing,
            a_lane_to_another_server_is_not_taken,
            who_gets_no_lane_goes_on,
        ]
    )
    .cases
}

/// How many connections there are that hear no messages, but for the one that asks.
fn lanes(admin: &mut Connection) -> usize {
    admin.command(&["CLIENT", "LIST", "TYPE", "normal"]).text().lines().count() - 1
}

async fn take_turns(client: &Client, times: u32) {
    for _ in 0..times {
        lock(client, ms(30_000)).await.release().await.expect("held");
    }
}

/// Takes and gives back a lock until the client has a lane. No other client may have one.
pub(super) async fn get_a_lane(client: &Client, server: &Redis) {
    let mut admin = server.connect();
    until("it has a lane", async || {
        take_turns(client, 100).await;
        lanes(&mut admin) > 0
    })
    .await;
    // Found by the next one that is alone.
    take_turns(client, 10).await;
}

async fn who_is_often_alone_gets_a_lane_for_as_long(mut ground: Ground) {
    let client = ground.client().await;
    let mut admin = ground.server().connect();
    take_turns(&client, 3).await;
    assert_eq!(lanes(&mut admin), 0, "not worth it");
    for _ in 0..2 {
        get_a_lane(&client, ground.server()).await;
        take_turns(&client, 1000).await;
        assert_eq!(lanes(&mut admin), 1);
        let limit = tokio::time::Instant::now() + ms(15_000);
        while lanes(&mut admin) > 0 {
            assert!(tokio::time::Instant::now() < limit, "nobody needs it any more");
            tokio::time::sleep(ms(50)).await;
        }
    }
    leave(ground.server(), [client]).await;
}

async fn what_undoes_a_request_comes_after_it(mut ground: Ground) {
    const TAKE: &str = "*6\r\n$3\r\nSET";
    let proxy = Proxy::start(ground.server().port());
    let far = impatient(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let near = ground.client().await;
    for given_up in [false, true] {
        get_a_lane(&far, ground.server()).await;
        // Held back on the lane; all that is said on the other connection passes.
        proxy.stall_requests_from(TAKE);
        if given_up {
            let asking = mutex(&far, ms(30_000));
            tokio::time::timeout(ms(50), asking.lock()).await.expect_err("no answer");
        } else {
            let error = mutex(&far, ms(30_000)).try_lock().await.expect_err("no answer");
            assert!(error.is_retryable(), "{error:?}");
        }
        // Long enough for a release that does not wait to be there first.
        tokio::time::sleep(ms(200)).await;
        proxy.pass();
        free_within(&near, ms(3000)).await.release().await.expect("held");
        tokio::time::sleep(ms(200)).await;
        assert!(near.look(Family::Lock, "x").await.expect("a view").claims.is_empty(), "a ghost");
    }
    leave(ground.server(), [far, near]).await;
}

async fn who_stops_waiting_leaves_the_queue_whichever_way_is_faster(mut ground: Ground) {
    // How a waiter is written down begins like this.
    const JOIN: &str = "\r\n- ";
    // So many turns, one of another name, and one attempt to take the lock, and the next request opens a lane.
    const NEARLY: u32 = 31;
    let proxy = Proxy::start(ground.server().port());
    let (near, other) = (ground.client().await, ground.client().await);
    // The server must know the script, or it would ask for its text.
    let held = lock(&near, ms(30_000)).await;
    let waiting = wait(&other, ms(30_000)).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    other.close().await.expect("the server hears");
    for on_the_lane in [true, false] {
        let far = connect(&format!("redis://127.0.0.1:{}", proxy.port())).await;
        let mut admin = ground.server().connect();
        if on_the_lane {
            get_a_lane(&far, ground.server()).await;
        } else {
            take_turns(&far, NEARLY).await;
            far.mutex("y").expect("a name").lock().await.expect("granted").release().await.expect("held");
            assert_eq!(lanes(&mut admin), 0, "not yet");
        }
        let held = lock(&near, ms(30_000)).await;
        // Held back on one of the two connections; what is said on the other passes.
        proxy.stall_requests_from(JOIN);
        tokio::time::timeout(ms(100), mutex(&far, ms(30_000)).lock()).await.expect_err("no answer");
        assert_eq!(lanes(&mut admin), 1);
        // Long enough for a release that does not wait to be there first, and then for the one who joins to be seen.
        tokio::time::sleep(ms(200)).await;
        proxy.pass();
        tokio::time::sleep(ms(300)).await;
        let waiting = near.look(Family::Lock, "x").await.expect("a view").waiting;
        assert_eq!(waiting, 0, "a ghost waits; on the lane: {on_the_lane}");
        held.release().await.expect("held");
        free_within(&near, ms(1000)).await.release().await.expect("held");
        far.close().await.expect("the server hears");
    }
    leave(ground.server(), [near]).await;
}

async fn who_leaves_at_any_instant_leaves_nothing(mut ground: Ground) {
    let (far, near) = (ground.client().await, ground.client().await);
    let (mut granted, mut last) = (0, 0);
    for round in 0..400_u32 {
        if round % 100 == 0 {
            get_a_lane(&far, ground.server()).await;
        }
        // A round trip takes about a hundred microseconds; the prime number makes them all come, in no order.
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
    get_a_lane(&far, ground.server()).await;
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

async fn a_lane_knows_the_password_and_the_database(_: Ground) {
    let server = Redis::start_with(&["--requirepass", "right", "--unixsocket", "socket"]);
    let socket = server.dir().join("socket");
    let urls = [
        format!("redis://:right@127.0.0.1:{}/2", server.port()),
        format!("redis+unix://{}?db=2&pass=right", socket.display()),
    ];
    for url in urls {
        let client = connect(&url).await;
        get_a_lane(&client, &server).await;
        let held = lock(&client, ms(30_000)).await;
        let mut admin = server.connect();
        assert_eq!(admin.command(&["EXISTS", "lock:x"]).int(), 0);
        admin.command(&["SELECT", "2"]).ok();
        assert_eq!(admin.command(&["EXISTS", "lock:x"]).int(), 1);
        held.release().await.expect("held");
        client.close().await.expect("the server hears");
    }
}

async fn a_lane_that_ends_costs_nothing(mut ground: Ground) {
    let client = ground.client().await;
    let other = client.mutex("y").expect("a name").lock().await.expect("granted");
    let (mut admin, mut last) = (ground.server().connect(), 0);
    for _ in 0..5 {
        get_a_lane(&client, ground.server()).await;
        admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int();
        for _ in 0..3 {
            let guard = lock(&client, ms(30_000)).await;
            assert!(guard.token().get() > last, "tokens went back");
            last = guard.token().get();
            guard.release().await.expect("held");
        }
    }
    assert_eq!(other.standing(), leasehold::Standing::Held);
    other.release().await.expect("held");
    leave(ground.server(), [client]).await;
}

/// A name may have several addresses. Who asks at the second what it has said to the first is lost.
async fn a_lane_to_another_server_is_not_taken(mut ground: Ground) {
    let another = Redis::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("bound"));
    let (first, others) = (ground.server().port(), another.port());
    let made = Arc::new(AtomicUsize::new(0));
    let forwarding = tokio::spawn({
        let made = Arc::clone(&made);
        async move {
            loop {
                let (mut client, _) = listener.accept().await.expect("a client");
                let to = if made.fetch_add(1, Ordering::AcqRel) == 0 { first } else { others };
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.expect("it runs");
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await.ok() });
            }
        }
    });
    let (far, near) = (connect(&url).await, ground.client().await);
    take_turns(&far, 300).await;
    until("it was tried", async || made.load(Ordering::Acquire) == 2).await;
    take_turns(&far, 300).await;
    let held = lock(&far, ms(30_000)).await;
    assert!(try_lock(&near).await.expect("an answer").is_none(), "held where it was taken before");
    held.release().await.expect("held");
    assert!(another.command(&["KEYS", "*"]).texts().is_empty());
    leave(ground.server(), [far, near]).await;
    forwarding.abort();
}

async fn who_gets_no_lane_goes_on(mut ground: Ground) {
    let client = ground.client().await;
    let mut admin = ground.server().connect();
    admin.command(&["CONFIG", "SET", "maxclients", "2"]).ok();
    take_turns(&client, 500).await;
    assert_eq!(lanes(&mut admin), 0);
    admin.command(&["CONFIG", "SET", "maxclients", "1000"]).ok();
    leave(ground.server(), [client]).await;
}
