//! Cells, and rules over them.
//!
//! A cell is a small value that is read and replaced atomically and is kept for a limited time,
//! under the engine's clock. A [`Rule`] is a pure step over one cell or a few: from their values
//! and the time to what is written and an answer. A rate limiter, the record of a submission and
//! the count of a latch are rules.
//!
//! What an engine promises:
//!
//! * **Together.** The cells of one call are read at one moment and written all or none.
//! * **At most once.** A rule may be run several times, for instance because another client was
//!   faster, but one call of [`Engine::apply`] writes at most once. An engine does not repeat a
//!   request whose outcome is not known: the caller gets `Unavailable`, and the rule was applied or
//!   was not. A caller that asks again needs a rule that recognises what it has written before.
//! * **Time.** A rule is given a time in whole microseconds of the engine's clock that is never
//!   before the last change of any of its cells. See `decide`.
//! * **Expiry.** The engine's clock decides when a value is over, without that correction. A value
//!   that is over is not there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Micros;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::name::Name;

/// The most cells of one call.
pub const MOST_CELLS: usize = 16;

/// A small value that is read and replaced atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Another number after every change; 0 if there is no value.
    pub version: u64,
    /// The time of its last change, as the rule that made it saw it; 0 if there is no value.
    pub changed_at: Micros,
    /// The value, if there is one that has not expired.
    pub value: Option<Vec<u8>>,
}

/// Cells at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// The engine's clock, which may have been set back.
    pub now: Micros,
    /// The cells, in the order of their names.
    pub cells: Vec<Cell>,
}

/// A new value for a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellValue {
    /// The value.
    pub bytes: Vec<u8>,
    /// How long it is kept.
    pub lives: Duration,
}

/// What becomes of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// It stays as it is.
    Keep,
    /// It gets another value.
    Put(CellValue),
    /// It has no value any more.
    Delete,
}

/// What becomes of a cell if it is still at the version that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Which cell.
    pub name: Name,
    /// The version that was read.
    pub version: u64,
    /// What is written. A cell that is kept must be at its version too.
    pub write: Write,
}

/// What a swap came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// All is written.
    Yes,
    /// Nothing is written, for somebody else was faster; these are the cells now.
    No(Cells),
}

/// A pure step over one cell or a few.
///
/// It must depend on nothing but its own fields and what it is given, for an engine may run it
/// several times, on another thread, or run its [`Twin`] instead.
pub trait Rule: fmt::Debug + Send + Sync + 'static {
    /// From the values of the cells, in the order of their names, and the time to what is written
    /// and the answer.
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision;

    /// True if it usually writes nothing. An engine whose writers wait for each other then looks
    /// first, and goes in line only if there is something to write.
    fn mostly_looks(&self) -> bool {
        false
    }

    /// The same in Lua, for engines that can run it where the cells are.
    fn twin(&self) -> Option<Twin> {
        None
    }
}

/// What a rule came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of the cells, in the order of their names. Cells after the last write are kept;
    /// an empty list costs nothing.
    pub writes: Vec<Write>,
    /// What the caller is told, in the rule's own encoding.
    pub answer: Vec<u8>,
}

/// A rule in Lua: it must decide and answer as [`Rule::step`] does, byte for byte.
///
/// The script is the body of a function with these parameters:
///
/// * `values`: the values of the cells, `false` where there is none;
/// * `now`: the time in microseconds, a whole number;
/// * `arguments`: the arguments as strings;
/// * `put(cell, bytes, lives)` and `delete(cell)`: what is written, where `cell` counts from 1 and
///   `lives` is in microseconds. Nothing is written before the function returns.
///
/// It returns the answer, a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The body of the function. A constant: engines remember each script that they have seen.
    pub script: &'static str,
    /// The usual case of a rule over one cell, for rules that are asked very often. Statements that
    /// see `value` (the cell's, or `false`), `now` and `arguments`, and may set `answer`, as the
    /// script would, and `bytes` and `lives` if they are to be written. Without an `answer` the
    /// script decides. Whoever waits for the cell to change is not told of what is written here.
    pub shortcut: Option<&'static str>,
    /// What the script is given.
    pub arguments: Vec<Vec<u8>>,
}

/// Refuses a call on too many cells, or on one cell twice.
pub(crate) fn check_cells<'a>(names: impl ExactSizeIterator<Item = &'a Name> + Clone) -> Result<()> {
    let count = names.len();
    if count == 0 || count > MOST_CELLS {
        return Err(Error::invalid(format!(
            "{count} cells can not be decided together; one to {MOST_CELLS} can"
        )));
    }
    let mut rest = names;
    while let Some(name) = rest.next() {
        if rest.clone().any(|other| other == name) {
            return Err(Error::invalid(format!("the cell `{name}` is named twice in one call")));
        }
    }
    Ok(())
}

/// The time for those who see these cells: the engine's clock, or the last change if that is later.
///
/// An engine's clock may be set back (a server's wall clock steps, another server takes over). A
/// rule that has written "the bucket was full at 10:00" must not be asked at 9:59: it would have to
/// guess. So time stands still for a cell until the clock has caught up. Every engine in Rust comes
/// through here, for a rule and for a swap, and whatever is written is written at this time; so it
/// never goes back for a cell, and engines and rules need not think of it. Lua twins are given the
/// same number by the script around them.
pub(crate) fn time_of(now: Micros, changes: impl IntoIterator<Item = Micros>) -> Micros {
    changes.into_iter().fold(now, Micros::max)
}

/// A cell as a rule sees it, wherever it is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CellView<'a> {
    pub(crate) changed_at: Micros,
    pub(crate) value: Option<&'a [u8]>,
}

impl Cell {
    fn view(&self) -> CellView<'_> {
        CellView { changed_at: self.changed_at, value: self.value.as_deref() }
    }
}

/// Runs a rule on cells at one moment, at the right time.
pub(crate) fn decide<'a>(
    rule: &dyn Rule,
    now: Micros,
    cells: impl ExactSizeIterator<Item = CellView<'a>>,
) -> Result<Decision> {
    let count = cells.len();
    let mut values = [None; MOST_CELLS];
    let mut time = now;
    for (value, cell) in values.iter_mut().zip(cells) {
        *value = cell.value;
        time = time_of(time, [cell.changed_at]);
    }
    let decision = rule.step(&values[..count.min(MOST_CELLS)], time);
    if decision.writes.len() > count {
        return Err(Error::invalid(format!("{rule:?} writes more cells than the {count} it was given")));
    }
    Ok(decision)
}

/// Applies a rule by reading and swapping until it wins: what [`Engine::apply`] does where an
/// engine has nothing better.
///
/// # Errors
///
/// As [`Engine::apply`].
///
/// # Cancel safety
///
/// The rule was applied whole or not at all; which of the two is not known.
pub async fn apply_by_swap<E: Engine + ?Sized>(
    engine: &E,
    names: &[Name],
    rule: &Arc<dyn Rule>,
) -> Result<Vec<u8>> {
    let mut found = engine.read(names).await?;
    loop {
        let Decision { writes, answer } = decide(&**rule, found.now, found.cells.iter().map(Cell::view))?;
        // What was read at one moment is a decision in itself if nothing follows from it.
        if writes.iter().all(|write| *write == Write::Keep) {
            return Ok(answer);
        }
        let writes = writes.into_iter().chain(std::iter::repeat(Write::Keep));
        let cells = names.iter().zip(&found.cells).zip(writes);
        let swap = |((name, cell), write): ((&Name, &Cell), Write)| Swap {
            name: name.clone(),
            version: cell.version,
            write,
        };
        match engine.swap(cells.map(swap).collect()).await? {
            Swapped::Yes => return Ok(answer),
            Swapped::No(newer) => found = newer,
        }
    }
}
