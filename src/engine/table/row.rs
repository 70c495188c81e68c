//! The state of a name as bytes: for engines that store rows.
//!
//! The key of a row is the name, folded where it is too long for the store (see
//! [`crate::name::fold`]). The row then has the whole name in it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::claim::State;
use crate::name::{Name, fold};

/// Everything that is stored of a name, except its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The name, where the key is only a part of it and a hash.
    pub(crate) text: Option<String>,
    /// The place of the next waiter in the queue.
    pub(crate) next_place: u64,
    pub(crate) state: State,
}

impl Record {
    /// The record of a name that nobody uses, in a store with keys of `longest` bytes.
    pub(crate) fn new(name: &Name, longest: usize, floor: u64) -> Record {
        let whole = matches!(fold(name.as_str(), longest), Cow::Borrowed(_));
        Record { text: (!whole).then(|| name.as_str().to_owned()), next_place: 0, state: State::new(floor) }
    }
}

/// A row as bytes.
pub(crate) fn encode<T: Serialize>(row: &T) -> postcard::Result<Vec<u8>> {
    // Room for one claim with the usual names in it: a row that grows byte by byte is copied five
    // times.
    const USUAL: usize = 256;
    postcard::to_extend(row, Vec::with_capacity(USUAL))
}

/// A row from its bytes.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> postcard::Result<T> {
    postcard::from_bytes(bytes)
}
