//! The nodes of the engine: see docs/internals/zookeeper.md.

use crate::claim::Seat;
use crate::name::{Family, Name};

/// The names of a family are in so many directories: a directory is listed as a whole.
pub(super) const BUCKETS: u8 = 64;

/// Makes the paths under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// Without a `/` at its end.
    prefix: String,
}

impl Paths {
    pub(super) fn new(prefix: String) -> Paths {
        Paths { prefix }
    }

    /// What all paths start with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The record of a name, or the value of a cell.
    pub(super) fn name(&self, name: &Name) -> String {
        let bucket = bucket_of(name.as_str());
        format!("{}/{}", self.bucket(name.family(), bucket), escape(name.as_str()))
    }

    /// Some of the names of a family.
    pub(super) fn bucket(&self, family: Family, bucket: u8) -> String {
        format!("{}/n/{}/{bucket:02x}", self.prefix, letter(family))
    }

    /// One waiter of a name.
    pub(super) fn waiter(&self, name: &Name, place: u64) -> String {
        format!("{}/{place:016x}", self.name(name))
    }

    /// The place of a waiter, from the last part of its path.
    pub(super) fn place_of(child: &str) -> Option<u64> {
        (child.len() == 16).then(|| u64::from_str_radix(child, 16).ok())?
    }

    /// Where the sessions are.
    pub(super) fn sessions(&self) -> String {
        format!("{}/s", self.prefix)
    }

    /// The node of a session, which lives as long as it.
    pub(super) fn session(&self, seat: Seat) -> String {
        format!("{}/s/{seat:016x}", self.prefix)
    }

    /// Whose session a node is.
    pub(super) fn seat_of(&self, path: &str) -> Option<Seat> {
        let digits = path.strip_prefix(&self.sessions())?.strip_prefix('/')?;
        Seat::from_str_radix(digits, 16).ok()
    }
}

/// FNV-1a. What it gives is where names are found: it never changes.
fn bucket_of(text: &str) -> u8 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash >> 32) % u64::from(BUCKETS)) as u8
}

/// Whether a character is written as it is. The servers refuse control characters, surrogates,
/// private and special ones.
fn is_plain(character: char) -> bool {
    !matches!(
        character,
        '/' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..
    )
}

/// A name as the name of a node. No two names have the same one, and it has no `/`.
pub(super) fn escape(name: &str) -> String {
    match name {
        // Nodes must not be called so.
        "" => return "%".to_owned(),
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let mut escaped = String::with_capacity(name.len());
    let mut bytes = [0; 4];
    for character in name.chars() {
        if is_plain(character) {
            escaped.push(character);
        } else {
            for byte in character.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    escaped
}

/// The name that a node was called for.
pub(super) fn unescape(node: &str) -> Option<String> {
    if node == "%" {
        return Some(String::new());
    }
    percent_encoding::percent_decode_str(node).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn letter(family: Family) -> &'static str {
    match family {
        Family::Lock => "l",
        Family::Semaphore => "s",
        Family::Election => "e",
        Family::Cell => "c",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(text: &str) -> Name {
        Name::new(Family::Lock, text).unwrap()
    }

    /// These are what ensembles contain: they never change.
    #[test]
    fn paths_are_pinned() {
        let paths = Paths::new("/leasehold".to_owned());
        assert_eq!(paths.name(&lock("stock/42")), "/leasehold/n/l/0f/stock%2F42");
        assert_eq!(paths.waiter(&lock("x"), 255), "/leasehold/n/l/0c/x/00000000000000ff");
        assert_eq!(paths.session(0x68c5), "/leasehold/s/00000000000068c5");
        assert_eq!(Paths::place_of("00000000000000ff"), Some(255));
        assert_eq!(paths.seat_of(&paths.session(0x68c5)), Some(0x68c5));
    }

    #[test]
    fn every_name_is_the_name_of_a_node_and_back() {
        let names = [
            "",
            ".",
            "..",
            "a",
            "a/b",
            "a%2Fb",
            "%",
            "%2E",
            "\0",
            "\u{7f}x",
            "é",
            "\u{e000}",
            "\u{10ffff}",
            " a\n",
        ];
        let mut nodes: Vec<String> = names.iter().map(|name| escape(name)).collect();
        for (name, node) in names.iter().zip(&nodes) {
            assert_eq!(unescape(node).as_deref(), Some(*name));
            assert!(
                !node.is_empty()
                    && node != "."
                    && node != ".."
                    && node.chars().all(|c| is_plain(c) || c == '%')
            );
        }
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), names.len(), "no two names are one node");
    }
}
