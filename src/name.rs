//! What is locked, and how any string becomes a legal name.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The longest name, in bytes, with its namespaces.
pub const LONGEST: usize = 4096;

/// What a name is used for. The same text in two families is two names.
///
/// A mutex and a read-write lock are one family: a mutex is the write side of the lock of that
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Mutexes and read-write locks.
    Lock,
    /// Semaphores.
    Semaphore,
    /// Elections.
    Election,
    /// Cells: what latches and the kit are made of.
    Cell,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 4] = [Family::Lock, Family::Semaphore, Family::Election, Family::Cell];

    /// The word for it in listings.
    pub fn word(self) -> &'static str {
        match self {
            Family::Lock => "lock",
            Family::Semaphore => "semaphore",
            Family::Election => "election",
            Family::Cell => "cell",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What is locked: any string, compared byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    family: Family,
    text: Arc<str>,
}

impl Name {
    /// A name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is longer than [`LONGEST`].
    pub fn new(family: Family, text: impl Into<Arc<str>>) -> Result<Name> {
        let text = text.into();
        if text.len() > LONGEST {
            return Err(Error::invalid(format!(
                "the name is {} bytes long, more than the {LONGEST} that are allowed; it starts with `{}`",
                text.len(),
                text.chars().take(40).collect::<String>(),
            )));
        }
        Ok(Name { family, text })
    }

    /// What it is used for.
    pub fn family(&self) -> Family {
        self.family
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.family, self.text)
    }
}

/// How a name ends that is not stored whole.
#[cfg(feature = "_table")]
const MARK: char = '~';

/// True if a name that was stored by [`fold`] is not all there.
#[cfg(any(feature = "file", feature = "_sql"))]
pub(crate) fn is_folded(stored: &str) -> bool {
    stored.ends_with(MARK)
}

/// A name as an engine with short keys stores it: as it is if it fits, else a readable part and a
/// hash.
///
/// The two forms can not be confused: a name that is stored as it is never ends in the mark that
/// hashed ones carry, because such a name is hashed too.
#[cfg(feature = "_table")]
pub(crate) fn fold(text: &str, longest: usize) -> std::borrow::Cow<'_, str> {
    use sha2::Digest as _;
    use std::fmt::Write as _;

    const HASH: usize = 32;
    if text.len() <= longest && !text.ends_with(MARK) {
        return text.into();
    }
    let room = longest - 1 - HASH - 1;
    let cut = (0..=room.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let mut folded = String::with_capacity(longest);
    folded.push_str(&text[..cut]);
    folded.push(MARK);
    for byte in &sha2::Sha256::digest(text.as_bytes())[..HASH / 2] {
        // Writing to a String can not fail.
        write!(folded, "{byte:02x}").unwrap_or_default();
    }
    folded.push(MARK);
    folded.into()
}

#[cfg(all(test, feature = "_table"))]
mod tests {
    use super::*;

    /// These values are what stores on disk contain: they never change.
    #[test]
    fn folding_is_pinned() {
        assert_eq!(fold("stock/42", 480), "stock/42");
        assert_eq!(fold("", 480), "");
        assert_eq!(fold("ends~", 480), "ends~~fb8f22040fda568469678dc82ab6a662~");
        assert_eq!(fold(&"x".repeat(100), 50), "xxxxxxxxxxxxxxxx~09ecb6ebc8bcefc733f6f2ec44f791ab~");
        assert_eq!(fold(&"é".repeat(40), 51), "éééééééé~84fe2e03d50dd3a18b630669d7d5e361~");
    }

    #[test]
    fn folded_names_differ_where_the_names_differ() {
        let (a, b) = (format!("{}a", "x".repeat(600)), format!("{}b", "x".repeat(600)));
        assert_ne!(fold(&a, 480), fold(&b, 480));
        assert!(fold(&a, 480).len() <= 480);
        // A name that looks like the folded form of another is folded itself.
        let folded = fold(&a, 480).into_owned();
        assert_ne!(fold(&folded, 480), folded);
    }

    #[test]
    fn too_long_is_refused_with_the_length() {
        let error = Name::new(Family::Lock, "y".repeat(5000)).unwrap_err().to_string();
        assert!(error.contains("5000 bytes") && error.contains("yyyy"), "{error}");
    }
}
