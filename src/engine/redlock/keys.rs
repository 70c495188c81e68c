//! Where a name is kept at each server.

use crate::claim::OwnerId;
use crate::error::Result;
use crate::name::Name;
use crate::redis::holder::owner_text;
use crate::redis::keys::{Keys, beside};

/// The run under which a server was let in to vote.
pub(super) const MEMBER: &str = "leasehold:member";
/// The largest counter ever given at a server.
pub(super) const TOP: &str = "leasehold:top";
/// What the counters of a server must be above since it was let in.
pub(super) const FLOOR: &str = "leasehold:floor";
/// When it was first seen that a server has no mark.
pub(super) const MISSED: &str = "leasehold:missed";
/// The longest lease that any client has declared.
pub(super) const LONGEST: &str = "leasehold:max_lease";

/// The keys of one name for one owner, in the order of every script.
#[derive(Debug)]
pub(super) struct OwnerKeys {
    pub(super) holder: String,
    pub(super) token: String,
    pub(super) state: String,
    pub(super) ends: String,
    queue: String,
    pub(super) gone: String,
}

impl OwnerKeys {
    pub(super) fn new(keys: &Keys, name: &Name, owner: OwnerId) -> Result<OwnerKeys> {
        let keys = keys.of(name)?;
        let side = |what: &str| beside(&keys.holder, &format!("redlock:{what}"));
        Ok(OwnerKeys {
            holder: keys.holder.clone(),
            token: side("token"),
            state: side("state"),
            ends: side("ends"),
            queue: side("queue"),
            gone: side(&format!("gone:{}", owner_text(owner))),
        })
    }

    pub(super) fn all(&self) -> [&str; 9] {
        let OwnerKeys { holder, token, state, ends, queue, gone } = self;
        [holder, token, state, ends, queue, gone, MEMBER, TOP, FLOOR]
    }
}
