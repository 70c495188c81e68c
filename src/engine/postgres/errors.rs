//! What the driver and the server say, in our words.

use tokio_postgres::error::{DbError, SqlState};

use super::promises::ENGINE;
use super::statements::Tables;
use super::url::Place;
use crate::engine::sql::Failure;
use crate::error::Error;

/// Who is connected to what: for errors. Never with a secret.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) server: String,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) tables: Tables,
    /// The table of ShedLock that is used instead.
    pub(super) shedlock: Option<String>,
}

impl Names {
    pub(super) fn of(place: &Place) -> Names {
        Names {
            server: place.server.clone(),
            database: place.database.clone(),
            user: place.user.clone(),
            tables: place.tables.clone(),
            shedlock: place.shedlock.as_ref().map(|shedlock| shedlock.table.clone()),
        }
    }

    /// A connection could not be made.
    pub(super) fn not_connected(&self, error: tokio_postgres::Error) -> Error {
        let Names { server, database, user, .. } = self;
        let Some(said) = error.as_db_error() else {
            let why = causes(&error);
            return match why.contains("invalid peer certificate") || why.contains("certificate") {
                true => refused(format!("`{server}` can not be trusted: {why}"), error),
                false => unavailable(format!("can not reach `{server}`: {why}"), error),
            };
        };
        let what = match *said.code() {
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                let why = said.message();
                let advice = if why.contains("client certificate") {
                    "give one with `?sslcert=FILE&sslkey=FILE`"
                } else if why.contains("no encryption") {
                    "check the user and the password in the URL, and add `sslmode=require`"
                } else {
                    "check the user and the password in the URL"
                };
                format!("`{server}` does not let `{user}` in: {why}; {advice}")
            }
            SqlState::INVALID_CATALOG_NAME => format!(
                "there is no database `{database}` at `{server}`; create it, or name another one in the URL"
            ),
            SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "`{user}` may not connect to the database `{database}` at `{server}`: {}; \
                 `grant connect on database {database} to {user}`",
                said.message()
            ),
            SqlState::TOO_MANY_CONNECTIONS => {
                let what = format!(
                    "`{server}` has no connection left: {}; raise `max_connections`, put PgBouncer before \
                     it, or use fewer with `connections=1`",
                    said.message()
                );
                return unavailable(what, error);
            }
            _ => return self.statement(error).into_error(),
        };
        refused(what, error)
    }

    /// A row is not as leasehold, or ShedLock, would have written it.
    pub(super) fn strange_row(&self, error: tokio_postgres::Error) -> Failure {
        let table = self.shedlock.as_ref().unwrap_or(&self.tables.names);
        let what = format!(
            "`{table}` at `{}`, or a table beside it, was changed by hand: {}; put the row right, or stop all \
             who use it, wait until its lease is over, and delete it",
            self.server,
            causes(&error)
        );
        Failure::Row(refused(what, error))
    }

    /// A statement failed.
    pub(super) fn statement(&self, error: tokio_postgres::Error) -> Failure {
        let server = &self.server;
        let Some(said) = error.as_db_error() else {
            let what = format!("lost the connection to `{server}`: {}", causes(&error));
            return Failure::Failed(unavailable(what, error));
        };
        let message = said.message();
        let code = said.code();
        match *code {
            SqlState::LOCK_NOT_AVAILABLE
            | SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED => {
                let what = format!("a row stayed locked at `{server}`: {message}");
                Failure::Conflict(unavailable(what, error))
            }
            SqlState::INSUFFICIENT_PRIVILEGE => {
                let what = self.grants_needed(message);
                Failure::Failed(refused(what, error))
            }
            SqlState::UNDEFINED_TABLE => {
                let how = match &self.shedlock {
                    Some(_) => "make it as ShedLock's documentation says".to_owned(),
                    None => format!("it is made anew if `{}` may do that", self.user),
                };
                let what = format!("a table is not there any more at `{server}`: {message}; {how}");
                Failure::Failed(unavailable(what, error))
            }
            SqlState::UNDEFINED_COLUMN | SqlState::DATATYPE_MISMATCH | SqlState::UNDEFINED_FUNCTION => {
                let what = match &self.shedlock {
                    Some(table) => format!("`{table}` at `{server}` is not a table of ShedLock: {message}"),
                    None => format!(
                        "`{}` at `{server}` is not a table of leasehold: {message}; choose other tables with \
                         `table=PREFIX`",
                        self.tables.names
                    ),
                };
                Failure::Failed(refused(what, error))
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => {
                let what = format!(
                    "`{server}` is read-only (a standby, or set so): {message}; connect to the primary"
                );
                Failure::Failed(unavailable(what, error))
            }
            SqlState::QUERY_CANCELED => {
                let what = format!(
                    "`{server}` cancelled a statement: {message}; `statement_timeout` of the role `{}` may \
                     be too short",
                    self.user
                );
                Failure::Failed(unavailable(what, error))
            }
            SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => {
                Failure::Failed(unavailable(format!("`{server}` has no room left: {message}"), error))
            }
            SqlState::PROGRAM_LIMIT_EXCEEDED => {
                Failure::Row(refused(format!("too much for `{server}`: {message}"), error))
            }
            _ if is_temporary(said) => {
                Failure::Failed(unavailable(format!("`{server}` gives up: {message}"), error))
            }
            _ => {
                let what = format!("`{server}` refuses a statement: {message} ({})", code.code());
                Failure::Failed(refused(what, error))
            }
        }
    }

    /// What a role needs that lacks a right.
    pub(super) fn grants_needed(&self, message: &str) -> String {
        let Names { server, user, tables, .. } = self;
        if let Some(table) = &self.shedlock {
            return format!(
                "`{user}` lacks a right at `{server}`: {message}; it needs `grant select, insert, update on \
                 {table} to \"{user}\"`"
            );
        }
        let Tables { names, queue, cells, format } = tables;
        format!(
            "`{user}` lacks a right at `{server}`: {message}; it needs `grant select, insert, update, delete \
             on {names}, {queue}, {cells} to \"{user}\"; grant select on {format} to \"{user}\"`"
        )
    }

    /// The tables are missing and can not be made.
    pub(super) fn no_tables(&self, error: tokio_postgres::Error) -> Error {
        let Names { server, database, user, .. } = self;
        let message = error.as_db_error().map_or_else(|| causes(&error), |said| said.message().to_owned());
        refused(
            format!(
                "the tables of leasehold are missing in `{database}` at `{server}`, and `{user}` can not make \
                 them: {message}; run what `leasehold sql postgres` prints, as their owner"
            ),
            error,
        )
    }
}

/// True if the server says that it can not do it now: it shuts down, starts up, lacks something.
fn is_temporary(said: &DbError) -> bool {
    // Operator intervention, lack of resources, trouble with the connection or the system.
    ["57", "53", "08", "58", "40", "55", "25"].iter().any(|class| said.code().code().starts_with(class))
}

/// True if a connection on which this was said is of no use any more.
pub(super) fn is_broken(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        None => true,
        Some(said) => matches!(
            *said.code(),
            SqlState::ADMIN_SHUTDOWN
                | SqlState::CRASH_SHUTDOWN
                | SqlState::CANNOT_CONNECT_NOW
                | SqlState::UNDEFINED_TABLE
                | SqlState::READ_ONLY_SQL_TRANSACTION
        ),
    }
}

/// What the driver says, with its causes.
fn causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

pub(super) fn unavailable(what: String, error: tokio_postgres::Error) -> Error {
    Error::Unavailable { engine: ENGINE, what, source: Some(Box::new(error)) }
}

pub(super) fn refused(what: String, error: tokio_postgres::Error) -> Error {
    Error::Engine { engine: ENGINE, what, source: Some(Box::new(error)) }
}
