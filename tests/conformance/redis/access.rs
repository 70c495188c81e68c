//! Who is let in, to which server, and what is never said aloud.

use std::fmt::{self, Write as _};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex as StdMutex};

use leasehold::{Error, Loss, Standing};

use super::*;
use crate::bench::Ground;
use crate::servers::{Proxy, Reply};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            one_that_evicts_is_refused_unless_that_is_accepted,
            a_wrong_password_is_refused,
            one_that_is_something_else_is_named,
            these_permissions_are_enough_and_all_are_used,
            missing_permissions_are_named,
            what_comes_late_makes_no_ghost_even_if_it_can_not_be_stopped,
            secrets_are_never_said,
            a_server_that_repeats_what_it_hears_does_not_get_the_password_said,
            a_database_that_is_not_there_is_refused,
            a_replica_is_refused_and_names_its_primary,
            one_that_becomes_a_replica_is_waited_for,
        ]
    )
    .cases
}

async fn one_that_evicts_is_refused_unless_that_is_accepted(_: Ground) {
    let server = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&server.url()).await;
    assert!(matches!(error, Error::Engine { .. }), "{error:?}");
    assert!(
        error.to_string().contains("allkeys-lru") && error.to_string().contains("?eviction=allow"),
        "{error}"
    );
    let client = connect(&format!("{}?eviction=allow", server.url())).await;
    assert!(client.guarantees().exclusion.contains("runs out of memory"), "{:?}", client.guarantees());
    lock(&client, ms(9000)).await.release().await.expect("held");
    // What it promises does not change while nobody answers.
    server.kill();
    until("the end is noticed", async || client.look(Family::Lock, "x").await.is_err()).await;
    assert!(client.guarantees().exclusion.contains("runs out of memory"), "{:?}", client.guarantees());
    // Without a limit nothing is thrown away, whatever the policy.
    let server = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let client = connect(&server.url()).await;
    assert!(!client.guarantees().exclusion.contains("runs out of memory"));
    leave(&server, [client]).await;
}

async fn a_wrong_password_is_refused(_: Ground) {
    let server = Redis::start_with(&["--requirepass", "canary-right"]);
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    for login in ["", ":canary-wrong@", "nobody:canary-wrong@", "default:canary-wrong@"] {
        let error = refused(&at(login)).await;
        assert!(matches!(error, Error::Engine { .. }), "{login}: {error:?}");
        let words = error.to_string();
        assert!(
            words.contains(&format!("127.0.0.1:{}", server.port())) && words.contains("password"),
            "{words}"
        );
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
    let client = connect(&at(":canary-right@")).await;
    lock(&client, ms(9000)).await.release().await.expect("held");
    // A password that was changed is met at the next connection; the right one mends it.
    let held = lock(&client, ms(9000)).await;
    let mut admin = server.connect();
    admin.command(&["CONFIG", "SET", "requirepass", "canary-new"]).ok();
    admin.command(&["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"]).int();
    admin.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    until("it is refused", async || {
        matches!(client.look(Family::Lock, "x").await, Err(Error::Engine { .. }))
    })
    .await;
    admin.command(&["CONFIG", "SET", "requirepass", "canary-right"]).ok();
    until("it is let in", async || client.look(Family::Lock, "x").await.is_ok()).await;
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    leave(&server, [client]).await;
}

async fn one_that_is_something_else_is_named(_: Ground) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            (&stream).write_all(b"<!DOCTYPE html><title>400</title>\r\n").ok();
            // Until the other side has had enough.
            std::io::copy(&mut &stream, &mut std::io::sink()).ok();
        }
    });
    let error = refused(&format!("redis://127.0.0.1:{port}")).await;
    let words = error.to_string();
    assert!(words.contains(&format!("`127.0.0.1:{port}` does not answer like a Redis server")), "{words}");
}

/// All that a client does, as docs/redis.md lists it.
const COMMANDS: &str = "ping info time client|id client|kill subscribe unsubscribe publish evalsha eval scan \
     set get mget del exists incr pexpire pexpireat pttl hset hget hmget hdel hexists hlen zadd zrem zpopmin zrange zrangebyscore zrevrange \
     zscore zcard rpush ltrim lindex lrange llen";

fn user<'a>(commands: impl Iterator<Item = &'a str>) -> Vec<String> {
    let rules =
        ["on", ">canary", "resetkeys", "~lock:*", "~{lock:*", "resetchannels", "&leasehold:*", "-@all"];
    let words = ["ACL", "SETUSER", "app"].into_iter().chain(rules).map(str::to_owned);
    words.chain(commands.map(|command| format!("+{command}"))).collect()
}

fn allow<'a>(server: &Redis, commands: impl Iterator<Item = &'a str>) -> String {
    let words = user(commands);
    server.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    format!("redis://app:canary@127.0.0.1:{}", server.port())
}

/// Everything that the crate can do to a server.
async fn do_everything(server: &Redis, url: &str) {
    let (one, two) = (connect(url).await, connect(url).await);
    let held = lock(&one, ms(2000)).await;
    let waiting = wait(&two, ms(2000)).await;
    let deadline = held.deadline();
    until("it is renewed", async || held.deadline() > deadline).await;
    assert_eq!(one.list(Family::Lock, None, 10).await.expect("a list").len(), 1);
    // One who waits behind another, for so long that it asks again.
    let third = connect(url).await;
    assert!(mutex(&third, ms(2000)).lock_for(ms(1700)).await.expect("an answer").is_none());
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");

    let lock = one.rwlock("x").expect("a name");
    let reader = lock.read().await.expect("free");
    let writer = reader.upgrade().await.map_err(|not| not.error).expect("alone");
    writer.downgrade().await.expect("held").release().await.expect("held");
    let delayed = mutex(&one, ms(9000)).lock_delay(ms(10)).lock().await.expect("free");
    assert_eq!(two.break_claims(Family::Lock, "x").await.expect("broken").len(), 1);
    soon("the loss", delayed.lost()).await;

    let semaphore = one.semaphore("s", 3).expect("a name");
    let permits = semaphore.acquire_many(2).await.expect("free");
    assert!(two.semaphore("s", 3).expect("a name").try_acquire_many(2).await.expect("an answer").is_none());
    semaphore.resize(4).await.expect("resized");
    permits.release().await.expect("held");
    semaphore.resize(3).await.expect("resized");

    let election = one.election("e").expect("a name");
    let mut observer = two.election("e").expect("a name").observe().await.expect("an observer");
    let leader = election.campaign("a").await.expect("elected");
    leader.proclaim("b").await.expect("heard");
    for _ in 0..2 {
        soon("news", observer.next()).await.expect("news");
    }
    assert!(election.leader().await.expect("an answer").is_some());
    leader.resign().await.expect("led");
    drop(observer);

    let latch = one.latch("l", 1).expect("a name");
    let mut waiting = std::pin::pin!(latch.wait());
    assert!(tokio::time::timeout(ms(20), &mut waiting).await.is_err());
    two.latch("l", 1).expect("a name").count_down().await.expect("counted");
    soon("the latch", waiting).await.expect("open");

    // A connection that breaks, an idle one, and a stranger's lock without a counter.
    let channels = || server.command(&["PUBSUB", "CHANNELS", "leasehold:seat:*"]).array().len();
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    until("all are back", async || channels() == 3).await;
    // A name that is one's own, and one that goes to and fro.
    for client in [&one, &one, &two, &one, &two, &one] {
        let held = client.mutex("y").expect("a name").lock().await.expect("free");
        held.release().await.expect("held");
    }
    // Some that go together.
    let cycle = |number: u8| {
        let mutex = one.mutex(format!("y{number}")).expect("a name");
        async move { mutex.lock().await.expect("free").release().await.expect("held") }
    };
    for _ in 0..2 {
        (0..8).map(cycle).collect::<tokio::task::JoinSet<_>>().join_all().await;
    }
    server.command(&["DEL", "{lock:y}:lock:token"]).int();
    server.command(&["SET", "lock:y", "stranger", "PX", "60000"]).ok();
    assert!(one.mutex("y").expect("a name").try_lock().await.expect("an answer").is_none());
    let calls = || server.command(&["INFO", "commandstats"]).text();
    until("an idle connection is tried", async || calls().contains("cmdstat_ping:")).await;
    leave(server, [one, two, third]).await;
}

async fn these_permissions_are_enough_and_all_are_used(_: Ground) {
    let server = Redis::start();
    let url = allow(&server, COMMANDS.split_whitespace());
    // The server's own tests of itself are not to count.
    server.command(&["CONFIG", "RESETSTAT"]).ok();
    do_everything(&server, &url).await;
    assert_eq!(server.denied(), [""; 0], "denied");
    let used = server.used();
    let unused: Vec<&str> = COMMANDS.split_whitespace().filter(|command| !used.contains(*command)).collect();
    assert!(unused.is_empty(), "not needed: {unused:?}");
}

async fn missing_permissions_are_named(_: Ground) {
    let server = Redis::start();
    let refused_by = |error: &Error| {
        assert!(matches!(error, Error::Engine { .. }), "{error:?}");
        assert!(error.to_string().contains("docs/redis.md"), "{error}");
    };
    refused_by(&refused(&allow(&server, ["ping"].into_iter())).await);
    let but = |without: &'static str| COMMANDS.split_whitespace().filter(move |command| *command != without);
    refused_by(&refused(&allow(&server, but("subscribe"))).await);
    for missing in ["set", "evalsha", "incr", "zadd", "get"] {
        // What a user may do is added up.
        server.command(&["ACL", "DELUSER", "app"]).int();
        let client = connect(&allow(&server, but(missing))).await;
        let held = lock_and_wait(&client).await;
        refused_by(&held.expect_err(missing));
    }
    // Nor is a name outside the user's own keys.
    let client = connect(&format!("{}?prefix=other:", allow(&server, COMMANDS.split_whitespace()))).await;
    refused_by(&try_lock(&client).await.expect_err("not its keys"));
    // Without these, all goes well unless the network is at its worst.
    server.command(&["ACL", "DELUSER", "app"]).int();
    let less = COMMANDS.split_whitespace().filter(|command| !command.starts_with("client|"));
    let client = connect(&allow(&server, less)).await;
    lock(&client, ms(9000)).await.release().await.expect("held");
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    lock(&client, ms(9000)).await.release().await.expect("held");
}

/// A client that gives a connection up ends it at the server, so that what is still on its way
/// there is never done. A user that may not do that relies on the time after which a request is not
/// wanted.
async fn what_comes_late_makes_no_ghost_even_if_it_can_not_be_stopped(mut ground: Ground) {
    // Longer than it takes until a connection that does not answer is given up.
    const LIMIT: Duration = ms(12_000);
    let near = ground.client().await;
    let server = ground.server();
    let mut admin = server.connect();
    let proxy = Proxy::start(server.port());
    let less = COMMANDS.split_whitespace().filter(|command| !command.starts_with("client|"));
    let url = allow(server, less).replace(&server.port().to_string(), &proxy.port().to_string());
    let far = connect_with(&url, Options::new().call_limit(LIMIT)).await;
    let semaphore = far.semaphore("s", 1).expect("a name").lease(ms(60_000));
    soon("a permit", semaphore.acquire()).await.expect("free").release().await.expect("held");
    // A free lock is taken by another script, which must know the time too.
    let mutex = far.mutex("m").expect("a name").lease(ms(60_000));
    soon("a lock", mutex.lock()).await.expect("free").release().await.expect("held");
    // Everything that is on this connection arrives after the client has given it up.
    proxy.stall_open();
    let asked_at = tokio::time::Instant::now();
    let permit = tokio::spawn(async move { semaphore.acquire().await?.release().await });
    let lock = tokio::spawn(async move { mutex.lock().await?.release().await });
    for asking in [permit, lock] {
        let asked = tokio::time::timeout(2 * LIMIT, asking).await.expect("an answer").expect("no panic");
        // Asked for again on the next connection; on a machine that is too slow for that, given up.
        assert!(asked.as_ref().err().is_none_or(Error::is_retryable), "{asked:?}");
    }
    tokio::time::sleep_until(asked_at + LIMIT + ms(500)).await;
    proxy.pass();
    // The end of the old connection comes after what was said on it; then there are ours, theirs
    // and the admin's.
    until("all has arrived", async || {
        admin.command(&["INFO", "clients"]).text().contains("connected_clients:3\r")
    })
    .await;
    for (family, name) in [(Family::Semaphore, "s"), (Family::Lock, "m")] {
        let ghosts = near.look(family, name).await.expect("a view").claims;
        assert!(ghosts.is_empty(), "a ghost: {ghosts:?}");
    }
    leave(server, [far, near]).await;
}

async fn lock_and_wait(client: &Client) -> Result<(), Error> {
    let lock = client.rwlock("x").expect("a name").lease(ms(300));
    let held = lock.write().await?;
    lock.read_for(ms(10)).await?;
    held.release().await?;
    let (one, two) = (lock.read().await?, lock.read().await?);
    one.release().await?;
    two.release().await?;
    lock.write().await?.release().await
}

/// Writes down every event, with all its fields.
#[derive(Clone, Default)]
struct Eavesdropper(Arc<StdMutex<String>>);

impl tracing::Subscriber for Eavesdropper {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut Pen(&mut self.0.lock().expect("no panic")));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut Pen(&mut self.0.lock().expect("no panic")));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Pen(&mut self.0.lock().expect("no panic")));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct Pen<'a>(&'a mut String);

impl tracing::field::Visit for Pen<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        writeln!(self.0, "{field}={value:?}").expect("a string");
    }
}

async fn secrets_are_never_said(_: Ground) {
    let server = Arc::new(Redis::start_with(&["--requirepass", "canary-default"]));
    let words = user(COMMANDS.split_whitespace());
    server.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let proxy = Arc::new(Proxy::start(server.port()));
    let heard = Eavesdropper::default();
    // On a thread of its own, so that everything that happens there is heard, and nothing of other
    // cases.
    let listener = heard.clone();
    // While there is but one listener, `tracing` asks the thread that first says something whether
    // anybody listens, and believes it for good: that may be the thread of another case. With two
    // it asks them.
    let _second = tracing::Dispatch::new(Eavesdropper::default());
    let said = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tracing::subscriber::with_default(listener, || runtime.block_on(say_everything(&server, &proxy)))
    });
    let said = tokio::task::spawn_blocking(|| said.join()).await.expect("a thread").expect("no panic");
    let heard = heard.0.lock().expect("no panic").clone();
    assert!(heard.contains("in doubt") && heard.contains("lost"), "{heard}");
    for text in said.iter().chain([&heard]) {
        assert!(!text.contains("canary"), "{text}");
    }
}

/// Brings about as many errors as can be, and repeats whatever is said.
async fn say_everything(server: &Redis, proxy: &Proxy) -> Vec<String> {
    let mut said = Vec::new();
    let at = |login: &str, rest: &str| format!("redis://{login}127.0.0.1:{}{rest}", proxy.port());
    let urls = [
        at("app:canary-wrong@", ""),
        at(":canary@", ""),
        at("app:canary@", "/word"),
        at("app:canary@", "/99"),
        at("app:canary@", "?speed=canary"),
        at("app:canary@", "?prefix=a&speed=9"),
        at("app:can?canary@", ""),
        at("app:can?x=1&canary=2@", ""),
        at("app:can/canary@", ""),
        at("app:can#canary@", ""),
        at("app:canary@x@", ":word"),
        "redis:app:canary@127.0.0.1".to_owned(),
        "redis:/app:canary@127.0.0.1".to_owned(),
        "redis://app:canary@".to_owned(),
        "redis+unix:///nowhere?user=app&pass=canary".to_owned(),
        "redis+unix:///nowhere?pass=one&canary=two".to_owned(),
        "redis+unix:///nowhere?pass=one&canary".to_owned(),
        "rediss://app:canary@127.0.0.1:1".to_owned(),
    ];
    // Not quite the URL of an engine, or without the `@`.
    let more = [
        "canary@127.0.0.1",
        "canary@127.0.0.1:6379",
        "app:canary@127.0.0.1",
        "redis://app:canary",
        "redis+cluster://app:canary,b:1",
        "redis+sentinel://app:canary,b:1/stock",
        "redis+sentinel://app:1/canary@127.0.0.1/stock",
        "redis+cluster://app:1/canary@127.0.0.1",
        "redlock://app:canary,b,c",
        "redlock://app:1/canary@127.0.0.1,b,c",
    ];
    for url in urls.into_iter().chain(more.map(str::to_owned)) {
        let error = refused(&url).await;
        said.push(format!("{error} {error:?}"));
    }
    let client = connect_with(&at("app:canary@", ""), Options::new().call_limit(ms(300))).await;
    said.push(format!("{client:?} {:?} {:#?}", client.guarantees(), client));
    let mut events = client.events();
    let held = lock(&client, ms(600)).await;
    said.push(format!("{held:?} {:?}", client.mutex("x")));
    let say = async |said: &mut Vec<String>| {
        // The first one may find that its predecessor's release is still on its way.
        let mut error = None;
        until("a fault", async || {
            error = try_lock_y(&client).await.err();
            error.is_some()
        })
        .await;
        let error = error.expect("found above");
        said.push(format!("{error} {error:?}"));
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            said.push(format!("{error} {error:?}"));
            source = error.source();
        }
    };
    proxy.stall();
    say(&mut said).await;
    proxy.cut();
    say(&mut said).await;
    soon("the loss", held.lost()).await;
    proxy.pass();
    until("it is back", async || try_lock_y(&client).await.is_ok()).await;
    server.command(&["ACL", "SETUSER", "app", "-set", "-evalsha"]).ok();
    say(&mut said).await;
    server.command(&["ACL", "SETUSER", "app", "resetpass", ">another-one"]).ok();
    proxy.reset();
    say(&mut said).await;
    server.kill();
    say(&mut said).await;
    while let Ok(Some(event)) = tokio::time::timeout(ms(1), events.next()).await {
        said.push(format!("{event:?}"));
    }
    drop(held);
    said
}

async fn try_lock_y(client: &Client) -> Result<(), Error> {
    soon("an answer", client.mutex("y").expect("a name").try_lock()).await.map(drop)
}

async fn a_server_that_repeats_what_it_hears_does_not_get_the_password_said(_: Ground) {
    // As servers before 6.0 do, and proxies that know only some commands.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let parrot = std::thread::spawn(move || {
        for reply in ["-ERR unknown command", "-NOPERM what is", "-WEIRD is this:", "-WRONGPASS not"] {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut heard = vec![0; 4096];
            let length = stream.read(&mut heard).expect("a request");
            let heard = String::from_utf8_lossy(&heard[..length]).replace("\r\n", " ");
            // One for each command of the handshake.
            for _ in 0..3 {
                stream.write_all(format!("{reply} `{heard}`\r\n").as_bytes()).unwrap_or(());
            }
        }
    });
    for _ in 0..4 {
        let error = refused(&format!("redis://app:canary@127.0.0.1:{port}")).await;
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    parrot.join().expect("no panic");
}

async fn a_database_that_is_not_there_is_refused(ground: Ground) {
    let error = refused(&format!("{}/99", ground.server().url())).await;
    assert!(matches!(error, Error::Engine { .. }), "{error:?}");
    assert!(error.to_string().contains("does not have the database"), "{error}");
}

async fn a_replica_is_refused_and_names_its_primary(ground: Ground) {
    let primary = ground.server();
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    let error = refused(&replica.url()).await;
    assert!(matches!(error, Error::Engine { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
}

async fn one_that_becomes_a_replica_is_waited_for(mut ground: Ground) {
    let client = ground.client_with(Options::new().call_limit(ms(300))).await;
    let other = ground.client().await;
    let server = ground.server();
    let held = lock(&client, ms(9000)).await;
    // Of a primary that is not there, so that its data stays as it is.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).ok();
    for _ in 0..3 {
        let error = try_lock_y(&client).await.expect_err("a replica");
        assert!(error.is_retryable() && error.to_string().contains("replica"), "{error:?}");
    }
    let waiting = tokio::spawn(async move { (lock(&other, ms(9000)).await, other) });
    server.command(&["REPLICAOF", "NO", "ONE"]).ok();
    until("it is a primary again", async || try_lock_y(&client).await.is_ok()).await;
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    let (next, other) = soon("the next holder", waiting).await.expect("no panic");

    // Of one that knows nothing: it comes back without its data.
    let empty = Redis::start_with(&["--repl-diskless-sync-delay", "0"]);
    server.command(&["REPLICAOF", "127.0.0.1", &empty.port().to_string()]).ok();
    until("it has forgotten", async || server.command(&["EXISTS", "lock:x"]) == Reply::Int(0)).await;
    let error = try_lock_y(&client).await.expect_err("a replica");
    assert!(error.is_retryable(), "{error:?}");
    server.command(&["REPLICAOF", "NO", "ONE"]).ok();
    assert_eq!(soon("the loss", next.lost()).await, Loss::Gone);
    until("it is a primary again", async || try_lock_y(&client).await.is_ok()).await;
    assert!(lock(&client, ms(9000)).await.token() > next.token());
    drop(next);
    leave(server, [client, other]).await;
}
