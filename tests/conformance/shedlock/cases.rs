//! One of ours and one of theirs on the same table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::claim::Released;
use leasehold::{Client, Error, Family, Guard, Loss};
use tokio::time::{Instant, sleep};

use super::stranger::{self, Clock};
use super::{Database, Server};
use crate::bench::{Ground, ask, ms, refuses, soon, until};
use crate::steps::refuses_the_kit;
use crate::stranger::Stranger;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "shedlock",
        [
            theirs_keeps_ours_out_until_its_release,
            ours_makes_theirs_skip_until_our_release,
            their_at_least_for_is_waited_for,
            our_at_least_for_is_waited_for,
            their_crash_lets_us_in_at_the_end_of_the_lease,
            our_crash_lets_them_in_at_the_end_of_the_lease,
            a_renewed_lock_of_ours_stays_ours,
            a_late_release_of_ours_leaves_theirs_alone,
            a_late_release_of_theirs_leaves_ours_alone,
            a_mixed_fleet_counts_right,
            a_row_that_was_changed_by_hand_is_a_lost_guard,
            names_are_as_they_are_where_there_is_room,
            names_are_listed_and_broken,
            what_is_not_promised_is_refused,
            a_table_that_is_missing_or_another_one_is_refused,
            few_rights_are_enough,
        ]
    )
}

/// How much later than it should something may happen on a busy machine. A waiter of ours looks
/// every 250 to 375 ms.
const SOON: Duration = ms(2500);

fn database(ground: &Ground) -> &dyn Database {
    &*ground.bench_of::<Server>().0
}

async fn stranger(ground: &Ground, clock: Clock) -> Stranger {
    stranger::start(&database(ground).jdbc(), clock).await
}

async fn is_free(client: &Client, name: &str) -> bool {
    let taken = client.mutex(name).expect("a name").try_lock().await.expect("an answer");
    match taken {
        None => false,
        Some(guard) => {
            guard.release().await.expect("held");
            true
        }
    }
}

async fn lock(client: &Client, lease: Duration) -> Guard {
    soon("the lock", client.mutex("x").expect("a name").lease(lease).lock()).await.expect("granted")
}

/// Expects something between two times after `start`.
#[track_caller]
fn assert_within(what: &str, start: Instant, least: Duration) {
    let took = start.elapsed();
    assert!(took >= least, "{what} came after {took:?}, before the {least:?} were over");
    assert!(took < least + SOON, "{what} came after {took:?}, long after {least:?}");
}

async fn theirs_keeps_ours_out_until_its_release(mut ground: Ground) {
    let client = ground.client().await;
    for clock in [Clock::Database, Clock::Own] {
        let mut theirs = stranger(&ground, clock).await;
        assert_eq!(theirs.ask("try x 30000 0").await, "held");
        assert!(!is_free(&client, "x").await, "{clock:?}");
        let view = client.look(Family::Lock, "x").await.expect("a view");
        let left = view.claims[0].ends_in;
        assert!(left > ms(20_000) && left <= ms(30_000), "{clock:?}: {left:?}");
        assert!(view.claims[0].claim.holder.label.contains("not leasehold"), "{view:?}");
        let mutex = client.mutex("x").expect("a name");
        let waiting = tokio::spawn(async move { mutex.lock().await.expect("granted") });
        sleep(ms(300)).await;
        assert!(!waiting.is_finished(), "{clock:?}");
        let released = Instant::now();
        assert_eq!(theirs.ask("release").await, "released");
        let guard = soon("our turn", waiting).await.expect("no panic");
        assert_within("our turn", released, ms(0));
        assert_eq!(theirs.ask("try x 30000 0").await, "busy");
        guard.release().await.expect("held");
    }
}

async fn ours_makes_theirs_skip_until_our_release(mut ground: Ground) {
    let client = ground.client().await;
    for clock in [Clock::Database, Clock::Own] {
        let mut theirs = stranger(&ground, clock).await;
        // With a row from before, and without.
        for _ in 0..2 {
            let guard = lock(&client, ms(30_000)).await;
            assert_eq!(theirs.ask("run x 30000 0").await, "skipped");
            guard.release().await.expect("held");
            if matches!(clock, Clock::Own) {
                // What was released at the server's time is free at that of this machine, too.
                sleep(ms(2)).await;
            }
            assert_eq!(theirs.ask("run x 30000 0").await, "ran");
            assert!(is_free(&client, "x").await);
        }
        database(&ground).query("delete from shedlock");
    }
}

async fn their_at_least_for_is_waited_for(mut ground: Ground) {
    let client = ground.client().await;
    let mut theirs = stranger(&ground, Clock::Database).await;
    let start = Instant::now();
    assert_eq!(theirs.ask("run x 30000 2000").await, "ran");
    assert!(!is_free(&client, "x").await, "it was held for a moment only");
    let guard = lock(&client, ms(9000)).await;
    assert_within("our turn", start, ms(2000));
    guard.release().await.expect("held");
}

async fn our_at_least_for_is_waited_for(mut ground: Ground) {
    let url = format!("{}&at_least=2s", ground.url());
    let (ours, other) = (leasehold::connect(&url).await.expect("the engine is there"), ground.client().await);
    let mut theirs = stranger(&ground, Clock::Database).await;
    let start = Instant::now();
    let guard = lock(&ours, ms(9000)).await;
    guard.release().await.expect("held");
    assert_eq!(theirs.ask("try x 30000 0").await, "busy");
    assert!(!is_free(&ours, "x").await && !is_free(&other, "x").await);
    let view = other.look(Family::Lock, "x").await.expect("a view");
    assert!(view.claims[0].claim.holder.label.contains("released"), "{view:?}");
    until("it is theirs", async || theirs.ask("try x 30000 0").await == "held").await;
    assert_within("their turn", start, ms(2000));
    let error = ours.mutex("x").expect("a name").lease(ms(1000)).try_lock().await.expect_err("too short");
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("at_least"), "{error}");
}

async fn their_crash_lets_us_in_at_the_end_of_the_lease(mut ground: Ground) {
    let client = ground.client().await;
    let mut theirs = stranger(&ground, Clock::Database).await;
    let start = Instant::now();
    assert_eq!(theirs.ask("try x 2000 0").await, "held");
    theirs.kill().await;
    let guard = lock(&client, ms(9000)).await;
    assert_within("our turn", start, ms(2000));
    guard.release().await.expect("held");
}

async fn our_crash_lets_them_in_at_the_end_of_the_lease(ground: Ground) {
    let mut theirs = stranger(&ground, Clock::Database).await;
    let mut child = ground.child().await.expect("other processes share names");
    let start = Instant::now();
    child.lock("x", ms(2000)).await;
    child.kill().await;
    until("it is theirs", async || theirs.ask("try x 30000 0").await == "held").await;
    assert_within("their turn", start, ms(2000));
}

async fn a_renewed_lock_of_ours_stays_ours(mut ground: Ground) {
    let client = ground.client().await;
    let mut theirs = stranger(&ground, Clock::Database).await;
    let start = Instant::now();
    let guard = lock(&client, ms(1500)).await;
    while start.elapsed() < ms(4500) {
        assert_eq!(theirs.ask("try x 30000 0").await, "busy");
        sleep(ms(50)).await;
    }
    assert!(guard.is_held());
    guard.release().await.expect("held");
    assert_eq!(theirs.ask("try x 30000 0").await, "held");
}

async fn a_late_release_of_ours_leaves_theirs_alone(mut ground: Ground) {
    let engine = ground.engine().await;
    let mut theirs = stranger(&ground, Clock::Database).await;
    let name = leasehold::Name::new(Family::Lock, "x").expect("a name");
    let mut asked = ask(7);
    asked.lease = ms(300);
    engine.acquire(&name, &asked).await.expect("granted");
    until("it is theirs", async || theirs.ask("try x 30000 0").await == "held").await;
    assert_eq!(engine.release(&name, asked.owner, 0).await.expect("an answer"), Released::Nothing);
    let renewal = leasehold::engine::Renewal { name, owner: asked.owner, lease: ms(9000) };
    let renewed = engine.renew(&[renewal]).await.expect("an answer");
    assert_eq!(renewed, [leasehold::engine::Renewed::Gone]);
    assert_eq!(theirs.ask("extend 30000").await, "extended");
}

async fn a_late_release_of_theirs_leaves_ours_alone(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mut theirs = stranger(&ground, Clock::Database).await;
    assert_eq!(theirs.ask("try x 300 0").await, "held");
    let guard = lock(&client, ms(1500)).await;
    assert_eq!(theirs.ask("release").await, "released");
    assert!(!is_free(&other, "x").await, "it has freed ours");
    // Beyond the next renewal, which would find out.
    sleep(ms(1000)).await;
    guard.release().await.expect("held");
}

async fn a_mixed_fleet_counts_right(mut ground: Ground) {
    const THEIRS: usize = 8;
    database(&ground).query("create table counter (value bigint not null)");
    database(&ground).query("insert into counter values (0)");
    let clients = [ground.client().await, ground.client().await];
    let mut theirs = [stranger(&ground, Clock::Database).await, stranger(&ground, Clock::Database).await];
    for one in &mut theirs {
        one.tell(&format!("work x {THEIRS}")).await;
    }
    let over = AtomicBool::new(false);
    let ours = clients.each_ref().map(|client| async {
        let mutex = client.mutex("x").expect("a name");
        let mut sections = 0;
        while sections == 0 || !over.load(Ordering::Relaxed) {
            let guard = mutex.lock().await.expect("granted");
            let count: usize =
                database(&ground).query("select value from counter").parse().expect("a number");
            database(&ground).query(&format!("update counter set value = {}", count + 1));
            guard.release().await.expect("held");
            sections += 1;
            sleep(ms(20)).await;
        }
        sections
    });
    let work = async {
        for one in &mut theirs {
            assert_eq!(one.answer().await, "worked");
        }
        over.store(true, Ordering::Relaxed);
    };
    let [one, two] = ours;
    let (one, two, ()) = tokio::join!(one, two, work);
    println!("ours {one} and {two} sections, theirs {THEIRS} each");
    assert_eq!(database(&ground).query("select value from counter"), (one + two + 2 * THEIRS).to_string());
}

async fn a_row_that_was_changed_by_hand_is_a_lost_guard(mut ground: Ground) {
    let client = ground.client().await;
    for change in ["delete from shedlock", "update shedlock set locked_by = 'somebody'"] {
        let guard = lock(&client, ms(1500)).await;
        database(&ground).query(change);
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone, "{change}");
        let error = guard.release().await.expect_err("lost");
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        database(&ground).query("delete from shedlock");
    }
}

async fn names_are_as_they_are_where_there_is_room(mut ground: Ground) {
    let client = ground.client().await;
    let (fits, long) = ("é".repeat(64), "x".repeat(65));
    for name in [fits.as_str(), "ends~", long.as_str()] {
        let guard = client.mutex(name).expect("a name").lock().await.expect("free");
        let found = database(&ground).query("select name from shedlock");
        assert_eq!(found == name, name.chars().count() <= 64, "{name}: {found}");
        assert!(client.mutex(name).expect("a name").try_lock().await.expect("an answer").is_none());
        guard.release().await.expect("held");
        database(&ground).query("delete from shedlock");
    }
}

async fn names_are_listed_and_broken(mut ground: Ground) {
    let client = ground.client().await;
    let mut theirs = stranger(&ground, Clock::Database).await;
    assert_eq!(theirs.ask("try job/b 30000 0").await, "held");
    for name in ["job/a", "job/c", "other"] {
        std::mem::forget(client.mutex(name).expect("a name").lock().await.expect("free"));
    }
    let engine = ground.engine().await;
    let names = async |prefix: &str, after: Option<&str>, limit: usize| -> String {
        let listed = engine.list(Family::Lock, prefix, after, limit).await.expect("a list");
        listed.into_iter().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("", None, 10).await, "job/a job/b job/c other");
    assert_eq!(names("", None, 2).await, "job/a job/b");
    assert_eq!(names("job/", Some("job/a"), 10).await, "job/b job/c");
    let broken = client.break_claims(Family::Lock, "job/b").await.expect("broken");
    assert!(broken.len() == 1 && broken[0].holder.label.contains("not leasehold"), "{broken:?}");
    assert!(is_free(&client, "job/b").await);
    assert_eq!(theirs.ask("extend 30000").await, "gone");
    assert!(client.break_claims(Family::Lock, "job/b").await.expect("nothing to do").is_empty());
}

async fn what_is_not_promised_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    refuses(client.semaphore("x", 2));
    refuses(client.rwlock("x"));
    refuses(client.election("x"));
    refuses_the_kit(&client);
    refuses(client.mutex("x").expect("a name").lock_delay(ms(1000)).lock().await);
    let guard = lock(&client, ms(9000)).await;
    refuses(guard.verify_sql());
    guard.release().await.expect("held");
}

async fn a_table_that_is_missing_or_another_one_is_refused(ground: Ground) {
    let refused = async |url: &str| leasehold::connect(url).await.expect_err("refused").to_string();
    let said = refused(&ground.url().replace("=shedlock", "=nowhere")).await;
    assert!(said.contains("there is no table") && said.contains("create table"), "{said}");
    let kind = if ground.url().starts_with("mysql") { "timestamp null" } else { "timestamptz" };
    let columns = format!("name varchar(64), lock_until {kind}, locked_at {kind}, locked_by varchar(255)");
    database(&ground).query(&format!("create table strange ({columns})"));
    let said = refused(&ground.url().replace("=shedlock", "=strange")).await;
    assert!(said.contains("not a table of ShedLock") && said.contains("`lock_until` must be"), "{said}");
    let said = refused(&format!("{}&table=x", ground.url())).await;
    assert!(said.contains("not go with `shedlock`"), "{said}");
}

async fn few_rights_are_enough(ground: Ground) {
    database(&ground).allow_app("select, insert, update");
    let url = ground.url().replace("leasehold:secret@", "app:secret@");
    let client = leasehold::connect(&url).await.expect("the engine is there");
    let guard = lock(&client, ms(600)).await;
    sleep(ms(800)).await;
    guard.release().await.expect("held and renewed");
    assert!(client.list(Family::Lock, None, 10).await.expect("a list").is_empty());
    database(&ground).allow_app("select");
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("no rights");
    assert!(error.to_string().to_lowercase().contains("select, insert"), "{error}");
}
