//! Who asks for a claim.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

#[cfg(feature = "_table")]
use serde::{Deserialize, Serialize};

/// One acquisition: not a thread, not a host. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct OwnerId(pub u128);

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A table by owner.
pub(crate) type OwnerMap<T> = HashMap<OwnerId, T, BuildHasherDefault<OwnerHasher>>;

/// Owners are unique numbers already.
#[derive(Debug, Default)]
pub(crate) struct OwnerHasher(u64);

impl Hasher for OwnerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, owner: u128) {
        // The low half counts up; the multiplication spreads it over the bits that the table looks
        // at.
        let (high, low) = ((owner >> 64) as u64, owner as u64);
        self.0 = (low ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
