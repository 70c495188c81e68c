//! The hash of a name, the same in every process and version: the news and the filter keep it.

/// FNV-1a over the bytes, then mixed so that all bits depend on all.
pub(super) fn hash(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in name.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash)
}

/// The last steps of splitmix64.
pub(super) fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep these: they never change.
    #[test]
    fn hashes_are_pinned() {
        assert_eq!(hash(""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(hash("user7"), hash("user7"));
        assert_ne!(hash("user7"), hash("user8"));
    }
}
