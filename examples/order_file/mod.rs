//! Orders in a file of lines: the smallest database that can decide, for examples and tests that
//! need no server.
//!
//! Several processes may have it open. A transaction holds a lock on the file, reads what others
//! have written since the last one, and ends with at most one line, which is written whole. A shop
//! has a table of orders instead, with a unique reservation: `examples/flash-sale/src/postgres.rs`.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::kit::sale::{Expired, Ledger, Orders, Placed, Reservation, ReservationId};
use rustix::fs::{FlockOperation, flock};

/// What has become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unpaid,
    Paid,
    Expired,
    /// There were no units for it, and it is not placed any more in its epoch.
    NoStock,
}

impl State {
    /// It has its units.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, State::Unpaid | State::Paid)
    }
}

/// A line: what has become of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) state: State,
    pub(crate) id: ReservationId,
    /// The epoch of the reservation.
    pub(crate) epoch: u32,
    pub(crate) quantity: u32,
    pub(crate) buyer: String,
}

impl Order {
    fn new(state: State, reservation: &Reservation) -> Order {
        let Reservation { id, epoch, quantity, ref buyer, .. } = *reservation;
        Order { state, id, epoch, quantity, buyer: buyer.clone() }
    }

    /// A name of a buyer may have any letters, so it comes last and without line breaks.
    fn line(&self) -> String {
        let word = match self.state {
            State::Unpaid => "unpaid",
            State::Paid => "paid",
            State::Expired => "expired",
            State::NoStock => "no-stock",
        };
        format!("{word} {} {} {} {}", self.id, self.epoch, self.quantity, self.buyer.escape_default())
    }

    fn read(line: &str) -> Option<Order> {
        let mut words = line.splitn(5, ' ');
        let state = match words.next()? {
            "unpaid" => State::Unpaid,
            "paid" => State::Paid,
            "expired" => State::Expired,
            "no-stock" => State::NoStock,
            _ => return None,
        };
        let (id, epoch, quantity) = (words.next()?, words.next()?, words.next()?);
        Some(Order {
            state,
            id: id.parse().ok()?,
            epoch: epoch.parse().ok()?,
            quantity: quantity.parse().ok()?,
            buyer: words.next()?.to_owned(),
        })
    }
}

/// One thing that has happened, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A sale of so many units begins, without any orders.
    Stock(u32),
    Epoch(u32),
    Order(Order),
}

impl Line {
    fn read(line: &str) -> Option<Line> {
        match line.split_once(' ')? {
            ("stock", units) => units.parse().ok().map(Line::Stock),
            ("epoch", epoch) => epoch.parse().ok().map(Line::Epoch),
            _ => Order::read(line).map(Line::Order),
        }
    }
}

/// What the lines come to.
#[derive(Debug, Default)]
struct Tables {
    epoch: u32,
    stock: u32,
    left: i64,
    placed: u64,
    orders: BTreeMap<ReservationId, Order>,
}

impl Tables {
    fn apply(&mut self, line: Line) {
        match line {
            Line::Stock(stock) => {
                *self = Tables { epoch: self.epoch, stock, left: stock.into(), ..Tables::default() };
            }
            Line::Epoch(epoch) => self.epoch = epoch,
            Line::Order(order) => {
                let before = self.orders.get(&order.id).map(|order| order.state);
                let units = i64::from(order.quantity);
                match (before, order.state) {
                    (None | Some(State::NoStock), State::Unpaid) => {
                        self.left -= units;
                        self.placed += 1;
                    }
                    (Some(State::Unpaid), State::Expired) => self.left += units,
                    _ => {}
                }
                self.orders.insert(order.id, order);
            }
        }
    }
}

/// The file as this process knows it.
#[derive(Debug)]
struct Open {
    file: File,
    read_to: u64,
    tables: Tables,
}

#[derive(Clone, Debug)]
pub(crate) struct OrderFile {
    path: PathBuf,
    open: Arc<Mutex<Open>>,
    decides: bool,
}

/// The file is locked as long as this lives.
struct Transaction<'a> {
    open: MutexGuard<'a, Open>,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        flock(&self.open.file, FlockOperation::Unlock).ok();
    }
}

impl Transaction<'_> {
    fn tables(&self) -> &Tables {
        &self.open.tables
    }

    /// A reservation that had ended in an earlier epoch was made again, because its store has lost
    /// it: it has ended in this epoch, too.
    fn mark_again(&mut self, reservation: &Reservation) -> Result<()> {
        let tables = self.tables();
        let ended = tables.orders.get(&reservation.id).map(|order| order.epoch);
        if reservation.epoch == tables.epoch && ended < Some(reservation.epoch) {
            self.write(&Order::new(State::Expired, reservation).line())?;
        }
        Ok(())
    }

    fn write(&mut self, line: &str) -> Result<()> {
        self.open.file.write_all(format!("{line}\n").as_bytes())?;
        self.open.read_to += line.len() as u64 + 1;
        let line = Line::read(line).ok_or_else(|| Error::other("not a line"))?;
        self.open.tables.apply(line);
        Ok(())
    }
}

impl OrderFile {
    /// A new file, for a sale of so many units.
    pub(crate) fn create(path: &Path, stock: u32) -> Result<OrderFile> {
        std::fs::write(path, format!("stock {stock}\nepoch 1\n"))?;
        OrderFile::open(path)
    }

    pub(crate) fn open(path: &Path) -> Result<OrderFile> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let open = Open { file, read_to: 0, tables: Tables::default() };
        Ok(OrderFile { path: path.to_owned(), open: Arc::new(Mutex::new(open)), decides: true })
    }

    /// If it does not decide, it places whatever it is given, as long as nobody has placed or ended
    /// it before: it does not look at the stock. So what a store has sold too much is seen.
    #[must_use]
    pub(crate) fn which_decides(mut self, decides: bool) -> OrderFile {
        self.decides = decides;
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn begin(&self) -> Result<Transaction<'_>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&open.file, FlockOperation::LockExclusive)?;
        let mut transaction = Transaction { open };
        let open = &mut *transaction.open;
        open.file.seek(SeekFrom::Start(open.read_to))?;
        let mut text = String::new();
        open.file.read_to_string(&mut text)?;
        if !text.is_empty() && !text.ends_with('\n') {
            // Whoever was killed there has not committed.
            open.file.write_all(b"\n")?;
            text.push('\n');
        }
        open.read_to += text.len() as u64;
        text.lines().filter_map(Line::read).for_each(|line| open.tables.apply(line));
        Ok(transaction)
    }

    /// All that has ever happened.
    pub(crate) fn history(&self) -> Result<Vec<Line>> {
        let _locked = self.begin()?;
        Ok(std::fs::read_to_string(&self.path)?.lines().filter_map(Line::read).collect())
    }

    pub(crate) fn orders(&self) -> Result<Vec<Order>> {
        Ok(self.begin()?.tables().orders.values().cloned().collect())
    }

    pub(crate) fn order(&self, id: ReservationId) -> Result<Option<State>> {
        Ok(self.begin()?.tables().orders.get(&id).map(|order| order.state))
    }

    /// The stock, what has become of it, and how many orders were ever placed.
    pub(crate) fn ledger(&self) -> Result<(u32, Ledger, u64)> {
        let transaction = self.begin()?;
        let tables = transaction.tables();
        let units = |state| {
            let orders = tables.orders.values().filter(move |order| order.state == state);
            orders.map(|order| u64::from(order.quantity)).sum()
        };
        let left = u64::try_from(tables.left).unwrap_or(0);
        let ledger = Ledger { left, unpaid: units(State::Unpaid), paid: units(State::Paid) };
        Ok((tables.stock, ledger, tables.placed))
    }

    pub(crate) fn epoch(&self) -> Result<u32> {
        Ok(self.begin()?.tables().epoch)
    }

    /// True if it is paid, now or before.
    pub(crate) fn pay(&self, id: ReservationId) -> Result<bool> {
        let mut transaction = self.begin()?;
        let Some(order) = transaction.tables().orders.get(&id).cloned() else { return Ok(false) };
        if order.state == State::Unpaid {
            transaction.write(&Order { state: State::Paid, ..order }.line())?;
            return Ok(true);
        }
        Ok(order.state == State::Paid)
    }

    /// Begins another epoch, in which orders of earlier ones are refused: its number, what is left,
    /// and the orders that there are.
    pub(crate) fn next_epoch(&self) -> Result<(u32, u32, Vec<Order>)> {
        let mut transaction = self.begin()?;
        let epoch = transaction.tables().epoch + 1;
        transaction.write(&format!("epoch {epoch}"))?;
        let tables = transaction.tables();
        let left = u32::try_from(tables.left)
            .map_err(|_| Error::other(format!("{} units were ordered that are not there", -tables.left)))?;
        Ok((epoch, left, tables.orders.values().cloned().collect()))
    }

    /// Forgets all orders and begins another epoch with a stock: its number.
    pub(crate) fn start_again(&self, stock: u32) -> Result<u32> {
        let mut transaction = self.begin()?;
        let epoch = transaction.tables().epoch + 1;
        // First the epoch: without its stock it is only a rebuilt sale.
        transaction.write(&format!("epoch {epoch}"))?;
        transaction.write(&format!("stock {stock}"))?;
        Ok(epoch)
    }
}

impl Orders for OrderFile {
    type Error = Error;

    async fn place(&self, reservation: &Reservation) -> Result<Placed> {
        let mut transaction = self.begin()?;
        let tables = transaction.tables();
        let found = tables.orders.get(&reservation.id).map(|order| (order.state, order.epoch));
        match found {
            Some((State::Expired, _)) => {
                transaction.mark_again(reservation)?;
                return Ok(Placed::Refused);
            }
            Some((State::Unpaid | State::Paid, _)) => return Ok(Placed::Yes),
            Some((State::NoStock, epoch)) if epoch >= reservation.epoch => return Ok(Placed::NoStock),
            Some((State::NoStock, _)) | None => {}
        }
        if tables.epoch != reservation.epoch {
            return Ok(Placed::Refused);
        }
        if self.decides && tables.left < reservation.quantity.into() {
            // Another worker must not place it, even if there are units again.
            transaction.write(&Order::new(State::NoStock, reservation).line())?;
            return Ok(Placed::NoStock);
        }
        transaction.write(&Order::new(State::Unpaid, reservation).line())?;
        Ok(Placed::Yes)
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired> {
        let mut transaction = self.begin()?;
        match transaction.tables().orders.get(&reservation.id).map(|order| order.state) {
            Some(State::Paid) => return Ok(Expired::Paid),
            Some(State::Expired) => {
                transaction.mark_again(reservation)?;
                return Ok(Expired::Yes);
            }
            // If there is no order, the mark keeps a late worker from placing it.
            Some(State::Unpaid | State::NoStock) | None => {}
        }
        transaction.write(&Order::new(State::Expired, reservation).line())?;
        Ok(Expired::Yes)
    }
}
