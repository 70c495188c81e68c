//! Names and where they are kept: databases, sockets, prefixes, raw names.

use leasehold::Error;

use super::*;
use crate::bench::Ground;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            databases_do_not_mix_and_a_socket_will_do,
            names_that_look_like_anothers_keys_are_names_like_any,
            prefixes_and_raw_names_that_can_not_work_are_refused
        ]
    )
    .cases
}

async fn databases_do_not_mix_and_a_socket_will_do(_: Ground) {
    let server = Redis::start_with(&["--unixsocket", "socket", "--requirepass", "right"]);
    let socket = server.dir().join("socket");
    let on_socket = |db: u8| format!("redis+unix://{}?db={db}&pass=right", socket.display());
    let on_port = |db: u8| format!("redis://:right@127.0.0.1:{}/{db}", server.port());
    let (zero, two) = (connect(&on_port(0)).await, connect(&on_port(2)).await);
    let same_as_two = connect(&on_socket(2)).await;
    let held = lock(&zero, ms(9000)).await;
    let in_two = lock(&two, ms(9000)).await;
    assert!(try_lock(&same_as_two).await.expect("an answer").is_none());
    let waiting = wait(&same_as_two, ms(9000)).await;
    in_two.release().await.expect("held");
    let through_socket = granted(waiting).await;
    assert!(try_lock(&two).await.expect("an answer").is_none());
    through_socket.release().await.expect("held");
    held.release().await.expect("held");
    // The message of one who can not be reached names the socket.
    server.kill();
    let error = refused(&on_socket(0)).await;
    assert!(error.is_retryable() && error.to_string().contains(&*socket.to_string_lossy()), "{error}");
}

/// What is in use, all of it, and how many wait for each of it.
async fn listed(client: &Client, family: Family) -> Vec<(String, u32)> {
    let found = client.list(family, None, 100).await.expect("a list");
    found.into_iter().map(|(name, view)| (name.as_str().to_owned(), view.waiting)).collect()
}

async fn names_that_look_like_anothers_keys_are_names_like_any(ground: Ground) {
    const NAMES: [&str; 7] = [
        "x",
        "x:lock:state",
        "x:lock:token",
        "x{lock:state}",
        "{x}:lock:state",
        "a}:lock:state",
        "x:election:state",
    ];
    const RAW: [&str; 6] =
        ["x", "x:lock:state", "x:lock:token", "{x}:lock", "a{x}b:lock:state", "{x}:election"];
    for (options, names) in
        [("", &NAMES[..]), ("?prefix={app}:", &NAMES), ("?prefix=", &NAMES), ("?raw", &RAW)]
    {
        let url = format!("{}{options}", ground.url());
        let (one, two) = (connect(&url).await, connect(&url).await);
        let (mut guards, mut leaders, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            guards.push(soon("the lock", one.mutex(name).expect("a name").lock()).await.expect("granted"));
            let semaphore = one.semaphore(name, 2).expect("a name");
            guards.push(soon("a permit", semaphore.acquire()).await.expect("granted"));
            let election = one.election(name).expect("a name");
            leaders.push(soon("the election", election.campaign(*name)).await.expect("elected"));
        }
        let all = |waiting: u32| {
            let mut all: Vec<_> = names.iter().map(|name| ((*name).to_owned(), waiting)).collect();
            all.sort_unstable();
            all
        };
        for family in [Family::Lock, Family::Semaphore, Family::Election] {
            assert_eq!(listed(&one, family).await, all(0), "{family} with {options:?}");
        }
        // With somebody who waits there is more beside a lock.
        for name in names {
            let mutex = two.mutex(name).expect("a name");
            waiting.push(tokio::spawn(async move { mutex.lock().await.expect("granted") }));
        }
        until("all are listed with those who wait", async || listed(&one, Family::Lock).await == all(1))
            .await;
        for leader in leaders {
            leader.resign().await.expect("led");
        }
        for guard in guards {
            guard.release().await.expect("held");
        }
        for waiting in waiting {
            granted(waiting).await.release().await.expect("held");
        }
        leave(ground.server(), [one, two]).await;
    }
}

async fn prefixes_and_raw_names_that_can_not_work_are_refused(ground: Ground) {
    for prefix in ["{", "}", "{}", "a}b", "{app:", "{}{a}"] {
        let error = refused(&format!("{}?prefix={prefix}", ground.url())).await;
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("hash tag"), "{error}");
    }
    let client = connect(&format!("{}?raw", ground.url())).await;
    for name in ["a}b", "{}", "{x}:lock:state", "a{x}{lock:token}", "{x}:cell", ""] {
        let error = client.mutex(name).expect("a name").try_lock().await.expect_err("refused");
        assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
    }
    // What it can not be asked for does not keep it from being looked at.
    ground.server().command(&["SET", "a}b", "something else", "PX", "60000"]).ok();
    assert!(client.list(Family::Lock, None, 10).await.expect("a list").is_empty());
    leave(ground.server(), [client]).await;
}
