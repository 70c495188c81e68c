//! The id of a session, and where the session is kept.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

use crate::error::{Error, Result};

/// The id of a session: what a cookie carries. Whoever has it has the session.
///
/// Half of it says in which cells the session is, the other half are 128 random bits. It is written
/// as 64 hexadecimal digits by [`SessionId::expose`] and never by `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId {
    place: Place,
    secret: u128,
}

/// The cells in which the sessions of a user are: they have it as their hash tag, so that one step
/// can decide over several of them. A session without a user has a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(pub(super) u128);

/// The hash of the secret half of an id: what the store has instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Handle(pub(super) u128);

/// Where a session is: all that is needed to find it, and nothing that lets anybody use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) handle: Handle,
}

impl Place {
    pub(super) fn of(user: &str) -> Place {
        Place(hash(b"user", user.as_bytes()))
    }
}

impl SessionId {
    /// A new id for a user, or for nobody in particular.
    pub(super) fn random(user: Option<&str>) -> Result<SessionId> {
        let place = match user {
            Some(user) => Place::of(user),
            None => Place(number()?),
        };
        Ok(SessionId { place, secret: number()? })
    }

    pub(super) fn key(&self) -> Key {
        let handle = Handle(hash(b"session", &self.secret.to_be_bytes()));
        Key { place: self.place, handle }
    }

    /// The id itself, for a cookie.
    pub fn expose(&self) -> String {
        format!("{:032x}{:032x}", self.place.0, self.secret)
    }
}

/// 128 bits of the operating system's.
fn number() -> Result<u128> {
    Ok(u128::from(crate::random::number()?) << 64 | u128::from(crate::random::number()?))
}

/// 128 bits of SHA-256.
pub(super) fn hash(what: &[u8], bytes: &[u8]) -> u128 {
    let mut hash = sha2::Sha256::new();
    hash.update(what);
    hash.update(b"/");
    hash.update(bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finalize()[..16]);
    u128::from_be_bytes(half)
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

impl FromStr for SessionId {
    type Err = Error;

    /// What a cookie carries. The error does not repeat it.
    fn from_str(text: &str) -> Result<SessionId> {
        let half = |digits: Option<&str>| u128::from_str_radix(digits?, 16).ok();
        let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (half(text.get(..32)), half(text.get(32..))) {
            (Some(place), Some(secret)) if digits => Ok(SessionId { place: Place(place), secret }),
            _ => Err(Error::invalid("this is not the id of a session, which has 64 hexadecimal digits")),
        }
    }
}
