//! Guards that are checked inside a transaction of the caller's.

use leasehold::claim::{Answer, Ask};
use leasehold::engine::VerifySql;
use leasehold::{Error, Name, Standing};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row, TxOpts};

use super::*;
use crate::bench::{ms, not_within};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "guarding",
        [
            a_current_guard_passes_and_one_that_was_lost_does_not,
            a_name_can_not_be_taken_before_the_transaction_ends,
            others_are_not_held_up_by_a_transaction,
            who_shares_a_name_is_refused,
            the_page_shows_what_runs,
        ]
    )
    .cases
}

/// A connection of the user's own.
pub(crate) async fn database(ground: &Ground) -> Conn {
    database_as(ground, "leasehold").await
}

/// The same for another user.
pub(super) async fn database_as(ground: &Ground, user: &str) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server(ground).port())
        .user(Some(user))
        .pass(Some("secret"))
        .db_name(Some("leasehold"));
    Conn::new(options).await.expect("the server")
}

pub(super) async fn passes(database: &mut Conn, verify: &VerifySql) -> bool {
    let mut transaction = database.start_transaction(TxOpts::default()).await.expect("a transaction");
    let given = || (verify.key.clone(), verify.token);
    let rows: Vec<Row> = transaction.exec(verify.select.as_str(), given()).await.expect("an answer");
    let checked: mysql_async::Result<Vec<Row>> = transaction.exec(verify.or_fail.as_str(), given()).await;
    assert_eq!(checked.is_ok(), !rows.is_empty(), "both say the same: {checked:?}");
    transaction.commit().await.expect("committed");
    !rows.is_empty()
}

async fn a_current_guard_passes_and_one_that_was_lost_does_not(mut ground: Ground) {
    let (client, operator) = (ground.client().await, ground.client().await);
    let mut database = database(&ground).await;
    let first = lock(&client, "x", ms(9000)).await;
    let verify = first.verify_sql().expect("a database");
    assert!(passes(&mut database, &verify).await, "taken by the short way");
    operator.break_claims(Family::Lock, "x").await.expect("broken");
    assert!(!passes(&mut database, &verify).await, "broken");
    drop(first);
    let second = lock(&client, "x", ms(900)).await;
    let verify_second = second.verify_sql().expect("a database");
    assert!(passes(&mut database, &verify_second).await);
    assert!(!passes(&mut database, &verify).await, "somebody else's");
    // Renewed, and so written by the rules.
    tokio::time::sleep(ms(1200)).await;
    assert!(passes(&mut database, &verify_second).await);
    second.release().await.expect("held");
    assert!(!passes(&mut database, &verify_second).await, "given back");
}

async fn a_name_can_not_be_taken_before_the_transaction_ends(mut ground: Ground) {
    let engine = ground.engine().await;
    let other = ground.client().await;
    // Nobody renews it.
    let name = Name::new(Family::Lock, "x").expect("a name");
    let ask = Ask { lease: ms(700), ..crate::bench::ask(1) };
    let Answer::Granted(grant) = engine.acquire(&name, &ask).await.expect("an answer") else {
        panic!("not granted");
    };
    let verify = engine.verify_sql(&name, grant.token).expect("a database");
    let mut database = database(&ground).await;
    let mut transaction = database.start_transaction(TxOpts::default()).await.expect("a transaction");
    let held: Vec<Row> =
        transaction.exec(verify.or_fail, (verify.key, verify.token)).await.expect("it is held");
    assert_eq!(held.len(), 1);
    let mut stealing = tokio::spawn(async move {
        loop {
            // A locked row may be all that it finds until its time is over.
            if let Ok(guard) = other.mutex("x").expect("a name").lock().await {
                return guard;
            }
        }
    });
    not_within(ms(2000), "the name was taken", &mut stealing).await;
    transaction.commit().await.expect("committed");
    let guard = granted(stealing).await;
    assert!(guard.token().get() > grant.token);
}

async fn others_are_not_held_up_by_a_transaction(mut ground: Ground) {
    let client = ground.client().await;
    let one = lock(&client, "one", ms(1500)).await;
    let mut many = Vec::new();
    for number in 0..10 {
        many.push(lock(&client, &format!("n{number}"), ms(1500)).await);
    }
    let verify = one.verify_sql().expect("a database");
    let mut database = database(&ground).await;
    let mut transaction = database.start_transaction(TxOpts::default()).await.expect("a transaction");
    let held: Vec<Row> =
        transaction.exec(verify.or_fail, (verify.key, verify.token)).await.expect("it is held");
    assert_eq!(held.len(), 1);
    until("it is in doubt, for it can not be renewed", async || one.standing() == Standing::InDoubt).await;
    assert!(many.iter().all(|guard| guard.standing() == Standing::Held), "the others are renewed");
    let other = ground.client().await;
    let before = std::time::Instant::now();
    assert!(other.mutex("one").expect("a name").try_lock().await.expect("an answer").is_none());
    assert!(before.elapsed() < ms(1000), "{:?}", before.elapsed());
    transaction.commit().await.expect("committed");
    until("it is held again", async || one.standing() == Standing::Held).await;
    one.release().await.expect("held");
}

async fn who_shares_a_name_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    let reader = client.rwlock("x").expect("a name").read().await.expect("free");
    let error = reader.verify_sql().expect_err("others may read too");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

async fn sell(client: &Client, mut connection: Conn) -> Result<(), Box<dyn std::error::Error>> {
    let guard = client.mutex("stock/42")?.lock().await?;
    let verify = guard.verify_sql()?;
    let mut transaction = connection.start_transaction(TxOpts::default()).await?;
    // Fails if the name is not held any more, and keeps others out until the end.
    transaction.exec_drop(&verify.or_fail, (&verify.key, verify.token)).await?;
    transaction.query_drop("update stock set amount = amount - 1 where id = 42").await?;
    transaction.commit().await?;
    guard.release().await?;
    Ok(())
}

async fn the_page_shows_what_runs(mut ground: Ground) {
    let client = ground.client().await;
    let mut connection = database(&ground).await;
    connection.query_drop("create table stock (id int, amount int)").await.expect("a table");
    connection.query_drop("insert into stock values (42, 10)").await.expect("a row");
    sell(&client, connection).await.expect("sold");
    assert_eq!(server(&ground).query("select amount from stock"), "9");
    let page = include_str!("../../../docs/mysql.md");
    crate::pages::shows(page, "// mysql_async", include_str!("guarding.rs"));
}
