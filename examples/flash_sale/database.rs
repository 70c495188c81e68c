//! The smallest database that can decide: a file of lines, written by one process at a time.
//!
//! A shop has a table of orders with a unique reservation, and a row with the stock: docs/sale.md
//! has the statements. This does the same for an example that needs no server.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use leasehold::kit::sale::{Expired, Orders, Placed, Reservation, ReservationId};
use rustix::fs::{FlockOperation, flock};

use crate::processes::Result;

/// What has become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Unpaid,
    Paid,
    Expired,
}

/// An order, what has become of it, and whose it is.
pub(crate) type Placement = (ReservationId, Order, String);

#[derive(Clone)]
pub(crate) struct Database(PathBuf);

/// What the lines say.
#[derive(Default)]
struct Tables {
    epoch: u32,
    left: i64,
    stock: i64,
    /// The fewest that were ever left: it must not be below zero.
    fewest: i64,
    orders: BTreeMap<ReservationId, (Order, String)>,
}

/// A transaction: the file is locked as long as this lives, and a line is written whole.
struct Transaction {
    file: File,
    tables: Tables,
}

impl Transaction {
    fn write(&mut self, line: &str) -> Result<()> {
        Ok(self.file.write_all(format!("{line}\n").as_bytes())?)
    }
}

impl Tables {
    fn read(text: &str) -> Result<Tables> {
        let mut tables = Tables::default();
        // A process that was killed may have left a part of a line, which does not count.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["stock", stock] => {
                    (tables.stock, tables.left) = (stock.parse()?, stock.parse()?);
                    tables.fewest = tables.stock;
                }
                ["epoch", epoch] => tables.epoch = epoch.parse()?,
                [word, id, buyer] => {
                    let order = match word {
                        "unpaid" => Order::Unpaid,
                        "paid" => Order::Paid,
                        _ => Order::Expired,
                    };
                    let before = tables.orders.insert(id.parse()?, (order, buyer.to_owned()));
                    match (before.map(|(before, _)| before), order) {
                        (None, Order::Unpaid) => tables.left -= 1,
                        (Some(Order::Unpaid), Order::Expired) => tables.left += 1,
                        _ => {}
                    }
                    tables.fewest = tables.fewest.min(tables.left);
                }
                // A part of a line, with what was written after it.
                _ => {}
            }
        }
        Ok(tables)
    }
}

impl Database {
    pub(crate) fn create(path: &Path, stock: u32) -> Result<Database> {
        std::fs::write(path, format!("stock {stock}\nepoch 1\n"))?;
        Ok(Database(path.to_owned()))
    }

    pub(crate) fn open(path: &Path) -> Database {
        Database(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn begin(&self) -> Result<Transaction> {
        let mut file = OpenOptions::new().read(true).append(true).open(&self.0)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if !text.ends_with('\n') {
            // Whoever was killed there has not committed.
            file.write_all(b"\n")?;
        }
        Ok(Transaction { tables: Tables::read(&text)?, file })
    }

    pub(crate) fn orders(&self) -> Result<Vec<Placement>> {
        let orders = self.begin()?.tables.orders;
        Ok(orders.into_iter().map(|(id, (order, buyer))| (id, order, buyer)).collect())
    }

    /// The most units that were ordered at the same time.
    pub(crate) fn most_at_once(&self) -> Result<u32> {
        let tables = self.begin()?.tables;
        Ok(u32::try_from(tables.stock - tables.fewest)?)
    }

    /// True if it is paid, now or before.
    pub(crate) fn pay(&self, id: ReservationId) -> Result<bool> {
        let mut transaction = self.begin()?;
        match transaction.tables.orders.get(&id).cloned() {
            Some((Order::Unpaid, buyer)) => transaction.write(&format!("paid {id} {buyer}"))?,
            Some((Order::Paid, _)) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Begins another epoch: from here on orders of earlier ones are refused.
    pub(crate) fn next_epoch(&self) -> Result<(u32, Vec<Placement>)> {
        let mut transaction = self.begin()?;
        let epoch = transaction.tables.epoch + 1;
        transaction.write(&format!("epoch {epoch}"))?;
        drop(transaction);
        Ok((epoch, self.orders()?))
    }
}

impl Orders for Database {
    type Error = String;

    async fn place(&self, reservation: &Reservation) -> std::result::Result<Placed, String> {
        let mut transaction = self.begin().map_err(|error| error.to_string())?;
        let tables = &transaction.tables;
        match tables.orders.get(&reservation.id) {
            Some((Order::Expired, _)) => return Ok(Placed::Refused),
            Some(_) => return Ok(Placed::Yes),
            None if tables.epoch != reservation.epoch => return Ok(Placed::Refused),
            None if tables.left <= 0 => return Ok(Placed::NoStock),
            None => {}
        }
        let line = format!("unpaid {} {}", reservation.id, reservation.buyer);
        transaction.write(&line).map_err(|error| error.to_string())?;
        Ok(Placed::Yes)
    }

    async fn expire(&self, reservation: &Reservation) -> std::result::Result<Expired, String> {
        let mut transaction = self.begin().map_err(|error| error.to_string())?;
        match transaction.tables.orders.get(&reservation.id) {
            Some((Order::Paid, _)) => return Ok(Expired::Paid),
            Some((Order::Expired, _)) => return Ok(Expired::Yes),
            Some((Order::Unpaid, _)) | None => {}
        }
        let line = format!("expired {} {}", reservation.id, reservation.buyer);
        transaction.write(&line).map_err(|error| error.to_string())?;
        Ok(Expired::Yes)
    }
}
