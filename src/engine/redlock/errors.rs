//! What errors of this engine have in common, and numbers in the answers of its scripts.

use crate::error::{Error, Result};
use crate::redis::errors::Label;

pub(super) const REDLOCK: Label = Label::new("redlock");

pub(super) const ENGINE: &str = REDLOCK.engine();

/// An answer that a script of ours does not give.
pub(super) fn strange(what: &str) -> Error {
    REDLOCK.unfit(format!("a script answered strangely: {what}"))
}

pub(super) fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| strange("no number"))
}
