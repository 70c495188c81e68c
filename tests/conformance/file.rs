//! What only a store in files must survive.

pub(crate) mod store;
