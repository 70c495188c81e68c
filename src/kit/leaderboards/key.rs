//! Where a member stands: the order of a board.

use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

/// Which scores come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    HigherFirst,
    LowerFirst,
}

impl Order {
    /// From a score to a number of which the lower is the better, and back.
    ///
    /// The complement and not the negative: the lowest number of 64 bits has none.
    pub(super) fn turn(self, score: i64) -> i64 {
        match self {
            Order::HigherFirst => !score,
            Order::LowerFirst => score,
        }
    }
}

/// The place of a member in the order of a board, the best first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The score as [`Order::turn`] gives it.
    pub(super) turned: i64,
    /// When the score was reached.
    pub(super) reached: Micros,
    pub(super) member: String,
}

impl Key {
    /// Before all others.
    pub(super) fn first() -> Key {
        Key { turned: i64::MIN, reached: 0, member: String::new() }
    }

    /// A short key that is after `left` and not after `right`: what separates two leaves.
    pub(super) fn between(left: &Key, right: &Key) -> Key {
        let mut key = Key { turned: right.turned, reached: 0, member: String::new() };
        if left.turned == right.turned {
            key.reached = right.reached;
            if left.reached == right.reached {
                key.member.clone_from(&right.member);
            }
        }
        key
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        let mut writer = writer.bytes(&self.turned.to_be_bytes());
        writer.short(self.reached);
        writer.short(self.member.len() as u64);
        writer.bytes(self.member.as_bytes())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Key> {
        let turned = i64::from_be_bytes(reader.bytes(8)?.try_into().ok()?);
        let (reached, length) = (reader.short()?, usize::try_from(reader.short()?).ok()?);
        let member = str::from_utf8(reader.bytes(length)?).ok()?.to_owned();
        Some(Key { turned, reached, member })
    }

    /// About how many bytes it takes in a leaf.
    pub(super) fn size(&self) -> usize {
        8 + 8 + 2 + self.member.len()
    }
}
