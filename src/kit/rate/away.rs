//! What a limiter does while its engine is away.

/// What a limiter answers while its engine does not. There is no default: only the caller knows
/// whether it is worse to let too much through or too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Everything passes.
    Open,
    /// Nothing passes: as if the limit were used up.
    Closed,
    /// Each process lets its part of the limit through: the limit divided by the number of
    /// processes. Together they let no more through than the limit, if there are no more of them.
    /// While the engine goes away and comes back, a key can be let through by both: at most once
    /// more its burst.
    ///
    /// A process whose part is less than one lets nothing through.
    LocalShare {
        /// How many processes share the limit.
        nodes: u32,
    },
    /// Nothing passes, and the verdict says that it is not the caller's fault: in HTTP 503 and not
    /// 429.
    Shed,
}
