//! The tables: made on first use, or by a migration.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::errors::Names;
use super::promises::ENGINE;
use super::statements::{MARK, NOW, Statements, Tables, quoted};
use super::url::is_prefix;
use crate::claim::Micros;
use crate::error::{Error, Result};

/// The format of the tables.
const FORMAT: i32 = 1;

/// The oldest server that has all that is needed.
const OLDEST_SERVER: i32 = 120_000;

const CREATE: &str = include_str!("create.sql");

/// The statements that make the tables, for those who do not let programs do it.
///
/// `schema` and `prefix` are what the URL says as `schema=` and `table=`.
///
/// # Errors
///
/// [`Error::Invalid`] for a prefix that is too long.
pub fn migration(schema: Option<&str>, prefix: Option<&str>) -> Result<String> {
    let prefix = prefix.unwrap_or("leasehold");
    if !is_prefix(prefix) {
        return Err(Error::invalid("the prefix of the tables has one to 50 characters"));
    }
    let tables = Tables::new(schema, prefix);
    Ok(format!("begin;\n\n{}\ncommit;\n", create(schema, &tables)))
}

fn create(schema: Option<&str>, tables: &Tables) -> String {
    let schema = schema.map(|schema| format!("create schema if not exists {};\n\n", quoted(schema)));
    schema.unwrap_or_default() + &tables.fill(CREATE)
}

/// What a server says of itself.
pub(super) struct Checked {
    /// What time it is there.
    pub(super) now: Micros,
    /// The [`MARK`] of the session.
    pub(super) mark: Option<String>,
}

/// Checks that a server is fit, and makes the tables if they are missing.
pub(super) async fn check(
    client: &Client,
    names: &Names,
    schema: Option<&str>,
    statements: &Statements,
) -> Result<Checked> {
    let query = format!(
        "select current_setting('server_version_num')::integer, pg_is_in_recovery(), {NOW}, \
         current_setting('{MARK}', true), coalesce(bool_and(to_regclass(t.name) is not null), false) from unnest($1) as t (name)"
    );
    let tables: Vec<&str> = match &names.shedlock {
        Some(table) => vec![table],
        None => names.tables.all().to_vec(),
    };
    let rows = client.query_typed(&query, &[(&tables, Type::TEXT_ARRAY)]).await;
    let row = match rows {
        Ok(rows) => rows.into_iter().next(),
        // Of schemas that may not be looked into, the server says so.
        Err(error) => return Err(names.statement(error).into_error()),
    };
    let Some(row) = row else { return Err(odd(names, "it does not answer a question with one row")) };
    let server = &names.server;
    let (version, standby, now, there): (i32, bool, i64, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(4));
    let checked = Checked { now: now.max(0).cast_unsigned(), mark: row.get(3) };
    if version < OLDEST_SERVER {
        return Err(Error::Unsupported {
            engine: ENGINE,
            what: format!("`{server}` is PostgreSQL {}, and 12 or later is needed", version / 10_000),
        });
    }
    if standby {
        return Err(Error::Unavailable {
            engine: ENGINE,
            what: format!("`{server}` is a standby; connect to the primary"),
            source: None,
        });
    }
    if names.shedlock.is_some() {
        return if there { Ok(checked) } else { Err(no_shedlock(names)) };
    }
    if !there {
        make(client, names, schema).await?;
    }
    let rows = client.query_typed(&statements.read_format, &[]).await;
    let rows = rows.map_err(|error| names.statement(error).into_error())?;
    let found = rows.first().map(|row| row.try_get(0)).transpose();
    match found.map_err(|error| names.strange_row(error).into_error())? {
        Some(FORMAT) => Ok(checked),
        Some(found) => Err(unknown_format(names, found)),
        None => Err(odd(names, "its table of formats is empty; run what `leasehold sql postgres` prints")),
    }
}

/// Makes the tables. Several clients may do that at once.
async fn make(client: &Client, names: &Names, schema: Option<&str>) -> Result<()> {
    const TRIES: u32 = 5;
    let mut tried = 0;
    loop {
        tried += 1;
        let Err(error) = client.batch_execute(&create(schema, &names.tables)).await else { return Ok(()) };
        // `if not exists` looks before it makes: the one who was slower finds the name taken.
        let raced = error.code().is_some_and(|code| {
            [
                SqlState::UNIQUE_VIOLATION,
                SqlState::DUPLICATE_TABLE,
                SqlState::DUPLICATE_OBJECT,
                SqlState::DUPLICATE_SCHEMA,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code)
        });
        if !raced || tried == TRIES {
            return Err(names.no_tables(error));
        }
    }
}

/// The table of ShedLock is missing. It is its users' to make.
fn no_shedlock(names: &Names) -> Error {
    let table = names.shedlock.as_deref().unwrap_or_default();
    Error::Engine {
        engine: ENGINE,
        what: format!(
            "there is no table {table} in `{}` at `{}`; `create table {table} (name varchar(64) primary key, \
             lock_until timestamp not null, locked_at timestamp not null, locked_by varchar(255) not null)`",
            names.database, names.server
        ),
        source: None,
    }
}

fn odd(names: &Names, what: &str) -> Error {
    Error::Engine { engine: ENGINE, what: format!("`{}` is not fit: {what}", names.server), source: None }
}

/// The tables have a format that this version does not know.
fn unknown_format(names: &Names, found: i32) -> Error {
    Error::Engine {
        engine: ENGINE,
        what: format!(
            "the tables at `{}` have format {found}, and this version of leasehold knows format {FORMAT}; \
             upgrade leasehold, or choose other tables with `table=PREFIX`",
            names.server
        ),
        source: None,
    }
}
