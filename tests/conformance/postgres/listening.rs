//! How a client finds out whether it will be called.

use leasehold::claim::{Answer, Ask, OwnerId};
use leasehold::engine::{Hint, Hints};
use leasehold::{Family, Name, Options};
use tokio::sync::mpsc;

use super::*;
use crate::bench::{ask, ms, soon};
use crate::line::{Passing, line};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!("listening", [a_message_that_is_slow_makes_no_client_deaf]).cases
}

/// The messages of a server, and nothing else, have the names of channels in them.
fn is_message(passing: &Passing<'_>) -> bool {
    let channel = b"leasehold_";
    passing.is_reply && passing.bytes.windows(channel.len()).any(|bytes| bytes == channel)
}

async fn a_message_that_is_slow_makes_no_client_deaf(ground: Ground) {
    // Longer than the first one is waited for.
    let slow = |passing: Passing<'_>| ms(if is_message(&passing) { 1200 } else { 0 });
    let url = Postgres::url_at(line(server(&ground).port(), slow).await);
    let engine = leasehold::engine::open(&url, &Options::new()).await.expect("the engine is there");
    let (sender, mut hints) = mpsc::unbounded_channel();
    engine.listen(Hints::new(move |hint| sender.send(hint).unwrap_or(())));
    let name = Name::new(Family::Lock, "x").expect("a name");
    let lease = ms(600_000);
    let granted = engine.acquire(&name, &Ask { lease, ..ask(1) }).await.expect("an answer");
    assert!(matches!(granted, Answer::Granted(_)), "{granted:?}");
    let waiter = Ask { wait: true, lease, ..ask(2) };
    let queued = engine.acquire(&name, &waiter).await.expect("an answer");
    assert!(matches!(queued, Answer::Queued(_)), "{queued:?}");
    // Given when it hears: something may have been said before.
    let mut heard = async |what: &str, wanted: fn(&Hint) -> bool| {
        let heard = async { while !wanted(&hints.recv().await.expect("the engine is there")) {} };
        tokio::time::timeout(ms(60_000), heard).await.unwrap_or_else(|_| panic!("it never {what}"));
    };
    heard("hears", |hint| matches!(hint, Hint::WakeAll)).await;
    soon("the release", engine.release(&name, OwnerId(1), 0)).await.expect("an answer");
    heard("is called", |hint| {
        matches!(hint, Hint::Wake(OwnerId(2)) | Hint::Granted { owner: OwnerId(2), .. })
    })
    .await;
}
