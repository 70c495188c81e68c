//! Hands on the server: keys deleted or replaced, memory full, scripts forgotten, connections
//! killed.

use std::collections::HashMap;

use futures_util::future::join_all;
use leasehold::claim::{Answer, Ask, OwnerId};
use leasehold::engine::{Hints, Renewal, Renewed};
use leasehold::{Error, Loss, Name, Standing};
use tokio::time::Instant;

use super::*;
use crate::bench::{Ground, ask, not_within};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            a_release_takes_nothing_from_somebody_else,
            a_release_hands_on_nobody_elses_claim,
            a_counter_that_is_behind_gives_no_token_twice,
            the_log_of_an_election_is_kept_for_a_day,
            one_that_was_emptied_tells_its_holders,
            a_deleted_key_is_told_at_the_next_renewal,
            killed_connections_cost_neither_a_wake_up_nor_a_lease,
            forgotten_scripts_are_taught_again,
            who_waits_comes_before_a_batch,
            full_memory_takes_nobody_in_and_lets_everybody_out,
            clients_that_disagree_are_told,
        ]
    )
    .cases
}

/// Takes "x0", "x1" and so on, all together.
async fn lock_all(client: &Client, count: usize) -> Vec<Guard> {
    let locks = (0..count).map(|number| client.mutex(format!("x{number}")).expect("a name"));
    let locks = locks.map(|mutex| async move { mutex.lease(ms(30_000)).lock().await.expect("free") });
    soon("the locks", join_all(locks)).await
}

/// The same, often enough that the names are known to be free: such are given back together.
async fn lock_known(client: &Client, count: usize) -> Vec<Guard> {
    for _ in 0..3 {
        for released in join_all(lock_all(client, count).await.into_iter().map(Guard::release)).await {
            released.expect("held");
        }
    }
    lock_all(client, count).await
}

/// A claim that was taken from its holder is somebody else's by the time that the holder gives it
/// back.
async fn a_release_takes_nothing_from_somebody_else(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let mut admin = server.connect();
    // One goes alone, many go together, and which of them is the first to go alone is a race.
    for round in 0..24 {
        let (count, ours) = (if round % 2 == 0 { 1 } else { 8 }, round & 2 != 0);
        let which = format!("{count} locks, to another client {ours}");
        let mut guards = lock_known(&one, count).await;
        guards.sort_by(|a, b| a.name().cmp(b.name()));
        let keys: Vec<String> = (0..count).map(|number| format!("lock:x{number}")).collect();
        for (key, guard) in keys.iter().zip(&guards) {
            let text = admin.command(&["GET", key]).text();
            assert!(text.contains(&format!(" {} ", guard.token())), "{which}: {text}");
        }
        let mut others = Vec::new();
        for key in &keys {
            if ours {
                assert_eq!(admin.command(&["DEL", key]).int(), 1);
            } else {
                admin.command(&["SET", key, "a stranger", "PX", "60000"]).ok();
            }
        }
        if ours {
            others = lock_all(&two, count).await;
        }
        for released in soon("the releases", join_all(guards.into_iter().map(Guard::release))).await {
            let error = released.expect_err(&which);
            assert!(matches!(error, Error::Lost { why: Loss::Gone, .. }), "{which}: {error}");
        }
        for key in &keys {
            let held = admin.command(&["GET", key]);
            assert!(!held.is_nil(), "{which}: somebody else's claim was given back");
            if !ours {
                assert_eq!(held.text(), "a stranger", "{which}");
                admin.command(&["DEL", key]).int();
            }
        }
        for guard in others {
            guard.release().await.unwrap_or_else(|error| panic!("{which}: {error}"));
        }
    }
    leave(server, [one, two]).await;
}

/// The same for a lock that has a queue: whoever is next waits for the one that holds.
async fn a_release_hands_on_nobody_elses_claim(mut ground: Ground) {
    let (one, two, three) = (ground.client().await, ground.client().await, ground.client().await);
    let server = ground.server();
    for stranger in [false, true] {
        // From the queue, so that its release looks for the next in it.
        let before = lock(&two, ms(30_000)).await;
        let waiting = wait(&one, ms(30_000)).await;
        before.release().await.expect("held");
        let robbed = granted(waiting).await;
        // What is said to confirm it would find out that it is lost.
        until("it is confirmed", async || robbed.remaining() > ms(20_000)).await;
        let next = if stranger {
            server.command(&["SET", "lock:x", "a stranger", "PX", "60000"]).ok();
            None
        } else {
            let waiting = wait(&two, ms(30_000)).await;
            assert_eq!(server.command(&["DEL", "lock:x"]).int(), 1);
            Some(granted(waiting).await)
        };
        let last = wait(&three, ms(30_000)).await;
        let error = soon("the release", robbed.release()).await.expect_err("it was somebody else's");
        assert!(matches!(error, Error::Lost { why: Loss::Gone, .. }), "{error}");
        let waiting = one.look(Family::Lock, "x").await.expect("a view").waiting;
        assert!(waiting == 1 && !last.is_finished(), "somebody else's claim was handed on");
        match next {
            Some(next) => next.release().await.expect("held"),
            None => {
                assert_eq!(server.command(&["GET", "lock:x"]).text(), "a stranger");
                server.command(&["DEL", "lock:x"]).int();
            }
        }
        granted(last).await.release().await.expect("held");
    }
    leave(server, [one, two, three]).await;
}

/// What a replica looks like that took over without having heard of the last tokens: the client
/// connects anew, and finds the counter where it was some time ago.
async fn a_counter_that_is_behind_gives_no_token_twice(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    let mut admin = server.connect();
    // One goes alone, many go together.
    for count in [1, 8] {
        for behind in [3, 1000, 3_600_000_000] {
            let mut last = HashMap::new();
            for guard in lock_known(&client, count).await {
                last.insert(guard.name().to_owned(), guard.token().get());
                guard.release().await.expect("held");
            }
            // Nothing of what the client still has to say may come after this.
            admin.command(&["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"]).int();
            admin.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
            for (name, token) in &last {
                let counter = format!("{{lock:{name}}}:lock:token");
                admin.command(&["SET", &counter, &(token - behind).to_string(), "EX", "86400"]).ok();
            }
            for guard in lock_all(&client, count).await {
                let (token, last) = (guard.token().get(), last[guard.name()]);
                assert!(token > last, "{count} locks, {behind} behind: token {token} after {last}");
                guard.release().await.expect("held");
            }
        }
    }
    leave(server, [client]).await;
}

/// The hours of a server whose clock stands still.
async fn the_log_of_an_election_is_kept_for_a_day(_: Ground) {
    const HOUR: Duration = Duration::from_secs(3600);
    let server = Redis::start_frozen();
    let engine = leasehold::engine::open(&server.url(), &Options::new()).await.expect("the server is there");
    engine.listen(Hints::new(|_| {}));
    let name = Name::new(Family::Election, "e").expect("a name");
    let keys = ["state", "log"].map(|what| format!("{{lock:e}}:election:{what}"));
    let lives = |when: &str| {
        for key in &keys {
            let left = server.command(&["PTTL", key]).int();
            assert!(left > 0, "{when}: `{key}` has {left} ms to live");
        }
    };
    let seen = async |when: &str| {
        let view = soon("a view", engine.look(&name, 0)).await.expect("a view");
        lives(when);
        view.changes.iter().map(|change| change.token != 0).collect::<Vec<bool>>()
    };
    // A leader whose lease is renewed for longer than a day changes nothing, and the log goes on.
    let ask = Ask { lease: 2 * HOUR, value: (*b"a").into(), logged: true, ..ask(1) };
    let answer = engine.acquire(&name, &ask).await.expect("an answer");
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    lives("elected");
    let renew = async |owner: OwnerId| {
        let renewal = [Renewal { name: name.clone(), owner, lease: 2 * HOUR }];
        for hour in 1..=30 {
            server.advance(HOUR);
            assert_eq!(engine.renew(&renewal).await.expect("an answer"), [Renewed::Yes]);
            lives(&format!("renewed for {hour} hours"));
        }
    };
    renew(ask.owner).await;
    assert_eq!(seen("renewed").await, [true]);
    // When it has resigned that can be heard of for a day; whoever looks after that clears it away.
    engine.release(&name, ask.owner, 0).await.expect("released");
    assert_eq!(seen("resigned").await, [true, false]);
    server.advance(23 * HOUR + 59 * HOUR / 60);
    assert_eq!(seen("nearly a day later").await, [true, false]);
    server.advance(HOUR);
    engine.look(&name, 0).await.expect("a view");
    for key in &keys {
        assert_eq!(server.command(&["EXISTS", key]).int(), 0, "`{key}` outlives its day");
    }
    assert_eq!(engine.look(&name, 0).await.expect("a view").changes, []);
    // A leader that is not heard of any more has lost, and that is a change too.
    let silent = Ask { owner: OwnerId(2), ..ask };
    engine.acquire(&name, &silent).await.expect("an answer");
    renew(silent.owner).await;
    server.advance(2 * HOUR + 23 * HOUR);
    assert_eq!(seen("nearly a day after the end of the lease").await, [true, false]);
    // Whether they were ever renewed or not.
    server.advance(25 * HOUR);
    engine.look(&name, 0).await.expect("a view");
    let brief = Ask { owner: OwnerId(3), ..silent };
    engine.acquire(&name, &brief).await.expect("an answer");
    engine.release(&name, brief.owner, 0).await.expect("released");
    server.advance(23 * HOUR);
    assert_eq!(seen("nearly a day after a short term").await, [true, false]);
    server.advance(2 * HOUR);
    engine.look(&name, 0).await.expect("a view");
    let mute = Ask { owner: OwnerId(4), ..brief };
    engine.acquire(&name, &mute).await.expect("an answer");
    server.advance(2 * HOUR + 23 * HOUR);
    assert_eq!(seen("nearly a day after a term that was never renewed").await, [true, false]);
    engine.close().await.expect("closed");
}

async fn one_that_was_emptied_tells_its_holders(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    for simple in [true, false] {
        let held = lock(&one, ms(1500)).await;
        let waiting = if simple { None } else { Some(wait(&two, ms(1500)).await) };
        server.command(&["FLUSHALL"]).ok();
        let before = Instant::now();
        assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
        took("FLUSHALL is told, with a lease of 1.5 s", before.elapsed());
        assert!(before.elapsed() < ms(800), "told after {:?}", before.elapsed());
        let next = match waiting {
            Some(waiting) => granted(waiting).await,
            None => lock(&two, ms(1500)).await,
        };
        assert!(next.token() > held.token());
        next.release().await.expect("held");
    }
    leave(server, [one, two]).await;
}

async fn a_deleted_key_is_told_at_the_next_renewal(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    for simple in [true, false] {
        let held = lock(&one, ms(1500)).await;
        let waiting = if simple { None } else { Some(wait(&two, ms(1500)).await) };
        assert_eq!(server.command(&["DEL", "lock:x"]).int(), 1);
        let before = Instant::now();
        assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
        assert!(before.elapsed() < ms(800), "told after {:?}", before.elapsed());
        let next = match waiting {
            Some(waiting) => granted(waiting).await,
            None => lock(&two, ms(1500)).await,
        };
        assert!(next.token() > held.token());
        next.release().await.expect("held");
    }
    leave(server, [one, two]).await;
}

async fn killed_connections_cost_neither_a_wake_up_nor_a_lease(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let held = lock(&one, ms(3000)).await;
        let waiting = wait(&two, ms(3000)).await;
        let killed = server.command(&["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"]).int();
        let killed = killed + server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
        assert!(killed >= 2, "{killed} connections were killed");
        let ears = || server.command(&["PUBSUB", "CHANNELS", "leasehold:seat:*"]).array().len();
        let before = Instant::now();
        until("both listen again", async || ears() == 2).await;
        took("killed connections are back", before.elapsed());
        assert_eq!(held.standing(), Standing::Held);
        let released = Instant::now();
        held.release().await.expect("held");
        let next = granted(waiting).await;
        longest = longest.max(released.elapsed());
        next.release().await.expect("held");
    }
    took("the longest wake-up on a connection that was made again", longest);
    // Half of the time in which a waiter asks of its own.
    assert!(longest < ms(500), "a wake-up took {longest:?}");
    leave(server, [one, two]).await;
}

async fn forgotten_scripts_are_taught_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let held = lock(&one, ms(3000)).await;
    server.command(&["SCRIPT", "FLUSH"]).ok();
    // Renewed, waited for, looked at, given back: each by a script.
    let waiting = wait(&two, ms(3000)).await;
    not_within(ms(3500), "the holder was lost", held.lost()).await;
    server.command(&["SCRIPT", "FLUSH"]).ok();
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    // Somebody who does nothing else.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let mut connection = server.connect();
    let flushing = std::thread::spawn(move || {
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            connection.command(&["SCRIPT", "FLUSH"]).ok();
        }
    });
    let sections = async |client: &Client| {
        for _ in 0..150 {
            let guard = lock(client, ms(9000)).await;
            guard.release().await.expect("held");
        }
    };
    tokio::join!(sections(&one), sections(&two));
    drop(stop);
    flushing.join().expect("no panic");
    leave(server, [one, two]).await;
}

/// Takes 40 locks together, "x" among them.
async fn many_at_once(client: &Client) -> Vec<Guard> {
    let names = (0..40).map(|number| if number == 20 { "x".into() } else { format!("x{number}") });
    let take = |name: String| {
        let client = client.clone();
        async move { lock_named(&client, &name).await }
    };
    names.map(take).collect::<tokio::task::JoinSet<_>>().join_all().await
}

/// One of the locks that are taken together was freed by hand while somebody waited for it.
async fn who_waits_comes_before_a_batch(mut ground: Ground) {
    let (one, two, three) = (ground.client().await, ground.client().await, ground.client().await);
    let server = ground.server();
    // Their counters are there from now on.
    for guard in many_at_once(&three).await {
        guard.release().await.expect("held");
    }
    let held = lock(&one, ms(9000)).await;
    let waiting = wait(&two, ms(9000)).await;
    assert_eq!(server.command(&["DEL", "lock:x"]).int(), 1);
    let first = async {
        let first = granted(waiting).await;
        tokio::time::sleep(ms(50)).await;
        assert_eq!(first.standing(), Standing::Held);
        let token = first.token();
        first.release().await.expect("held");
        token
    };
    let (taken, first) = tokio::join!(many_at_once(&three), first);
    let last = taken.iter().find(|guard| guard.name() == "x").expect("taken").token();
    assert!(last > first && first > held.token(), "{last}, {first}");
    for guard in taken {
        guard.release().await.expect("held");
    }
    drop(held);
    leave(server, [one, two, three]).await;
}

async fn full_memory_takes_nobody_in_and_lets_everybody_out(_: Ground) {
    let server = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let simple = soon("the lock", one.mutex("simple").expect("a name").lease(ms(3000)).lock()).await;
    let simple = simple.expect("granted");
    let held = lock(&one, ms(3000)).await;
    let waiting = wait(&two, ms(3000)).await;
    let semaphore = one.semaphore("s", 3).expect("a name").lease(ms(3000));
    let permit = semaphore.acquire().await.expect("granted");
    let reader = one.rwlock("r").expect("a name").lease(ms(3000)).read().await.expect("granted");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    assert!(server.command(&["SET", "more", "1"]).error().starts_with("OOM"));
    let refused = |what: &str, answer: Result<(), Error>| {
        let error = answer.expect_err(what);
        assert!(error.is_retryable() && error.to_string().contains("no memory left"), "{what}: {error}");
    };
    let name = |name: &str| one.mutex(name).expect("a name");
    refused("try_lock", soon("an answer", name("y").try_lock()).await.map(drop));
    refused("lock", soon("an answer", name("z").lock()).await.map(drop));
    refused("acquire", soon("an answer", semaphore.acquire()).await.map(drop));
    // Everybody who was in stays in for longer than the lease, can be seen, and gets out.
    not_within(ms(3500), "a lease was lost", async {
        tokio::select! {
            _ = simple.lost() => {}
            _ = held.lost() => {}
            _ = permit.lost() => {}
            _ = reader.lost() => {}
        }
    })
    .await;
    let view = one.look(Family::Lock, "x").await.expect("a view");
    assert_eq!((view.claims.len(), view.waiting), (1, 1));
    assert_eq!(one.list(Family::Semaphore, None, 10).await.expect("a list").len(), 1);
    simple.release().await.expect("held");
    held.release().await.expect("held");
    let next = granted(waiting).await;
    not_within(ms(3500), "the lease was lost", next.lost()).await;
    next.release().await.expect("held");
    permit.release().await.expect("held");
    reader.release().await.expect("held");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    name("y").lock().await.expect("there is room again").release().await.expect("held");
    leave(&server, [one, two]).await;
}

async fn clients_that_disagree_are_told(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let permit = one.semaphore("s", 2).expect("a name").acquire().await.expect("free");
    let error = two.semaphore("s", 3).expect("a name").acquire().await.expect_err("it has 2");
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    permit.release().await.expect("held");
    // Leases and delays are everybody's own.
    let short = mutex(&one, ms(300)).lock_delay(ms(200)).lock().await.expect("free");
    let waiting = wait(&two, ms(9000)).await;
    short.release().await.expect("held");
    let long = granted(waiting).await;
    assert!(long.remaining() > ms(2000), "{:?} left", long.remaining());
    until("it is confirmed", async || long.remaining() > ms(8000)).await;
    long.release().await.expect("held");
    // A prefix of its own keeps a client apart.
    let apart = connect(&format!("{}?prefix=app:", ground.url())).await;
    let held = lock(&one, ms(9000)).await;
    lock(&apart, ms(9000)).await.release().await.expect("held");
    held.release().await.expect("held");
    leave(ground.server(), [one, two, apart]).await;
}
