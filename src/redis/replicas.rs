//! How many replicas a server has, whether they are there or not.
//!
//! A majority is one of what the deployment has. Replicas that are away count, or the last server
//! that is left would be a majority by itself. So the number comes from those who remember them:
//! the sentinels, or the cluster.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock as _, Moment, SystemClock};

/// How long a smaller number must be said before it counts. An operator's word (`SENTINEL RESET`,
/// `CLUSTER FORGET`) makes a sentinel or a member forget those that are there, too, until it hears
/// of them again: after ten seconds at most.
const SHRINKS_AFTER: Duration = Duration::from_secs(30);

/// The number of replicas, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Replicas(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    number: u32,
    /// Since when a smaller number is said.
    smaller_since: Option<Moment>,
}

impl Replicas {
    /// The number; 0 if none is known.
    pub(crate) fn number(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).number
    }

    /// Notes what is said.
    pub(crate) fn heard(&self, said: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).heard(said, SystemClock.now());
    }
}

impl Count {
    fn heard(&mut self, said: u32, now: Moment) {
        if said >= self.number {
            *self = Count { number: said, smaller_since: None };
            return;
        }
        let since = *self.smaller_since.get_or_insert(now);
        if now.since(since) >= SHRINKS_AFTER {
            *self = Count { number: said, smaller_since: None };
        }
    }
}

/// The replicas of the member that has said this (`CLUSTER NODES`).
///
/// A primary that failed has no slots any more, and whose replica it will be when it is back nobody
/// says. It counts as a replica of everybody, so that nobody who took its place is alone with its
/// own word.
pub(crate) fn of_member(nodes: &str) -> u32 {
    const FIELDS: usize = 8;
    let rows: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
    let is = |row: &[&str], flag: &str| row.get(2).is_some_and(|flags| flags.split(',').any(|f| f == flag));
    let Some(own) = rows.iter().find(|row| is(row, "myself")).and_then(|row| row.first()) else { return 0 };
    let counts = |row: &&Vec<&str>| {
        let ours = is(row, "slave") && row.get(3) == Some(own);
        let fails = is(row, "fail") || is(row, "fail?");
        ours || (is(row, "master") && fails && row.len() <= FIELDS)
    };
    rows.iter().filter(counts).count().try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: &str = "\
a 127.0.0.1:1@11 myself,master - 0 0 7 connected 0-5460\n\
b 127.0.0.1:2@12,host slave a 0 0 7 connected\n\
c 127.0.0.1:3@13 slave,fail a 1 1 7 disconnected\n\
d 127.0.0.1:4@14 slave,fail? a 1 1 7 connected\n\
e 127.0.0.1:5@15 slave f 0 0 2 connected\n\
f 127.0.0.1:6@16 master,fail - 1 1 2 disconnected 5461-10922\n\
g 127.0.0.1:7@17 master - 0 0 3 connected 10923-16383\n\
h 127.0.0.1:8@18 master - 0 0 0 connected\n";

    #[test]
    fn replicas_that_are_away_count() {
        assert_eq!(of_member(AWAY), 3);
        // It was a primary once, of nobody knows what.
        assert_eq!(of_member(&format!("{AWAY}i 127.0.0.1:9@19 master,fail - 1 1 1 disconnected\n")), 4);
        assert_eq!(of_member(""), 0);
    }

    #[test]
    fn a_smaller_number_must_last() {
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let mut count = Count::default();
        let mut after = |said, seconds| {
            count.heard(said, at(seconds));
            count.number
        };
        assert_eq!(after(2, 0), 2);
        assert_eq!(after(1, 10), 2);
        assert_eq!(after(1, 39), 2);
        // It was only away for a moment.
        assert_eq!(after(2, 40), 2);
        assert_eq!(after(0, 41), 2);
        assert_eq!(after(1, 70), 2);
        assert_eq!(after(1, 71), 1);
        assert_eq!(after(3, 72), 3);
    }
}
