//! `leasehold sql`: what makes the tables of a database.

use std::io::{self, Write as _};

use crate::args::{Database, Sql};
use crate::exit::Failure;

pub(crate) fn sql(args: &Sql) -> Result<u8, Failure> {
    let (schema, table) = (args.schema.as_deref(), args.table.as_deref());
    let statements = match args.database {
        #[cfg(feature = "mysql")]
        Database::Mysql if schema.is_some() => {
            return Err(Failure::usage("a schema is a database in MySQL: run the statements in it"));
        }
        #[cfg(feature = "mysql")]
        Database::Mysql => leasehold::engine::mysql::migration(table)?,
        #[cfg(feature = "postgres")]
        Database::Postgres => leasehold::engine::postgres::migration(schema, table)?,
    };
    io::stdout().write_all(statements.as_bytes())?;
    Ok(0)
}
