//! The tables: made on first use, or by a migration.

use super::connection::{Connector, send};
use super::errors::{Blame, NO_TABLE, code};
use super::packet::Packet;
use super::promises::ENGINE;
use super::rows::last;
use super::statement::{PREFIX, Tables, is_prefix};
use crate::claim::Micros;
use crate::engine::sql::Failure;
use crate::engine::supervise::Supervisor;
use crate::error::{Error, Result};

/// The format of the tables that this version reads and writes.
const FORMAT: i64 = 1;

const CREATE: &str = include_str!("create.sql");

/// The statements that create the tables, for users who create them by hand.
///
/// `prefix` is what the names of the tables start with, as `table=` in the URL.
///
/// # Errors
///
/// If no table can have such a name.
pub fn migration(prefix: Option<&str>) -> Result<String> {
    let prefix = prefix.unwrap_or(PREFIX);
    if !is_prefix(prefix) {
        return Err(Error::invalid(format!(
            "`{prefix}` can not start the name of a table; letters, digits and `_` can, up to 40 of them"
        )));
    }
    let tables = Tables::new(prefix);
    let comments = |text: &str| text.starts_with("--");
    let lines = CREATE.split_inclusive('\n').map(|line| match comments(line) {
        true => line.to_owned(),
        false => tables.fill(line),
    });
    Ok(lines.collect())
}

/// Checks the format of the tables, makes them where there are none, and asks for the time.
pub(super) async fn tables(first: &Supervisor<Connector>, blame: &Blame) -> Result<Micros> {
    let ask = async |text: &str| {
        let packet = Packet::plain(blame.tables.fill(text));
        send(first, packet).await.map_err(Failure::into_error)
    };
    if blame.shedlock.is_some() {
        // Made by its users, and looked at by the engine that uses it.
        let answers = ask("select :now").await?.map_err(|error| blame.error(error))?;
        let row = last(answers).into_iter().next().and_then(|row| mysql_async::from_row_opt(row).ok());
        return Ok(row.map_or(0, |(now,): (u64,)| now));
    }
    let mut created = false;
    let rows = loop {
        match ask("select :now, max(format) from :format").await? {
            Ok(mut answers) => break answers.pop().map(|answer| answer.rows).unwrap_or_default(),
            Err(error) if code(&error) == Some(NO_TABLE) && !created => {
                created = true;
                ask(CREATE).await?.map_err(|error| blame.error(error))?;
            }
            Err(error) => return Err(blame.error(error)),
        }
    };
    let row = rows.into_iter().next().and_then(|row| mysql_async::from_row_opt(row).ok());
    let (now, format): (u64, Option<i64>) = row.unwrap_or((0, None));
    match format {
        Some(FORMAT) => Ok(now),
        // A table that was made and not filled yet.
        None if created => Ok(now),
        found => {
            let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
            Err(Error::Engine {
                engine: ENGINE,
                what: format!(
                    "the tables `{}_*` of `{}` on `{}` have format {found}, and this version knows format \
                     {FORMAT}; use the version of leasehold that made them, or other tables with `?table=`",
                    blame.tables.prefix, blame.database, blame.server
                ),
                source: None,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migration_has_the_tables_of_a_prefix() {
        let text = migration(Some("app")).expect("a prefix");
        assert!(text.contains("create table if not exists `app_names` ("), "{text}");
        assert!(text.contains("-- One row for each waiter."), "{text}");
        assert!(!text.contains(" :"), "{text}");
        migration(Some("a`b")).expect_err("not a table");
    }
}
