//! Several names at once.

use leasehold::{Error, Event, Family, Options, Standing};

use crate::bench::{Ground, ms, soon, until};
use crate::lease::Suspended;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "multi",
        [
            takes_all_or_none,
            has_given_back_what_it_took_when_it_returns,
            is_not_held_if_one_was_lost_on_the_way,
            work_that_ends_as_a_lease_does_is_not_done,
            never_deadlocks_whatever_the_order,
            shares_one_time_limit,
            is_lost_with_any_of_them,
            counts_a_name_once,
            is_released_by_a_drop,
            refuses_no_names,
        ]
    )
}

async fn takes_all_or_none(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let middle = one.mutex("b").expect("a name").lock().await.expect("free");
    let multi = two.multi(["a", "b", "c"]).expect("names");
    assert!(multi.try_lock().await.expect("an answer").is_none());
    assert!(multi.lock_for(ms(500)).await.expect("an answer").is_none());
    for name in ["a", "c"] {
        let guard = one.mutex(name).expect("a name").try_lock().await.expect("an answer");
        guard.expect("nothing is kept").release().await.expect("held");
    }
    middle.release().await.expect("held");
    let all = multi.try_lock().await.expect("an answer").expect("free");
    assert!(all.names().eq(["a", "b", "c"]) && all.standing() == Standing::Held);
    for name in ["a", "b", "c"] {
        assert!(all.token(name).is_some());
        assert!(one.mutex(name).expect("a name").try_lock().await.expect("an answer").is_none());
    }
    all.release().await.expect("held");
    assert!(one.mutex("a").expect("a name").try_lock().await.expect("an answer").is_some());
}

/// However long the engine takes to hear of it.
async fn has_given_back_what_it_took_when_it_returns(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let _last = other.mutex("c").expect("a name").lock().await.expect("free");
    wire.set(Fault::Slow(ms(100)));
    let multi = client.multi(["a", "b", "c"]).expect("names");
    assert!(soon("an answer", multi.try_lock()).await.expect("an answer").is_none());
    for name in ["a", "b"] {
        let guard = other.mutex(name).expect("a name").try_lock().await.expect("an answer");
        guard.unwrap_or_else(|| panic!("`{name}` is still held")).release().await.expect("held");
    }
}

async fn is_not_held_if_one_was_lost_on_the_way(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let last = other.mutex("b").expect("a name").lock().await.expect("free");
    let mut events = client.events();
    let multi = client.multi(["a", "b"]).expect("names").lease(ms(1500));
    let locking = tokio::spawn(async move { multi.lock().await });
    until("it waits for the last", async || {
        other.look(Family::Lock, "b").await.expect("a view").waiting == 1
    })
    .await;
    other.break_claims(Family::Lock, "a").await.expect("broken");
    until("it knows", async || matches!(soon("an event", events.next()).await, Some(Event::Lost { .. })))
        .await;
    last.release().await.expect("held");
    let locked = soon("the last", locking).await.expect("no panic");
    assert!(matches!(locked, Err(Error::Lost { .. })), "{locked:?}");
    drop(locked);
    until("nothing is held", async || client.held() == 0).await;
    drop(soon("the last is free", other.mutex("b").expect("a name").lock()).await.expect("free"));
}

async fn work_that_ends_as_a_lease_does_is_not_done(ground: Ground) {
    let clock = Suspended::default();
    let client =
        leasehold::connect_with(ground.url(), Options::new().clock(clock.clone())).await.expect("a client");
    let both = client.multi(["a", "b"]).expect("names").lock().await.expect("free");
    let done = both.run(async { clock.push(ms(3_600_000)) }).await;
    assert!(matches!(done, Err(Error::Lost { .. })), "{done:?}");
}

async fn never_deadlocks_whatever_the_order(mut ground: Ground) {
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"]];
    let mut tasks = tokio::task::JoinSet::new();
    for order in orders {
        let client = ground.client().await;
        tasks.spawn(async move {
            let multi = client.multi(order).expect("names");
            for _ in 0..25 {
                multi.lock().await.expect("granted").release().await.expect("held");
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(done) = soon("all of them", tasks.join_next()).await {
        done.expect("no task fails");
    }
}

async fn shares_one_time_limit(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let first = one.mutex("a").expect("a name").lock().await.expect("free");
    let _second = one.mutex("b").expect("a name").lock().await.expect("free");
    let releasing = tokio::spawn(async move {
        tokio::time::sleep(ms(200)).await;
        first.release().await
    });
    let before = tokio::time::Instant::now();
    let multi = two.multi(["a", "b"]).expect("names");
    assert!(multi.lock_for(ms(400)).await.expect("an answer").is_none());
    let waited = before.elapsed();
    assert!(waited >= ms(400) && waited < ms(1500), "waited {waited:?} in all");
    releasing.await.expect("no panic").expect("held");
}

async fn is_lost_with_any_of_them(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let all = one.multi(["a", "b", "c"]).expect("names").lease(ms(300)).lock().await.expect("free");
    let lost = all.lost();
    two.break_claims(Family::Lock, "b").await.expect("broken");
    assert_eq!(soon("the loss", lost).await, "b");
    assert!(!all.is_held());
    assert!(matches!(all.run(std::future::pending::<()>()).await, Err(Error::Lost { .. })));
    assert!(matches!(all.release().await, Err(Error::Lost { .. })));
    for name in ["a", "c"] {
        let guard = two.mutex(name).expect("a name").try_lock().await.expect("an answer");
        assert!(guard.is_some(), "`{name}` is released all the same");
    }
}

async fn counts_a_name_once(mut ground: Ground) {
    let client = ground.client().await;
    let both =
        client.multi(["a", "b", "a", "a"]).expect("names").lock().await.expect("no deadlock with itself");
    assert!(both.names().eq(["a", "b"]));
    both.release().await.expect("held");
}

async fn is_released_by_a_drop(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    drop(one.multi(["a", "b"]).expect("names").lock().await.expect("free"));
    until("both are free", async || {
        let again = two.multi(["a", "b"]).expect("names").try_lock().await;
        again.expect("an answer").is_some()
    })
    .await;
}

async fn refuses_no_names(mut ground: Ground) {
    let client = ground.client().await;
    assert!(matches!(client.multi([""; 0]), Err(Error::Invalid { .. })));
}
