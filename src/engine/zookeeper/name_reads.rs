//! Reading a name and those who wait for it.
//!
//! Waiters are nodes of their own, and which of them come first is known only when the name was
//! read. So those that came first the last time, and those right after them, are read together with
//! it: mostly they are the ones.

use std::collections::HashMap;

use super::messages::{Get, Got};
use super::paths::Paths;
use super::places::Reading;
use super::requests::{Fresh, into_value};
use super::store::Nodes;
use crate::engine::sessions::Attempt;
use crate::engine::sessions::store::{Read, Store as _};

/// What is read first.
#[derive(Debug)]
pub(super) struct First {
    pub(super) gets: Vec<Get>,
    guessed: Vec<u64>,
}

impl Nodes {
    /// What is read first.
    pub(super) fn first_reads(&self, reading: &Reading<'_>) -> First {
        let Reading { name, most, own, seats } = *reading;
        let path = self.paths.name(name);
        let mut gets = vec![Get::Data(path.clone()), Get::Children(path)];
        gets.extend(seats.iter().map(|seat| Get::Data(self.paths.session(*seat))));
        let guess = self.places.first_of(name);
        let guessed: Vec<u64> = match guess {
            Some(first) if most != 0 => (first..=first + most.min(8) as u64).chain(own).collect(),
            _ => own.into_iter().collect(),
        };
        gets.extend(guessed.iter().map(|place| Get::Data(self.paths.waiter(name, *place))));
        First { gets, guessed }
    }

    /// Reads a name and its waiters, and looks for sessions.
    pub(super) async fn read_with(&self, reading: &Reading<'_>, how: Fresh) -> Attempt<(Read, Vec<bool>)> {
        let first = self.first_reads(reading);
        let got = self.requests.read(&first.gets, how).await?;
        self.read_on(reading, first, got).await
    }

    /// Reads what else is needed, after what was read first.
    pub(super) async fn read_on(
        &self,
        reading: &Reading<'_>,
        mut first: First,
        mut got: Vec<Got>,
    ) -> Attempt<(Read, Vec<bool>)> {
        let Reading { name, most, own, seats } = *reading;
        loop {
            let mut answers = got.into_iter();
            let record = answers.next().map(into_value).unwrap_or_default();
            let children = match answers.next() {
                Some(Got::Children(children)) => children,
                _ => Vec::new(),
            };
            let alive: Vec<bool> =
                answers.by_ref().take(seats.len()).map(|got| got != Got::Nothing).collect();
            let mut rows: HashMap<u64, Vec<u8>> = HashMap::new();
            let there = |(place, got): (u64, Got)| Some((place, into_value(got).bytes?));
            rows.extend(first.guessed.into_iter().zip(answers).filter_map(there));
            let mut places: Vec<u64> = children.iter().filter_map(|child| Paths::place_of(child)).collect();
            places.sort_unstable();
            self.places.note(name, places.first());
            let own = own.filter(|own| places.binary_search(own).is_ok());
            if most != 0 {
                places.truncate(most);
            }
            let unread: Vec<u64> =
                places.iter().chain(&own).copied().filter(|place| !rows.contains_key(place)).collect();
            if !unread.is_empty() {
                let gets: Vec<Get> =
                    unread.iter().map(|place| Get::Data(self.paths.waiter(name, *place))).collect();
                let got = self.requests.read(&gets, Fresh::Already).await?;
                rows.extend(unread.into_iter().zip(got).filter_map(there));
            }
            let row = |place: u64| rows.get(&place).map(|bytes| (place, bytes.clone()));
            let found: Option<Vec<_>> = places.iter().map(|place| row(*place)).collect();
            if let Some(found) = found {
                let own = own.and_then(row);
                let (number, now) = (record.version.written, Nodes::time_of(record.version));
                return Ok((Read { number, now, record, rows: found, own }, alive));
            }
            // One has gone between the two reads: again, as it is now.
            first = self.first_reads(reading);
            got = self.requests.read(&first.gets, Fresh::Already).await?;
        }
    }
}
