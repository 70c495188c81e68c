//! One claim on several servers: taken, kept, lost and given back by a majority.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Renewed;
use leasehold::{Family, Loss, Options, Standing};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Hammer, Lines, connect, impatient, lock, minority, quorum_cases, taken};
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::history::{self, Rules, Section};
use crate::redis::topology::members::{engine, hold};
use crate::servers::{Quorum, Redis};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(
        servers,
        [
            a_failed_attempt_leaves_nothing,
            a_release_that_no_majority_heard_is_reported,
            a_claim_that_a_server_lost_is_healed,
            a_claim_that_a_majority_lost_is_lost,
            colliding_clients_make_progress,
            what_servers_keep_outlasts_what_holders_believe,
            readers_have_tokens_of_their_own,
            a_stranger_on_a_majority_is_respected,
            every_key_of_a_name_ends_by_itself,
            forgotten_scripts_do_not_matter
        ]
    )
}

async fn a_failed_attempt_leaves_nothing(servers: usize) {
    let lines = Lines::start(servers);
    let client = impatient(&lines.url()).await;
    let some = minority(servers);
    for server in &lines.quorum.servers[some..] {
        server.command(&["SET", "lock:x", "a stranger", "NX", "PX", "60000"]).ok();
    }
    // The first does what it is asked, and nobody hears of it.
    lines.proxies[0].stall_replies();
    assert!(taken(&client, "x").await);
    lines.proxies[0].pass();
    for server in &lines.quorum.servers[..some] {
        until("it was given back", async || server.command(&["EXISTS", "lock:x"]).int() == 0).await;
    }
    // Cut off, the answer never comes; what was taken is given back when the line is there again.
    lines.proxies[0].stall_replies();
    assert!(taken(&client, "x").await);
    lines.proxies[0].cut();
    tokio::time::sleep(ms(50)).await;
    lines.proxies[0].pass();
    for server in &lines.quorum.servers[..some] {
        until("it was given back", async || server.command(&["EXISTS", "lock:x"]).int() == 0).await;
    }
}

async fn a_release_that_no_majority_heard_is_reported(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = impatient(&quorum.url()).await;
    let guard = lock(&client, "x", ms(1500)).await;
    let dead = &quorum.servers[..servers - minority(servers)];
    dead.iter().for_each(Redis::kill);
    let error = soon("the release", guard.release()).await.expect_err("no majority heard");
    assert!(error.is_retryable() && error.to_string().contains("no majority"), "{error}");
    dead.iter().for_each(Redis::restart);
    // Those that come back in time hear of it; in any case the lease ends.
    until("it is free", async || {
        client.mutex("x").expect("a name").try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

async fn a_claim_that_a_server_lost_is_healed(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(900)).await;
    let reader = client.rwlock("r").expect("a name").lease(ms(900)).read().await.expect("free");
    for key in ["lock:x", "lock:r"] {
        quorum.servers[0].command(&["DEL", key]).int();
    }
    for key in ["lock:x", "lock:r"] {
        until("it is there again", async || quorum.servers[0].command(&["EXISTS", key]).int() == 1).await;
    }
    assert!(quorum.servers[0].command(&["GET", "lock:x"]).text().contains(&guard.token().to_string()));
    assert_eq!((guard.standing(), reader.standing()), (Standing::Held, Standing::Held));
    // It does not come back after a release.
    guard.release().await.expect("held");
    reader.release().await.expect("held");
    for server in &quorum.servers {
        until("it is free", async || server.command(&["EXISTS", "lock:x", "lock:r"]).int() == 0).await;
    }
}

async fn a_claim_that_a_majority_lost_is_lost(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(1500)).await;
    let token = guard.token();
    for server in &quorum.servers[minority(servers)..] {
        server.command(&["DEL", "lock:x"]).int();
    }
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    // What is left, and what was healed on the way, is in nobody's way.
    for server in &quorum.servers {
        until("it is free", async || server.command(&["EXISTS", "lock:x"]).int() == 0).await;
    }
    assert!(lock(&client, "x", ms(900)).await.token() > token);
}

async fn colliding_clients_make_progress(servers: usize) {
    const CLIENTS: u64 = 3;
    const EACH: usize = 60;
    let quorum = Quorum::start(servers);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for worker in 0..CLIENTS {
        let options = Options::new().hand_over(Duration::ZERO, 0);
        let client = leasehold::connect_with(&quorum.url(), options).await.expect("a majority is there");
        tasks.spawn(async move {
            let now = || u64::try_from(start.elapsed().as_micros()).expect("a short test");
            let mutex = client.mutex("x").expect("a name");
            let mut sections = Vec::new();
            while sections.len() < EACH {
                let asked = now();
                // Some ask once, and some wait.
                let guard = if worker == 0 { mutex.try_lock().await } else { mutex.lock().await.map(Some) };
                let Some(guard) = guard.expect("an answer") else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let (granted, token) = (now(), guard.token().get());
                tokio::task::yield_now().await;
                let released = now();
                guard.release().await.expect("held");
                sections.push(Section { worker, asked, granted, released, token, weight: 1 });
            }
            sections
        });
    }
    let mut sections = Vec::new();
    while let Some(done) = tasks.join_next().await {
        sections.extend(done.expect("no worker fails"));
    }
    history::check(&sections, Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None })
        .expect("a good history");
    assert!(start.elapsed() < ms(30_000), "{:?}", start.elapsed());
}

/// Clocks may run at speeds that differ by a hundredth. Exclusion bears that twice: the holder
/// believes a hundredth less, and the servers keep a hundredth more.
async fn what_servers_keep_outlasts_what_holders_believe(servers: usize) {
    let quorum = Quorum::start(servers);
    let (client, other) = (connect(&quorum.url()).await, connect(&quorum.url()).await);
    // How long the server that is the last of a majority keeps what was asked for at `asked`.
    let kept = async |asked: Instant, lease: Duration, what: &str| {
        let mut kept: Vec<Duration> = Vec::new();
        for server in &quorum.servers {
            let mut connection = server.connect();
            let mut keys = connection.command(&["KEYS", "*"]).texts();
            keys.retain(|key| {
                connection.command(&["TYPE", key]).text() == "string"
                    && connection.command(&["GET", key]).text().starts_with("redlock/1 ")
            });
            let left = keys.first().map(|holder| connection.command(&["PTTL", holder]).int());
            kept.extend(
                left.and_then(|left| u64::try_from(left).ok()).map(|left| ms(left) + asked.elapsed()),
            );
        }
        kept.sort_unstable();
        let fewest = kept[kept.len() - (servers / 2 + 1)];
        assert!(fewest >= lease + lease / 100, "{what}: a majority keeps {lease:?} for {fewest:?} only");
    };
    let lease = Duration::from_secs(30);
    // A name that nobody has used, and one that was used before.
    for what in ["the first grant", "the second grant"] {
        let asked = Instant::now();
        let guard = lock(&client, "x", lease).await;
        kept(asked, lease, what).await;
        assert!(guard.remaining() <= lease - lease / 100, "{what}: {:?}", guard.remaining());
        guard.release().await.expect("held");
    }
    let asked = Instant::now();
    let reader = other.rwlock("x").expect("a name").lease(lease).read().await.expect("free");
    kept(asked, lease, "a reader").await;
    reader.release().await.expect("held");
    let engine = engine(&quorum.url()).await;
    let asked = Instant::now();
    let renewal = hold(&*engine, "x", 1, 30_000).await;
    kept(asked, lease, "the grant of an engine without a client").await;
    let asked = Instant::now();
    let renewed = soon("a renewal", engine.renew(&[renewal])).await.expect("an answer");
    assert_eq!(renewed, [Renewed::Yes]);
    kept(asked, lease, "a renewal").await;
}

async fn readers_have_tokens_of_their_own(servers: usize) {
    let quorum = Quorum::start(servers);
    let mut tasks = JoinSet::new();
    let together = Arc::new(tokio::sync::Barrier::new(6));
    for _ in 0..6 {
        let client = connect(&quorum.url()).await;
        let together = Arc::clone(&together);
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..20 {
                together.wait().await;
                let reader = client.rwlock("x").expect("a name").read().await.expect("shared");
                tokens.push(reader.token().get());
                // All of them at the same time, or this waits for ever.
                together.wait().await;
                reader.release().await.expect("held");
            }
            tokens
        });
    }
    let mut all = Vec::new();
    while let Some(tokens) = soon("all readers", tasks.join_next()).await {
        let tokens = tokens.expect("no panic");
        assert!(tokens.is_sorted());
        all.extend(tokens);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 120, "a token was given twice");
}

async fn a_stranger_on_a_majority_is_respected(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let majority = servers - minority(servers);
    // As redsync, node-redlock and their like do it.
    let set = |server: &Redis, key: &str| server.command(&["SET", key, "7f3a-uuid", "NX", "PX", "1200"]);
    let before = Instant::now();
    for server in &quorum.servers[..majority] {
        set(server, "lock:x").ok();
    }
    assert!(taken(&client, "x").await);
    let view = client.look(Family::Lock, "x").await.expect("a view");
    assert!(view.claims[0].claim.holder.label.contains("7f3a-uuid"), "{view:?}");
    let guard = lock(&client, "x", ms(9000)).await;
    assert!(before.elapsed() >= ms(1150), "{:?}", before.elapsed());
    let refused = quorum.servers.iter().filter(|server| set(server, "lock:x").is_nil()).count();
    assert!(refused >= majority, "a stranger got in beside us");
    guard.release().await.expect("held");
    // One that holds a minority holds nothing.
    for server in &quorum.servers[..minority(servers)] {
        set(server, "lock:y").ok();
    }
    lock(&client, "y", ms(900)).await.release().await.expect("held");
}

async fn every_key_of_a_name_ends_by_itself(servers: usize) {
    let quorum = Quorum::start(servers);
    let (one, two) = (connect(&quorum.url()).await, connect(&quorum.url()).await);
    let guard = lock(&one, "x", ms(900)).await;
    assert!(two.mutex("x").expect("a name").lock_for(ms(30)).await.expect("an answer").is_none());
    guard.release().await.expect("held");
    let readers = [
        one.rwlock("x").expect("a name").read().await.expect("free"),
        two.rwlock("x").expect("a name").read().await.expect("shared"),
    ];
    let writing = two.rwlock("x").expect("a name").write_for(ms(30)).await;
    assert!(writing.expect("an answer").is_none());
    for reader in readers {
        reader.release().await.expect("held");
    }
    let writer = two.rwlock("x").expect("a name").write().await.expect("free");
    writer.downgrade().await.expect("held").release().await.expect("held");
    lock(&one, "x", ms(900)).await.release().await.expect("held");
    one.break_claims(Family::Lock, "x").await.expect("broken");
    for server in &quorum.servers {
        let mut connection = server.connect();
        let keys = connection.command(&["KEYS", "*"]).texts();
        let stay = keys
            .iter()
            .filter(|key| !key.starts_with("leasehold:"))
            .find(|key| connection.command(&["PTTL", key]).int() == -1);
        assert_eq!(stay, None, "{keys:?}");
        assert!(keys.len() < 16, "{keys:?}");
    }
}

async fn forgotten_scripts_do_not_matter(servers: usize) {
    let quorum = Quorum::start(servers);
    let hammer = Hammer::start(&quorum.url(), 3, ms(2000)).await;
    for _ in 0..20 {
        for server in &quorum.servers {
            server.command(&["SCRIPT", "FLUSH"]).ok();
        }
        tokio::time::sleep(ms(25)).await;
    }
    hammer.stop().await;
}
