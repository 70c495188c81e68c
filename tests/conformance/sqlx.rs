//! What the pages show with sqlx, in a program that was compiled: `tests/interop/sqlx`.
//!
//! Where MySQL counts changed rows, sqlx has it count those that were found.

use leasehold::Family;
use rustix::process::Signal;
use tokio::process::Command;

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::stranger::{Stranger, installed};
use crate::transactions::Connection;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    let cases = cases!(
        "sqlx",
        [
            a_sale_under_a_current_guard_is_committed,
            a_sale_whose_name_was_taken_away_is_refused,
            a_name_can_not_be_taken_before_the_sale_ends,
            an_order_is_recorded_with_its_effect_once,
            the_pages_show_what_runs,
        ]
    );
    let missing = (!program().is_file()).then(|| "tests/interop/sqlx (tests/interop/install.sh)".to_owned());
    Group { missing, ..cases }
}

fn program() -> std::path::PathBuf {
    installed("sqlx/debug/shop")
}

/// The program, with 10 pieces of what it sells, and a connection to its tables.
async fn shop(ground: &Ground) -> (Stranger, Connection) {
    let mut database = Connection::open(ground).await;
    database.run("create table stock (id bigint primary key, amount bigint not null)").await;
    database.run("insert into stock values (42, 10)").await;
    database.run("create table orders (what varchar(20))").await;
    let mut command = Command::new(program());
    command.arg(ground.url());
    (Stranger::start(command).await, database)
}

const LEFT: &str = "select amount from stock where id = 42";

async fn a_sale_under_a_current_guard_is_committed(ground: Ground) {
    let (mut shop, mut database) = shop(&ground).await;
    assert_eq!(shop.ask("take 9000").await, "held");
    assert_eq!(shop.ask("sell").await, "sold");
    assert_eq!(database.number(LEFT).await, 9);
}

async fn a_sale_whose_name_was_taken_away_is_refused(mut ground: Ground) {
    let (mut shop, mut database) = shop(&ground).await;
    let other = ground.client().await;
    assert_eq!(shop.ask("take 9000").await, "held");
    // It has its statement from when it held the name.
    assert_eq!(shop.ask("sell late").await, "late");
    other.break_claims(Family::Lock, "stock/42").await.expect("broken");
    let mutex = other.mutex("stock/42").expect("a name");
    let taken = soon("the name", mutex.lock()).await.expect("free");
    assert_eq!(shop.ask("go on").await, "refused");
    assert_eq!(database.number(LEFT).await, 10);
    taken.release().await.expect("held");
}

async fn a_name_can_not_be_taken_before_the_sale_ends(mut ground: Ground) {
    let (mut shop, mut database) = shop(&ground).await;
    let other = ground.client().await;
    assert_eq!(shop.ask("take 1000").await, "held");
    // The sale gets as far as to the row that it changes.
    database.run("begin").await;
    database.run("update stock set amount = 5 where id = 42").await;
    shop.tell("sell").await;
    let mut operator = Connection::open(&ground).await;
    let waits = match ground.promises().engine {
        "postgres" => "select count(*) from pg_stat_activity where wait_event_type = 'Lock'",
        _ => {
            "select cast(variable_value as signed) from information_schema.global_status \
             where variable_name = 'Innodb_row_lock_current_waits'"
        }
    };
    until("the sale waits", async || operator.number(waits).await == 1).await;
    // Nobody renews its lease.
    shop.signal(Signal::STOP);
    let mut stealing = tokio::spawn(async move {
        loop {
            // A locked row may be all that it finds until its time is over.
            if let Ok(guard) = other.mutex("stock/42").expect("a name").lock().await {
                return guard;
            }
        }
    });
    not_within(ms(3000), "the name was taken", &mut stealing).await;
    shop.signal(Signal::CONT);
    database.run("commit").await;
    assert_eq!(soon("the sale", shop.answer()).await, "sold");
    assert_eq!(database.number(LEFT).await, 4);
    // If it was renewed at the last moment, the name is not free before the program is gone.
    shop.kill().await;
    soon("the next", stealing).await.expect("no panic").release().await.expect("held");
}

async fn an_order_is_recorded_with_its_effect_once(ground: Ground) {
    let (mut shop, mut database) = shop(&ground).await;
    assert_eq!(shop.ask("order one").await, "new");
    assert_eq!(shop.ask("order one").await, "replayed");
    assert_eq!(shop.ask("order two").await, "new");
    assert_eq!(database.number("select count(*) from orders").await, 2);
}

/// Each example with sqlx is in the program, whatever is indented there.
async fn the_pages_show_what_runs(_: Ground) {
    let pages = [
        include_str!("../../docs/postgres.md"),
        include_str!("../../docs/mysql.md"),
        include_str!("../../docs/once.md"),
    ];
    let lines = |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    let source = lines(include_str!("../interop/sqlx/src/shop.rs"));
    for page in pages {
        let mut examples = page.split("```rust,ignore\n// sqlx").skip(1);
        let (example, _) = examples.next().expect("an example").split_once("```").expect("its end");
        let (_, example) = example.split_once('\n').expect("lines");
        assert!(source.contains(&lines(example)), "not in shop.rs:\n{example}");
        assert!(examples.next().is_none());
    }
}
