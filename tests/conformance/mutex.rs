//! What only a mutex does: re-entry, and its place among other locks of the same name.

use leasehold::{Error, Loss, Owner, Standing};

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::history::the_checker_finds_what_is_wrong;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "reentry",
        [
            the_checker_finds_what_is_wrong,
            an_owner_takes_again_what_it_holds,
            the_last_of_an_owners_guards_frees,
            two_tasks_of_one_owner_share_a_grant,
            an_owner_that_lost_is_told,
            a_mutex_is_the_write_side_of_the_lock_of_that_name,
            families_do_not_collide,
            one_owner_waits_for_itself_no_longer_than_it_said,
            work_is_stopped_when_the_lease_is_lost,
            a_lock_delay_closes_the_name_after_an_expiry_only,
        ]
    )
}

async fn an_owner_takes_again_what_it_holds(mut ground: Ground) {
    let client = ground.client().await;
    let (me, you) = (Owner::new(), Owner::new());
    let mine = client.mutex("x").expect("a name").owned_by(&me);
    let outer = mine.lock().await.expect("free");
    let inner = mine.try_lock().await.expect("an answer").expect("mine");
    assert_eq!(outer.token(), inner.token());
    let yours = client.mutex("x").expect("a name").owned_by(&you);
    assert!(yours.try_lock().await.expect("an answer").is_none());
    assert!(client.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
}

async fn the_last_of_an_owners_guards_frees(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let me = Owner::new();
    let mine = client.mutex("x").expect("a name").owned_by(&me);
    let outer = mine.lock().await.expect("free");
    let token = outer.token();
    let inner = mine.lock().await.expect("mine");
    outer.release().await.expect("held");
    let other = other.mutex("x").expect("a name");
    assert!(other.try_lock().await.expect("an answer").is_none());
    assert_eq!(inner.standing(), Standing::Held);
    inner.release().await.expect("held");
    let theirs = other.try_lock().await.expect("an answer").expect("free now");
    assert!(theirs.token() > token);
    drop(theirs);
    assert!(mine.lock().await.expect("free").token() > token, "a new grant has a new token");
}

async fn two_tasks_of_one_owner_share_a_grant(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let me = Owner::new();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let mine = client.mutex("x").expect("a name").owned_by(&me);
            tokio::spawn(async move { mine.lock().await })
        })
        .collect();
    tokio::time::sleep(ms(20)).await;
    held.release().await.expect("held");
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(soon("both tasks", task).await.expect("no panic").expect("granted"));
    }
    assert_eq!(guards[0].token(), guards[1].token());
}

async fn an_owner_that_lost_is_told(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let me = Owner::new();
    let mine = client.mutex("x").expect("a name").lease(ms(300)).owned_by(&me);
    let guard = mine.lock().await.expect("free");
    other.break_claims(leasehold::Family::Lock, "x").await.expect("broken");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    let error = mine.lock().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    drop(guard);
    drop(soon("a fresh start", mine.lock()).await.expect("free"));
}

async fn a_mutex_is_the_write_side_of_the_lock_of_that_name(mut ground: Ground) {
    let client = ground.client().await;
    let (mutex, rwlock) = (client.mutex("x").expect("a name"), client.rwlock("x").expect("a name"));
    let reader = rwlock.read().await.expect("free");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    reader.release().await.expect("held");
    let _held = mutex.lock().await.expect("free");
    assert!(rwlock.try_read().await.expect("an answer").is_none());
    assert!(rwlock.try_write().await.expect("an answer").is_none());
}

async fn families_do_not_collide(mut ground: Ground) {
    let client = ground.client().await;
    let _lock = client.mutex("x").expect("a name").try_lock().await.expect("an answer").expect("free");
    let promises = ground.promises();
    let (semaphore, election, latch) = (client.semaphore("x", 2), client.election("x"), client.latch("x", 2));
    let _permit = if promises.counts {
        Some(semaphore.expect("a name").try_acquire().await.expect("an answer").expect("free"))
    } else {
        refuses(semaphore);
        None
    };
    let _leader = if promises.elects {
        Some(election.expect("a name").try_campaign("me").await.expect("an answer").expect("vacant"))
    } else {
        refuses(election);
        None
    };
    if promises.cells {
        assert_eq!(latch.expect("a name").count_down().await.expect("counted"), 1);
    } else {
        refuses(latch);
    }
}

async fn one_owner_waits_for_itself_no_longer_than_it_said(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = client.mutex("x").expect("a name").owned_by(&leasehold::Owner::new());
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    // Until it waits: then it has the owner's entry.
    tokio::time::sleep(ms(50)).await;
    let tried = soon("try_lock", mutex.try_lock()).await.expect("an answer");
    assert!(tried.is_none(), "somebody else holds it");
    let limited = soon("lock_for", mutex.lock_for(ms(100))).await.expect("an answer");
    assert!(limited.is_none(), "somebody else holds it");
    held.release().await.expect("held");
    let first = soon("its turn", waiting).await.expect("no panic").expect("granted");
    let again = soon("the same owner again", mutex.try_lock()).await.expect("an answer").expect("its own");
    assert_eq!(first.token(), again.token());
}

async fn work_is_stopped_when_the_lease_is_lost(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mutex = client.mutex("x").expect("a name").lease(ms(300));
    let done = mutex.run(async |token| token).await.expect("done");
    let started = std::sync::Arc::new(tokio::sync::Notify::new());
    let begun = std::sync::Arc::clone(&started);
    let running = tokio::spawn(async move {
        let endless = async |_| {
            begun.notify_one();
            std::future::pending::<()>().await;
        };
        mutex.run(endless).await
    });
    started.notified().await;
    let broken = other.break_claims(leasehold::Family::Lock, "x").await.expect("broken");
    assert!(broken[0].token > done.get());
    let error = soon("the stop", running).await.expect("no panic").expect_err("stopped");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

async fn a_lock_delay_closes_the_name_after_an_expiry_only(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let delay = ms(1500);
    let careful = client.mutex("x").expect("a name").lease(ms(300)).lock_delay(delay);
    if !ground.promises().delays {
        refuses(careful.lock().await);
        refuses(careful.try_lock().await);
        let free = other.mutex("x").expect("a name").try_lock().await.expect("an answer");
        assert!(free.is_some(), "a refusal leaves nothing");
        return;
    }
    careful.lock().await.expect("free").release().await.expect("held");
    let theirs = other.mutex("x").expect("a name");
    theirs
        .try_lock()
        .await
        .expect("an answer")
        .expect("no delay after a release")
        .release()
        .await
        .expect("held");

    let guard = careful.lock().await.expect("free");
    wire.set(crate::wire::Fault::Hang);
    soon("the loss", guard.lost()).await;
    let lost_at = tokio::time::Instant::now();
    let next = soon("the next holder", theirs.lock()).await.expect("granted");
    let closed = lost_at.elapsed();
    assert!(closed >= delay - ms(50), "the name was closed for {closed:?} only");
    next.release().await.expect("held");
    wire.set(crate::wire::Fault::None);
    until("the old guard is forgotten", async || client.held() == 0).await;
}
