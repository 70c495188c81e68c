//! Whether what a reader got is too old.

/// The value that a reader got is a version of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    /// It is from the memory of the reader's process, which may be behind for a while.
    pub(crate) from_memory: bool,
}

/// What was known of the name before the reader asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The last version whose invalidation had returned.
    pub(crate) acknowledged: u64,
    /// When the reader asked, in microseconds.
    pub(crate) asked: u64,
    /// For how long the memory of this process may be behind: not at all if it has itself
    /// invalidated the name.
    pub(crate) bound: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    /// Too old for the shared level, and not for a memory.
    WithinBound,
    Wrong,
}

/// `acknowledged_at` says when the invalidation of a version had returned, if that is still known.
pub(crate) fn judge(seen: Seen, known: Known, acknowledged_at: impl Fn(u64) -> Option<u64>) -> Verdict {
    if seen.version >= known.acknowledged {
        return Verdict::Right;
    }
    // The first invalidation that should have taken it away, and not the last.
    match acknowledged_at(seen.version + 1) {
        Some(at) if seen.from_memory && known.asked < at + known.bound => Verdict::WithinBound,
        _ => Verdict::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(version: u64, from_memory: bool) -> Seen {
        Seen { version, from_memory }
    }

    /// Version 1 was acknowledged at 1,000, version 2 at 2,000, and so on up to 5.
    fn at(version: u64) -> Option<u64> {
        (1..=5).contains(&version).then_some(version * 1000)
    }

    #[test]
    fn what_is_older_than_an_acknowledged_invalidation_is_wrong() {
        let known = Known { acknowledged: 5, asked: 5100, bound: 0 };
        assert_eq!(judge(seen(5, false), known, at), Verdict::Right);
        // It may have been invalidated while the reader asked.
        assert_eq!(judge(seen(6, false), known, at), Verdict::Right);
        assert_eq!(judge(seen(4, false), known, at), Verdict::Wrong);
        // The process of the reader has invalidated it.
        assert_eq!(judge(seen(4, true), known, at), Verdict::Wrong);
    }

    #[test]
    fn a_memory_may_be_behind_for_the_bound_and_no_longer() {
        let known = |asked| Known { acknowledged: 5, asked, bound: 500 };
        assert_eq!(judge(seen(4, true), known(5499), at), Verdict::WithinBound);
        assert_eq!(judge(seen(4, true), known(5500), at), Verdict::Wrong);
        // The shared level has no bound.
        assert_eq!(judge(seen(4, false), known(5100), at), Verdict::Wrong);
        // The last invalidation is fresh, but this value should have gone with one before it.
        assert_eq!(judge(seen(2, true), known(5100), at), Verdict::Wrong);
        // So long ago that nobody knows when.
        let known = Known { acknowledged: 9, ..known(5100) };
        assert_eq!(judge(seen(7, true), known, at), Verdict::Wrong);
    }
}
