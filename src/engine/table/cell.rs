//! Cells in a table.
//!
//! An engine loads the rows of the cells of one call, asks [`Loaded`] what follows, and writes what
//! [`Stamps`] makes of it, all in one transaction.

#[cfg(feature = "_table")]
use serde::{Deserialize, Serialize};

use crate::claim::Micros;
use crate::engine::cell::{CellView, decide, time_of};
use crate::engine::{Cell, CellValue, Cells, Decision, MOST_CELLS, Rule, Swap, Write};
use crate::error::Result;

/// A cell as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub(crate) struct StoredCell {
    pub(crate) version: u64,
    /// Not the version: more changes than one in a microsecond must not make time pass faster.
    pub(crate) changed_at: Micros,
    pub(crate) expires: Micros,
    pub(crate) bytes: Vec<u8>,
}

/// What becomes of the row of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CellChange {
    /// It is written.
    Put(StoredCell),
    /// It is deleted, after the engine's floor was raised to this: no version is given twice.
    Delete { floor: u64 },
}

/// The cells of one call, as their rows were loaded.
pub(crate) struct Loaded<'a> {
    rows: [Option<&'a StoredCell>; MOST_CELLS],
    count: usize,
    now: Micros,
}

impl<'a> Loaded<'a> {
    /// At most [`MOST_CELLS`] cells, loaded at `now`.
    pub(crate) fn new(
        rows: impl ExactSizeIterator<Item = Option<&'a StoredCell>>,
        now: Micros,
    ) -> Loaded<'a> {
        let mut loaded = Loaded { rows: [None; MOST_CELLS], count: rows.len().min(MOST_CELLS), now };
        loaded.rows.iter_mut().zip(rows).for_each(|(place, row)| *place = row);
        loaded
    }

    fn rows(&self) -> &[Option<&'a StoredCell>] {
        &self.rows[..self.count]
    }

    /// The rows that have not expired.
    fn live(&self) -> impl ExactSizeIterator<Item = Option<&'a StoredCell>> {
        self.rows().iter().map(|row| row.filter(|row| row.expires > self.now))
    }

    /// The cells as a reader gets them.
    pub(crate) fn cells(&self) -> Cells {
        let cell = |row: Option<&StoredCell>| match row {
            Some(StoredCell { version, changed_at, bytes, .. }) => {
                Cell { version: *version, changed_at: *changed_at, value: Some(bytes.clone()) }
            }
            None => Cell::default(),
        };
        Cells { now: self.now, cells: self.live().map(cell).collect() }
    }

    /// What a rule makes of them.
    pub(crate) fn decide(&self, rule: &dyn Rule) -> Result<Decision> {
        let view = |row: Option<&'a StoredCell>| match row {
            Some(row) => CellView { changed_at: row.changed_at, value: Some(&row.bytes) },
            None => CellView::default(),
        };
        decide(rule, self.now, self.live().map(view))
    }

    /// True if they are still what the swaps expect.
    pub(crate) fn are_at(&self, swaps: &[Swap]) -> bool {
        let versions = self.live().map(|row| row.map_or(0, |row| row.version));
        versions.eq(swaps.iter().map(|swap| swap.version))
    }

    /// How they can be written. No version of a deleted cell was above `floor`.
    pub(crate) fn stamps(&self, floor: u64) -> Stamps {
        let mut before = [0; MOST_CELLS];
        for (before, row) in before.iter_mut().zip(self.rows()) {
            // Also that of a row that has expired: somebody may still remember it.
            *before = row.map_or(0, |row| row.version);
        }
        let time = time_of(self.now, self.live().flatten().map(|row| row.changed_at));
        Stamps { now: self.now, time, floor, before }
    }
}

/// The versions and the time that the cells of one call are written with.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    now: Micros,
    time: Micros,
    floor: u64,
    /// The versions before.
    before: [u64; MOST_CELLS],
}

impl Stamps {
    /// What becomes of the row of the cell with that number; `None` if it is kept.
    pub(crate) fn change(&self, cell: usize, write: Write) -> Option<CellChange> {
        let before = self.before.get(cell).copied().unwrap_or(0);
        match write {
            Write::Keep => None,
            Write::Put(CellValue { bytes, lives }) => {
                let lives = Micros::try_from(lives.as_micros()).unwrap_or(Micros::MAX);
                let expires = self.now.saturating_add(lives);
                let version = (self.floor.max(before) + 1).max(self.now);
                Some(CellChange::Put(StoredCell { version, changed_at: self.time, expires, bytes }))
            }
            Write::Delete => Some(CellChange::Delete { floor: before }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug)]
    struct Clock;

    impl Rule for Clock {
        fn step(&self, _: &[Option<&[u8]>], now: Micros) -> Decision {
            Decision { writes: Vec::new(), answer: now.to_be_bytes().to_vec() }
        }
    }

    fn put(lives: u64) -> Write {
        Write::Put(CellValue { bytes: vec![1], lives: Duration::from_micros(lives) })
    }

    fn stored(change: Option<CellChange>) -> StoredCell {
        match change {
            Some(CellChange::Put(cell)) => cell,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn time_stands_still_until_the_clock_has_caught_up() {
        let first = stored(Loaded::new([None].into_iter(), 1000).stamps(0).change(0, put(500)));
        assert_eq!((first.version, first.changed_at, first.expires), (1000, 1000, 1500));
        let time = |loaded: &Loaded<'_>| loaded.decide(&Clock).expect("a decision").answer;
        let later = Loaded::new([None, Some(&first)].into_iter(), 900);
        assert_eq!(time(&later), 1000u64.to_be_bytes());
        // What is written beside it is written at that time too, and expires by the clock.
        let beside = stored(later.stamps(0).change(0, put(500)));
        assert_eq!((beside.changed_at, beside.expires), (1000, 1400));
        assert_eq!(time(&Loaded::new([Some(&first)].into_iter(), 1100)), 1100u64.to_be_bytes());
    }

    #[test]
    fn many_changes_in_a_microsecond_do_not_make_time_pass() {
        let mut cell = stored(Loaded::new([None].into_iter(), 1000).stamps(0).change(0, put(500)));
        for _ in 0..10 {
            cell = stored(Loaded::new([Some(&cell)].into_iter(), 1000).stamps(0).change(0, put(500)));
        }
        assert_eq!((cell.version, cell.changed_at), (1010, 1000));
    }

    #[test]
    fn no_version_is_given_twice() {
        let cell = StoredCell { version: 2000, changed_at: 1000, expires: 1100, bytes: vec![1] };
        // It has expired, or was deleted.
        let loaded = Loaded::new([Some(&cell)].into_iter(), 1200);
        assert_eq!(loaded.cells().cells, [Cell::default()]);
        assert_eq!(stored(loaded.stamps(0).change(0, put(1))).version, 2001);
        assert_eq!(loaded.stamps(0).change(0, Write::Delete), Some(CellChange::Delete { floor: 2000 }));
        let deleted = Loaded::new([None].into_iter(), 1200);
        assert_eq!(stored(deleted.stamps(2000).change(0, put(1))).version, 2001);
    }

    #[test]
    fn cells_that_have_expired_are_at_version_0() {
        let cell = StoredCell { version: 7, changed_at: 7, expires: 100, bytes: vec![1] };
        let name = crate::Name::new(crate::Family::Cell, "x").expect("a name");
        let swap = |version| [Swap { name: name.clone(), version, write: Write::Keep }];
        let (live, over) =
            (Loaded::new([Some(&cell)].into_iter(), 99), Loaded::new([Some(&cell)].into_iter(), 100));
        assert!(live.are_at(&swap(7)) && !live.are_at(&swap(0)));
        assert!(over.are_at(&swap(0)) && !over.are_at(&swap(7)));
    }
}
