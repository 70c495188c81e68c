//! Processes that are killed and stopped, calls that are dropped, and answers that are lost.

use std::time::Duration;

use leasehold::engine::{Engine, Swap, Write};
use leasehold::kit::sessions::{Session, SessionId, Sessions};
use leasehold::{Client, Error};

use super::{able, count, load, nothing_is_left, sessions, stored};
use crate::bench::{Ground, ms, until};
use crate::cancel::poll_and_drop;
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "sessions",
        able,
        [
            a_lost_answer_leaves_no_session,
            a_dropped_call_leaves_no_session,
            a_dropped_end_of_all_ends_all_or_none,
            a_process_killed_while_it_ends_all_ends_all_or_none,
            a_paused_process_can_not_bring_a_session_back,
            nothing_is_valid_while_the_engine_is_away,
        ]
    )
}

async fn a_lost_answer_leaves_no_session(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (other, engine) = (sessions(&ground.client().await), ground.engine().await);
    let cut = sessions(&client);
    wire.set(Fault::LoseAnswer);
    let lost = cut.create("ada", "").await.expect_err("not heard");
    assert!(matches!(lost, Error::Unavailable { .. }), "{lost}");
    cut.create_anonymous("").await.expect_err("not heard");
    until("nothing is left", async || stored(&*engine).await.is_empty()).await;
    // An end that was not heard has happened, and can be asked for again.
    wire.set(Fault::None);
    let session = other.create("ada", "").await.expect("created");
    wire.set(Fault::LoseAnswer);
    cut.end_all("ada").await.expect_err("not heard");
    assert_eq!(load(&other, &session).await, None);
    wire.set(Fault::None);
    assert_eq!(cut.end_all("ada").await.expect("an answer"), 0);
    nothing_is_left(&*engine).await;
}

async fn a_dropped_call_leaves_no_session(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (engine, sessions) = (ground.engine().await, sessions(&client));
    wire.set(Fault::Stutter);
    let mut depths = 0;
    for depth in 0..12 {
        let work = async {
            let nobody = sessions.create_anonymous("").await.expect("created");
            let ada = sessions.sign_in(&nobody, "ada").await.expect("an answer").expect("signed in");
            sessions.end(ada.id()).await.expect("an answer");
        };
        let done = poll_and_drop(work, depth).await;
        depths += 1;
        if done {
            break;
        }
        // What was created and told is not left behind by anybody but the dropped caller.
        sessions.end_all("ada").await.expect("an answer");
        until("at most the anonymous one is left", async || stored(&*engine).await.len() <= 1).await;
        for cell in stored(&*engine).await {
            delete(&*engine, &cell).await;
        }
    }
    assert!(depths >= 2, "dropped at {depths} points only");
    for depth in 0..12 {
        if poll_and_drop(sessions.create("ada", ""), depth).await {
            break;
        }
        until("nothing is left", async || stored(&*engine).await.is_empty()).await;
    }
}

async fn a_dropped_end_of_all_ends_all_or_none(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (engine, sessions) = (ground.engine().await, sessions(&client));
    let mut outcomes = [0, 0];
    for depth in 0..16 {
        let mut made = Vec::new();
        for _ in 0..20 {
            made.push(sessions.create("ada", "").await.expect("created"));
        }
        wire.set(Fault::Stutter);
        let done = poll_and_drop(sessions.end_all("ada"), depth).await;
        wire.set(Fault::None);
        let valid = all_or_none(&sessions, &made).await;
        outcomes[usize::from(valid == 0)] += 1;
        sessions.end_all("ada").await.expect("an answer");
        nothing_is_left(&*engine).await;
        if done {
            break;
        }
    }
    assert!(outcomes[0] >= 1 && outcomes[1] >= 1, "{outcomes:?}");
}

async fn a_process_killed_while_it_ends_all_ends_all_or_none(mut ground: Ground) {
    const COUNT: usize = 60;
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client);
    for round in 0..8 {
        let Some(mut child) = ground.child().await else { return };
        let ids = child.ask(&format!("sessions ada {COUNT}")).await;
        let ids: Vec<SessionId> = ids.split(',').map(|id| id.parse().expect("an id")).collect();
        assert_eq!(child.ask("end-sessions ada").await, "ending");
        tokio::time::sleep(Duration::from_micros(round * 700)).await;
        child.kill().await;
        // A request that is on its way may still arrive; it ends all of them.
        let mut made = Vec::new();
        for id in &ids {
            made.extend(sessions.load(id).await.expect("an answer"));
        }
        if !made.is_empty() && made.len() < COUNT {
            assert_eq!(all_or_none(&sessions, &made).await, 0);
        }
        assert!([0, COUNT].contains(&count(&sessions, "ada").await));
        // Whatever was left is found by the next one.
        sessions.end_all("ada").await.expect("an answer");
        nothing_is_left(&*engine).await;
    }
}

async fn a_paused_process_can_not_bring_a_session_back(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client);
    let Some(mut child) = ground.child().await else { return };
    for _ in 0..3 {
        let session = sessions.create("ada", "").await.expect("created");
        assert_eq!(child.ask(&format!("use-session {}", session.id().expose())).await, "using");
        tokio::time::sleep(ms(20)).await;
        child.stop();
        while let Err(error) = sessions.end_all("ada").await {
            child.stop_elsewhere(&ground, &error).await;
        }
        child.resume();
        assert_eq!(child.line().await, "ended");
        nothing_is_left(&*engine).await;
    }
}

async fn nothing_is_valid_while_the_engine_is_away(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let sessions = sessions(&client);
    let session = sessions.create("ada", "").await.expect("created");
    wire.set(Fault::Refuse);
    let error = sessions.load(session.id()).await.expect_err("not known");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(!error.to_string().contains(&session.id().expose()[32..]));
    sessions.end_all("ada").await.expect_err("not known");
    wire.set(Fault::None);
    assert!(load(&sessions, &session).await.is_some());
}

async fn delete(engine: &dyn Engine, cell: &str) {
    let name = name(cell);
    let version = engine.read(std::slice::from_ref(&name)).await.expect("a cell").cells[0].version;
    engine.swap(vec![Swap { name, version, write: Write::Delete }]).await.expect("an answer");
}

/// How many of these sessions are valid: all of them or none, unless they end while we look.
async fn all_or_none(sessions: &Sessions, made: &[Session]) -> usize {
    for _ in 0..3 {
        let mut valid = 0;
        for session in made {
            valid += usize::from(load(sessions, session).await.is_some());
        }
        if valid == 0 || valid == made.len() {
            return valid;
        }
    }
    panic!("some of the sessions are valid and others are not")
}

/// In a child process: creates sessions, and tells their ids.
pub(crate) async fn create_in_child(client: &Client, user: &str, count: u64, answer: fn(&str)) {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(sessions(client).create(user, "").await.expect("created").id().expose());
    }
    answer(&ids.join(","));
}

pub(crate) async fn end_in_child(client: &Client, user: &str, answer: fn(&str)) {
    answer("ending");
    sessions(client).end_all(user).await.expect("an answer");
}

/// Uses a session until it is gone.
pub(crate) async fn use_in_child(client: &Client, id: &str, answer: fn(&str)) {
    let (sessions, id) = (sessions(client).lifetime(ms(60_000)), id.parse().expect("an id"));
    answer("using");
    while let Some(session) = sessions.load(&id).await.expect("an answer") {
        sessions.save(&session, "used").await.expect("an answer");
    }
    answer("ended");
}
