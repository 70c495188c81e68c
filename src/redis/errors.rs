//! What goes wrong with a server, in the words of the crate: the one place where the driver's errors are read.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::error::{Error, Result};

pub(crate) const ENGINE: &str = "redis";

/// Something that a script of ours does not say.
pub(crate) fn strange(what: &str) -> Error {
    Error::Engine { engine: ENGINE, what: format!("a script answered strangely: {what}"), source: None }
}

/// An answer, as what it should be.
pub(crate) fn read<T: redis::FromRedisValue>(answer: Value) -> Result<T> {
    redis::from_redis_value(answer).map_err(|error| strange(&error.to_string()))
}

/// What a server said to a command.
pub(crate) fn failed(server: &str, error: RedisError) -> Error {
    let code = code(&error).to_owned();
    let detail = error.detail().unwrap_or_default().to_owned();
    let broken =
        |what: String, error: RedisError| Error::Engine { engine: ENGINE, what, source: Some(error.into()) };
    let unavailable = |what: String, error: RedisError| Error::Unavailable {
        engine: ENGINE,
        what,
        source: Some(error.into()),
    };
    match code.as_str() {
        "LEASEHOLD" => broken(
            format!(
                "`{server}` holds a name in a format that this version does not know ({}); use the version of leasehold \
                 that wrote it",
                detail
                    .trim_end_matches(|c| c != ')')
                    .trim_end_matches(')')
                    .split(" script:")
                    .next()
                    .unwrap_or_default()
            ),
            error,
        ),
        "WRONGTYPE" => broken(
            format!(
                "a key of the name on `{server}` is in use for something else (it has another type); give the lock another \
                 name, or a prefix of its own with `?prefix=`"
            ),
            error,
        ),
        "NOAUTH" | "WRONGPASS" => broken(password(server), error),
        "NOPERM" => broken(
            format!(
                "the user is not allowed to do this on `{server}`: {detail}; docs/redis.md lists what it needs"
            ),
            error,
        ),
        "READONLY" => {
            unavailable(format!("`{server}` is a replica now and can not be written; try again"), error)
        }
        "LOADING" => unavailable(format!("`{server}` is loading its data; try again"), error),
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            unavailable(format!("`{server}`: {code} {detail}"), error)
        }
        "BUSY" => unavailable(format!("`{server}` is busy with somebody's slow script; try again"), error),
        "OOM" => unavailable(
            format!("`{server}` has no memory left (maxmemory); make room, or give it more"),
            error,
        ),
        "MISCONF" | "NOREPLICAS" => {
            // Where in a script it was said is of no use to anybody.
            let detail = detail.split(" script:").next().unwrap_or_default();
            unavailable(format!("`{server}` refuses writes: {code} {detail}"), error)
        }
        _ => unavailable(plain(server, &error), error),
    }
}

/// The word that says what is the matter. What goes wrong inside a script has it inside the text, before 7.0 always and
/// later if the user may not run a command.
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

/// Why a connection could not be made.
pub(crate) fn unreachable(server: &str, error: RedisError) -> Error {
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            Error::Engine { engine: ENGINE, what: password(server), source: Some(error.into()) }
        }
        ErrorKind::RESP3NotSupported => {
            Error::Engine { engine: ENGINE, what: too_old(server, "before 6.0"), source: None }
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => failed(server, error),
        ErrorKind::Parse => {
            let what = format!("`{server}` does not answer like a Redis server; is this the right port?");
            Error::Unavailable { engine: ENGINE, what, source: Some(error.into()) }
        }
        _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => failed(server, error),
        _ => {
            let said = error.to_string();
            if said.contains("invalid peer certificate") {
                let what = format!(
                    "the certificate of `{server}` can not be trusted ({said}); name the file of those who vouch for it \
                     with `?ca=FILE`, and the server as its certificate does"
                );
                return Error::Engine { engine: ENGINE, what, source: Some(error.into()) };
            }
            if said.contains("CertificateRequired") {
                let what = format!(
                    "`{server}` asks for a certificate; give one with `?cert=FILE&key=FILE` ({said})"
                );
                return Error::Engine { engine: ENGINE, what, source: Some(error.into()) };
            }
            if said.contains("refused to switch database") {
                let what = format!(
                    "`{server}` does not have the database of the URL ({}); give the number of one that it has, or none: \
                     `redis://HOST:PORT/0`",
                    error.detail().unwrap_or(&said)
                );
                return Error::Engine { engine: ENGINE, what, source: Some(error.into()) };
            }
            if said.contains("unknown command") && said.contains("SENTINEL") {
                let what = format!(
                    "`{server}` is not a sentinel; name the sentinels, or connect to it with `redis://`"
                );
                // Of several, the others may be.
                return Error::Unavailable { engine: ENGINE, what, source: Some(error.into()) };
            }
            let mut what = format!("can not reach `{server}`: {}", cause(&error));
            if error.is_timeout() || (error.is_connection_dropped() && !error.is_connection_refusal()) {
                what.push_str(" (`rediss:` is for servers that speak TLS, `redis:` for those that do not)");
            }
            Error::Unavailable { engine: ENGINE, what, source: Some(error.into()) }
        }
    }
}

pub(crate) fn too_old(server: &str, version: &str) -> String {
    format!("`{server}` has version {version}; 6.2 or later is needed")
}

fn password(server: &str) -> String {
    format!("`{server}` does not accept the user or the password; give them as `redis://USER:PASSWORD@HOST`")
}

fn plain(server: &str, error: &RedisError) -> String {
    if error.is_io_error() || error.is_connection_dropped() {
        format!("lost the connection to `{server}`: {}", cause(error))
    } else {
        format!("`{server}` answered: {}", cause(error))
    }
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
            failed("h", value.extract_error().expect_err("an error"))
        };
        let wrapped = |text: &str| format!("ERR Error running script (call to f_12): @user_script:7: {text}");
        for (text, retryable, words) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", false, "another type"),
            ("OOM command not allowed when used memory > 'maxmemory'.", true, "no memory left"),
            ("READONLY You can't write against a read only replica.", true, "replica"),
            ("NOPERM User app has no permissions to run the 'get' command", false, "docs/redis.md"),
        ] {
            for error in [said(text), said(&wrapped(text))] {
                assert_eq!(error.is_retryable(), retryable, "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        let error = said("ERR The user executing the script can't run this command or subcommand script: 12");
        assert!(!error.is_retryable() && error.to_string().contains("docs/redis.md"), "{error}");
    }
}
