//! What is tried when all buyers have gone: the last units are sold, the sale is begun again from
//! the database, and it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use leasehold::kit::sale::{Answer, Figures, ReservationId, Standing};

use crate::crowd::{AGAIN, reservation_of};
use crate::judge::Told;
use crate::order_file::{Order, State};
use crate::processes::Result;
use crate::shop::{Shop, patiently};

/// Works until nothing is reserved or ordered any more: it was paid, or has come back.
pub(crate) async fn come_to_rest(shop: &Shop) -> Result<Figures> {
    let (worker, started) = (shop.sale.worker(), Instant::now());
    loop {
        patiently(|| async { Ok(worker.run_once(&shop.database).await?) }).await?;
        let now = patiently(|| async { Ok(shop.sale.figures().await?) }).await?.ok_or("the sale is gone")?;
        if now.reserved + now.ordered + now.ending == 0 {
            return Ok(now);
        }
        if started.elapsed() > Duration::from_secs(30) {
            return Err(format!("what is not paid does not come back: {now:?}").into());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Those who were refused come back, and those whose time was over, and then newcomers. They get
/// whatever is left, to the last unit and no further, and each of them has an order then.
pub(crate) async fn sell_the_rest(shop: &Shop, told: &Told, left: u64) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let refused = told.refused.iter().map(|id| ReservationId(!id.0));
    let mut late = refused.chain((0..).map(|number| reservation_of("late", &format!("{number}"))));
    let mut returning = ended_buyers(&shop.database.orders()?).into_iter();
    let (mut asked, mut sold, started) = (0_u64, 0, Instant::now());
    while sold < left {
        let Some(id) = late.next() else { break };
        asked += 1;
        let newcomer = || (format!("late/{asked}"), "one who comes late");
        let again = returning.next().filter(|_| asked.is_multiple_of(2));
        let (buyer, who) = again.map_or_else(newcomer, |buyer| (buyer, "one whose time was over"));
        let answer = shop.sale.reserve(&buyer, 1, id).await?;
        if !matches!(answer, Answer::Reserved(_)) {
            wrong.push(format!("{} are left, and {who} is told {answer:?}", left - sold));
            break;
        }
        shop.sale.worker().run_once(&shop.database).await?;
        // The last one has not paid when the sale is begun again.
        let is_last = sold + 1 == left;
        let placed = shop.database.order(id)? == Some(State::Unpaid);
        if placed && (is_last || shop.database.pay(id)?) {
            if !is_last {
                shop.sale.pay(id).await?;
            }
            sold += 1;
        } else if started.elapsed() > Duration::from_secs(30) {
            // A slow engine takes longer than a buyer has. Then the next one gets the unit.
            return Err(format!("after {asked} orders {sold} of {left} units are sold").into());
        }
    }
    let answer = ask_as_stranger(shop).await?;
    if answer != (Answer::SoldOut { left: 0 }) {
        wrong.push(format!("all is sold, and one who asks is told {answer:?}"));
    }
    let live = shop.database.orders()?.iter().filter(|order| order.state.is_live()).count();
    if live != shop.stock as usize {
        wrong.push(format!("all {} are sold, and the database has {live} orders", shop.stock));
    }
    Ok(wrong)
}

/// Buyers who had something, and have nothing now.
fn ended_buyers(orders: &[Order]) -> BTreeSet<String> {
    let of = |live: bool| orders.iter().filter(move |order| order.state.is_live() == live);
    let live: BTreeSet<&str> = of(true).map(|order| &*order.buyer).collect();
    of(false).map(|order| &*order.buyer).filter(|buyer| !live.contains(buyer)).map(str::to_owned).collect()
}

/// The sale is begun again from the database, in which each order is what it was.
pub(crate) async fn begin_again(shop: &Shop) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let orders = shop.database.orders()?;
    let of = |state: State| orders.iter().filter(move |order| order.state == state);
    shop.rebuild(|terms| terms).await?;
    let now = shop.sale.figures().await?.ok_or("the sale is gone")?;
    let (unpaid, paid) = (of(State::Unpaid).count() as u64, of(State::Paid).count() as u64);
    if (now.ordered, now.paid, now.stock) != (unpaid, paid, u64::from(shop.stock)) {
        wrong.push(format!(
            "the database has {unpaid} unpaid and {paid} paid orders; the sale rebuilt from it {now:?}"
        ));
    }
    let found: BTreeMap<_, _> =
        shop.sale.reservations().await?.into_iter().map(|found| (found.id, found.standing)).collect();
    for (state, wanted) in [(State::Unpaid, Standing::Ordered), (State::Paid, Standing::Paid)] {
        for order in of(state) {
            let standing = found.get(&order.id).copied();
            if standing != Some(wanted) {
                wrong.push(format!(
                    "the rebuilt sale says of {}, which is {wanted:?}: {standing:?}",
                    order.id
                ));
            }
        }
        let Some(order) = of(state).next() else { continue };
        let same = shop.sale.reserve(&order.buyer, 1, order.id).await?;
        if !matches!(&same, Answer::Reserved(told) if told.standing == wanted) {
            wrong.push(format!(
                "a buyer asks again for {}, which is {wanted:?}, and is told {same:?}",
                order.id
            ));
        }
        let second = shop.sale.reserve(&order.buyer, 1, ReservationId(!order.id.0 ^ 1)).await?;
        if second != (Answer::LimitReached { left: 0 }) {
            wrong.push(format!("a buyer has one, which is the limit, and wants another: {second:?}"));
        }
    }
    Ok(wrong)
}

/// The sale ends. What was sold stays sold, and nobody else gets anything.
pub(crate) async fn close(shop: &Shop) -> Result<Vec<String>> {
    const WINDOW: Duration = Duration::from_millis(1);
    let mut wrong = Vec::new();
    shop.rebuild(|terms| terms.open_for(WINDOW)).await?;
    tokio::time::sleep(WINDOW * 5).await;
    let answer = ask_as_stranger(shop).await?;
    if answer != Answer::Over {
        wrong.push(format!("the sale's window is over, and one who asks is told {answer:?}"));
    }
    if let Some(order) = shop.database.orders()?.iter().find(|order| order.state == State::Paid) {
        let same = shop.sale.reserve(&order.buyer, 1, order.id).await?;
        if !matches!(&same, Answer::Reserved(_)) {
            wrong.push(format!("a buyer asks for {}, which is paid, and is told {same:?}", order.id));
        }
    }
    Ok(wrong)
}

async fn ask_as_stranger(shop: &Shop) -> Result<Answer> {
    Ok(shop.sale.reserve("nobody", 1, reservation_of("nobody", "nobody")).await?)
}
