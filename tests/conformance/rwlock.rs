//! Readers and writers.

use leasehold::{Error, Family, Standing};

use crate::bench::{Ground, ms, soon, until, upgrades};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "rwlock",
        [
            many_read_and_one_writes,
            a_writer_is_not_starved_by_readers,
            a_reader_becomes_the_writer_when_alone,
            an_upgrade_goes_before_the_queue,
            a_second_upgrade_is_refused_and_keeps_its_guard,
            a_try_upgrade_does_not_wait,
            a_writer_becomes_a_reader_at_once,
            a_readers_lease_is_renewed_and_can_be_lost,
            a_dropped_reader_lets_the_writer_in,
            a_dropped_upgrade_leaves_nothing,
        ]
    )
}

async fn many_read_and_one_writes(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (a, b) = (one.rwlock("x").expect("a name"), two.rwlock("x").expect("a name"));
    let readers =
        [a.read().await.expect("free"), b.read().await.expect("shared"), a.read().await.expect("shared")];
    assert!(b.try_write().await.expect("an answer").is_none());
    assert!(b.write_for(ms(50)).await.expect("an answer").is_none());
    for reader in readers {
        reader.release().await.expect("held");
    }
    let writer = b.try_write().await.expect("an answer").expect("free");
    assert!(a.try_read().await.expect("an answer").is_none());
    assert!(a.read_for(ms(50)).await.expect("an answer").is_none());
    writer.release().await.expect("held");
    assert!(a.try_read().await.expect("an answer").is_some());
}

async fn a_writer_is_not_starved_by_readers(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let rwlock = two.rwlock("x").expect("a name");
    let writing = tokio::spawn(async move { rwlock.write().await });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let late = one.rwlock("x").expect("a name");
    assert!(late.try_read().await.expect("an answer").is_none(), "a reader overtook the writer");
    reader.release().await.expect("held");
    let writer = soon("the writer", writing).await.expect("no panic").expect("granted");
    assert!(late.try_read().await.expect("an answer").is_none());
    writer.release().await.expect("held");
    assert!(late.try_read().await.expect("an answer").is_some());
}

async fn a_reader_becomes_the_writer_when_alone(ground: Ground) {
    let Some(mut ground) = upgrades(ground).await else { return };
    let (one, two) = (ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let token = reader.token();
    let other = two.rwlock("x").expect("a name").read().await.expect("shared");
    let upgrading = tokio::spawn(reader.upgrade());
    until("nobody may read any more", async || {
        two.rwlock("x").expect("a name").try_read().await.expect("an answer").is_none()
    })
    .await;
    other.release().await.expect("held");
    let writer = soon("the upgrade", upgrading).await.expect("no panic").expect("granted");
    assert!(writer.token() > token, "a writer has a token of its own");
    assert!(two.rwlock("x").expect("a name").try_read().await.expect("an answer").is_none());
    writer.release().await.expect("held");
    assert!(two.rwlock("x").expect("a name").try_write().await.expect("an answer").is_some());
}

async fn an_upgrade_goes_before_the_queue(ground: Ground) {
    let Some(mut ground) = upgrades(ground).await else { return };
    let (one, two, three) = (ground.client().await, ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let rwlock = two.rwlock("x").expect("a name");
    let writing = tokio::spawn(async move { rwlock.write().await });
    until("it waits", async || three.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    // The queue waits for this reader; if it had to wait for the queue, nobody would move.
    let writer = soon("the upgrade", reader.upgrade()).await.expect("granted");
    let token = writer.token();
    writer.release().await.expect("held");
    let next = soon("the queue", writing).await.expect("no panic").expect("granted");
    assert!(next.token() > token);
}

async fn a_second_upgrade_is_refused_and_keeps_its_guard(ground: Ground) {
    let Some(mut ground) = upgrades(ground).await else { return };
    let (one, two) = (ground.client().await, ground.client().await);
    let first = one.rwlock("x").expect("a name").read().await.expect("free");
    let second = two.rwlock("x").expect("a name").read().await.expect("shared");
    let upgrading = tokio::spawn(first.upgrade());
    until("it waits", async || {
        two.rwlock("x").expect("a name").try_read().await.expect("an answer").is_none()
    })
    .await;
    let refused = soon("an answer", second.upgrade()).await.expect_err("a deadlock");
    assert!(matches!(refused.error, Error::Invalid { .. }), "{refused}");
    assert_eq!(refused.guard.standing(), Standing::Held);
    refused.guard.release().await.expect("still a reader");
    drop(soon("the first upgrade", upgrading).await.expect("no panic").expect("granted"));
}

async fn a_try_upgrade_does_not_wait(ground: Ground) {
    let Some(mut ground) = upgrades(ground).await else { return };
    let (one, two) = (ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let other = two.rwlock("x").expect("a name").read().await.expect("shared");
    let reader = reader.try_upgrade().await.expect("an answer").expect_err("not alone");
    let third =
        two.rwlock("x").expect("a name").try_read().await.expect("an answer").expect("nobody waits to write");
    third.release().await.expect("held");
    other.release().await.expect("held");
    reader.try_upgrade().await.expect("an answer").expect("alone").release().await.expect("held");
}

async fn a_writer_becomes_a_reader_at_once(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let writer = one.rwlock("x").expect("a name").write().await.expect("free");
    let token = writer.token();
    let rwlock = two.rwlock("x").expect("a name");
    let reading = tokio::spawn(async move { rwlock.read().await });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let reader = writer.downgrade().await.expect("still held");
    assert_eq!(reader.token(), token);
    let other = soon("the reader", reading).await.expect("no panic").expect("granted");
    assert!(one.rwlock("x").expect("a name").try_write().await.expect("an answer").is_none());
    let local = one.rwlock("x").expect("a name").try_read().await.expect("an answer").expect("shared");
    for reader in [reader, other, local] {
        reader.release().await.expect("held");
    }
}

async fn a_readers_lease_is_renewed_and_can_be_lost(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let reader = client.rwlock("x").expect("a name").lease(ms(300)).read().await.expect("free");
    assert!(other.rwlock("x").expect("a name").write_for(ms(1000)).await.expect("an answer").is_none());
    assert_eq!(reader.standing(), Standing::Held);
    wire.set(Fault::Hang);
    let writer = soon("the writer", other.rwlock("x").expect("a name").write()).await.expect("granted");
    assert_eq!(reader.standing(), Standing::Lost);
    assert!(writer.token() > reader.token());
}

async fn a_dropped_reader_lets_the_writer_in(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let rwlock = two.rwlock("x").expect("a name");
    let writing = tokio::spawn(async move { rwlock.write().await });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    drop(reader);
    drop(soon("the writer", writing).await.expect("no panic").expect("granted"));
}

async fn a_dropped_upgrade_leaves_nothing(ground: Ground) {
    let Some(mut ground) = upgrades(ground).await else { return };
    let (one, two) = (ground.client().await, ground.client().await);
    let reader = one.rwlock("x").expect("a name").read().await.expect("free");
    let other = two.rwlock("x").expect("a name").read().await.expect("shared");
    crate::bench::not_within(ms(100), "the upgrade was granted", reader.upgrade()).await;
    until("readers may come again", async || {
        two.rwlock("x").expect("a name").try_read().await.expect("an answer").is_some()
    })
    .await;
    other.release().await.expect("held");
    until("nothing is left", async || two.look(Family::Lock, "x").await.expect("a view").claims.is_empty())
        .await;
}
