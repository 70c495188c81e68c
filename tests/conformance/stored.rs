//! What people who look are told of cells, limits and submissions.

use std::time::Duration;

use leasehold::Error;
use leasehold::engine::{CellValue, Engine, MOST_CELLS, Swap, Swapped, Write};
use leasehold::kit::once::Progress;
use leasehold::kit::rate::{Limit, WhenAway};

use crate::bench::{Ground, ms, until};
use crate::cells::name;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "stored",
        cells,
        [
            cells_are_listed_in_order,
            more_cells_than_a_page_are_listed,
            what_is_gone_is_not_listed,
            limits_in_use_are_listed,
            submissions_are_listed,
            cells_of_other_kinds_are_not_read,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must say that there are none.
async fn cells(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let client = ground.client().await;
    assert_eq!(client.limits_in_use("").await.expect("none"), []);
    assert_eq!(client.submissions("").await.expect("none"), []);
    crate::bench::refuses(ground.engine().await.list_cells("", None, 10).await);
    None
}

async fn put(engine: &dyn Engine, texts: &[String], lives: Duration) {
    for texts in texts.chunks(MOST_CELLS) {
        let write = || Write::Put(CellValue { bytes: vec![1], lives });
        let swaps = texts.iter().map(|text| Swap { name: name(text), version: 0, write: write() });
        assert_eq!(engine.swap(swaps.collect()).await.expect("an answer"), Swapped::Yes);
    }
}

async fn listed(engine: &dyn Engine, prefix: &str, after: Option<&str>, limit: usize) -> Vec<String> {
    let found = engine.list_cells(prefix, after, limit).await.expect("an answer");
    found.iter().map(|name| name.as_str().to_owned()).collect()
}

async fn cells_are_listed_in_order(mut ground: Ground) {
    let engine = ground.engine().await;
    let mut texts: Vec<String> =
        ["a", "a/b", "a/{b}", "a*", "a%7B", "{a}/b", "b{", "é", " ", "a\u{10ffff}"].map(str::to_owned).into();
    for text in &texts {
        put(&*engine, std::slice::from_ref(text), ms(60_000)).await;
    }
    texts.sort_unstable();
    assert_eq!(listed(&*engine, "", None, 100).await, texts);
    let with = |prefix: &str, after: &str| -> Vec<String> {
        let wanted = texts.iter().filter(|text| text.starts_with(prefix) && text.as_str() > after);
        wanted.cloned().collect()
    };
    for (prefix, after) in
        [("a", ""), ("a/", ""), ("a/{", ""), ("a*", ""), ("a", "a"), ("", "a/b"), ("a%", "")]
    {
        let found = listed(&*engine, prefix, Some(after).filter(|after| !after.is_empty()), 100).await;
        assert_eq!(found, with(prefix, after), "{prefix} after {after}");
        assert!(!found.is_empty());
    }
    assert_eq!(listed(&*engine, "a", None, 2).await, with("a", "")[..2]);
    assert_eq!(listed(&*engine, "nothing", None, 2).await, [""; 0]);
}

async fn more_cells_than_a_page_are_listed(mut ground: Ground) {
    let engine = ground.engine().await;
    let texts: Vec<String> = (0..1100).map(|number| format!("{{t}}/{number:04}")).collect();
    put(&*engine, &texts, ms(60_000)).await;
    assert_eq!(listed(&*engine, "{t}", None, 2000).await, texts);
    assert_eq!(listed(&*engine, "{t}", Some(&texts[1049]), 2000).await, texts[1050..]);
}

async fn what_is_gone_is_not_listed(mut ground: Ground) {
    let engine = ground.engine().await;
    put(&*engine, &["short".to_owned()], ms(50)).await;
    put(&*engine, &["deleted".to_owned()], ms(60_000)).await;
    put(&*engine, &["there".to_owned()], ms(60_000)).await;
    let found = engine.read(&[name("deleted")]).await.expect("a cell");
    let delete = Swap { name: name("deleted"), version: found.cells[0].version, write: Write::Delete };
    assert_eq!(engine.swap(vec![delete]).await.expect("an answer"), Swapped::Yes);
    until("it has expired", async || listed(&*engine, "", None, 10).await == ["there"]).await;
}

async fn limits_in_use_are_listed(mut ground: Ground) {
    let client = ground.client().await;
    let hour = Duration::from_secs(3600);
    for (limit, word) in [
        (Limit::token_bucket(7, hour), "bucket"),
        (Limit::leaky_bucket(7, hour), "leaky"),
        (Limit::fixed_window(7, hour), "window"),
        (Limit::sliding_log(7, hour), "log"),
        (Limit::sliding_window(7, hour), "sliding"),
    ] {
        let limiter = client.limiter(word, limit, WhenAway::Closed).expect("a limit").deadline(ms(5000));
        assert!(limiter.check_cost("user 7", 3).await.expect("an answer").is_allowed());
        let found = client.limits_in_use(word).await.expect("limits");
        let [found] = &found[..] else { panic!("{found:?}") };
        let seen = (found.name.as_str(), found.key.as_str(), found.algorithm.as_str(), found.used);
        assert_eq!((seen, found.period), ((word, "user 7", word, 3), hour));
        assert!(found.changed < Duration::from_secs(60));
        limiter.reset("user 7").await.expect("reset");
        assert_eq!(client.limits_in_use(word).await.expect("limits"), []);
    }
    // Whoever is outside a namespace sees what is in it.
    let shop = client.namespace("shop");
    let limiter = shop.limiter("x", Limit::token_bucket(7, hour), WhenAway::Closed).expect("a limit");
    let limiter = limiter.deadline(ms(5000));
    assert!(limiter.check("").await.expect("an answer").is_allowed());
    for (client, name) in [(&client, "shop/x"), (&shop, "x")] {
        let found = client.limits_in_use("").await.expect("limits");
        assert_eq!(found.iter().map(|limit| limit.name.as_str()).collect::<Vec<_>>(), [name]);
    }
}

async fn submissions_are_listed(mut ground: Ground) {
    let client = ground.client().await;
    let once = client.once("orders").expect("a name").lease(ms(300)).errors_leave_unknown();
    let done = once.run("a", "", |_| async { Ok::<_, ()>(b"placed".to_vec()) });
    done.await.expect("an answer");
    let during = once.run("b", "", async |_| {
        let found = client.submissions("orders").await.expect("submissions");
        let running = found.iter().find(|submission| submission.key == "b").expect("it runs");
        assert!(matches!(running.progress, Progress::Running(left) if left <= ms(300)), "{running:?}");
        Err::<Vec<u8>, ()>(())
    });
    during.await.expect("an answer");
    until("it is unknown", async || {
        let found = client.submissions("").await.expect("submissions");
        let [a, b] = &found[..] else { panic!("{found:?}") };
        assert_eq!((a.key.as_str(), &a.progress), ("a", &Progress::Done(b"placed".to_vec())));
        assert_eq!((b.name.as_str(), b.key.as_str()), ("orders", "b"));
        matches!(b.progress, Progress::Unknown(_))
    })
    .await;
    assert_eq!(client.submissions("x").await.expect("submissions"), []);
}

/// A leaderboard has a cell for each of its members.
async fn cells_of_other_kinds_are_not_read(mut ground: Ground) {
    let engine = ground.engine().await;
    let members: Vec<String> =
        (0..100).map(|member| format!("leaderboards/{{x}}/1f=member{member}")).collect();
    put(&*engine, &members, ms(60_000)).await;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let once = client.once("orders").expect("a name");
    once.run("7", "", |_| async { Ok::<_, Error>(vec![1]) }).await.expect("an answer");
    let before = wire.calls();
    assert_eq!(client.submissions("").await.expect("an answer").len(), 1);
    assert_eq!(client.submissions("other").await.expect("an answer").len(), 0);
    assert_eq!(client.limits_in_use("").await.expect("an answer").len(), 0);
    // Three lists, and the one submission; others may look after the connection.
    let calls = wire.calls() - before;
    assert!(calls < 20, "{calls} calls");
}
