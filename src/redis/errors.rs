//! Errors of servers, in the words of the crate: the one place where the driver's errors are read.
//!
//! Two engines use such servers. Each gives its [`Label`], and errors carry it from the start.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::error::{Error, Result};

/// The engine `redis`, to which Sentinel and Cluster belong.
pub(crate) const REDIS: Label = Label::new("redis");

/// An answer that a script of the engine `redis` does not give.
pub(crate) fn strange(what: &str) -> Error {
    REDIS.strange(what)
}

/// An answer, as what it should be.
pub(crate) fn read<T: redis::FromRedisValue>(answer: Value) -> Result<T> {
    redis::from_redis_value(answer).map_err(|error| strange(&error.to_string()))
}

/// The engine in whose name errors are given. They name its page and its URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(&'static str);

impl Label {
    pub(crate) const fn new(engine: &'static str) -> Label {
        Label(engine)
    }

    pub(crate) const fn engine(self) -> &'static str {
        self.0
    }

    /// The error for a server that can not do something now.
    pub(crate) fn unavailable(self, what: impl Into<String>) -> Error {
        Error::Unavailable { engine: self.0, what: what.into(), source: None }
    }

    /// The error for a server that somebody has to mend.
    pub(crate) fn unfit(self, what: impl Into<String>) -> Error {
        Error::Engine { engine: self.0, what: what.into(), source: None }
    }

    /// The error for an answer that no script of ours gives.
    pub(crate) fn strange(self, what: &str) -> Error {
        self.unfit(format!("a script answered strangely: {what}"))
    }

    pub(crate) fn too_old(self, server: &str, version: &str) -> Error {
        self.unfit(format!("`{server}` has version {version}; 6.2 or later is needed"))
    }

    /// The error for a command that a server has refused or not answered.
    pub(crate) fn failed(self, server: &str, error: RedisError) -> Error {
        let Label(engine) = self;
        let code = code(&error);
        // Where in a script it was said is of no use to anybody.
        let detail = error.detail().unwrap_or_default().split(" script:").next().unwrap_or_default();
        let (retry, what) = match code {
            "LEASEHOLD" => {
                let format = detail.rsplit("LEASEHOLD ").next().unwrap_or_default();
                let what = format!(
                    "`{server}` holds a name in a format that this version does not know ({format}); use the version \
                     of leasehold that wrote it"
                );
                (Retry::No, what)
            }
            "WRONGTYPE" => {
                let what = format!(
                    "a key of the name on `{server}` is in use for something else (it has another type); give the lock \
                     another name, or a prefix of its own with `?prefix=`"
                );
                (Retry::No, what)
            }
            "NOAUTH" | "WRONGPASS" => (Retry::No, self.wrong_password(server)),
            "NOPERM" => {
                let what = format!(
                    "the user is not allowed to do this on `{server}`: {detail}; docs/{engine}.md lists what it needs"
                );
                (Retry::No, what)
            }
            "READONLY" => {
                (Retry::Yes, format!("`{server}` is a replica now and can not be written; try again"))
            }
            "LOADING" => (Retry::Yes, format!("`{server}` is loading its data; try again")),
            "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => (Retry::Yes, format!("`{server}`: {code} {detail}")),
            "BUSY" => (Retry::Yes, format!("`{server}` is busy with somebody's slow script; try again")),
            "OOM" => {
                let what = format!("`{server}` has no memory left (maxmemory); make room, or give it more");
                (Retry::Yes, what)
            }
            "MISCONF" | "NOREPLICAS" => (Retry::Yes, format!("`{server}` refuses writes: {code} {detail}")),
            _ if error.is_io_error() || error.is_connection_dropped() => {
                (Retry::Yes, format!("lost the connection to `{server}`: {}", cause(&error)))
            }
            _ => (Retry::Yes, format!("`{server}` answered: {}", cause(&error))),
        };
        self.error(retry, what, error)
    }

    /// The error for a connection that could not be made.
    pub(crate) fn unreachable(self, server: &str, error: RedisError) -> Error {
        let Label(engine) = self;
        let said = error.to_string();
        let (retry, what) = match error.kind() {
            ErrorKind::AuthenticationFailed => (Retry::No, self.wrong_password(server)),
            ErrorKind::RESP3NotSupported => return self.too_old(server, "before 6.0"),
            ErrorKind::Server(ServerErrorKind::NoPerm) => return self.failed(server, error),
            ErrorKind::Parse => {
                let what = format!("`{server}` does not answer like a Redis server; is this the right port?");
                (Retry::Yes, what)
            }
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => return self.failed(server, error),
            _ if said.contains("invalid peer certificate") => {
                let what = format!(
                    "the certificate of `{server}` can not be trusted ({said}); give the file of the authority that \
                     signed it with `?ca=FILE`, and name the server as its certificate does"
                );
                (Retry::No, what)
            }
            _ if said.contains("CertificateRequired") => {
                let what = format!(
                    "`{server}` asks for a certificate; give one with `?cert=FILE&key=FILE` ({said})"
                );
                (Retry::No, what)
            }
            _ if said.contains("refused to switch database") => {
                let what = format!(
                    "`{server}` does not have the database of the URL ({}); give the number of one that it has, or \
                     none: `{engine}://HOST:PORT/0`",
                    error.detail().unwrap_or(&said)
                );
                (Retry::No, what)
            }
            _ if said.contains("unknown command") && said.contains("SENTINEL") => {
                let what = format!(
                    "`{server}` is not a sentinel; name the sentinels, or connect to it with `redis://`"
                );
                // Of several, the others may be.
                (Retry::Yes, what)
            }
            _ => {
                let mut what = format!("can not reach `{server}`: {}", cause(&error));
                if error.is_timeout() || (error.is_connection_dropped() && !error.is_connection_refusal()) {
                    what.push_str(&format!(
                        " (`{engine}s:` is for servers that speak TLS, `{engine}:` for those that do not)"
                    ));
                }
                (Retry::Yes, what)
            }
        };
        self.error(retry, what, error)
    }

    fn wrong_password(self, server: &str) -> String {
        let Label(engine) = self;
        format!(
            "`{server}` does not accept the user or the password; give them as `{engine}://USER:PASSWORD@HOST`"
        )
    }

    fn error(self, retry: Retry, what: String, source: RedisError) -> Error {
        let (engine, source) = (self.0, Some(source.into()));
        match retry {
            Retry::Yes => Error::Unavailable { engine, what, source },
            Retry::No => Error::Engine { engine, what, source },
        }
    }
}

/// Whether the same call may succeed later.
#[derive(Clone, Copy)]
enum Retry {
    Yes,
    No,
}

/// The word that says what is the matter. An error inside a script has it inside its text: before
/// 7.0 always, and later if the user may not run a command.
pub(crate) fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    if code != "ERR" {
        return code;
    }
    if detail.contains("The user executing the script can't") {
        return "NOPERM";
    }
    let inside = ["WRONGTYPE", "OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM", "LEASEHOLD"];
    inside.into_iter().find(|word| detail.contains(&format!(": {word} "))).unwrap_or(code)
}

/// What the system said, without the driver's decoration.
fn cause(error: &RedisError) -> String {
    if error.is_connection_refusal() {
        return "connection refused".into();
    }
    if error.is_timeout() {
        return "no answer in time".into();
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_inside_a_script_is_understood() {
        let said = |text: &str| {
            let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply");
            REDIS.failed("h", value.extract_error().expect_err("an error"))
        };
        let wrapped = |text: &str| format!("ERR Error running script (call to f_12): @user_script:7: {text}");
        for (text, retryable, words) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", false, "another type"),
            ("OOM command not allowed when used memory > 'maxmemory'.", true, "no memory left"),
            ("READONLY You can't write against a read only replica.", true, "replica"),
            ("LEASEHOLD format 2", false, "does not know (format 2);"),
            ("NOPERM User app has no permissions to run the 'get' command", false, "docs/redis.md"),
        ] {
            for error in [said(text), said(&wrapped(text))] {
                assert_eq!(error.is_retryable(), retryable, "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        let forbidden = |label: Label| {
            let value = redis::parse_redis_value(b"-NOPERM no permissions\r\n").expect("a reply");
            label.failed("h", value.extract_error().expect_err("an error")).to_string()
        };
        assert!(forbidden(Label::new("redlock")).starts_with("redlock: "));
        assert!(forbidden(Label::new("redlock")).contains("docs/redlock.md"));
        let error = said("ERR The user executing the script can't run this command or subcommand script: 12");
        assert!(!error.is_retryable() && error.to_string().contains("docs/redis.md"), "{error}");
    }
}
