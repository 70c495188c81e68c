//! What a URL says: where the server is, and how it is used.

use redis::IntoConnectionInfo as _;

use super::keys::Keys;
use super::link::Target;
use crate::error::{Error, Result};

/// A server and how it is used.
pub(super) struct Place {
    pub(super) target: Target,
    pub(super) keys: Keys,
}

impl Place {
    /// Reads a URL. Its own options are taken out; the rest is the driver's.
    pub(super) fn parse(url: &str) -> Result<Place> {
        let mut keys = Keys { prefix: "lock:".into(), raw: false };
        let mut eviction_allowed = false;
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("prefix", prefix) => keys.prefix = decode(prefix),
                ("raw", "" | "true") => keys = Keys { prefix: String::new(), raw: true },
                ("eviction", "allow") => eviction_allowed = true,
                ("eviction", "refuse") => eviction_allowed = false,
                // A unix socket has nowhere else to put them.
                ("db" | "user" | "pass", _) if address.starts_with("redis+unix:") => rest.push(option),
                (other, _) => {
                    // What looks like an option may be the rest of a password with a `?` or an `&` in it.
                    let secret = query.contains('@') || query.contains("pass=");
                    let option = if secret { "…" } else { other };
                    return Err(Error::invalid(format!(
                        "`redis:` has no option `{option}` like that; there are `prefix=TEXT`, `raw`, and \
                         `eviction=allow` (`?`, `&` and `@` in a password are written `%3F`, `%26` and `%40`)"
                    )));
                }
            }
        }
        let plain =
            if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
        let wrong = |error: redis::RedisError| {
            // The driver's own words may repeat the URL, and with it the password.
            Error::invalid(format!(
                "`{}` is not the URL of a server ({}); it looks like `redis://HOST:PORT/DB`",
                without_password(address),
                error.category()
            ))
        };
        let info = plain.as_str().into_connection_info().map_err(wrong)?;
        let server = info.addr().to_string();
        let password = info.redis_settings().password().filter(|password| !password.is_empty());
        let password = password.map(str::to_owned);
        let client = Target::client(info).map_err(wrong)?;
        Ok(Place { target: Target { client, server, password, eviction_allowed }, keys })
    }
}

/// A URL as it may be shown. It need not be a good one.
pub(super) fn without_password(url: &str) -> String {
    let (Some((_, host)), Some((scheme, _))) = (url.rsplit_once('@'), url.split_once(':')) else {
        return url.to_owned();
    };
    format!("{scheme}://…@{host}")
}

/// Undoes percent-encoding; what is not encoded stays.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, after.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_out() {
        let place =
            Place::parse("redis://127.0.0.1:7000/3?prefix=app%3Alock:&eviction=allow").expect("a place");
        assert_eq!(place.keys, Keys { prefix: "app:lock:".into(), raw: false });
        assert!(place.target.eviction_allowed);
        assert_eq!(place.target.server, "127.0.0.1:7000");
        assert!(Place::parse("redis://h?raw").expect("a place").keys.raw);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "redis://u:secret@h?speed=9",
            "redis://u:secret@:x:y",
            "redis://u:secret@h/notanumber",
            "redis:u:secret@h",
            "redis://u:half?secret@h",
            "redis+unix:///s?pass=half&secret",
        ] {
            let error = Place::parse(url).err().expect("refused").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
