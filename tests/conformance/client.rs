//! The client: closing, events, views, and what it leaves behind.

use leasehold::engine::{Hint, Reach};
use leasehold::{Error, Event, Family, Loss, Standing};

use crate::bench::{Ground, ms, soon, until};
use crate::setup::Promises;
use crate::{Group, cases, engines};

pub(crate) fn group() -> Group {
    cases!(
        "client",
        [
            closing_tells_guards_and_frees_what_is_held,
            closing_ends_those_who_wait,
            closing_finishes_releases_on_their_way,
            nothing_runs_after_the_client_is_gone,
            a_dropped_client_with_a_forgotten_guard_frees_nothing_early,
            every_step_is_an_event,
            a_wait_that_is_over_is_an_event_and_so_is_the_time_of_a_hold,
            connections_are_events,
            events_are_a_stream,
            a_view_names_who_holds_and_who_waits,
            names_are_listed_in_pages,
            breaking_what_is_free_breaks_nothing,
            a_guard_of_the_client_that_breaks_its_name_is_lost_at_once,
            names_are_any_text,
            names_that_are_too_long_are_refused,
            guarantees_say_which_engine,
        ]
    )
}

async fn closing_tells_guards_and_frees_what_is_held(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    let lost = guard.lost();
    client.close().await.expect("closed");
    client.close().await.expect("closed already");
    assert_eq!(soon("the loss", lost).await, Loss::Closed);
    assert_eq!(guard.standing(), Standing::Lost);
    drop(other.mutex("x").expect("a name").try_lock().await.expect("an answer").expect("freed by the close"));
    let error = client.mutex("y").expect("a name").lock().await.expect_err("closed");
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(matches!(guard.release().await, Err(Error::Lost { why: Loss::Closed, .. })));
}

async fn closing_ends_those_who_wait(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let mutex = client.mutex("x").expect("a name");
            tokio::spawn(async move { mutex.lock().await.map(|_| ()) })
        })
        .collect();
    until("they wait", async || other.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    client.close().await.expect("closed");
    for task in tasks {
        let error = soon("the end of the wait", task).await.expect("no panic").expect_err("closed");
        assert!(error.to_string().contains("closed"), "{error}");
    }
    held.release().await.expect("held");
    let mutex = other.mutex("x").expect("a name");
    drop(soon("nobody is left in the queue", mutex.lock()).await.expect("free"));
}

async fn closing_finishes_releases_on_their_way(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let guards = [
        client.mutex("a").expect("a name").lock().await.expect("free"),
        client.mutex("b").expect("a name").lock().await.expect("free"),
    ];
    wire.set(crate::wire::Fault::Slow(ms(100)));
    drop(guards);
    client.close().await.expect("closed");
    assert_eq!(wire.releases.load(std::sync::atomic::Ordering::Acquire), 2, "both were heard");
    for name in ["a", "b"] {
        drop(
            other
                .mutex(name)
                .expect("a name")
                .try_lock()
                .await
                .expect("an answer")
                .expect("released before the close"),
        );
    }
}

async fn nothing_runs_after_the_client_is_gone(mut ground: Ground) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for closes in [true, false] {
        let (client, other) = (ground.client().await, ground.client().await);
        let held = client.mutex("x").expect("a name").lock().await.expect("free");
        let waiting = other.mutex("x").expect("a name").lock_for(ms(300)).await.expect("an answer");
        assert!(waiting.is_none());
        if ground.promises().elects {
            let mut observer = other.election("e").expect("a name").observe().await.expect("an observer");
            observer.next().await.expect("an answer");
        } else {
            crate::bench::refuses(other.election("e"));
        }
        drop(held);
        if closes {
            client.close().await.expect("closed");
            other.close().await.expect("closed");
        }
        drop((client, other));
        until("no task is left", async || metrics.num_alive_tasks() <= before).await;
    }
}

async fn a_dropped_client_with_a_forgotten_guard_frees_nothing_early(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let guard = client.mutex("x").expect("a name").lease(ms(1000)).lock().await.expect("free");
    drop(client);
    // The guard keeps what it needs, its renewal too.
    let theirs = other.mutex("x").expect("a name");
    assert!(theirs.lock_for(ms(2500)).await.expect("an answer").is_none());
    assert_eq!(guard.standing(), Standing::Held);
    drop(guard);
    drop(soon("the next", theirs.lock()).await.expect("free"));
}

async fn every_step_is_an_event(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mut events = client.events();
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = client.mutex("x").expect("a name").lease(ms(300));
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    until("it waits", async || other.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    held.release().await.expect("held");
    let guard = soon("the grant", waiting).await.expect("no panic").expect("granted");
    let token = guard.token().get();
    guard.release().await.expect("held");
    let guard = mutex.lock().await.expect("free");
    other.break_claims(Family::Lock, "x").await.expect("broken");
    soon("the loss", guard.lost()).await;
    drop(guard);
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(match soon("the next event", events.next()).await.expect("the client lives") {
            Event::Waiting { name } => format!("waiting {name}"),
            Event::Granted { token: granted, .. } => format!("granted {}", granted == token),
            Event::Released { token: released, .. } => format!("released {}", released == token),
            Event::Lost { why, .. } => format!("lost {why:?}"),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(told, ["waiting x", "granted true", "released true", "granted false", "lost Gone"]);
}

async fn a_wait_that_is_over_is_an_event_and_so_is_the_time_of_a_hold(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mut events = client.events();
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = client.mutex("x").expect("a name");
    assert!(mutex.lock_for(ms(400)).await.expect("an answer").is_none());
    // Who does not wait has not waited in vain.
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    held.release().await.expect("held");
    let guard = soon("the grant", mutex.lock()).await.expect("free");
    tokio::time::sleep(ms(100)).await;
    guard.release().await.expect("held");
    let guard = mutex.lock().await.expect("free");
    tokio::time::sleep(ms(100)).await;
    client.break_claims(Family::Lock, "x").await.expect("broken");
    drop(guard);
    let mut told = Vec::new();
    while !matches!(told.last(), Some(Event::Lost { .. })) {
        told.push(soon("the next event", events.next()).await.expect("the client lives"));
    }
    told.retain(|event| !matches!(event, Event::Waiting { .. }));
    let [
        Event::TimedOut { name, waited },
        Event::Granted { .. },
        Event::Released { held, .. },
        Event::Granted { .. },
        Event::Lost { held: lost_after, .. },
    ] = told.as_slice()
    else {
        panic!("{told:?}")
    };
    assert!(name.as_str() == "x" && (ms(400)..ms(5000)).contains(waited), "{told:?}");
    assert!([held, lost_after].into_iter().all(|time| (ms(100)..ms(5000)).contains(time)), "{told:?}");
}

async fn connections_are_events(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let mut events = client.events();
    wire.tell(Hint::Disconnected { server: "a:1".into(), why: "the test".into() });
    wire.tell(Hint::Reconnected { server: "a:1".into() });
    let told = [events.next().await, events.next().await].map(|event| format!("{:?}", event.expect("told")));
    assert_eq!(
        told,
        [r#"Disconnected { server: "a:1", why: "the test" }"#, r#"Reconnected { server: "a:1" }"#]
    );
}

async fn events_are_a_stream(mut ground: Ground) {
    use futures_core::Stream;
    let client = ground.client().await;
    let mut stream = Box::pin(client.events());
    let mut next = async || std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await;
    let mutex = client.mutex("x").expect("a name");
    // A wait that is given up half way loses nothing.
    assert!(tokio::time::timeout(ms(20), next()).await.is_err());
    let (event, guard) = tokio::join!(next(), mutex.lock());
    assert!(matches!(event, Some(Event::Granted { .. })), "{event:?}");
    guard.expect("free").release().await.expect("held");
    assert!(matches!(next().await, Some(Event::Released { .. })));
    // Servers have better things to do.
    if client.guarantees().reach != Reach::Network {
        for _ in 0..600 {
            mutex.lock().await.expect("free").release().await.expect("held");
        }
        assert!(matches!(next().await, Some(Event::Missed(1..))), "a slow listener is told so");
    }
    drop((client, mutex));
    let ended = async { while next().await.is_some() {} };
    soon("the end of the stream", ended).await;
    assert!(next().await.is_none(), "it stays ended");
}

async fn a_view_names_who_holds_and_who_waits(mut ground: Ground) {
    let options = ground.options().label("backup");
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = other.mutex("x").expect("a name").label("report");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|_| ()) });
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let view = other.look(Family::Lock, "x").await.expect("a view");
    let holder = &view.claims[0].claim.holder;
    assert_eq!((holder.label.as_str(), holder.pid), ("backup", std::process::id()));
    assert!(!holder.host.is_empty() && holder.to_string().starts_with("backup (pid "));
    assert_eq!(view.claims[0].claim.token, guard.token().get());
    assert!(view.claims[0].ends_in <= leasehold::client::DEFAULT_LEASE && !view.claims[0].ends_in.is_zero());
    assert_eq!(view.waiters[0].waiter.holder.label, "report");
    guard.release().await.expect("held");
    soon("the waiter", waiting).await.expect("no panic").expect("granted");
    until("nobody holds it", async || {
        let view = client.look(Family::Lock, "x").await.expect("a view");
        view.claims.is_empty() && view.capacity == 0
    })
    .await;
}

async fn names_are_listed_in_pages(mut ground: Ground) {
    let client = ground.client().await;
    let mut guards = Vec::new();
    for number in (0..25).rev() {
        guards.push(client.mutex(format!("n{number:02}")).expect("a name").lock().await.expect("free"));
    }
    guards.push(client.namespace("other").mutex("n00").expect("a name").lock().await.expect("free"));
    let mut seen = Vec::new();
    loop {
        let after = seen.last().cloned();
        let page = client.list(Family::Lock, after.as_deref(), 10).await.expect("a page");
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|(name, _)| name.as_str().to_owned()));
    }
    let mut expected: Vec<_> = (0..25).map(|number| format!("n{number:02}")).collect();
    expected.push("other/n00".to_owned());
    assert_eq!(seen, expected);
    let inside = client.namespace("other").list(Family::Lock, None, 10).await.expect("a page");
    assert_eq!(inside.len(), 1);
    assert!(client.list(Family::Semaphore, None, 10).await.expect("a page").is_empty());
}

async fn breaking_what_is_free_breaks_nothing(mut ground: Ground) {
    let client = ground.client().await;
    assert!(client.break_claims(Family::Lock, "x").await.expect("an answer").is_empty());
    assert!(client.list(Family::Lock, None, 10).await.expect("a page").is_empty());
}

async fn a_guard_of_the_client_that_breaks_its_name_is_lost_at_once(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    let kept = client.mutex("y").expect("a name").lock().await.expect("free");
    let mut events = client.events();
    assert_eq!(client.break_claims(Family::Lock, "x").await.expect("broken").len(), 1);
    // Nobody had to renew, or to hear of it, first.
    assert_eq!((guard.standing(), kept.standing()), (Standing::Lost, Standing::Held));
    assert!(matches!(guard.check(), Err(Error::Lost { why: Loss::Gone, .. })));
    assert!(matches!(events.next().await, Some(Event::Lost { why: Loss::Gone, .. })));
    let theirs = soon("the next", other.mutex("x").expect("a name").lock()).await.expect("free");
    assert!(matches!(guard.release().await, Err(Error::Lost { why: Loss::Gone, .. })));
    assert_eq!(theirs.standing(), Standing::Held, "a late release of what was broken frees nobody's claim");
}

async fn names_are_any_text(mut ground: Ground) {
    let client = ground.client().await.namespace(String::from("shop"));
    let typed = leasehold::Name::new(Family::Lock, "stock/42").expect("a name");
    for mutex in [
        client.mutex("stock/42"),
        client.mutex(format!("stock/{}", 42)),
        client.mutex(std::borrow::Cow::from("stock/42")),
        client.mutex(&typed),
    ] {
        let guard = mutex.expect("a name").try_lock().await.expect("an answer").expect("free");
        assert_eq!(guard.name(), "shop/stock/42");
        guard.release().await.expect("held");
    }
    let names = vec![String::from("a"), String::from("b")];
    let both = client.multi(&names).expect("names").lock().await.expect("free");
    assert_eq!(both.names().collect::<Vec<_>>(), names);
    both.release().await.expect("held");
}

async fn names_that_are_too_long_are_refused(mut ground: Ground) {
    let client = ground.client().await;
    let longest = "n".repeat(leasehold::name::LONGEST);
    client.mutex(&longest).expect("just right").lock().await.expect("free").release().await.expect("held");
    let error = client.mutex(format!("{longest}n")).expect_err("too long");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    if ground.promises().counts {
        assert!(matches!(client.namespace("p").semaphore(&longest, 2), Err(Error::Invalid { .. })));
    }
    assert!(matches!(client.namespace("p").rwlock(&longest), Err(Error::Invalid { .. })));
    for &(url, feature) in engines::ABSENT {
        let error = leasehold::connect(url).await.expect_err("not in this build");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(&format!("cargo feature `{feature}`")), "{error}");
    }
    for url in ["", "nothing", "file", "carrier-pigeon:x"] {
        let error = leasehold::connect(url).await.expect_err("no such engine");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        says_each_cause_once(&error);
    }
}

async fn guarantees_say_which_engine(mut ground: Ground) {
    let client = ground.client().await;
    assert!(ground.url().starts_with(client.guarantees().engine));
    assert_eq!(Promises::from(client.guarantees()), ground.promises());
}

/// Expects that a report of all causes of an error repeats nothing.
#[track_caller]
pub(crate) fn says_each_cause_once(error: &Error) {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let words = next.to_string();
        assert!(!said.contains(&words), "`{words}` is said again after `{said}`");
        said = format!("{said}: {words}");
        cause = next.source();
    }
}
