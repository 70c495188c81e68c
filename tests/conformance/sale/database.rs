//! A database that orders are placed in: it decides by the id of the reservation, and refuses
//! orders of earlier epochs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold::kit::sale::{Expired, Orders, Placed, Reservation, ReservationId};
use tokio::sync::watch;

/// What has become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Unpaid,
    Paid,
    Expired,
    NoStock,
}

#[derive(Clone)]
pub(super) struct Database {
    tables: Arc<Mutex<Tables>>,
    /// True while whoever wants to place or end an order has to wait.
    gate: Arc<watch::Sender<bool>>,
    passes_gate: bool,
    /// The gate is behind the change instead of before it.
    answers_late: bool,
}

struct Tables {
    epoch: u32,
    left: u32,
    orders: BTreeMap<ReservationId, (Order, String, u32)>,
    refused: BTreeSet<String>,
    fails: bool,
    hangs: Option<String>,
    waiting: u32,
}

/// Dropped, it lets those through that wait.
pub(super) struct Gate(Arc<watch::Sender<bool>>);

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Database {
    pub(super) fn new(stock: u32) -> Database {
        let tables = Tables {
            epoch: 1,
            left: stock,
            orders: BTreeMap::new(),
            refused: BTreeSet::new(),
            fails: false,
            hangs: None,
            waiting: 0,
        };
        let gate = Arc::new(watch::Sender::new(false));
        Database { tables: Arc::new(Mutex::new(tables)), gate, passes_gate: false, answers_late: false }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("no panic")
    }

    pub(super) fn left(&self) -> u32 {
        self.tables().left
    }

    pub(super) fn order(&self, id: ReservationId) -> Option<Order> {
        self.tables().orders.get(&id).map(|(order, ..)| *order)
    }

    pub(super) fn orders(&self) -> Vec<(ReservationId, Order, String, u32)> {
        let tables = self.tables();
        let orders = tables.orders.iter();
        orders.map(|(id, (order, buyer, quantity))| (*id, *order, buyer.clone(), *quantity)).collect()
    }

    pub(super) fn pay(&self, id: ReservationId) {
        if let Some((order, ..)) = self.tables().orders.get_mut(&id) {
            assert_eq!(*order, Order::Unpaid);
            *order = Order::Paid;
        }
    }

    /// Calls for this buyer never come back, or do again.
    pub(super) fn hang(&self, buyer: Option<&str>) {
        self.tables().hangs = buyer.map(str::to_owned);
    }

    /// Every call fails, or no more.
    pub(super) fn fail(&self, fails: bool) {
        self.tables().fails = fails;
    }

    /// Nothing is placed for this buyer.
    pub(super) fn refuse(&self, buyer: &str) {
        self.tables().refused.insert(buyer.to_owned());
    }

    pub(super) fn close_gate(&self) -> Gate {
        self.gate.send_replace(true);
        Gate(Arc::clone(&self.gate))
    }

    /// The same for a worker who does not have to wait.
    pub(super) fn past_gate(&self) -> Database {
        Database { passes_gate: true, ..self.clone() }
    }

    /// The same for a worker who waits until it hears what was done.
    pub(super) fn answering_late(&self) -> Database {
        Database { answers_late: true, ..self.clone() }
    }

    fn place_now(&self, reservation: &Reservation) -> Result<Placed, String> {
        let mut tables = self.tables();
        if tables.fails {
            return Err("the database is away".into());
        }
        if let Some((order, ..)) = tables.orders.get(&reservation.id) {
            return Ok(match order {
                Order::Expired => Placed::Refused,
                Order::NoStock => Placed::NoStock,
                Order::Unpaid | Order::Paid => Placed::Yes,
            });
        }
        if tables.epoch != reservation.epoch || tables.refused.contains(&reservation.buyer) {
            return Ok(Placed::Refused);
        }
        let taken = tables.left >= reservation.quantity;
        tables.left -= if taken { reservation.quantity } else { 0 };
        let order = if taken { Order::Unpaid } else { Order::NoStock };
        tables.orders.insert(reservation.id, (order, reservation.buyer.clone(), reservation.quantity));
        Ok(if taken { Placed::Yes } else { Placed::NoStock })
    }

    async fn wait_at_gate(&self) {
        if *self.gate.borrow() && !self.passes_gate {
            self.tables().waiting += 1;
            self.gate.subscribe().wait_for(|closed| !closed).await.ok();
        }
    }

    /// How many have waited at the gate.
    pub(super) fn waiting(&self) -> u32 {
        self.tables().waiting
    }

    /// Begins another epoch: its number, and what is left at this moment.
    pub(super) fn next_epoch(&self) -> (u32, u32) {
        let mut tables = self.tables();
        tables.epoch += 1;
        (tables.epoch, tables.left)
    }
}

impl Orders for Database {
    type Error = String;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, String> {
        let hangs = self.tables().hangs.as_ref() == Some(&reservation.buyer);
        if hangs {
            std::future::pending::<()>().await;
        }
        if self.answers_late {
            let placed = self.place_now(reservation);
            self.wait_at_gate().await;
            return placed;
        }
        self.wait_at_gate().await;
        self.place_now(reservation)
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired, String> {
        self.wait_at_gate().await;
        let mut tables = self.tables();
        if tables.fails {
            return Err("the database is away".into());
        }
        let found = tables.orders.get(&reservation.id).map(|(order, ..)| *order);
        match found {
            Some(Order::Paid) => return Ok(Expired::Paid),
            Some(Order::Expired) => {}
            Some(Order::Unpaid | Order::NoStock) | None => {
                let mark = (Order::Expired, reservation.buyer.clone(), reservation.quantity);
                tables.orders.insert(reservation.id, mark);
                if found == Some(Order::Unpaid) {
                    tables.left += reservation.quantity;
                }
            }
        }
        Ok(Expired::Yes)
    }
}
