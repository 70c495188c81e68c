//! Submissions that are recorded inside a transaction of the caller's: in databases.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::Error;
use leasehold::kit::once::{IfRunning, Once, RecordSql, Recorder, Submission};
#[cfg(feature = "mysql")]
use mysql_async::prelude::Queryable as _;
use tokio::sync::oneshot;

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::{Case, cases};

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "transactions",
        [
            an_effect_and_its_record_are_committed_together,
            what_was_rolled_back_runs_again,
            a_commit_that_was_not_heard_is_done,
            whoever_was_replaced_can_not_record,
            a_transaction_that_is_still_open_is_waited_for,
            an_effect_goes_on_after_its_commit,
        ]
    )
    .cases
}

/// A connection of the user's own, to a table of orders.
struct Shop {
    connection: Connection,
    orders: String,
}

pub(crate) enum Connection {
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Client),
    #[cfg(feature = "mysql")]
    Mysql(mysql_async::Conn),
}

impl Shop {
    async fn open(ground: &Ground) -> Shop {
        static SHOPS: AtomicU32 = AtomicU32::new(0);
        let orders = format!("orders_{}", SHOPS.fetch_add(1, Ordering::Relaxed));
        let mut shop = Shop { connection: Connection::open(ground).await, orders };
        shop.run(&format!("create table {} (what varchar(20))", shop.orders)).await;
        shop
    }

    /// The same shop over another connection.
    async fn again(&self, ground: &Ground) -> Shop {
        Shop { connection: Connection::open(ground).await, orders: self.orders.clone() }
    }

    async fn run(&mut self, statement: &str) {
        self.connection.run(statement).await;
    }

    /// Begins a transaction with an order, and says whether it could be recorded.
    async fn place(&mut self, record: &RecordSql) -> bool {
        self.run("begin").await;
        self.run(&format!("insert into {} values ('two apples')", self.orders)).await;
        let RecordSql { update, value, lives, key, run, .. } = record;
        let rows = match &mut self.connection {
            #[cfg(feature = "postgres")]
            Connection::Postgres(database) => {
                database.execute(update, &[value, lives, key, run]).await.expect("an answer")
            }
            #[cfg(feature = "mysql")]
            Connection::Mysql(database) => {
                database.exec_drop(update, (value, lives, key, run)).await.expect("an answer");
                database.affected_rows()
            }
        };
        rows == 1
    }

    /// How many orders there are.
    async fn placed(&mut self) -> i64 {
        self.connection.number(&format!("select count(*) from {}", self.orders)).await
    }
}

impl Connection {
    pub(crate) async fn open(ground: &Ground) -> Connection {
        match ground.promises().engine {
            #[cfg(feature = "postgres")]
            "postgres" => Connection::Postgres(crate::postgres::guarding::database(ground).await),
            #[cfg(feature = "mysql")]
            "mysql" => Connection::Mysql(crate::mysql::guarding::database(ground).await),
            other => panic!("{other} is no database"),
        }
    }

    pub(crate) async fn run(&mut self, statement: &str) {
        match self {
            #[cfg(feature = "postgres")]
            Connection::Postgres(database) => database.batch_execute(statement).await.expect(statement),
            #[cfg(feature = "mysql")]
            Connection::Mysql(database) => database.query_drop(statement).await.expect(statement),
        }
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&mut self, query: &str) -> i64 {
        match self {
            #[cfg(feature = "postgres")]
            Connection::Postgres(database) => database.query_one(query, &[]).await.expect("an answer").get(0),
            #[cfg(feature = "mysql")]
            Connection::Mysql(database) => {
                database.query_first(query).await.expect("an answer").expect("a number")
            }
        }
    }
}

type Ended = leasehold::Result<Submission<&'static str>>;

async fn orders(ground: &mut Ground) -> (Shop, Once) {
    let once = ground.client().await.once("orders").expect("a name").lease(ms(2000));
    (Shop::open(ground).await, once)
}

/// Places an order once.
async fn submit(once: &Once, shop: &mut Shop, result: &str) -> Ended {
    let effect = async |recorder: Recorder| {
        if !shop.place(&recorder.record(result).expect("short")).await {
            shop.run("rollback").await;
            return Err("replaced");
        }
        shop.run("commit").await;
        Ok(result.as_bytes().to_vec())
    };
    soon("an end", once.run_in_transaction("key", "payload", effect)).await
}

fn result(ended: Ended) -> (Vec<u8>, bool) {
    match ended.expect("an answer") {
        Submission::Done { result, replayed, recorded: true, .. } => (result, replayed),
        other => panic!("{other:?}"),
    }
}

/// Begins a submission that nobody ends, as if its process had stopped.
async fn begun(once: &Once) -> Recorder {
    let (given, recorder) = oneshot::channel();
    let running = once.run_in_transaction("key", "payload", async |recorder| {
        given.send(recorder).expect("somebody waits");
        pending::<Result<Vec<u8>, ()>>().await
    });
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        recorder = recorder => recorder.expect("it began"),
    }
}

async fn an_effect_and_its_record_are_committed_together(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let waiting = once.clone().if_running(IfRunning::Wait(ms(10_000)));
    let (begun, has_begun) = oneshot::channel();
    let first = once.run_in_transaction("key", "payload", async |recorder| {
        begun.send(()).expect("somebody waits");
        assert!(shop.place(&recorder.record("first").expect("short")).await);
        shop.run("commit").await;
        Ok::<_, &'static str>(b"first".to_vec())
    });
    let second = async {
        has_begun.await.expect("a word");
        waiting.run("key", "payload", |_| async { Err("it ran twice") }).await
    };
    let (first, second) = soon("both", async { tokio::join!(first, second) }).await;
    assert_eq!((result(first), result(second)), ((b"first".to_vec(), false), (b"first".to_vec(), true)));
    assert_eq!(result(submit(&once, &mut shop, "again").await), (b"first".to_vec(), true));
    assert_eq!(shop.placed().await, 1);
}

async fn what_was_rolled_back_runs_again(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let effect = async |recorder: Recorder| {
        assert!(shop.place(&recorder.record("lost").expect("short")).await);
        shop.run("rollback").await;
        Err::<Vec<u8>, _>("rolled back")
    };
    let ended = soon("an end", once.run_in_transaction("key", "payload", effect)).await;
    assert_eq!(ended.expect("an answer"), Submission::Failed("rolled back"));
    assert_eq!(result(submit(&once, &mut shop, "again").await), (b"again".to_vec(), false));
    assert_eq!(shop.placed().await, 1);
}

async fn a_commit_that_was_not_heard_is_done(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let effect = async |recorder: Recorder| {
        assert!(shop.place(&recorder.record("first").expect("short")).await);
        shop.run("commit").await;
        Err::<Vec<u8>, _>("the connection broke")
    };
    let ended = soon("an end", once.run_in_transaction("key", "payload", effect)).await;
    assert_eq!(result(ended), (b"first".to_vec(), false));
    assert_eq!(result(submit(&once, &mut shop, "again").await), (b"first".to_vec(), true));
    assert_eq!(shop.placed().await, 1);
}

async fn whoever_was_replaced_can_not_record(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let recorder = begun(&once).await;
    until("another one runs", async || {
        !matches!(submit(&once, &mut shop, "second").await, Ok(Submission::InProgress { .. }))
    })
    .await;
    let mut late = shop.again(&ground).await;
    assert!(!late.place(&recorder.record("late").expect("short")).await, "it was recorded");
    late.run("rollback").await;
    assert_eq!(result(submit(&once, &mut shop, "third").await), (b"second".to_vec(), true));
    assert_eq!(shop.placed().await, 1);
}

async fn a_transaction_that_is_still_open_is_waited_for(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let recorder = begun(&once).await;
    let mut slow = shop.again(&ground).await;
    assert!(slow.place(&recorder.record("slow").expect("short")).await);
    let next = async {
        loop {
            match submit(&once, &mut shop, "second").await {
                Ok(Submission::InProgress { .. }) | Err(Error::Unavailable { .. }) => {
                    tokio::time::sleep(ms(50)).await;
                }
                ended => return result(ended),
            }
        }
    };
    let mut next = Box::pin(next);
    not_within(ms(4000), "it ran beside an open transaction", &mut next).await;
    slow.run("commit").await;
    assert_eq!(soon("the next", next).await, (b"slow".to_vec(), true));
    assert_eq!(shop.placed().await, 1);
}

async fn an_effect_goes_on_after_its_commit(mut ground: Ground) {
    let (mut shop, once) = orders(&mut ground).await;
    let effect = async |recorder: Recorder| {
        assert!(shop.place(&recorder.record("first").expect("short")).await);
        shop.run("commit").await;
        // Mails are sent, and the lease is over.
        tokio::time::sleep(ms(3000)).await;
        Ok::<_, &'static str>(b"first".to_vec())
    };
    let ended = soon("an end", once.run_in_transaction("key", "payload", effect)).await;
    assert_eq!(result(ended), (b"first".to_vec(), false));
    assert_eq!(shop.placed().await, 1);
}
