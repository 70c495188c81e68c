//! The rows that statements give.

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::packet::Answer;
use super::promises::ENGINE;
use crate::claim::Micros;
use crate::engine::sql::row::{NameRow, WaiterRow};
use crate::engine::sql::{Attempt, Failure, Found};
use crate::engine::table::cell::StoredCell;
use crate::error::Error;

/// A column of a row.
pub(super) fn column<T: FromValue>(row: &Row, number: usize) -> Attempt<T> {
    let value = row.get_opt::<T, usize>(number).and_then(Result::ok);
    value.ok_or_else(|| {
        Failure::Row(Error::Engine {
            engine: ENGINE,
            what: format!("a row has something strange in column {number}; were the tables changed by hand?"),
            source: None,
        })
    })
}

/// A column with a number that is never negative.
fn number(row: &Row, at: usize) -> Attempt<u64> {
    column::<i64>(row, at).map(|number| number.max(0).cast_unsigned())
}

/// The rows of the last statement of a packet that gave any.
pub(super) fn last(answers: Vec<Answer>) -> Vec<Row> {
    answers.into_iter().next_back().map(|answer| answer.rows).unwrap_or_default()
}

/// Reads the answer to `read_name.sql`.
pub(super) fn found(rows: &[Row]) -> Attempt<Found> {
    let mut found = Found { now: 0, row: None, first: Vec::new(), own: None };
    for row in rows {
        match column::<u8>(row, 0)? {
            0 => found.now = number(row, 1)?,
            1 => {
                found.row = Some(NameRow {
                    version: column(row, 1)?,
                    at: number(row, 2)?,
                    last: number(row, 3)?,
                    record: column(row, 4)?,
                });
            }
            kind => {
                let (place, alive_until) = (number(row, 1)?, number(row, 2)?);
                let waiter = WaiterRow { place, alive_until, waiter: column(row, 4)? };
                if kind == 2 { found.first.push(waiter) } else { found.own = Some(waiter) }
            }
        }
    }
    // The server promises no order for the parts of a union.
    found.first.sort_by_key(|waiter| waiter.place);
    Ok(found)
}

/// Names with their keys, and the time.
pub(super) type Names = (Micros, Vec<(Vec<u8>, NameRow)>);

/// Reads the answer to `read_names.sql` and `list_names.sql`.
pub(super) fn names(rows: &[Row]) -> Attempt<Names> {
    let (mut now, mut names) = (0, Vec::with_capacity(rows.len()));
    for row in rows {
        if column::<u8>(row, 0)? == 0 {
            now = number(row, 2)?;
            continue;
        }
        let name = NameRow {
            version: column(row, 2)?,
            at: number(row, 3)?,
            last: number(row, 4)?,
            record: column(row, 5)?,
        };
        names.push((column(row, 1)?, name));
    }
    names.sort_by(|(a, _): &(Vec<u8>, _), (b, _)| a.cmp(b));
    Ok((now, names))
}

/// Reads the answer to `read_cells.sql`.
pub(super) fn cells(rows: &[Row], keys: &[Vec<u8>]) -> Attempt<(Micros, Vec<Option<StoredCell>>)> {
    let (mut now, mut cells) = (0, vec![None; keys.len()]);
    for row in rows {
        if column::<u8>(row, 0)? == 0 {
            now = number(row, 2)?;
            continue;
        }
        let key: Vec<u8> = column(row, 1)?;
        let cell = StoredCell {
            version: number(row, 2)?,
            changed_at: number(row, 3)?,
            expires: number(row, 4)?,
            bytes: column(row, 5)?,
        };
        if let Some(place) = keys.iter().position(|wanted| *wanted == key) {
            cells[place] = Some(cell);
        }
    }
    Ok((now, cells))
}
