//! The examples, in either database. What is in the two functions `sell` and `order` is compared
//! with the pages, line by line.

use std::future::poll_fn;
use std::io::Write as _;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::kit::once::{Once, Submission};
use leasehold::{Client, Guard};
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::{Options, Pool};
use crate::{Failure, REFUSED};

fn lost() -> Failure {
    REFUSED.into()
}

fn replaced() -> Failure {
    "replaced".into()
}

/// docs/postgres.md and docs/mysql.md.
async fn sell(pool: &Pool, guard: &Guard) -> Result<(), Failure> {
    let verify = guard.verify_sql()?;
    let mut transaction = pool.begin().await?;
    // Written by leasehold: nothing in it comes from a user.
    let held = sqlx::query(AssertSqlSafe(verify.select))
        .bind(verify.key)
        .bind(verify.token)
        .fetch_optional(&mut *transaction)
        .await?;
    if held.is_none() {
        return Err(lost());
    }
    sqlx::query("update stock set amount = amount - 1 where id = 42").execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// docs/once.md.
async fn order(
    pool: &Pool,
    orders: &Once,
    key: &str,
    request: &str,
) -> leasehold::Result<Submission<Failure>> {
    let order = orders.run_in_transaction(key, &request, async |recorder| {
        let mut transaction = pool.begin().await?;
        sqlx::query("insert into orders (what) values ('two apples')").execute(&mut *transaction).await?;
        let record = recorder.record(b"order 42")?;
        let recorded = sqlx::query(AssertSqlSafe(record.update))
            .bind(record.value)
            .bind(record.lives)
            .bind(record.key)
            .bind(record.run)
            .execute(&mut *transaction)
            .await?;
        if recorded.rows_affected() != 1 {
            return Err(replaced()); // somebody else runs it by now; dropped, and so rolled back
        }
        transaction.commit().await?;
        Ok(b"order 42".to_vec())
    });
    order.await
}

type Input = Lines<BufReader<Stdin>>;

fn say(line: &str) {
    println!("{}", line.replace('\n', " "));
    std::io::stdout().flush().expect("a pipe");
}

/// Does what the lines ask for.
pub(crate) async fn serve(url: &str) -> Result<(), Failure> {
    let client: Client = leasehold::connect(url).await?;
    // One connection, so that a sale can be made to wait for it.
    let pool = Options::new().max_connections(1).connect(url).await?;
    let orders = client.once("orders")?;
    let mut guard = None;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    say("ready");
    while let Some(line) = input.next_line().await? {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["take", lease] => {
                let lease = Duration::from_millis(lease.parse()?);
                guard = Some(client.mutex("stock/42")?.lease(lease).lock().await?);
                say("held");
            }
            ["sell"] => sold(sell(&pool, guard.as_ref().ok_or("nothing held")?).await),
            ["sell", "late"] => {
                sell_late(&pool, guard.as_ref().ok_or("nothing held")?, &mut input).await?;
            }
            ["order", key] => say(&match order(&pool, &orders, key, "two apples").await {
                Ok(Submission::Done { replayed: false, .. }) => "new".to_owned(),
                Ok(Submission::Done { replayed: true, .. }) => "replayed".to_owned(),
                Ok(Submission::InProgress { .. }) => "busy".to_owned(),
                Ok(other) => format!("failed {other:?}"),
                Err(error) => format!("failed {error}"),
            }),
            _ => return Err(line.into()),
        }
    }
    Ok(())
}

fn sold(ended: Result<(), Failure>) {
    match ended {
        Ok(()) => say("sold"),
        Err(error) => say(&error.to_string()),
    }
}

/// A sale that has its statement before the guard can know that it is lost, and runs it after that.
async fn sell_late(pool: &Pool, guard: &Guard, input: &mut Input) -> Result<(), Failure> {
    let connection = pool.acquire().await?;
    let mut selling = pin!(sell(pool, guard));
    poll_fn(|context| Poll::Ready(selling.as_mut().poll(context).is_pending())).await;
    say("late");
    input.next_line().await?;
    drop(connection);
    sold(selling.await);
    Ok(())
}
