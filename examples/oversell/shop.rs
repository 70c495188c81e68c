//! What the shop does: it opens a sale, and begins it again from the database.

use std::time::{Duration, Instant};

use leasehold::kit::sale::{Begun, Rebuild, Sale, Terms};

use crate::crowd::{AGAIN, PAY_WITHIN};
use crate::order_file::{OrderFile, State};
use crate::processes::{Result, now};

/// The first buyers come before the sale opens.
const OPENS_IN: Duration = Duration::from_millis(100);

/// The sale of a round, and its database.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) sale: Sale,
    pub(crate) database: OrderFile,
    pub(crate) stock: u32,
    shards: u8,
    /// Nobody gets anything before this microsecond.
    pub(crate) opens_at: u64,
}

impl Shop {
    pub(crate) async fn open(sale: Sale, database: OrderFile, stock: u32, shards: u32) -> Result<Shop> {
        let opens_at = now() + u64::try_from(OPENS_IN.as_micros())?;
        let shop = Shop { sale, database, stock, shards: u8::try_from(shards)?, opens_at };
        patiently(|| async { Ok(shop.sale.open(&shop.terms(stock)).await?) }).await?;
        Ok(shop)
    }

    fn terms(&self, stock: u32) -> Terms {
        let opens_in = Duration::from_micros(self.opens_at.saturating_sub(now()));
        Terms::new(stock).shards(self.shards).opens_in(opens_in).pay_within(PAY_WITHIN)
    }

    /// Begins another epoch from the database, as a shop does whose store came back without the
    /// sale.
    pub(crate) async fn rebuild(&self, change: impl Fn(Terms) -> Terms) -> Result<()> {
        patiently(|| async {
            let (epoch, left, orders) = self.database.next_epoch()?;
            if left > self.stock {
                return Err(format!("{left} of {} are left", self.stock).into());
            }
            let mut from = Rebuild::new(change(self.terms(left).epoch(epoch)));
            for order in orders {
                from = match order.state {
                    State::Unpaid => from.unpaid(order.id, order.buyer, order.quantity, PAY_WITHIN),
                    State::Paid => from.paid(order.id, order.buyer, order.quantity),
                    State::Expired | State::NoStock => from,
                };
            }
            match self.sale.rebuild(&from).await? {
                Begun::Now => Ok(()),
                Begun::Before { epoch } => Err(format!("somebody else has begun epoch {epoch}").into()),
            }
        })
        .await
    }
}

/// Asks until the engine answers, for as long as a server takes to come back.
pub(crate) async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if may_be_repeated(&*error) && started.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn may_be_repeated(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<leasehold::Error>().is_some_and(leasehold::Error::is_retryable)
}
