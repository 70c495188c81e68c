//! `leasehold sql`: what makes the tables of a database.

use std::io::{self, Write as _};

use crate::args::{Database, Sql};
use crate::exit::Failure;

pub(crate) fn sql(args: &Sql) -> Result<u8, Failure> {
    let (schema, table) = (args.schema.as_deref(), args.table.as_deref());
    let statements = match args.database {
        Database::Postgres => leasehold::engine::postgres::migration(schema, table)?,
    };
    io::stdout().write_all(statements.as_bytes())?;
    Ok(0)
}
