//! A process is killed before each of its calls, to the engine and to the database, one after the
//! other until it gets through. Each time the next one finishes what it has left, and the books are
//! right.
//!
//! Nothing else of a process is seen by others, so that is between any two of its steps. On an
//! engine inside the process, whoever makes the call stands still for ever instead.

#[path = "../../../examples/order_file/mod.rs"]
mod order_file;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Reach;
use leasehold::kit::sale::{
    Answer, Begun, Expired, Orders, Payment, Placed, Rebuild, Reservation, ReservationId, Sale, Standing,
    Terms,
};
use leasehold::{Client, Options};
use rustix::process::Signal;
use tempfile::TempDir;

use self::order_file::{OrderFile, State};
use super::{check, id, opened, reserved, sale, sales, standing, work};
use crate::bench::{Ground, ms, until};
use crate::wire::{Stop, Wire, wire};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "sale",
        sales,
        [
            a_crash_while_reserving_takes_nothing_twice,
            a_crash_while_units_move_between_shards_loses_none,
            a_crash_while_placing_loses_no_order,
            a_crash_while_expiring_returns_all_once,
            a_crash_while_cancelling_returns_all_once,
            a_crash_while_paying_is_made_good_by_paying_again,
            a_crash_while_paying_is_made_good_by_the_worker,
            a_crash_while_rebuilding_is_made_good_by_the_next,
            an_order_without_stock_is_not_placed_by_the_next,
        ]
    )
}

/// A database whose calls count, too.
struct Counted<'a> {
    file: &'a OrderFile,
    wire: &'a Wire,
}

impl Orders for Counted<'_> {
    type Error = std::io::Error;

    async fn place(&self, reservation: &Reservation) -> std::io::Result<Placed> {
        self.wire.count().await;
        self.file.place(reservation).await
    }

    async fn expire(&self, reservation: &Reservation) -> std::io::Result<Expired> {
        self.wire.count().await;
        self.file.expire(reservation).await
    }
}

/// What a process does that does not live to see the end: `reserve ID QUANTITY`, `work`, `cancel
/// ID`, `pay ID`, `rebuild`.
async fn act(what: &str, sale: &Sale, file: &OrderFile, wire: &Wire) {
    let words: Vec<&str> = what.split(' ').collect();
    let id = || words[1].parse::<ReservationId>().expect("an id");
    match words[0] {
        "reserve" => {
            let quantity = words[2].parse().expect("a number");
            let asked = sale.reserve(buyer_of(id()), quantity, id()).await;
            reserved(asked.expect("an answer"));
        }
        "work" => drop(sale.worker().run_once(Counted { file, wire }).await.expect("an answer")),
        "cancel" => {
            sale.cancel(id()).await.expect("an answer");
            sale.worker().run_once(Counted { file, wire }).await.expect("an answer");
        }
        "pay" => {
            wire.count().await;
            assert!(file.pay(id()).expect("the file"));
            sale.pay(id()).await.expect("an answer");
        }
        "rebuild" => {
            wire.count().await;
            let from = read_for_rebuild(file);
            sale.rebuild(&from).await.expect("an answer");
        }
        other => panic!("nobody knows how to `{other}`"),
    }
}

/// Whose reservation it is.
fn buyer_of(id: ReservationId) -> String {
    format!("buyer/{id}")
}

fn read_for_rebuild(file: &OrderFile) -> Rebuild {
    let (epoch, left, orders) = file.next_epoch().expect("the file");
    let from = Rebuild::new(Terms::new(left).epoch(epoch).shards(2).limit(2));
    orders.into_iter().fold(from, |from, order| match order.state {
        State::Unpaid => from.unpaid(order.id, order.buyer, order.quantity, Duration::from_secs(60)),
        State::Paid => from.paid(order.id, order.buyer, order.quantity),
        State::Expired | State::NoStock => from,
    })
}

/// The other process: `sale-child URL FILE CALLS WHAT`.
pub(crate) fn child() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [url, file, calls, what] = &words[..] else { panic!("{words:?}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let options = Options::new();
        let engine = leasehold::engine::open(url, &options).await.expect("the engine is there");
        let (engine, wire) = wire(engine);
        let client = Client::new(engine, options).expect("a client");
        let file = OrderFile::open(Path::new(file)).expect("the file");
        wire.stop_after(calls.parse().expect("a number"), Stop::Kill);
        act(what, &sale(&client), &file, &wire).await;
    });
    ExitCode::SUCCESS
}

/// More calls than anything here makes.
const MOST: u32 = 60;

/// A sale, its database, and those who die.
struct Stage {
    ground: Ground,
    sale: Sale,
    file: OrderFile,
    dir: TempDir,
    /// Inside the process, those who stand still are kept: their end would be heard of.
    still: Vec<(Client, Arc<Wire>)>,
}

impl Stage {
    async fn new(mut ground: Ground, stock: u32, terms: Terms) -> Stage {
        let sale = opened(&ground.client().await, &terms).await;
        let dir = tempfile::tempdir().expect("a directory");
        let file = OrderFile::create(&dir.path().join("orders"), stock).expect("a file");
        Stage { ground, sale, file, dir, still: Vec::new() }
    }

    /// Lets a process do something, and stops it after some calls. True if it got through.
    async fn dies_after(&mut self, calls: u32, what: &str) -> bool {
        if self.ground.promises().reach == Reach::Process {
            let options = self.ground.options();
            let (client, wire) = self.ground.client_on_wire(options).await;
            wire.stop_after(calls, Stop::Hang);
            let sale = sale(&client);
            let through = tokio::select! {
                () = act(what, &sale, &self.file, &wire) => true,
                () = wire.stopped() => false,
            };
            self.still.push((client, wire));
            return through;
        }
        let program = std::env::current_exe().expect("this binary");
        let mut command = tokio::process::Command::new(program);
        command.arg("sale-child").arg(self.ground.url()).arg(self.dir.path().join("orders"));
        command.args([&calls.to_string(), what]).kill_on_drop(true);
        let ended = command.status().await.expect("this binary starts");
        assert!(ended.success() || ended.signal() == Some(Signal::KILL.as_raw()), "{ended}");
        ended.success()
    }

    /// A reservation of somebody new.
    async fn reserve(&self) -> ReservationId {
        let id = id();
        reserved(self.sale.reserve(buyer_of(id), 1, id).await.expect("an answer")).id
    }

    #[track_caller]
    fn order(&self, id: ReservationId) -> Option<State> {
        self.file.order(id).expect("the file")
    }

    fn left(&self) -> u64 {
        self.file.ledger().expect("the file").1.left
    }
}

async fn a_crash_while_reserving_takes_nothing_twice(ground: Ground) {
    let mut stage = Stage::new(ground, 200, Terms::new(200).shards(2).limit(2)).await;
    for calls in 0..MOST {
        let id = id();
        let through = stage.dies_after(calls, &format!("reserve {id} 2")).await;
        let asked = stage.sale.reserve(buyer_of(id), 2, id).await.expect("an answer");
        assert_eq!(reserved(asked).standing, Standing::Reserved);
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        assert_eq!(now.taken, 2 * (u64::from(calls) + 1), "{now:?}");
        check(&stage.sale, 200).await;
        if through {
            assert!(calls >= 2, "it looks for the sale, and asks for units");
            return;
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_units_move_between_shards_loses_none(ground: Ground) {
    // Whoever wants all of them needs those of each shard.
    const STOCK: u32 = 16;
    let terms = |epoch| Terms::new(STOCK).shards(4).limit(STOCK).epoch(epoch);
    let mut stage = Stage::new(ground, STOCK, terms(1)).await;
    for calls in 0..MOST {
        let id = id();
        let through = stage.dies_after(calls, &format!("reserve {id} {STOCK}")).await;
        check(&stage.sale, STOCK.into()).await;
        let asked = stage.sale.reserve(buyer_of(id), STOCK, id).await.expect("an answer");
        assert_eq!(reserved(asked).standing, Standing::Reserved);
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        assert_eq!((now.taken, now.available), (STOCK.into(), 0), "{now:?}");
        check(&stage.sale, STOCK.into()).await;
        if through {
            assert!(calls >= 4, "it looks for the sale, asks in vain, moves units and asks again");
            return;
        }
        // The next one finds units in each shard again.
        assert!(stage.sale.forget(calls + 1).await.expect("an answer"));
        assert_eq!(stage.sale.open(&terms(calls + 2)).await.expect("an answer"), Begun::Now);
    }
    panic!("it never got through");
}

async fn a_crash_while_placing_loses_no_order(ground: Ground) {
    let mut stage = Stage::new(ground, 200, Terms::new(200).shards(2)).await;
    let mut all = Vec::new();
    for calls in 0..MOST {
        all.extend([stage.reserve().await, stage.reserve().await, stage.reserve().await]);
        let through = stage.dies_after(calls, "work").await;
        work(&stage.sale, &stage.file).await;
        for id in &all {
            assert_eq!(stage.order(*id), Some(State::Unpaid));
            assert_eq!(standing(&stage.sale, *id).await, Some(Standing::Ordered));
        }
        assert_eq!(stage.left(), 200 - all.len() as u64, "each of them once");
        check(&stage.sale, 200).await;
        if through {
            assert!(calls >= 6, "it reads, places three orders and settles them");
            return;
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_expiring_returns_all_once(ground: Ground) {
    const TIME: Duration = ms(1500);
    let mut stage = Stage::new(ground, 50, Terms::new(50).pay_within(TIME)).await;
    let mut placed = 0;
    for calls in 0..MOST {
        // One of them is an order by then, unless this machine is very slow, and one is not.
        let first = stage.reserve().await;
        work(&stage.sale, &stage.file).await;
        placed += u64::from(stage.order(first) == Some(State::Unpaid));
        let ids = [first, stage.reserve().await];
        // The engine's clock decides: the reservation was made before this wait.
        tokio::time::sleep(TIME + ms(20)).await;
        let through = stage.dies_after(calls, "work").await;
        for id in ids {
            // Payments are stopped before the database is told.
            if stage.order(id) == Some(State::Expired) {
                let paid = stage.sale.pay(id).await.expect("an answer");
                assert!(matches!(paid, Payment::Ended(_)), "{paid:?}");
            }
        }
        until("they are released", async || {
            stage.sale.worker().run_once(&stage.file).await.expect("an answer");
            stage.sale.figures().await.expect("an answer").expect("a sale").available == 50
        })
        .await;
        for id in ids {
            assert_eq!(stage.order(id), Some(State::Expired));
            assert_eq!(standing(&stage.sale, id).await, Some(Standing::Released));
        }
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        assert_eq!((now.taken, now.returned), (now.returned, 2 * (u64::from(calls) + 1)), "{now:?}");
        assert_eq!(stage.left(), 50);
        let ever = stage.file.ledger().expect("the file").2;
        assert_eq!(ever, placed, "what is over is not placed any more");
        check(&stage.sale, 50).await;
        if through {
            assert!(placed > 0, "none of them was an order");
            return assert!(calls >= 7, "it stops payments, tells the database twice and settles");
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_cancelling_returns_all_once(ground: Ground) {
    let mut stage = Stage::new(ground, 50, Terms::new(50)).await;
    for calls in 0..MOST {
        let id = stage.reserve().await;
        work(&stage.sale, &stage.file).await;
        let through = stage.dies_after(calls, &format!("cancel {id}")).await;
        // The buyer asks again.
        stage.sale.cancel(id).await.expect("an answer");
        work(&stage.sale, &stage.file).await;
        assert_eq!(stage.order(id), Some(State::Expired));
        assert_eq!(standing(&stage.sale, id).await, Some(Standing::Released));
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        assert_eq!((now.available, now.returned, stage.left()), (50, u64::from(calls) + 1, 50), "{now:?}");
        check(&stage.sale, 50).await;
        if through {
            assert!(calls >= 5, "it cancels, reads, tells the database and settles");
            return;
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_paying_is_made_good_by_paying_again(ground: Ground) {
    let mut stage = Stage::new(ground, 50, Terms::new(50)).await;
    for calls in 0..MOST {
        let id = stage.reserve().await;
        work(&stage.sale, &stage.file).await;
        let through = stage.dies_after(calls, &format!("pay {id}")).await;
        if standing(&stage.sale, id).await == Some(Standing::Paid) {
            assert_eq!(stage.order(id), Some(State::Paid), "the database is the first to know");
        }
        assert!(stage.file.pay(id).expect("the file"));
        assert_eq!(stage.sale.pay(id).await.expect("an answer"), Payment::Paid);
        assert_eq!(stage.order(id), Some(State::Paid));
        check(&stage.sale, 50).await;
        if through {
            assert!(calls >= 3, "it asks the database, looks for the sale and tells it");
            return;
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_paying_is_made_good_by_the_worker(ground: Ground) {
    let mut stage = Stage::new(ground, 50, Terms::new(50).pay_within(ms(3000))).await;
    let mut paid = 0;
    for calls in 0..MOST {
        let id = stage.reserve().await;
        work(&stage.sale, &stage.file).await;
        let through = stage.dies_after(calls, &format!("pay {id}")).await;
        let wanted = match stage.order(id) {
            Some(State::Paid) => Standing::Paid,
            _ => Standing::Released,
        };
        paid += u64::from(wanted == Standing::Paid);
        until("its time is over", async || {
            stage.sale.worker().run_once(&stage.file).await.expect("an answer");
            standing(&stage.sale, id).await == Some(wanted)
        })
        .await;
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        assert_eq!((now.paid, stage.left()), (paid, 50 - paid), "{now:?}");
        check(&stage.sale, 50).await;
        if through {
            return;
        }
    }
    panic!("it never got through");
}

async fn a_crash_while_rebuilding_is_made_good_by_the_next(ground: Ground) {
    let mut stage = Stage::new(ground, 50, Terms::new(50)).await;
    let mut paid = 0;
    for calls in 0..MOST {
        let ids = [stage.reserve().await, stage.reserve().await];
        work(&stage.sale, &stage.file).await;
        assert!(stage.file.pay(ids[0]).expect("the file"));
        stage.sale.pay(ids[0]).await.expect("an answer");
        paid += 1;
        let through = stage.dies_after(calls, "rebuild").await;
        // The sale is the old one, or the new one with all its orders, or sells nothing.
        match stage.sale.reserve(buyer_of(ids[0]), 1, ids[0]).await.expect("an answer") {
            Answer::Rebuilding => {}
            told => assert_eq!(reserved(told).standing, Standing::Paid),
        }
        let more = stage.sale.reserve(buyer_of(ids[0]), 2, id()).await.expect("an answer");
        assert!(matches!(more, Answer::Rebuilding | Answer::LimitReached { .. }), "{more:?}");
        let from = read_for_rebuild(&stage.file);
        assert_eq!(stage.sale.rebuild(&from).await.expect("an answer"), Begun::Now);
        let now = stage.sale.figures().await.expect("an answer").expect("a sale");
        let ordered = u64::from(calls) + 1;
        assert_eq!((now.paid, now.ordered, now.available), (paid, ordered, 50 - paid - ordered), "{now:?}");
        assert_eq!(now.available, stage.left());
        for id in ids {
            let wanted = if id == ids[0] { Standing::Paid } else { Standing::Ordered };
            assert_eq!(standing(&stage.sale, id).await, Some(wanted));
        }
        check(&stage.sale, 50).await;
        if through {
            assert!(calls >= 5, "it asks the database, stops the sale, fills and resumes it");
            return;
        }
    }
    panic!("it never got through");
}

async fn an_order_without_stock_is_not_placed_by_the_next(ground: Ground) {
    // The database has fewer than the sale believes.
    let stage = Stage::new(ground, 1, Terms::new(2)).await;
    let ask = async || {
        let id = id();
        reserved(stage.sale.reserve(buyer_of(id), 1, id).await.expect("an answer"))
    };
    let first = ask().await;
    work(&stage.sale, &stage.file).await;
    // A worker dies with this answer.
    let missing = ask().await;
    assert_eq!(stage.file.place(&missing).await.expect("the file"), Placed::NoStock);
    // Before the next one comes, there is a unit again.
    assert_eq!(stage.file.expire(&first).await.expect("the file"), Expired::Yes);
    work(&stage.sale, &stage.file).await;
    assert_eq!(standing(&stage.sale, missing.id).await, Some(Standing::Refused));
    assert_eq!((stage.order(missing.id), stage.left()), (Some(State::NoStock), 1));
    check(&stage.sale, 1).await;
    // In the next epoch it is a reservation like any other.
    let mut again = missing;
    again.epoch = stage.file.next_epoch().expect("the file").0;
    for _ in 0..2 {
        assert_eq!(stage.file.place(&again).await.expect("the file"), Placed::Yes);
        assert_eq!((stage.order(again.id), stage.left()), (Some(State::Unpaid), 0));
    }
}
