//! Looking at names: one, or all of a family.

use std::collections::BTreeSet;

use super::reply;
use super::scripts::LOOK;
use super::session::Session;
use crate::engine::View;
use crate::error::Result;
use crate::name::{Family, Name};
use crate::redis::scan::in_use;

/// What is known of a name; `seen` is the last change of leadership that the caller knows of.
pub(super) async fn look(session: &Session, name: &Name, seen: u64, waiters: bool) -> Result<View> {
    let keys = session.keys.of(name)?;
    // A number that a script can hold.
    let (family, seen) = (name.family().word(), seen.min(1 << 53));
    let script = |_: &_| LOOK.on(&keys.all()).arg(family).arg(seen).arg(u8::from(waiters));
    reply::view(session.topology.run(&keys.holder, script).await?.answer)
}

/// The names in use, in order, that start with `prefix`, after `after`, at most `limit` of them.
pub(super) async fn list(
    session: &Session,
    family: Family,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(Name, View)>> {
    let mut names = BTreeSet::new();
    for pattern in session.keys.patterns(family, prefix) {
        let keys = session.topology.scan(&pattern).await?;
        names.extend(keys.iter().filter_map(|key| session.keys.name(family, key)));
    }
    let look = |name| async move { look(session, &name, u64::MAX, false).await };
    in_use(names, prefix, after, limit, look).await
}
