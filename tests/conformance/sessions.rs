//! Sessions of users.

mod faults;
#[cfg(feature = "tower-sessions")]
mod tower;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::engine::{CellValue, Engine, Swap, Write};
use leasehold::kit::sessions::{LONGEST_DATA, Saved, Session, SessionId, Sessions};
use leasehold::{Client, Error};
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::cells::name;
use crate::{Group, cases};

pub(crate) use self::faults::{create_in_child, end_in_child, use_in_child};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group(),
        faults::group(),
        #[cfg(feature = "tower-sessions")]
        tower::group(),
    ]
}

fn group() -> Group {
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
            only_a_session_that_is_there_can_be_signed_in,
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
    let secret = u128::from_str_radix(&cookie[32..], 16).expect("hexadecimal").to_be_bytes();
    for cell in &names {
        let found = engine.read(&[name(cell)]).await.expect("a cell");
        let bytes = found.cells[0].value.clone().expect("a value");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!bytes.windows(16).any(|part| part == secret) && !text.contains(&cookie[32..]), "{cell}");
    }
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
    const LONGEST: Duration = ms(9000);
    const LIFETIME: Duration = ms(5000);
    let sessions = sessions(&ground.client().await).lifetime(LIFETIME).longest(LONGEST);
    let session = sessions.create("ada", "").await.expect("created");
    let mut oldest = Duration::ZERO;
    let begun = tokio::time::Instant::now();
    while let Some(found) = load(&sessions, &session).await {
        assert!(found.age() + found.ends_in() <= LONGEST, "{:?} and {:?}", found.age(), found.ends_in());
        oldest = oldest.max(found.age());
        assert!(begun.elapsed() < LONGEST * 3, "it does not end");
        tokio::time::sleep(ms(20)).await;
    }
    assert!(oldest > LIFETIME, "its end was never put off: {oldest:?}");
    assert_eq!(count(&sessions, "ada").await, 0);
    // Also if it is shorter than the other one.
    let sessions = sessions.lifetime(ms(60_000)).longest(ms(600));
    let session = sessions.create("ada", "").await.expect("created");
    assert!(session.ends_in() <= ms(600));
    until("it is over", async || load(&sessions, &session).await.is_none()).await;
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
    let ada = sessions.sign_in(&nobody, "ada").await.expect("an answer").expect("signed in");
    assert_eq!((ada.user(), ada.data()), (Some("ada"), &b"cart"[..]));
    assert_ne!(ada.id(), nobody.id());
    assert_eq!(load(&sessions, &nobody).await, None);
    assert!(load(&sessions, &ada).await.is_some());
    assert_eq!(sessions.end_all("ada").await.expect("an answer"), 1);
    nothing_is_left(&*engine).await;
}

async fn only_a_session_that_is_there_can_be_signed_in(mut ground: Ground) {
    let (one, two) = (sessions(&ground.client().await), sessions(&ground.client().await));
    let engine = ground.engine().await;
    // A request has loaded a session, and goes on after all of its user's were ended.
    for user in ["ada", "bob"] {
        let session = one.create("ada", "secret").await.expect("created");
        let loaded = load(&two, &session).await.expect("found");
        assert_eq!(one.end_all("ada").await.expect("an answer"), 1);
        assert_eq!(two.sign_in(&loaded, user).await.expect("an answer"), None);
        nothing_is_left(&*engine).await;
    }
    let nobody = one.create_anonymous("cart").await.expect("created");
    assert!(one.end(nobody.id()).await.expect("an answer"));
    assert_eq!(two.sign_in(&nobody, "ada").await.expect("an answer"), None);
    nothing_is_left(&*engine).await;
    // Two requests at the same time: one of them signs in.
    for _ in 0..5 {
        let nobody = one.create_anonymous("cart").await.expect("created");
        let both = async { tokio::join!(one.sign_in(&nobody, "ada"), two.sign_in(&nobody, "ada")) };
        let (first, second) = soon("both", both).await;
        let made = [first.expect("an answer"), second.expect("an answer")];
        let [session] = &made.iter().flatten().collect::<Vec<_>>()[..] else { panic!("{made:?}") };
        assert!(load(&one, session).await.is_some());
        assert_eq!(one.end_all("ada").await.expect("an answer"), 1);
        nothing_is_left(&*engine).await;
    }
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
