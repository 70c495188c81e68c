//! A server that stops or is slow for a while: paused, loading, busy, on a bad disk.

use leasehold::{Clock as _, Error, Loss, Standing};
use tokio::time::Instant;

use super::*;
use crate::bench::Ground;
use crate::history::{self, Rules, Section};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            one_that_was_paused_has_no_two_holders_and_no_ghosts,
            one_that_was_paused_for_a_moment_changes_nothing,
            one_with_a_slow_disk_is_slow_and_no_more,
            one_with_a_bad_disk_says_so_and_is_used_again_when_it_is_mended,
            one_that_loads_its_data_is_waited_for,
            one_that_pauses_its_clients_is_waited_for,
            one_that_is_busy_with_a_slow_script_is_waited_for
        ]
    )
    .cases
}

async fn one_that_was_paused_has_no_two_holders_and_no_ghosts(mut ground: Ground) {
    let (holder, other) = (ground.client().await, ground.client().await);
    let impatient = ground.client_with(Options::new().call_limit(ms(200))).await;
    let server = ground.server();
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_micros()).expect("some years");
    let held = lock(&holder, ms(1000)).await;
    let granted_at = now();
    let waiting = wait(&other, ms(9000)).await;
    server.pause();
    // What is asked now is heard when the server goes on, and by then nobody wants it.
    for number in 0..20 {
        let name = format!("ghost-{number}");
        let mutex = impatient.mutex(&name).expect("a name");
        if number % 2 == 0 {
            mutex.try_lock().await.expect_err("nobody answers");
        } else {
            assert!(tokio::time::timeout(ms(20), mutex.lock()).await.is_err(), "nobody answers");
        }
    }
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    let lost_at = now();
    server.resume();
    let resumed = Instant::now();
    let next = granted(waiting).await;
    let next_at = now();
    took("the next one is in, after the pause", resumed.elapsed());
    assert_eq!(held.standing(), Standing::Lost);
    let section = |worker, granted, released, token: leasehold::Token| Section {
        worker,
        asked: granted,
        granted,
        released,
        token: token.get(),
        weight: 1,
    };
    let seen = [section(1, granted_at, lost_at, held.token()), section(2, next_at, now(), next.token())];
    history::check(&seen, Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None })
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    for number in 0..20 {
        let mutex = other.mutex(format!("ghost-{number}")).expect("a name");
        let guard = soon("a name without a ghost", mutex.lock()).await.expect("granted");
        guard.release().await.expect("held");
    }
    // The ghosts would have had leases of 30 seconds.
    assert!(resumed.elapsed() < ms(3000), "free after {:?}", resumed.elapsed());
    next.release().await.expect("held");
    drop(held);
    leave(server, [holder, other, impatient]).await;
}

async fn one_that_was_paused_for_a_moment_changes_nothing(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let held = lock(&one, ms(9000)).await;
    let waiting = wait(&two, ms(9000)).await;
    server.pause();
    assert_eq!(soon("the doubt", held.endangered()).await, Standing::InDoubt);
    server.resume();
    until("the doubt is over", async || held.standing() == Standing::Held).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    leave(server, [one, two]).await;
}

async fn one_with_a_slow_disk_is_slow_and_no_more(_: Ground) {
    let server = Redis::start_on_disk(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    server.disk.slow(ms(150));
    let before = Instant::now();
    let held = lock(&one, ms(6000)).await;
    let took = before.elapsed();
    assert!(took >= ms(140), "the disk was not waited for: {took:?}");
    // The lease counts from before the request, not from the answer.
    let left = held.deadline().since(leasehold::SystemClock.now());
    assert!(left + took <= ms(6000), "{left:?} left after {took:?}");
    let waiting = wait(&two, ms(6000)).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    // What is answered after the lease is no lock.
    let late = soon("an answer", one.mutex("x").expect("a name").lease(ms(120)).try_lock()).await;
    assert!(late.expect("an answer").is_none(), "believed after its lease");
    server.disk.mend();
    until("the late one is given back", async || try_lock(&two).await.expect("an answer").is_some()).await;
    leave(&server, [one, two]).await;
}

async fn one_with_a_bad_disk_says_so_and_is_used_again_when_it_is_mended(_: Ground) {
    let server = Redis::start_on_disk(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let client = impatient(&server.url()).await;
    let held = lock(&client, ms(1500)).await;
    server.disk.fail();
    let (mut said, mut round) = (String::new(), 0);
    until("it is told", async || {
        // Another name each time: what can not be given back now keeps its own busy.
        round += 1;
        said = try_lock_name(&client, &round.to_string())
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        said.contains("MISCONF")
    })
    .await;
    assert!(said.contains("refuses writes"), "{said}");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    server.disk.mend();
    until("it is mended", async || try_lock_name(&client, "mended").await.is_ok()).await;
    let next = free_within(&client, ms(3000)).await;
    assert!(next.token() > held.token());
    next.release().await.expect("held");
    drop(held);
    leave(&server, [client]).await;
}

async fn try_lock_name(client: &Client, name: &str) -> Result<(), Error> {
    soon("an answer", client.mutex(name).expect("a name").try_lock()).await.map(drop)
}

async fn one_that_loads_its_data_is_waited_for(_: Ground) {
    // It has an ear for its clients after every thousand commands or so.
    let slowly = ["--key-load-delay", "300"];
    let server =
        Redis::start_with(&[&["--appendonly", "yes", "--appendfsync", "always"], &slowly[..]].concat());
    let (client, hasty) = (connect(&server.url()).await, impatient(&server.url()).await);
    let held = lock(&client, ms(9000)).await;
    let fill = "for i = 1, 8000 do redis.call('SET', KEYS[1] .. i, i, 'EX', 60) end";
    server.command(&["EVAL", fill, "1", "fill-"]);
    let asking = tokio::spawn(async move {
        let mut said = Vec::new();
        loop {
            match hasty.mutex("y").expect("a name").try_lock().await {
                Ok(guard) if !said.is_empty() => return (said, guard.is_some()),
                Ok(_) => {}
                Err(error) => said.push(error),
            }
        }
    });
    server.restart();
    let (said, taken) = soon("the first answer", asking).await.expect("no panic");
    assert!(taken && said.iter().all(Error::is_retryable), "{said:?}");
    assert!(said.iter().any(|error| error.to_string().contains("loading its data")), "{said:?}");
    until("the lease is renewed", async || held.standing() == Standing::Held && held.remaining() > ms(7000))
        .await;
    held.release().await.expect("held");
    leave(&server, [client]).await;
}

async fn one_that_pauses_its_clients_is_waited_for(mut ground: Ground) {
    let client = ground.client().await;
    let hasty = ground.client_with(Options::new().call_limit(ms(200))).await;
    let server = ground.server();
    let held = lock(&client, ms(6000)).await;
    server.command(&["CLIENT", "PAUSE", "1500", "ALL"]).ok();
    let error = try_lock(&hasty).await.expect_err("nobody answers");
    assert!(error.is_retryable(), "{error}");
    let patient = Instant::now();
    let guard = client.mutex("y").expect("a name").lock().await.expect("answered in the end");
    assert!(patient.elapsed() > ms(800), "it was not paused");
    guard.release().await.expect("held");
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    leave(server, [client, hasty]).await;
}

async fn one_that_is_busy_with_a_slow_script_is_waited_for(_: Ground) {
    let server = Redis::start_with(&["--busy-reply-threshold", "50"]);
    let client = connect_with(&server.url(), Options::new().call_limit(ms(500))).await;
    let held = lock(&client, ms(6000)).await;
    let mut slow = server.connect();
    slow.send(&["EVAL", "while true do end", "0"]).expect("a connection");
    until("it is busy", async || {
        server.command(&["PING"]) != crate::servers::Reply::Simple("PONG".to_owned())
    })
    .await;
    let error = client.look(Family::Lock, "x").await.expect_err("it is busy");
    assert!(error.is_retryable() && error.to_string().contains("slow script"), "{error}");
    let error = refused(&server.url()).await;
    assert!(error.is_retryable() && error.to_string().contains("slow script"), "{error}");
    server.command(&["SCRIPT", "KILL"]).ok();
    until("it answers again", async || client.look(Family::Lock, "x").await.is_ok()).await;
    held.release().await.expect("held");
    leave(&server, [client]).await;
}
