//! The store of `tower-sessions` whose calls are dropped at every point, as when a browser hangs
//! up. `tests/web` has it behind a service.

use std::future::poll_fn;
use std::pin::pin;

use leasehold::kit::sessions::TowerStore;
use tower_sessions::SessionStore;
use tower_sessions::cookie::time::{Duration as CookieDuration, OffsetDateTime};
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::Error;

use super::{able, count, sessions};
use crate::bench::{Ground, soon, until};
use crate::cancel::poll_and_drop;
use crate::wire::{Fault, Wire};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "tower_sessions",
        able,
        [a_dropped_call_leaves_no_session_that_nobody_has, a_lost_answer_leaves_no_session_that_nobody_has,]
    )
}

/// How often a call is polled before it is dropped: all of its points on a fast engine, and some of
/// them on a slow one.
const DEPTHS: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100];

fn record(user: Option<&str>) -> Record {
    let data = user.map(|user| ("user".to_owned(), user.into())).into_iter().collect();
    Record { id: Id::default(), data, expiry_date: OffsetDateTime::now_utc() + CookieDuration::hours(1) }
}

/// Whose record it is; `None` if there is none.
async fn user(store: &TowerStore, id: &Id) -> Option<String> {
    let record = store.load(id).await.expect("an answer")?;
    let Some(user) = record.data.get("user") else { return Some("nobody".to_owned()) };
    user.as_str().map(str::to_owned)
}

/// A user has the sessions that are of use.
async fn as_listed(store: &TowerStore, who: &str, id: &Id) -> bool {
    let valid = user(store, id).await.is_some_and(|user| user == who);
    count(store.sessions(), who).await == usize::from(valid)
}

/// Drops a call after so many polls. True if it was done before.
async fn dropped(wire: &Wire, call: impl Future<Output = ()>, depth: usize) -> bool {
    wire.set(Fault::Stutter);
    let done = poll_and_drop(call, depth).await;
    wire.set(Fault::None);
    done
}

/// Loses the answers to all calls of the engine but the first ones. True if all is well.
async fn losing(wire: &Wire, call: impl Future<Output = Result<(), Error>>, heard: usize) -> bool {
    let before = wire.calls();
    wire.set(Fault::Stutter);
    let mut call = pin!(call);
    let done = poll_fn(|context| {
        if wire.calls() >= before + heard {
            wire.set(Fault::LoseAnswer);
        }
        context.waker().wake_by_ref();
        call.as_mut().poll(context)
    });
    let done = soon("an answer", done).await;
    wire.set(Fault::None);
    done.is_ok()
}

async fn a_dropped_call_leaves_no_session_that_nobody_has(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let cut = TowerStore::new(sessions(&client)).user_in("user");
    let whole = TowerStore::new(sessions(&ground.client().await)).user_in("user");
    let (mut made, mut done) = (0, 0);
    for depth in DEPTHS {
        // Nobody is told the id.
        let mut new = record(Some("ada"));
        let creating = async { cut.create(&mut new).await.expect("created") };
        let told = dropped(&wire, creating, depth).await;
        if told {
            whole.delete(&new.id).await.expect("an answer");
            made += 1;
        }
        until("none is listed", async || count(whole.sessions(), "ada").await == 0).await;
        // Somebody signs in and keeps the id.
        let mut kept = record(None);
        whole.create(&mut kept).await.expect("created");
        kept.data.insert("user".to_owned(), "ada".into());
        let saving = async { cut.save(&kept).await.expect("saved") };
        done += u32::from(dropped(&wire, saving, depth).await);
        until("what is listed is of use", async || as_listed(&whole, "ada", &kept.id).await).await;
        whole.delete(&kept.id).await.expect("an answer");
        until("none is listed", async || count(whole.sessions(), "ada").await == 0).await;
    }
    // A call that a server carries out after it was dropped can not be waited for.
    if ground.promises().engine != "memory" {
        return;
    }
    assert!(made > 0 && done > 0, "no call came to its end");
    for depth in DEPTHS {
        for next in [Some("bob"), None] {
            let mut kept = record(Some("ada"));
            whole.create(&mut kept).await.expect("created");
            let id = kept.id;
            let leaving = async {
                match next {
                    Some(user) => {
                        kept.data.insert("user".to_owned(), user.into());
                        cut.save(&kept).await.expect("saved");
                    }
                    None => cut.delete(&kept.id).await.expect("deleted"),
                }
            };
            dropped(&wire, leaving, depth).await;
            for user in ["ada", "bob"] {
                until("what is listed is of use", async || as_listed(&whole, user, &id).await).await;
            }
            whole.delete(&id).await.expect("an answer");
        }
    }
}

async fn a_lost_answer_leaves_no_session_that_nobody_has(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let cut = TowerStore::new(sessions(&client)).user_in("user");
    let whole = TowerStore::new(sessions(&ground.client().await)).user_in("user");
    let mut lost = 0;
    for heard in 0..8 {
        let mut new = record(Some("ada"));
        let created = losing(&wire, cut.create(&mut new), heard).await;
        let listed = usize::from(created);
        until("none is listed", async || count(whole.sessions(), "ada").await == listed).await;
        whole.end_all("ada").await.expect("an answer");
        let mut kept = record(None);
        whole.create(&mut kept).await.expect("created");
        kept.data.insert("user".to_owned(), "ada".into());
        lost += u32::from(!losing(&wire, cut.save(&kept), heard).await);
        until("what is listed is of use", async || as_listed(&whole, "ada", &kept.id).await).await;
        whole.delete(&kept.id).await.expect("an answer");
    }
    assert!(lost >= 3, "{lost} answers were lost");
}
