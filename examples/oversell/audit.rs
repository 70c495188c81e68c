//! A look at the sale while it sells: what it says of an order is true in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::kit::sale::{ReservationId, Standing};
use tokio::sync::oneshot;

use crate::order_file::State;
use crate::processes::Result;
use crate::shop::Shop;

/// So often it is looked at.
const EVERY: Duration = Duration::from_millis(25);

/// Compares the sale with the database again and again until it is told to stop. It says at once
/// what is wrong, because the round may not come to its end then; how many things there were.
pub(crate) async fn audit(shop: Shop, round: u32, mut stop: oneshot::Receiver<()>) -> Result<usize> {
    let mut wrong: BTreeSet<ReservationId> = BTreeSet::new();
    let mut compared = 0_usize;
    loop {
        // Once more at the end, when all is at rest.
        let is_last = tokio::time::timeout(EVERY, &mut stop).await.is_ok();
        match shop.sale.reservations().await {
            // The sale first: the database knows more in the next moment, and nothing less.
            Ok(reservations) => {
                let orders = shop.database.orders()?;
                let orders: BTreeMap<_, _> = orders.iter().map(|order| (order.id, order.state)).collect();
                compared += reservations.len();
                for reservation in reservations {
                    let (id, standing) = (reservation.id, reservation.standing);
                    let order = orders.get(&id).copied();
                    if is_ahead(standing, order) && wrong.insert(id) {
                        let has = order.map_or_else(|| "nothing".to_owned(), |order| format!("{order:?}"));
                        eprintln!("round {round}: the sale says of {id}: {standing:?}; the database: {has}");
                    }
                }
            }
            // The server is down.
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        if is_last {
            if compared == 0 && shop.stock > 0 {
                eprintln!("round {round}: nobody has seen a reservation to compare with the database");
                return Ok(1);
            }
            return Ok(wrong.len());
        }
    }
}

/// The database is the first to know.
fn is_ahead(standing: Standing, order: Option<State>) -> bool {
    match standing {
        Standing::Ordered => matches!(order, None | Some(State::NoStock)),
        Standing::Paid => order != Some(State::Paid),
        Standing::Released => order != Some(State::Expired),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sale_is_never_ahead_of_the_database() {
        let (unpaid, paid, expired) = (Some(State::Unpaid), Some(State::Paid), Some(State::Expired));
        let no_stock = Some(State::NoStock);
        for (standing, fine, ahead) in [
            (Standing::Reserved, vec![None, unpaid, paid, expired], vec![]),
            (Standing::Ordered, vec![unpaid, paid, expired], vec![None, no_stock]),
            (Standing::Paid, vec![paid], vec![None, unpaid, expired]),
            (Standing::Ending, vec![None, unpaid, paid, expired], vec![]),
            (Standing::Released, vec![expired], vec![None, unpaid, paid]),
        ] {
            assert!(fine.into_iter().all(|order| !is_ahead(standing, order)), "{standing:?}");
            assert!(ahead.into_iter().all(|order| is_ahead(standing, order)), "{standing:?}");
        }
    }
}
