//! Grants that a waiter is told of by message: what they are good for.
//!
//! Each client here hears nothing but what the case tells it, so these cases run on engines without
//! such messages, too.

use std::sync::Arc;
use std::time::Duration;

use leasehold::claim::{CONFIRM, Grant};
use leasehold::engine::Hint;
use leasehold::{Client, Family, Guard, Mutex, Result, Standing};
use tokio::task::JoinHandle;

use crate::bench::{Ground, ms, not_within, refuses, soon, until};
use crate::wire::{Fault, Wire};
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "push",
        [
            a_grant_that_is_not_confirmed_ends_before_the_engine_frees_the_name,
            a_grant_that_is_confirmed_lasts_a_whole_lease,
            a_grant_of_an_older_asking_is_not_believed,
            a_grant_with_a_lock_delay_is_confirmed_first,
        ]
    )
}

/// A client that waits and does not know yet that the engine has granted what it waits for.
struct Unheard {
    client: Client,
    wire: Arc<Wire>,
    other: Client,
    mutex: Mutex,
    waiting: JoinHandle<Result<Guard>>,
    /// The message that says so.
    message: Hint,
}

impl Unheard {
    /// `None` on an engine that grants nothing to those who wait, except when they ask.
    async fn new(ground: &mut Ground, lock_delay: Duration) -> Option<Unheard> {
        let options = ground.options();
        let (client, wire) = ground.client_on_wire(options).await;
        let other = ground.client().await;
        if !ground.promises().fair {
            assert!(!client.guarantees().fair, "a queue that is promised after all");
            return None;
        }
        wire.deafen();
        for attempt in 0..20 {
            let name = format!("x{attempt}");
            let held = other.mutex(&name).expect("a name").lock().await.expect("free");
            let mutex = client.mutex(&name).expect("a name").lock_delay(lock_delay);
            let waiting = tokio::spawn({
                let mutex = mutex.clone();
                async move { mutex.lock().await }
            });
            until("it waits", async || other.look(Family::Lock, &name).await.expect("a view").waiting == 1)
                .await;
            let (owner, round) = wire.asked();
            held.release().await.expect("held");
            let view = other.look(Family::Lock, &name).await.expect("a view");
            wire.set(Fault::Refuse);
            // On a busy machine it may have asked again by itself meanwhile.
            if wire.asked() == (owner, round) {
                let claim = &view.claims.first().expect("granted by the release").claim;
                assert_eq!(claim.owner, owner);
                let grant = Grant { token: claim.token, tokens: claim.tokens };
                let message = Hint::Granted { owner, grant, round };
                return Some(Unheard { client, wire, other, mutex, waiting, message });
            }
            wire.set(Fault::None);
            waiting.abort();
        }
        panic!("a waiter asks all the time");
    }
}

/// Who does not confirm is taken for dead after a moment, and not after a whole lease: then
/// somebody else holds the name.
async fn a_grant_that_is_not_confirmed_ends_before_the_engine_frees_the_name(mut ground: Ground) {
    let Some(unheard) = Unheard::new(&mut ground, Duration::ZERO).await else { return };
    let Unheard { wire, other, waiting, message, .. } = unheard;
    wire.tell(message);
    let guard = soon("the one that was told", waiting).await.expect("no panic").expect("granted");
    assert!(guard.remaining() <= CONFIRM, "believed for {:?}", guard.remaining());
    let next = soon("the next holder", other.mutex(guard.name()).expect("a name").lock()).await;
    assert_eq!(guard.standing(), Standing::Lost, "two hold the name");
    assert!(next.expect("granted").token() > guard.token());
}

async fn a_grant_that_is_confirmed_lasts_a_whole_lease(mut ground: Ground) {
    let Some(unheard) = Unheard::new(&mut ground, Duration::ZERO).await else { return };
    let Unheard { client, wire, mutex, waiting, message, .. } = unheard;
    wire.tell(message);
    let guard = soon("the one that was told", waiting).await.expect("no panic").expect("granted");
    wire.set(Fault::None);
    until("it is confirmed", async || guard.remaining() > CONFIRM).await;
    assert_eq!(guard.standing(), Standing::Held);
    guard.release().await.expect("held");
    assert_eq!(client.held(), 0);
    drop(soon("the same client again", mutex.lock()).await.expect("free"));
}

async fn a_grant_of_an_older_asking_is_not_believed(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    wire.deafen();
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = client.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || other.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let (owner, first) = wire.asked();
    wire.tell(Hint::Wake(owner));
    until("it asks again", async || wire.asked().1 > first).await;
    let (_, second) = wire.asked();
    // It was granted the name when it first asked, and has lost it since: the message was under way
    // for long.
    let grant = Grant { token: held.token().get() + 1, tokens: 1 };
    wire.tell(Hint::Granted { owner, grant, round: first });
    until("it has read the message", async || wire.asked().1 > second || waiting.is_finished()).await;
    tokio::time::sleep(ms(50)).await;
    assert!(!waiting.is_finished(), "it believes an old message, and two hold the name");
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    wire.tell(Hint::Wake(owner));
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
}

/// The delay is for claims that were confirmed, so a holder that relies on it must confirm before
/// it works.
async fn a_grant_with_a_lock_delay_is_confirmed_first(mut ground: Ground) {
    let client = ground.client().await;
    let delay = ms(500);
    if !ground.promises().delays {
        refuses(client.mutex("x").expect("a name").lock_delay(delay).lock().await);
        return;
    }
    let Some(unheard) = Unheard::new(&mut ground, delay).await else { return };
    let Unheard { wire, mut waiting, message, .. } = unheard;
    wire.tell(message);
    not_within(ms(300), "it works without a lock delay", &mut waiting).await;
    wire.set(Fault::None);
    let guard = soon("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(guard.remaining() > CONFIRM, "the engine has heard: {:?}", guard.remaining());
}
