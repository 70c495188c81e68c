//! What a store says of what it has stored.

/// When something was written, as the store counts.
///
/// A write says which version it replaces, and is refused if there is another one by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The number of the change of the store; 0 if there is nothing.
    pub(crate) written: u64,
    /// How often it was written, for a store that compares that.
    pub(crate) count: i32,
}

/// Something that was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    pub(crate) version: Version,
    /// `None` if there is nothing, or it says that there is nothing.
    pub(crate) bytes: Option<Vec<u8>>,
}
