//! A quorum of Redis servers that is hurt: minorities and majorities that die, hang, forget, and tell the wrong time.

mod access;
mod data_loss;

mod scripts;
#[cfg(feature = "redis-tls")]
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::engine::Renewed;
use leasehold::{Client, Error, Family, Guard, Loss, Options, Standing};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Group;
use crate::bench::{ms, soon, until};
use crate::child;
use crate::history::{self, Rules, Section};
use crate::redis::topology::members::{engine, hold};
use crate::servers::{Proxy, Quorum, Redis, not_installed};

/// Cases that start their own servers, as many as they are told.
macro_rules! quorum_cases {
    ($servers:expr, [$($case:ident),* $(,)?]) => {{
        let servers: usize = $servers;
        vec![$((stringify!($case), crate::case(move |_| $case(servers)))),*]
    }};
}
use quorum_cases;

pub(crate) fn groups(servers: usize) -> Vec<Group> {
    let own = quorum_cases!(
        servers,
        [
            a_minority_can_die,
            a_minority_can_hang,
            a_minority_can_be_cut_off,
            a_majority_that_is_down_is_an_error,
            a_majority_that_hangs_is_an_error_and_leaves_no_ghost,
            a_majority_that_stalls_is_waited_for,
            half_is_no_majority,
            a_slow_server_holds_up_nobody,
            a_failed_attempt_leaves_nothing,
            a_release_that_no_majority_heard_is_reported,
            what_is_no_quorum_is_refused,
            a_server_that_is_down_when_we_come_is_waited_for,
            a_claim_that_a_server_lost_is_healed,
            a_claim_that_a_majority_lost_is_lost,
            colliding_clients_make_progress,
            readers_have_tokens_of_their_own,
            what_servers_keep_outlasts_what_holders_believe,
            a_stranger_on_a_majority_is_respected,
            every_key_of_a_name_ends_by_itself,
            forgotten_scripts_do_not_matter,
            a_stopped_server_costs_no_lease,
            a_renewal_is_decided_by_a_majority_alone,
            a_stopped_server_is_not_flooded,
            a_closed_client_lets_go_of_its_connections,
        ]
    );
    let cases = [
        own,
        access::cases(servers),
        data_loss::cases(servers),
        scripts::cases(servers),
        #[cfg(feature = "redis-tls")]
        tls::cases(servers),
    ];
    // A clock that stands still is compiled; certificates are made.
    let missing = not_installed(&["cc", "openssl"]);
    vec![Group { name: "faults", missing, cases: cases.concat() }]
}

/// The largest number of servers that can be missed.
fn minority(servers: usize) -> usize {
    (servers - 1) / 2
}

async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.expect("a majority is there")
}

/// A client that does not wait for long.
async fn impatient(url: &str) -> Client {
    let options = Options::new().call_limit(ms(1500));
    leasehold::connect_with(url, options).await.expect("a majority is there")
}

async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    let mutex = client.mutex(name).expect("a name").lease(lease);
    soon("the lock", mutex.lock()).await.expect("granted")
}

async fn taken(client: &Client, name: &str) -> bool {
    client.mutex(name).expect("a name").try_lock().await.expect("an answer").is_none()
}

/// Servers behind lines that can be cut.
struct Lines {
    quorum: Quorum,
    proxies: Vec<Proxy>,
}

impl Lines {
    fn start(servers: usize) -> Lines {
        let quorum = Quorum::start(servers);
        let proxies = quorum.servers.iter().map(|server| Proxy::start(server.port())).collect();
        Lines { quorum, proxies }
    }

    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("redlock://{}", hosts.join(","))
    }
}

/// How many turns everybody must have had at the end: nobody starves, however slow the machine is.
const TURNS: usize = 8;

/// Clients that take turns until they are told to stop. What fails because servers are missing is tried again.
struct Hammer {
    stop: Arc<AtomicBool>,
    workers: JoinSet<Vec<Section>>,
}

impl Hammer {
    async fn start(url: &str, workers: u64, lease: Duration) -> Hammer {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for worker in 0..workers {
            let options = Options::new().hand_over(Duration::ZERO, 0).call_limit(ms(1500));
            let client = leasehold::connect_with(url, options).await.expect("a majority is there");
            let mutex = client.mutex("hammered").expect("a name").lease(lease);
            let stop = Arc::clone(&stop);
            tasks.spawn(async move {
                let now = || u64::try_from(start.elapsed().as_micros()).expect("a short test");
                let mut sections = Vec::new();
                while !stop.load(Ordering::Acquire) || sections.len() < TURNS {
                    let asked = now();
                    let guard = match mutex.lock_for(ms(2000)).await {
                        Ok(Some(guard)) => guard,
                        Ok(None) => continue,
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            continue;
                        }
                    };
                    let granted = now();
                    tokio::time::sleep(ms(1)).await;
                    // What is lost is not held, and counts until it was.
                    let held = guard.standing() != Standing::Lost;
                    let (released, token) = (now(), guard.token().get());
                    guard.release().await.ok();
                    let released = if held { released } else { granted };
                    sections.push(Section { worker, asked, granted, released, token, weight: 1 });
                }
                sections
            });
        }
        Hammer { stop, workers: tasks }
    }

    /// Checks what has happened: one at a time, and tokens that rise.
    async fn stop(self) {
        self.stop_after(1).await;
    }

    /// The same, if so many may have been in at once.
    async fn stop_after(self, capacity: u64) {
        self.stop.store(true, Ordering::Release);
        let sections = self.workers.join_all().await.concat();
        history::check(&sections, Rules { capacity, rising_beyond: 0, fifo_beyond: None })
            .expect("a good history");
    }
}

/// Holds a name while a minority is hurt, and takes others.
async fn works_without_some(url: &str, hurt: impl FnOnce(), heal: impl FnOnce()) {
    let (one, two) = (connect(url).await, connect(url).await);
    let guard = lock(&one, "x", ms(900)).await;
    hurt();
    let end = Instant::now() + ms(2500);
    while Instant::now() < end {
        assert_ne!(guard.standing(), Standing::Lost, "a minority was enough to lose it");
        assert!(taken(&two, "x").await);
        let before = Instant::now();
        lock(&two, "y", ms(3000)).await.release().await.expect("held");
        assert!(before.elapsed() < ms(1000), "{:?}", before.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.standing() == Standing::Held);
    let token = guard.token();
    guard.release().await.expect("a majority heard");
    let next = lock(&two, "x", ms(900)).await;
    assert!(next.token() > token);
    heal();
    next.release().await.expect("held");
    lock(&one, "x", ms(900)).await.release().await.expect("held");
}

async fn a_minority_can_die(servers: usize) {
    let quorum = Quorum::start(servers);
    let some = &quorum.servers[..minority(servers)];
    works_without_some(
        &quorum.url(),
        || some.iter().for_each(Redis::kill),
        || some.iter().for_each(Redis::restart),
    )
    .await;
}

async fn a_minority_can_hang(servers: usize) {
    let quorum = Quorum::start(servers);
    let some = &quorum.servers[..minority(servers)];
    works_without_some(
        &quorum.url(),
        || some.iter().for_each(Redis::pause),
        || some.iter().for_each(Redis::resume),
    )
    .await;
}

async fn a_minority_can_be_cut_off(servers: usize) {
    let lines = Lines::start(servers);
    let some = &lines.proxies[..minority(servers)];
    works_without_some(
        &lines.url(),
        || some.iter().for_each(Proxy::cut),
        || some.iter().for_each(Proxy::pass),
    )
    .await;
}

async fn a_majority_that_is_down_is_an_error(servers: usize) {
    let quorum = Quorum::start(servers);
    let (client, other) = (impatient(&quorum.url()).await, impatient(&quorum.url()).await);
    let guard = lock(&client, "x", ms(1500)).await;
    let dead = &quorum.servers[..servers - minority(servers)];
    dead.iter().for_each(Redis::kill);
    let before = Instant::now();
    let error = other.mutex("y").expect("a name").try_lock().await.expect_err("no majority");
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    assert!(error.is_retryable(), "{error}");
    for server in dead {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deadline);
    dead.iter().for_each(Redis::restart);
    until("all is well again", async || {
        other.mutex("x").expect("a name").try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

async fn a_majority_that_hangs_is_an_error_and_leaves_no_ghost(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = impatient(&quorum.url()).await;
    let hung = &quorum.servers[..servers - minority(servers)];
    lock(&client, "x", ms(900)).await.release().await.expect("held");
    hung.iter().for_each(Redis::pause);
    let before = Instant::now();
    let error = client.mutex("x").expect("a name").lock().await.expect_err("no majority");
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    assert!(error.is_retryable(), "{error}");
    for server in hung {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
    tokio::time::sleep(ms(1200)).await;
    hung.iter().for_each(Redis::resume);
    // What was asked while they hung is not granted to somebody who does not wait any more; the lease was 30 s.
    let other = connect(&quorum.url()).await;
    let guard = lock(&other, "x", ms(900)).await;
    for server in &quorum.servers {
        let holder = server.command(&["GET", "lock:x"]);
        assert!(holder.is_nil() || holder.text().contains(" 900000 "), "{}", holder.text());
    }
    drop(guard);
}

async fn a_majority_that_stalls_is_waited_for(servers: usize) {
    let quorum = Quorum::start(servers);
    let stalled = &quorum.servers[..servers - minority(servers)];
    let url = quorum.url();
    let turns = child::take_turns(&url, 4, 2500);
    let stalls = async {
        loop {
            tokio::time::sleep(ms(150)).await;
            stalled.iter().for_each(Redis::pause);
            // Longer than one server has to answer, and shorter than a call has.
            tokio::time::sleep(ms(700)).await;
            stalled.iter().for_each(Redis::resume);
        }
    };
    // Every section is held and given back: none of them is told that it has lost.
    tokio::select! {
        _ = turns => {}
        () = stalls => {}
    }
}

async fn half_is_no_majority(servers: usize) {
    let quorum = Quorum::start(servers + 1);
    let client = impatient(&quorum.url()).await;
    let half = servers.div_ceil(2);
    quorum.servers[..half - 1].iter().for_each(Redis::kill);
    lock(&client, "x", ms(3000)).await.release().await.expect("held");
    quorum.servers[half - 1].kill();
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("half is not enough");
    assert!(error.is_retryable() && error.to_string().contains("no majority"), "{error}");
}

async fn a_slow_server_holds_up_nobody(servers: usize) {
    let lines = Lines::start(servers);
    let client = connect(&lines.url()).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    lines.proxies[0].delay(ms(400));
    let before = Instant::now();
    let mut last = None;
    for _ in 0..20 {
        let guard = lock(&client, "x", ms(9000)).await;
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.expect("held");
    }
    assert!(before.elapsed() < ms(4000), "{:?}", before.elapsed());
    lines.proxies[0].pass();
    until("the slow one is free too", async || {
        lines.quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 0
    })
    .await;
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

async fn what_is_no_quorum_is_refused(servers: usize) {
    let quorum = Quorum::start(servers);
    let proxy = Proxy::start(quorum.servers[0].port());
    let error = leasehold::connect(&format!("{},127.0.0.1:{}", quorum.url(), proxy.port())).await;
    let error = error.expect_err("one of them twice");
    assert!(
        matches!(error, Error::Invalid { .. }) && error.to_string().contains("the same server"),
        "{error}"
    );
    for hosts in ["redlock://127.0.0.1", "redlock://127.0.0.1:1,127.0.0.1:2"] {
        let error = leasehold::connect(hosts).await.expect_err("too few");
        assert!(error.to_string().contains("three servers"), "{error}");
    }
    let client = connect(&format!("{}?max_lease=2s", quorum.url())).await;
    let error = client.mutex("x").expect("a name").lease(ms(2001)).lock().await.expect_err("too long");
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("max_lease"), "{error}");
}

async fn a_server_that_is_down_when_we_come_is_waited_for(servers: usize) {
    let quorum = Quorum::start(servers);
    drop(connect(&quorum.url()).await);
    quorum.servers[0].kill();
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(1200)).await;
    quorum.servers[0].restart();
    until("it takes part", async || quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 1).await;
    assert_eq!(guard.standing(), Standing::Held);
    guard.release().await.expect("held");
    until("it is free there too", async || quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 0).await;
    let all = quorum.servers.iter().collect::<Vec<_>>();
    all.iter().for_each(|server| server.kill());
    let error = leasehold::connect(&quorum.url()).await.expect_err("nobody is there");
    for server in all {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
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

async fn a_stopped_server_costs_no_lease(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let (long, short) = (lock(&client, "long", ms(30_000)).await, lock(&client, "short", ms(2000)).await);
    quorum.servers[..minority(servers)].iter().for_each(Redis::pause);
    let end = Instant::now() + ms(10_500);
    while Instant::now() < end {
        assert_ne!(short.standing(), Standing::Lost, "a minority was enough to lose it");
        assert_eq!(long.standing(), Standing::Held);
        tokio::time::sleep(ms(20)).await;
    }
    until("it is held", async || short.standing() == Standing::Held).await;
    quorum.servers[..minority(servers)].iter().for_each(Redis::resume);
    short.release().await.expect("a majority hears");
    long.release().await.expect("a majority hears");
}

async fn a_renewal_is_decided_by_a_majority_alone(servers: usize) {
    let quorum = Quorum::start(servers);
    let engine = engine(&quorum.url()).await;
    let renewals = [hold(&*engine, "long", 1, 30_000).await, hold(&*engine, "short", 2, 10_000).await];
    quorum.servers[..minority(servers)].iter().for_each(Redis::pause);
    for _ in 0..3 {
        let before = Instant::now();
        let verdicts = soon("verdicts", engine.renew(&renewals)).await.expect("a majority answers");
        assert_eq!(verdicts, [Renewed::Yes; 2]);
        assert!(before.elapsed() < ms(1000), "it waited for a minority: {:?}", before.elapsed());
    }
    quorum.servers[..minority(servers)].iter().for_each(Redis::resume);
}

/// How many scripts a server has run.
fn scripts(server: &Redis) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once("calls="));
    calls.map(|(_, rest)| rest.split(',').next().expect("a number").parse::<u64>().expect("a number")).sum()
}

async fn a_stopped_server_is_not_flooded(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(600)).await;
    let (stopped, other) = (&quorum.servers[0], &quorum.servers[servers - 1]);
    let (before, others_before) = (scripts(stopped), scripts(other));
    stopped.pause();
    // Shorter than it takes to give the connection up.
    until("it was renewed often", async || scripts(other) >= others_before + 8).await;
    assert_eq!(guard.standing(), Standing::Held);
    stopped.resume();
    // It does first what it was asked first.
    let stale = scripts(stopped) - before;
    assert!(stale <= 4, "{stale} renewals of long ago");
    until("it is renewed there again", async || scripts(stopped) > before + stale + 2).await;
}

async fn a_closed_client_lets_go_of_its_connections(servers: usize) {
    let quorum = Quorum::start(servers);
    let all: Vec<&Redis> = quorum.servers.iter().collect();
    crate::redis::topology::close::lets_go(&quorum.url(), &all, &quorum.servers[..minority(servers)]).await;
}
