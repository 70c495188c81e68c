//! Sessions of users.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::engine::{CellValue, Engine, Swap, Write};
use leasehold::kit::sessions::{LONGEST_DATA, Saved, Session, SessionId, Sessions};
use leasehold::{Client, Error};
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::cancel::poll_and_drop;
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "sessions",
        able,
        [
            a_session_is_found_by_every_client,
            a_session_that_is_not_used_ends,
            use_puts_the_end_off,
            a_session_ends_however_much_it_is_used,
            what_others_have_saved_is_not_overwritten,
            an_ended_session_does_not_come_back,
            all_sessions_of_a_user_end_together,
            sessions_in_use_and_new_ones_end_with_the_others,
            one_of_a_list_can_be_ended,
            signing_in_changes_the_id,
            a_lost_answer_leaves_no_session,
            a_dropped_call_leaves_no_session,
            a_dropped_end_of_all_ends_all_or_none,
            a_process_killed_while_it_ends_all_ends_all_or_none,
            a_paused_process_can_not_bring_a_session_back,
            nothing_is_valid_while_the_engine_is_away,
            data_that_is_too_long_is_refused,
            a_cell_of_something_else_is_no_session,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse sessions.
async fn able(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.sessions("x"));
    None
}

fn sessions(client: &Client) -> Sessions {
    client.sessions("x").expect("a name")
}

async fn load(sessions: &Sessions, session: &Session) -> Option<Session> {
    sessions.load(session.id()).await.expect("an answer")
}

async fn count(sessions: &Sessions, user: &str) -> usize {
    sessions.list(user).await.expect("a list").len()
}

/// The cells that are stored.
async fn stored(engine: &dyn Engine) -> Vec<String> {
    let found = engine.list_cells("", None, 1000).await.expect("a list");
    found.iter().map(|name| name.as_str().to_owned()).collect()
}

async fn nothing_is_left(engine: &dyn Engine) {
    assert_eq!(stored(engine).await, [""; 0]);
}

async fn a_session_is_found_by_every_client(mut ground: Ground) {
    let (one, two) = (sessions(&ground.client().await), sessions(&ground.client().await));
    let session = one.create("ada", b"\0data").await.expect("created");
    assert_eq!((session.user(), session.data()), (Some("ada"), &b"\0data"[..]));
    let cookie = session.id().expose();
    let found = two.load(&cookie.parse().expect("an id")).await.expect("an answer").expect("found");
    assert_eq!((found.id(), found.user(), found.data()), (session.id(), Some("ada"), &b"\0data"[..]));
    assert!(found.ends_in() > Duration::from_secs(23 * 3600), "{:?}", found.ends_in());
    let nobody = one.create_anonymous("cart").await.expect("created");
    let found = load(&two, &nobody).await.expect("found");
    assert_eq!((found.user(), found.data()), (None, &b"cart"[..]));
    // Ids that nobody was given, one of them in the right place.
    let place = &cookie[..32];
    for guess in ["0".repeat(64), format!("{place}{}", "0".repeat(32))] {
        assert_eq!(two.load(&guess.parse().expect("an id")).await.expect("an answer"), None);
    }
    let client = ground.client().await;
    assert_eq!(load(&client.sessions("y").expect("a name"), &session).await, None);
    assert_eq!(load(&sessions(&client.namespace("shop")), &session).await, None);
    // Whoever reads the store can not use what is in it.
    let engine = ground.engine().await;
    let names = stored(&*engine).await;
    assert!(names.len() >= 4 && names.iter().all(|name| !name.contains(&cookie[32..])), "{names:?}");
}

async fn a_session_that_is_not_used_ends(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client).lifetime(ms(300));
    let session = sessions.create("ada", "").await.expect("created");
    sessions.create_anonymous("").await.expect("created");
    until("it is not listed", async || count(&sessions, "ada").await == 0).await;
    assert_eq!(load(&sessions, &session).await, None);
    until("nothing is left", async || stored(&*engine).await.is_empty()).await;
}

async fn use_puts_the_end_off(mut ground: Ground) {
    let sessions = sessions(&ground.client().await).lifetime(ms(2000));
    let used = sessions.create("ada", "").await.expect("created");
    let nobody = sessions.create_anonymous("").await.expect("created");
    let unused = sessions.create("ada", "").await.expect("created");
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < ms(4000) {
        assert!(load(&sessions, &used).await.is_some(), "after {:?}", begun.elapsed());
        assert!(load(&sessions, &nobody).await.is_some(), "after {:?}", begun.elapsed());
        tokio::time::sleep(ms(100)).await;
    }
    assert_eq!(load(&sessions, &unused).await, None);
    let [listed] = &sessions.list("ada").await.expect("a list")[..] else { panic!("one is listed") };
    assert!(listed.age >= ms(4000) && listed.idle < ms(1500) && listed.ends_in > ms(500), "{listed:?}");
    // Saving is using.
    let begun = tokio::time::Instant::now();
    let mut session = used;
    while begun.elapsed() < ms(3000) {
        session = match sessions.save(&session, "more").await.expect("an answer") {
            Saved::Yes(session) => session,
            other => panic!("{other:?} after {:?}", begun.elapsed()),
        };
        tokio::time::sleep(ms(100)).await;
    }
}

async fn a_session_ends_however_much_it_is_used(mut ground: Ground) {
    let sessions = sessions(&ground.client().await).longest(ms(600));
    let session = sessions.create("ada", "").await.expect("created");
    assert!(session.ends_in() <= ms(600));
    until("it is over", async || load(&sessions, &session).await.is_none()).await;
    assert_eq!(count(&sessions, "ada").await, 0);
}

async fn what_others_have_saved_is_not_overwritten(mut ground: Ground) {
    let (one, two) = (sessions(&ground.client().await), sessions(&ground.client().await));
    let session = one.create("ada", "0").await.expect("created");
    let Saved::Yes(first) = two.save(&session, "1").await.expect("an answer") else { panic!("saved") };
    let Saved::Changed(newer) = one.save(&session, "2").await.expect("an answer") else { panic!("changed") };
    assert_eq!(newer.data(), b"1");
    let Saved::Yes(second) = one.save(&newer, "2").await.expect("an answer") else { panic!("saved") };
    assert_eq!((first.data(), second.data()), (&b"1"[..], &b"2"[..]));
    // Many at once, each adding one: nothing is lost.
    let session = Arc::new(one.create_anonymous([0]).await.expect("created"));
    let mut tasks = JoinSet::new();
    for sessions in [one.clone(), one.clone(), two.clone(), two] {
        let mut session = Session::clone(&session);
        tasks.spawn(async move {
            for _ in 0..10 {
                loop {
                    let more = [session.data()[0] + 1];
                    match sessions.save(&session, more).await.expect("an answer") {
                        Saved::Yes(saved) => break session = saved,
                        Saved::Changed(newer) => session = newer,
                        Saved::Ended => panic!("ended"),
                    }
                }
            }
        });
    }
    soon("all are saved", tasks.join_all()).await;
    assert_eq!(load(&one, &session).await.expect("found").data(), [40]);
}

async fn an_ended_session_does_not_come_back(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    // Every use of it would put its end off.
    let sessions = sessions(&client);
    for user in [Some("ada"), None] {
        let session = match user {
            Some(user) => sessions.create(user, "").await.expect("created"),
            None => sessions.create_anonymous("").await.expect("created"),
        };
        assert!(sessions.end(session.id()).await.expect("an answer"));
        assert!(!sessions.end(session.id()).await.expect("an answer"));
        assert_eq!(sessions.save(&session, "late").await.expect("an answer"), Saved::Ended);
        assert_eq!(load(&sessions, &session).await, None);
        nothing_is_left(&*engine).await;
    }
}

async fn all_sessions_of_a_user_end_together(mut ground: Ground) {
    let (one, two) = (sessions(&ground.client().await), sessions(&ground.client().await));
    let engine = ground.engine().await;
    let mut made = Vec::new();
    for number in 0..40_u8 {
        made.push(one.create("ada", [number]).await.expect("created"));
    }
    let other = one.create("bob", "").await.expect("created");
    let listed = two.list("ada").await.expect("a list");
    assert_eq!(listed.len(), 40);
    assert!(listed.windows(2).all(|pair| pair[0].age >= pair[1].age), "oldest first");
    assert_eq!(two.end_all("ada").await.expect("an answer"), 40);
    for session in &made {
        assert_eq!(load(&one, session).await, None);
        assert_eq!(one.save(session, "late").await.expect("an answer"), Saved::Ended);
    }
    assert_eq!(count(&one, "ada").await, 0);
    assert_eq!(two.end_all("ada").await.expect("an answer"), 0);
    assert!(load(&two, &other).await.is_some());
    // Nothing is left of them, and the user can sign in again.
    let left = stored(&*engine).await;
    assert_eq!(left.len(), 3, "{left:?}");
    let again = one.create("ada", "").await.expect("created");
    assert!(load(&two, &again).await.is_some());
    assert_eq!(two.end_all("ada").await.expect("an answer"), 1);
    assert!(one.end(other.id()).await.expect("an answer"));
    nothing_is_left(&*engine).await;
}

async fn sessions_in_use_and_new_ones_end_with_the_others(mut ground: Ground) {
    let client = ground.client().await;
    let ender = sessions(&client);
    let engine = ground.engine().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        // Its end is put off all the time.
        let sessions = sessions(&ground.client().await).lifetime(ms(30_000));
        let stop = Arc::clone(&stop);
        tasks.spawn(async move {
            let mut made: Vec<(Session, tokio::time::Instant)> = Vec::new();
            while !stop.load(Ordering::Acquire) {
                let session = sessions.create("ada", "").await.expect("created");
                made.push((session, tokio::time::Instant::now()));
                for (session, _) in made.iter().rev().take(3) {
                    if let Some(found) = sessions.load(session.id()).await.expect("an answer") {
                        sessions.save(&found, "used").await.expect("an answer");
                    }
                }
                tokio::time::sleep(ms(1)).await;
            }
            made
        });
    }
    let mut last = tokio::time::Instant::now();
    for _ in 0..5 {
        let before = tokio::time::Instant::now();
        until("some are there", async || count(&ender, "ada").await >= 4 && before.elapsed() >= ms(20)).await;
        last = tokio::time::Instant::now();
        assert!(ender.end_all("ada").await.expect("an answer") >= 4);
    }
    until("new ones are there", async || count(&ender, "ada").await >= 4).await;
    stop.store(true, Ordering::Release);
    let made: Vec<_> = soon("all stop", tasks.join_all()).await.into_iter().flatten().collect();
    let mut valid = 0;
    for (session, created) in &made {
        let found = load(&ender, session).await.is_some();
        assert!(!found || *created >= last, "a session from before the end is valid");
        valid += usize::from(found);
    }
    assert!(valid >= 4 && valid < made.len(), "{valid} of {}", made.len());
    // What is valid is listed, and what is listed is valid.
    assert_eq!(count(&ender, "ada").await, valid);
    assert_eq!(ender.end_all("ada").await.expect("an answer"), valid as u64);
    nothing_is_left(&*engine).await;
}

async fn one_of_a_list_can_be_ended(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client);
    let first = sessions.create("ada", "").await.expect("created");
    let second = sessions.create("ada", "").await.expect("created");
    let handle = sessions.list("ada").await.expect("a list")[0].handle.clone();
    assert!(!sessions.end_listed("bob", &handle).await.expect("an answer"));
    assert!(sessions.end_listed("ada", &handle).await.expect("an answer"));
    assert!(!sessions.end_listed("ada", &handle).await.expect("an answer"));
    assert!(matches!(sessions.end_listed("ada", "x").await, Err(Error::Invalid { .. })));
    let valid = [load(&sessions, &first).await.is_some(), load(&sessions, &second).await.is_some()];
    assert_eq!(valid, [false, true]);
    // A handle is no id.
    let guess: SessionId = format!("{}{handle}", &second.id().expose()[..32]).parse().expect("an id");
    assert_eq!(sessions.load(&guess).await.expect("an answer"), None);
    assert!(sessions.end(second.id()).await.expect("an answer"));
    nothing_is_left(&*engine).await;
}

async fn signing_in_changes_the_id(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client);
    let nobody = sessions.create_anonymous("cart").await.expect("created");
    let ada = sessions.sign_in(&nobody, "ada").await.expect("signed in");
    assert_eq!((ada.user(), ada.data()), (Some("ada"), &b"cart"[..]));
    assert_ne!(ada.id(), nobody.id());
    assert_eq!(load(&sessions, &nobody).await, None);
    assert!(load(&sessions, &ada).await.is_some());
    assert_eq!(sessions.end_all("ada").await.expect("an answer"), 1);
    nothing_is_left(&*engine).await;
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
            let ada = sessions.sign_in(&nobody, "ada").await.expect("signed in");
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

async fn delete(engine: &dyn Engine, cell: &str) {
    let name = name(cell);
    let version = engine.read(std::slice::from_ref(&name)).await.expect("a cell").cells[0].version;
    engine.swap(vec![Swap { name, version, write: Write::Delete }]).await.expect("an answer");
}

async fn a_dropped_end_of_all_ends_all_or_none(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (engine, sessions) = (ground.engine().await, sessions(&client));
    let mut outcomes = [0, 0];
    for depth in 0..16 {
        let mut made = Vec::new();
        // The connection of a call that was dropped may be closed while the next one uses it.
        while made.len() < 20 {
            made.extend(sessions.create("ada", "").await.ok());
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
        // A process that is stopped inside a transaction of `file:` stops everybody else's.
        while sessions.end_all("ada").await.is_err() {
            child.resume();
            tokio::time::sleep(ms(5)).await;
            child.stop();
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

async fn data_that_is_too_long_is_refused(mut ground: Ground) {
    let sessions = sessions(&ground.client().await);
    let session = sessions.create("ada", vec![7; LONGEST_DATA]).await.expect("created");
    assert_eq!(load(&sessions, &session).await.expect("found").data().len(), LONGEST_DATA);
    let too_long = vec![7; LONGEST_DATA + 1];
    assert!(matches!(sessions.create("ada", &too_long).await, Err(Error::Invalid { .. })));
    assert!(matches!(sessions.save(&session, &too_long).await, Err(Error::Invalid { .. })));
}

async fn a_cell_of_something_else_is_no_session(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let sessions = sessions(&client);
    let session = sessions.create("ada", "").await.expect("created");
    for cell in stored(&*engine).await {
        let name = name(&cell);
        let version = engine.read(std::slice::from_ref(&name)).await.expect("a cell").cells[0].version;
        let put = Write::Put(CellValue { bytes: b"other".to_vec(), lives: ms(60_000) });
        engine.swap(vec![Swap { name, version, write: put }]).await.expect("an answer");
    }
    let error = sessions.load(session.id()).await.expect_err("no session");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(matches!(sessions.create("ada", "").await, Err(Error::Engine { .. })));
    assert!(matches!(sessions.list("ada").await, Err(Error::Engine { .. })));
    assert!(matches!(sessions.end_all("ada").await, Err(Error::Engine { .. })));
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
