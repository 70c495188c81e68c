//! Flash sales: never more than there is, and no order lost.

pub(crate) mod crashes;
mod database;
mod losses;
#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod real_orders;
mod selling;
mod together;
mod working;

use leasehold::Client;
use leasehold::kit::sale::{Answer, Begun, Orders, Reservation, ReservationId, Sale, Standing, Terms};

use crate::Group;
use crate::bench::{Ground, refuses, until};
use crate::child::{fork_here, leave, wait_for};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        selling::group(),
        together::group(),
        working::group(),
        losses::group(),
        crashes::group(),
        #[cfg(feature = "postgres")]
        real_orders::in_postgresql(),
        #[cfg(feature = "mysql")]
        real_orders::in_mariadb(),
    ]
}

/// The ground, if its engine has cells; if not, it must refuse sales.
async fn sales(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.sale("x"));
    None
}

fn sale(client: &Client) -> Sale {
    client.sale("x").expect("a name")
}

async fn opened(client: &Client, terms: &Terms) -> Sale {
    let sale = sale(client);
    assert_eq!(sale.open(terms).await.expect("an answer"), Begun::Now);
    sale
}

fn id() -> ReservationId {
    ReservationId::random().expect("a number")
}

async fn reserve(sale: &Sale, buyer: &str, quantity: u32) -> Answer {
    sale.reserve(buyer, quantity, id()).await.expect("an answer")
}

#[track_caller]
fn reserved(answer: Answer) -> Reservation {
    match answer {
        Answer::Reserved(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

async fn standing(sale: &Sale, id: ReservationId) -> Option<Standing> {
    sale.find(id).await.expect("an answer").map(|found| found.standing)
}

/// A process that sells, and whose fork would sell, too.
pub(crate) async fn fork_with_sale(client: &Client, answer: fn(&str)) {
    let sale = opened(client, &Terms::new(5)).await;
    reserved(reserve(&sale, "before", 1).await);
    let pid = fork_here();
    if pid == 0 {
        match sale.reserve("after", 1, id()).await {
            Err(error) => answer(&format!("refused {error}")),
            Ok(told) => answer(&format!("{told:?}")),
        }
        leave();
    }
    wait_for(pid);
    reserved(reserve(&sale, "in the parent", 1).await);
}

/// What must hold at any moment of a sale of so many units.
async fn check(sale: &Sale, stock: u64) {
    let now = sale.figures().await.expect("an answer").expect("a sale");
    let held = now.reserved + now.ordered + now.paid + now.ending + now.dead;
    assert_eq!((now.stock, now.available + held), (stock, stock), "{now:?}");
    assert_eq!(now.taken, held + now.returned, "{now:?}");
}

/// Works until nothing is left to do.
async fn work(sale: &Sale, database: impl Orders) {
    until("all work is done", async || {
        sale.worker().run_once(&database).await.expect("an answer");
        let now = sale.figures().await.expect("an answer").expect("a sale");
        now.reserved + now.ending == 0
    })
    .await;
}
