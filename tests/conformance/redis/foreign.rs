//! Keys that others wrote: of another type, in a format of the future, a stranger's lock.

use leasehold::{Error, Loss, Standing};

use super::*;
use crate::bench::{Ground, not_within};
use crate::servers::Reply;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            a_key_of_another_type_is_refused_and_untouched,
            a_key_of_another_type_costs_no_other_name,
            a_format_of_the_future_is_refused_and_untouched,
            a_name_that_strangers_hold_leaves_nothing
        ]
    )
    .cases
}

/// What is at a key, whatever it is.
fn dump(server: &Redis, key: &str) -> Reply {
    // The dump itself is no text.
    let hash = "return redis.sha1hex(redis.call('DUMP', KEYS[1]) or '')";
    server.command(&["EVAL", hash, "1", key])
}

async fn a_key_of_another_type_is_refused_and_untouched(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let side = |what: &str| format!("{{lock:x}}:lock:{what}");
    let text: &[&str] = &["SET", "KEY", "of somebody else"];
    let list: &[&str] = &["RPUSH", "KEY", "of", "somebody", "else"];
    let cases = [
        ("lock:x".to_owned(), list),
        (side("token"), list),
        (side("token"), text),
        (side("state"), text),
        (side("ends"), text),
        (side("queue"), text),
    ];
    for (key, write) in &cases {
        let words: Vec<&str> = write.iter().map(|word| if *word == "KEY" { key } else { *word }).collect();
        server.command(&["DEL", key]);
        server.command(&words);
        let before = dump(server, key);
        // Not every key is touched by every call: held and waited for, all of them are.
        let error = async {
            let held = mutex(&client, ms(400)).lock().await?;
            let waited = mutex(&other, ms(400)).lock_for(ms(100)).await;
            held.release().await?;
            waited.map(drop)
        };
        let error = soon("an answer", error).await.expect_err(key);
        assert!(matches!(error, Error::Engine { .. }), "{key}: {error:?}");
        assert!(error.to_string().contains("?prefix="), "{key}: {error}");
        assert_eq!(dump(server, key), before, "{key} was touched");
        // Whatever was begun ends with its lease.
        assert_eq!(server.command(&["DEL", key]).int(), 1);
        let guard = free_within(&client, ms(5000)).await;
        guard.release().await.expect("held");
        until("it is free", async || server.command(&["EXISTS", "lock:x", &side("state")]).int() == 0).await;
    }
    leave(server, [client, other]).await;
}

async fn a_key_of_another_type_costs_no_other_name(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    // All of them are renewed by one call.
    let spoilt = lock_named(&client, "spoilt").await;
    let lock = client.rwlock("beside").expect("a name").lease(ms(3000));
    let beside = lock.read().await.expect("free");
    let held = lock_named(&client, "held").await;
    server.command(&["DEL", "lock:spoilt", "{lock:beside}:lock:ends"]).int();
    server.command(&["RPUSH", "lock:spoilt", "x"]).int();
    server.command(&["SET", "{lock:beside}:lock:ends", "x"]).ok();
    assert_eq!(soon("the loss", spoilt.lost()).await, Loss::Gone);
    assert_eq!(soon("the loss", beside.lost()).await, Loss::Gone);
    not_within(ms(3500), "another was lost", held.lost()).await;
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    assert_eq!(server.command(&["DEL", "lock:spoilt", "{lock:beside}:lock:ends"]).int(), 2);
    drop((spoilt, beside));
    leave(server, [client]).await;
}

async fn a_format_of_the_future_is_refused_and_untouched(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    let holder = "leasehold/2 somebody from the future";
    server.command(&["SET", "lock:x", holder, "PX", "60000"]).ok();
    let refused = async |what: &str, answer: Result<(), Error>| {
        let error = answer.expect_err(what);
        assert!(matches!(error, Error::Engine { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains("use the version of leasehold that wrote it"), "{what}: {error}");
    };
    refused("try_lock", try_lock(&client).await.map(drop)).await;
    refused("lock", mutex(&client, ms(1000)).lock().await.map(drop)).await;
    refused("read", client.rwlock("x").expect("a name").read().await.map(drop)).await;
    refused("break", client.break_claims(Family::Lock, "x").await.map(drop)).await;
    assert_eq!(server.command(&["GET", "lock:x"]).text(), holder);
    server.command(&["DEL", "lock:x"]).int();

    let state = "{lock:x}:lock:state";
    for format in ["2", "20"] {
        // A claim of today, and then a client of tomorrow.
        let held = lock(&client, ms(30_000)).await;
        let more = server.command(&["GET", "lock:x"]).text().replacen("leasehold/1 ", "leasehold/1+", 1);
        server.command(&["SET", "lock:x", &more, "KEEPTTL"]).ok();
        server.command(&["HSET", state, "format", format, "novelty", "1"]).int();
        let before = dump(server, state);
        refused("try_lock", try_lock(&connect(&server.url()).await).await.map(drop)).await;
        refused("look", client.look(Family::Lock, "x").await.map(drop)).await;
        refused("break", client.break_claims(Family::Lock, "x").await.map(drop)).await;
        refused("release", held.release().await).await;
        assert_eq!(dump(server, state), before);
        assert!(server.command(&["GET", "lock:x"]).text().starts_with("leasehold/1+"));
        assert_eq!(server.command(&["DEL", "lock:x", state]).int(), 2);
    }
    let semaphore = "{lock:s}:semaphore:state";
    server.command(&["HSET", semaphore, "format", "2"]).int();
    let before = dump(server, semaphore);
    refused("acquire", client.semaphore("s", 2).expect("a name").acquire().await.map(drop)).await;
    assert_eq!(dump(server, semaphore), before);
    server.command(&["DEL", semaphore]).int();
    leave(server, [client]).await;
}

async fn a_name_that_strangers_hold_leaves_nothing(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    server.command(&["SET", "lock:x", "9f2c", "NX", "PX", "60000"]).ok();
    assert!(try_lock(&client).await.expect("an answer").is_none());
    assert!(mutex(&client, ms(500)).lock_for(ms(100)).await.expect("an answer").is_none());
    assert_eq!(server.command(&["GET", "lock:x"]).text(), "9f2c");
    leave(server, [client]).await;
}
