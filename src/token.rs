//! Fencing: the number that every grant carries, and the check that a protected resource makes.
//!
//! A lease can not stop a process that was paused from acting late. The resource can: it remembers
//! the highest token it has seen and refuses what comes with a lower one. [`Fence`] is that check
//! for a resource in memory; [`sql`] and [`redis`] are the same check as ready pieces for a
//! database and for Redis.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// A fencing token: greater than any given before for the same name.
///
/// It fits in 53 bits until the year 2255, so it survives JSON and JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// A token that was sent or stored as a number; `None` for 0, which is never a token.
    pub const fn new(number: u64) -> Option<Token> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Token(number)),
            None => None,
        }
    }

    /// The number to send or store.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn granted(number: u64) -> Token {
        Token(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The check that a protected resource makes: no token older than one already seen.
///
/// Check and act must be one step: keep the fence behind the same lock as the resource, or make the
/// write only inside [`Fence::admit`]'s caller's critical section. A database makes them one step
/// in one statement: [`sql`].
///
/// # Examples
///
/// ```
/// use leasehold::{Fence, Token};
///
/// let fence = Fence::new();
/// let (older, newer) = (Token::new(7).unwrap(), Token::new(8).unwrap());
/// fence.admit(newer)?;
/// fence.admit(newer)?; // the same holder, again
/// assert!(fence.admit(older).is_err()); // a paused holder, late
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    newest: AtomicU64,
}

impl Fence {
    /// A fence that has seen nothing.
    pub const fn new() -> Fence {
        Fence { newest: AtomicU64::new(0) }
    }

    /// A fence that has seen `token`, as it was stored with the resource.
    pub const fn since(token: Token) -> Fence {
        Fence { newest: AtomicU64::new(token.get()) }
    }

    /// Lets the holder of `token` pass, and nobody with an older one from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if a newer token was seen before.
    pub fn admit(&self, token: Token) -> Result<()> {
        let newest = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        if newest > token.get() {
            return Err(Error::Fenced { given: token.get(), newest });
        }
        Ok(())
    }

    /// The newest token seen, to store it with the resource.
    pub fn newest(&self) -> Option<Token> {
        Token::new(self.newest.load(Ordering::Acquire))
    }
}

/// The fence as pieces of SQL, for a protected row with a `fence bigint not null default 0` column.
///
/// One statement checks and writes; a holder that is too late changes no row.
///
/// ```
/// use leasehold::token::sql;
///
/// let update = format!(
///     "update stock set amount = $2, {set} where id = $3 and {check}",
///     set = sql::set("$1"),
///     check = sql::check("$1"),
/// );
/// assert_eq!(
///     update,
///     "update stock set amount = $2, fence = $1 where id = $3 and fence <= $1"
/// );
/// // Zero rows changed: fenced. Stop the work.
/// ```
pub mod sql {
    /// The column that a protected table needs.
    pub const COLUMN: &str = "fence bigint not null default 0";

    /// The condition that lets only the newest holder pass; `token` is the placeholder of the
    /// token.
    pub fn check(token: &str) -> String {
        format!("fence <= {token}")
    }

    /// The assignment that shuts out older holders; `token` is the placeholder of the token.
    pub fn set(token: &str) -> String {
        format!("fence = {token}")
    }
}

/// The fence as a Redis script, for a protected value with its fence in a key beside it.
pub mod redis {
    /// `KEYS[1]` the value, `KEYS[2]` its fence (in the same slot), `ARGV[1]` the token, `ARGV[2]`
    /// the new value.
    ///
    /// Answers 1 if the value was written and 0 if the writer is too late.
    pub const SET: &str = include_str!("token/fenced_set.lua");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_lets_only_the_newest_pass() {
        let fence = Fence::since(Token::granted(10));
        assert!(fence.admit(Token::granted(9)).is_err());
        fence.admit(Token::granted(10)).unwrap();
        fence.admit(Token::granted(12)).unwrap();
        let error = fence.admit(Token::granted(11)).unwrap_err();
        assert!(matches!(error, Error::Fenced { given: 11, newest: 12 }), "{error}");
        assert_eq!(fence.newest(), Some(Token::granted(12)));
    }
}
