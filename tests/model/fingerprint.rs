//! Fingerprints of worlds: how they are mixed, and how they are kept.

use std::hash::Hasher;

/// Mixes a value into a fingerprint.
pub(crate) fn mix(print: u64, value: u64) -> u64 {
    let product = u128::from(print ^ value) * 0xa076_1d64_78bd_642f;
    ((product as u64) ^ ((product >> 64) as u64)).wrapping_add(0xe703_7ed1_a0b4_28db)
}

/// Fingerprints are spread already.
#[derive(Default)]
pub(crate) struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
