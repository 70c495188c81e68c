//! What must be so at the end of a round.
//!
//! The judge counts for itself: in the lines that the database has written, and in what buyers were
//! told. The figures of the sale are what is judged. So is what became of the orders, because the
//! database of this program places whatever it is given.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::kit::sale::{Figures, ReservationId};

use crate::Sum;
use crate::order_file::{Line, State};
use crate::processes::Result;

/// A reservation as its buyer was told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// The epoch of the sale, the last one if it was told several times.
    pub(crate) epoch: u32,
    /// The microsecond of the first time.
    pub(crate) at: u64,
}

/// What buyers were told, also by processes that were killed afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) reserved: BTreeMap<ReservationId, Promise>,
    /// Why a buyer has as many as one may have: the other reservation.
    pub(crate) limited: BTreeSet<ReservationId>,
    pub(crate) paid: BTreeSet<ReservationId>,
    pub(crate) refused: BTreeSet<ReservationId>,
}

impl Told {
    pub(crate) fn read(lines: &[String], sum: &mut Sum) -> Result<Told> {
        let mut told = Told::default();
        for line in lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["reserved", id, epoch, at] => {
                    let (epoch, at) = (epoch.parse()?, at.parse()?);
                    let promise = told.reserved.entry(id.parse()?).or_insert(Promise { epoch, at });
                    *promise = Promise { epoch: promise.epoch.max(epoch), at: promise.at.min(at) };
                }
                ["early", _] => sum.early += 1,
                ["limited", _, other] => drop(told.limited.insert(other.parse()?)),
                ["paid", id] => drop(told.paid.insert(id.parse()?)),
                ["refused", id] => drop(told.refused.insert(id.parse()?)),
                ["time", time] => sum.times.push(time.parse()?),
                ["asked", asked, answered] => {
                    sum.asked += asked.parse::<u64>()?;
                    sum.answered += answered.parse::<u64>()?;
                }
                _ => return Err(format!("a process said `{line}`").into()),
            }
        }
        sum.reserved += told.reserved.len();
        sum.paid += told.paid.len();
        sum.refused += told.refused.len() as u64;
        sum.limited += told.limited.len();
        Ok(told)
    }
}

/// A sale with this epoch was never lost.
const FIRST_EPOCH: u32 = 1;

/// What an order has gone through.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    placed: u32,
    paid: u32,
    expired: u32,
    /// The epoch in which it ended last.
    ended_in: u32,
    /// The last epoch that began with it.
    carried_into: u32,
}

/// What is wrong. `now` is the sale at rest, which nobody could buy in before `opens_at`, and of
/// which a buyer may have up to the `limit`.
pub(crate) fn judge(
    history: &[Line],
    now: &Figures,
    stock: u32,
    limit: Option<i64>,
    told: &Told,
    opens_at: u64,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut courses: BTreeMap<ReservationId, Course> = BTreeMap::new();
    // Units of all orders that are not over, the most that there ever were, and those of one buyer.
    let (mut live, mut most) = (0_i64, 0_i64);
    let mut buyers: BTreeMap<&str, i64> = BTreeMap::new();
    // What this epoch has taken and given back, with what it began with.
    let (mut taken, mut returned, mut epoch) = (0_u64, 0_u64, FIRST_EPOCH);
    for line in history {
        let order = match line {
            Line::Stock(_) => continue,
            Line::Epoch(begun) => {
                (taken, returned, epoch) = (u64::try_from(live).unwrap_or(0), 0, *begun);
                let live = courses.values_mut().filter(|course| course.placed > 0 && course.expired == 0);
                live.for_each(|course| course.carried_into = epoch);
                continue;
            }
            // Nobody has got anything.
            Line::Order(order) if order.state == State::NoStock => continue,
            Line::Order(order) => order,
        };
        let course = courses.entry(order.id).or_default();
        if order.state == State::Expired && course.expired > 0 && course.ended_in < order.epoch {
            course.ended_in = order.epoch;
            // A late worker of an earlier epoch ended it first. Or it was made again in an epoch
            // that did not know of it, and could only end.
            if course.carried_into != order.epoch {
                taken += u64::from(order.quantity);
                returned += u64::from(order.quantity);
            }
            continue;
        }
        if order.state == State::Expired && course.placed == 0 && order.epoch < epoch {
            // A worker that was late has ended what this epoch has never heard of.
            (course.expired, course.ended_in) = (course.expired + 1, order.epoch);
            continue;
        }
        let before = (course.placed, course.expired);
        let change = match order.state {
            State::Unpaid => {
                course.placed += 1;
                1
            }
            State::Paid => {
                course.paid += 1;
                0
            }
            State::Expired => {
                course.expired += 1;
                course.ended_in = order.epoch;
                -i64::from(course.placed > 0)
            }
            State::NoStock => 0,
        };
        if before == (0, 0) {
            taken += u64::from(order.quantity);
        }
        if order.state == State::Expired {
            returned += u64::from(order.quantity);
        }
        live += change * i64::from(order.quantity);
        most = most.max(live);
        let has = buyers.entry(&order.buyer).or_default();
        *has += change * i64::from(order.quantity);
        if let Some(limit) = limit.filter(|limit| *has > *limit) {
            wrong.push(format!("the buyer {} has {has} units, and {limit} is the limit", order.buyer));
        }
    }
    if most > i64::from(stock) {
        wrong.push(format!("{most} of {stock} units were sold at the same time"));
    }
    for (id, course) in &courses {
        if course.placed > 1 || course.paid + course.expired > 1 {
            wrong.push(format!("the order {id} was placed or ended twice: {course:?}"));
        }
    }
    let paid = courses.values().filter(|course| course.paid > 0).count() as u64;
    if live.cast_unsigned() != paid {
        wrong.push(format!("{live} orders are not over, and {paid} are paid"));
    }
    if (now.taken, now.returned, now.paid) != (taken, returned, paid) || now.dead > 0 {
        wrong.push(format!(
            "the database has taken {taken}, returned {returned}, paid {paid}; the sale {now:?}"
        ));
    }
    if now.taken != now.paid + now.returned {
        wrong.push(format!("sold and returned are not what was taken: {now:?}"));
    }
    if now.stock != u64::from(stock) || now.available + now.paid != u64::from(stock) {
        wrong.push(format!("units were made or lost: {now:?}"));
    }
    for id in &told.paid {
        let course = courses.get(id).copied().unwrap_or_default();
        if (course.placed, course.paid, course.expired) != (1, 1, 0) {
            wrong.push(format!("a buyer was told that {id} is paid, and the database has {course:?}"));
        }
    }
    for (id, promise) in &told.reserved {
        // A store that loses its data loses reservations that are no orders yet, and says so: it
        // has another epoch then.
        if promise.epoch == now.epoch && !courses.contains_key(id) {
            wrong.push(format!(
                "a buyer was told that {id} is reserved, and the database has never heard of it"
            ));
        }
        // The two clocks are not the same.
        if promise.at + 1000 < opens_at {
            let early = opens_at - promise.at;
            wrong.push(format!("{id} was reserved {early} µs before the sale's window"));
        }
    }
    for id in told.limited.iter().filter(|id| now.epoch == FIRST_EPOCH && !courses.contains_key(id)) {
        wrong.push(format!("a buyer was refused because of {id}, which nobody has heard of"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order_file::Order;

    const OPENS_AT: u64 = 1_000_000;
    const PROMISE: Promise = Promise { epoch: FIRST_EPOCH, at: OPENS_AT };

    /// A round that went well: `a` has paid, `b` has not, and `c` bought what came back.
    fn round() -> (Vec<Line>, Figures, Told) {
        let line = |state, number, buyer: &str| {
            let id = ReservationId(number);
            Line::Order(Order { state, id, epoch: 1, quantity: 1, buyer: buyer.to_owned() })
        };
        let history = vec![
            Line::Stock(2),
            Line::Epoch(1),
            line(State::Unpaid, 1, "a"),
            line(State::Unpaid, 2, "b"),
            line(State::Paid, 1, "a"),
            line(State::Expired, 2, "b"),
            line(State::Unpaid, 3, "c"),
            line(State::Paid, 3, "c"),
        ];
        let mut now = Figures::default();
        (now.stock, now.available, now.paid, now.taken, now.returned) = (2, 0, 2, 3, 1);
        now.epoch = FIRST_EPOCH;
        let reserved = [1, 2, 3].map(|id| (ReservationId(id), PROMISE)).into();
        let paid = [1, 3].map(ReservationId).into();
        (history, now, Told { reserved, paid, ..Told::default() })
    }

    #[track_caller]
    fn finds(what: &str, (history, now, told): &(Vec<Line>, Figures, Told)) {
        let wrong = judge(history, now, 2, Some(1), told, OPENS_AT);
        assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{wrong:?}");
    }

    /// Changes a line of the history.
    fn order(round: &mut (Vec<Line>, Figures, Told), line: usize) -> &mut Order {
        match &mut round.0[line] {
            Line::Order(order) => order,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_round_is_good() {
        let (history, now, told) = round();
        assert_eq!(judge(&history, &now, 2, Some(1), &told, OPENS_AT), Vec::<String>::new());
    }

    #[test]
    fn what_had_ended_and_is_made_again_in_a_later_epoch_ends_again() {
        let mut again = round();
        again.0.push(Line::Epoch(2));
        again.1.epoch = 2;
        finds("the database has taken 2", &again);
        let mut ended = order(&mut again, 5).clone();
        ended.epoch = 2;
        again.0.push(Line::Order(ended));
        let (history, now, told) = &again;
        assert_eq!(judge(history, now, 2, Some(1), told, OPENS_AT), Vec::<String>::new());
        // But once in an epoch.
        let twice = again.0[9].clone();
        again.0.push(twice);
        finds("was placed or ended twice", &again);
    }

    #[test]
    fn what_a_late_worker_ends_is_not_of_this_epoch() {
        let mut late = round();
        late.0.push(Line::Epoch(2));
        (late.1.epoch, late.1.taken, late.1.returned) = (2, 2, 0);
        let mut mark = order(&mut late, 5).clone();
        (mark.id, mark.buyer) = (ReservationId(9), "d".to_owned());
        late.0.push(Line::Order(mark.clone()));
        let (history, now, told) = &late;
        assert_eq!(judge(history, now, 2, Some(1), told, OPENS_AT), Vec::<String>::new());
        // Nor does it count twice what this epoch began with: `a` is not paid here.
        let mut twice = late.clone();
        twice.0.remove(4);
        (twice.1.available, twice.1.paid, twice.1.returned) = (1, 1, 1);
        twice.2.paid.remove(&ReservationId(1));
        let end = |epoch: u32| {
            let id = ReservationId(1);
            Line::Order(Order { state: State::Expired, id, epoch, quantity: 1, buyer: "a".to_owned() })
        };
        twice.0.extend([end(1), end(2)]);
        let (history, now, told) = &twice;
        assert_eq!(judge(history, now, 2, Some(1), told, OPENS_AT), Vec::<String>::new());
        // One of this epoch is.
        mark.epoch = 2;
        late.0[9] = Line::Order(mark);
        finds("the database has taken 3", &late);
    }

    #[test]
    fn each_thing_that_can_be_wrong_is_found() {
        // Before the unit of `b` came back.
        let mut oversold = round();
        oversold.0.swap(5, 6);
        finds("sold at the same time", &oversold);

        let mut twice = round();
        let again = twice.0[2].clone();
        twice.0.push(again);
        finds("was placed or ended twice", &twice);

        let mut two_of_one = round();
        order(&mut two_of_one, 6).buyer = "a".to_owned();
        finds("1 is the limit", &two_of_one);

        let mut returned_twice = round();
        (returned_twice.1.returned, returned_twice.1.available) = (2, 1);
        finds("sold and returned are not what was taken", &returned_twice);
        finds("units were made or lost", &returned_twice);

        let mut not_taken = round();
        not_taken.1.taken = 2;
        finds("the database has taken 3", &not_taken);

        let mut unit_lost = round();
        unit_lost.1.stock = 1;
        finds("units were made or lost", &unit_lost);

        let mut never_ended = round();
        never_ended.0.remove(5);
        finds("are not over", &never_ended);

        let mut payment_lost = round();
        payment_lost.2.paid.insert(ReservationId(2));
        finds("was told that", &payment_lost);

        let mut never_placed = round();
        never_placed.2.reserved.insert(ReservationId(4), PROMISE);
        finds("has never heard of it", &never_placed);
        never_placed.1.epoch += 1;
        let (history, now, told) = never_placed;
        assert_eq!(
            judge(&history, &now, 2, Some(1), &told, OPENS_AT),
            Vec::<String>::new(),
            "the store has lost it"
        );

        let mut too_early = round();
        too_early.2.reserved.insert(ReservationId(1), Promise { at: OPENS_AT - 2000, ..PROMISE });
        finds("before the sale's window", &too_early);

        let mut limited_for_nothing = round();
        limited_for_nothing.2.limited.insert(ReservationId(4));
        finds("which nobody has heard of", &limited_for_nothing);
    }
}
