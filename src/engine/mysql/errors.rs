//! What goes wrong with a server, in the words of the crate: the one place where the driver's
//! errors are read.

use mysql_async::{DriverError, Error as Driver, IoError};

use super::promises::ENGINE;
use super::statement::Tables;
use crate::engine::sql::Failure;
use crate::error::Error;

/// A row with that key is there.
const DUPLICATE: u16 = 1062;
/// Waited too long for a row, was chosen to end a deadlock, found a row changed or locked.
const CONFLICTS: [u16; 4] = [1205, 1213, 1020, 3572];
/// The server has ended the connection, or is about to: it shuts down, somebody killed the session,
/// or it was idle for too long.
const ENDED: [u16; 8] = [1053, 1077, 1079, 1152, 1184, 1927, 3169, 4031];
/// The request is larger than the server allows. It ends the connection, too.
const TOO_LARGE: u16 = 1153;
/// Writes are not possible here: a replica.
const READ_ONLY: [u16; 4] = [1290, 1792, 1836, 3100];
/// There is no such table.
pub(super) const NO_TABLE: u16 = 1146;
/// There is no such session.
const NO_SESSION: u16 = 1094;
/// The user may not do this.
const DENIED: [u16; 5] = [1044, 1142, 1143, 1227, 1370];

/// The number of an error that the server gave.
pub(super) fn code(error: &Driver) -> Option<u16> {
    match error {
        Driver::Server(error) => Some(error.code),
        _ => None,
    }
}

/// True if a row with that key is there already.
pub(super) fn is_duplicate(error: &Driver) -> bool {
    code(error) == Some(DUPLICATE)
}

/// True if there is no such session any more.
pub(super) fn is_no_session(error: &Driver) -> bool {
    code(error) == Some(NO_SESSION)
}

/// True if the row, or one that it needs, is locked by somebody for longer than we wait.
pub(super) fn is_locked(error: &Driver) -> bool {
    matches!(code(error), Some(1205 | 3572))
}

/// True if the request was larger than a packet can be.
fn is_too_large(error: &Driver) -> bool {
    code(error) == Some(TOO_LARGE) || matches!(error, Driver::Driver(DriverError::PacketTooLarge))
}

/// True if the connection can not be used any more.
pub(super) fn is_fatal(error: &Driver) -> bool {
    match error {
        Driver::Server(error) => {
            ENDED.contains(&error.code) || READ_ONLY.contains(&error.code) || error.code == TOO_LARGE
        }
        // Nothing was sent.
        Driver::Driver(DriverError::PacketTooLarge) => false,
        _ => true,
    }
}

/// Where a statement failed.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    /// For errors and logs.
    pub(super) server: String,
    pub(super) database: String,
    pub(super) tables: Tables,
    /// The table of ShedLock that is used instead.
    pub(super) shedlock: Option<String>,
}

impl Blame {
    /// What came of a statement that failed.
    pub(super) fn failed(&self, error: Driver) -> Failure {
        if code(&error).is_some_and(|code| CONFLICTS.contains(&code)) {
            let what = format!("`{}` could not lock a row in time", self.server);
            return Failure::Conflict(unavailable(what, error));
        }
        match is_too_large(&error) {
            true => Failure::Row(self.error(error)),
            false => Failure::Failed(self.error(error)),
        }
    }

    /// What the server said to a statement.
    pub(super) fn error(&self, error: Driver) -> Error {
        let server = &self.server;
        let Some(code) = code(&error) else {
            if matches!(error, Driver::Driver(DriverError::PacketTooLarge)) {
                return broken("the request is larger than a packet can be".into(), error);
            }
            return unavailable(format!("lost the connection to `{server}`: {}", cause(&error)), error);
        };
        let said = said(&error);
        match code {
            NO_TABLE | 1051 if self.shedlock.is_some() => broken(
                format!(
                    "the table of ShedLock is missing in `{}` on `{server}` ({said}); make it as its \
                     documentation says",
                    self.database
                ),
                error,
            ),
            NO_TABLE | 1051 => broken(
                format!(
                    "a table of `{}` on `{server}` is missing ({said}); connect again to have it made, or \
                     run what `leasehold sql mysql` prints",
                    self.database
                ),
                error,
            ),
            1054 | 1136 => broken(
                format!(
                    "a table of `{}` on `{server}` is not as this version made it ({said}); use a prefix of \
                     its own with `?table=`, or the version of leasehold that made it",
                    self.database
                ),
                error,
            ),
            _ if DENIED.contains(&code) => broken(self.denied(&said), error),
            _ if READ_ONLY.contains(&code) => unavailable(read_only(server), error),
            _ if ENDED.contains(&code) => {
                unavailable(format!("`{server}` has ended the connection: {said}"), error)
            }
            TOO_LARGE => broken(
                format!("the request is larger than `{server}` allows; raise its `max_allowed_packet`"),
                error,
            ),
            1317 => unavailable(format!("`{server}` was told to end the statement: {said}"), error),
            1969 | 3024 => unavailable(
                format!("`{server}` ended a statement because it took too long ({said}); try again"),
                error,
            ),
            1021 | 1114 | 1030 => {
                unavailable(format!("`{server}` can not write ({said}); is its disk full?"), error)
            }
            1040 | 1203 | 1226 => unavailable(too_many(server, &said), error),
            1665 => broken(
                format!(
                    "`{server}` writes statements to its binary log, which does not go with this engine; set \
                     `binlog_format` to ROW or MIXED"
                ),
                error,
            ),
            _ => unavailable(format!("`{server}` answered: {said}"), error),
        }
    }

    /// Why a connection could not be made.
    pub(super) fn unreachable(&self, error: Driver) -> Error {
        let server = &self.server;
        let text = error.to_string();
        match code(&error) {
            Some(1045 | 1698) => broken(
                format!(
                    "`{server}` does not accept the user or the password; give them as \
                     `mysql://USER:PASSWORD@HOST/DATABASE`"
                ),
                error,
            ),
            Some(1049) => broken(
                format!(
                    "there is no database `{}` on `{server}`; create it, or name another one: \
                     `mysql://USER:PASSWORD@HOST/DATABASE`",
                    self.database
                ),
                error,
            ),
            // A user without rights on it is told this whether it is there or not.
            Some(1044) => broken(
                format!(
                    "there is no database `{}` on `{server}` that the user may use ({}); create it, grant \
                     rights on it, or name another one: `mysql://USER:PASSWORD@HOST/DATABASE`",
                    self.database,
                    said(&error)
                ),
                error,
            ),
            Some(1129 | 1130) => broken(format!("`{server}` refuses this host: {}", said(&error)), error),
            Some(_) => self.error(error),
            None if text.contains("invalid peer certificate") => broken(
                format!(
                    "the certificate of `{server}` can not be trusted ({text}); name the file of those who \
                     vouch for it with `?sslrootcert=FILE`, and the server as its certificate does"
                ),
                error,
            ),
            None if text.contains("CertificateRequired") => broken(
                format!("`{server}` asks for a certificate; give one with `?sslcert=FILE&sslkey=FILE`"),
                error,
            ),
            None => match &error {
                Driver::Driver(DriverError::NoClientSslFlagFromServer) => {
                    let what = format!(
                        "`{server}` does not speak TLS; configure it, or connect with `sslmode=disable`"
                    );
                    broken(what, error)
                }
                Driver::Driver(DriverError::UnknownAuthPlugin { name }) => {
                    let what = format!(
                        "`{server}` wants the user to log in with `{name}`, which is not supported; use \
                         `mysql_native_password` or `caching_sha2_password`"
                    );
                    broken(what, error)
                }
                Driver::Io(_) | Driver::Driver(DriverError::ConnectionClosed) => {
                    unavailable(format!("can not reach `{server}`: {}", cause(&error)), error)
                }
                _ => {
                    let what = format!(
                        "`{server}` does not answer like a MySQL server ({text}); is this the right port?"
                    );
                    unavailable(what, error)
                }
            },
        }
    }

    /// The error for a user that lacks rights.
    fn denied(&self, said: &str) -> String {
        if let Some(table) = &self.shedlock {
            return format!(
                "the user is not allowed to do this on `{}`: {said}; it needs SELECT, INSERT and UPDATE on \
                 `{table}`",
                self.server
            );
        }
        format!(
            "the user is not allowed to do this on `{}`: {said}; it needs SELECT, INSERT, UPDATE and DELETE on \
             {}, and CREATE where they do not exist yet (`leasehold sql mysql` prints how to make them)",
            self.server,
            self.tables.all().join(", ")
        )
    }
}

/// What a server says that has ended its connection, for the log.
pub(super) fn cause(error: &Driver) -> String {
    match error {
        Driver::Io(IoError::Io(error)) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        },
        Driver::Driver(DriverError::ConnectionClosed) => "it was closed".to_owned(),
        Driver::Server(error) => error.message.clone(),
        error => error.to_string(),
    }
}

pub(super) fn read_only(server: &str) -> String {
    format!(
        "`{server}` is a replica, or read-only for another reason, and can not be written; name the primary"
    )
}

fn too_many(server: &str, said: &str) -> String {
    format!(
        "`{server}` has no connection left ({said}); raise `max_connections`, or ask for fewer with `?connections=`"
    )
}

fn said(error: &Driver) -> String {
    match error {
        Driver::Server(error) => format!("error {}, {}", error.code, error.message),
        error => error.to_string(),
    }
}

pub(super) fn broken(what: String, error: Driver) -> Error {
    Error::Engine { engine: ENGINE, what, source: Some(Box::new(error)) }
}

fn unavailable(what: String, error: Driver) -> Error {
    Error::Unavailable { engine: ENGINE, what, source: Some(Box::new(error)) }
}
