//! What errors of this engine have in common.

use crate::redis::errors::Label;

pub(super) const REDLOCK: Label = Label::new("redlock");

pub(super) const ENGINE: &str = REDLOCK.engine();
