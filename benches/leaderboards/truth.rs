//! Members whose places are known without keeping them: each place has a member, and back.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::kit::leaderboards::RebuildEntry;

/// A prime that is greater than any number of members here.
const STRIDE: u64 = 1_000_000_007;
/// When the first score was reached.
const BEGUN: Duration = Duration::from_secs(1_700_000_000);

/// The name of a member.
pub(crate) fn member(number: u64) -> String {
    format!("user-{number:08}")
}

/// The member at a place, counted from 0.
pub(crate) fn member_at(place: u64, members: u64) -> String {
    member(multiply(place, STRIDE, members))
}

/// The place of a member, counted from 0. A process asks for one number of members only.
pub(crate) fn place_of(number: u64, members: u64) -> u64 {
    static INVERSE: OnceLock<u64> = OnceLock::new();
    let inverse = INVERSE.get_or_init(|| inverse(STRIDE % members, members));
    multiply(number, *inverse, members)
}

/// Few have high scores, and many share low ones.
pub(crate) fn score(place: u64, members: u64) -> i64 {
    let left = u128::from(members - place);
    i64::try_from(left * left / u128::from(members)).unwrap_or(i64::MAX)
}

/// How many members have at least this score.
pub(crate) fn at_least(least: i64, members: u64) -> u64 {
    let (mut low, mut high) = (0, members);
    while low < high {
        let middle = low.midpoint(high);
        if score(middle, members) >= least { low = middle + 1 } else { high = middle }
    }
    low
}

/// When a score was reached, in microseconds.
pub(crate) fn reached(place: u64) -> u64 {
    u64::try_from(BEGUN.as_micros()).unwrap_or(0) + place
}

/// All members, in the order of the board.
pub(crate) fn entries(members: u64) -> impl Iterator<Item = RebuildEntry> {
    (0..members).map(move |place| {
        let at: SystemTime = UNIX_EPOCH + Duration::from_micros(reached(place));
        RebuildEntry::new(member_at(place, members), score(place, members)).reached_at(at)
    })
}

fn multiply(a: u64, b: u64, modulus: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) % u128::from(modulus)).unwrap_or(0)
}

/// The number by which a product is undone.
fn inverse(number: u64, modulus: u64) -> u64 {
    let (mut old, mut rest) = (i128::from(modulus), i128::from(number));
    let (mut before, mut factor) = (0_i128, 1_i128);
    while rest != 0 {
        let times = old / rest;
        (old, rest) = (rest, old - times * rest);
        (before, factor) = (factor, before - times * factor);
    }
    u64::try_from(before.rem_euclid(i128::from(modulus))).unwrap_or(0)
}
