//! Looking at names: one, or all of a family.

use std::collections::BTreeSet;

use super::reply;
use super::scripts::SCRIPTS;
use super::session::Session;
use crate::engine::View;
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// What is known of a name; `seen` is the last change of leadership that the caller knows of.
pub(super) async fn look(session: &Session, name: &Name, seen: u64, waiters: bool) -> Result<View> {
    let keys = session.keys.of(name)?;
    // A number that a script can hold.
    let (family, seen) = (name.family().word(), seen.min(1 << 53));
    let script = |_: &_| SCRIPTS.look.on(&keys.all()).arg(family).arg(seen).arg(u8::from(waiters));
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
    let wanted = names
        .into_iter()
        .filter(|name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after));
    let mut found = Vec::new();
    for name in wanted {
        if found.len() == limit {
            break;
        }
        // With names that are keys as they are, a key may be anything.
        let view = match look(session, &name, u64::MAX, false).await {
            Err(Error::Engine { .. }) => continue,
            view => view?,
        };
        if !view.claims.is_empty() || view.waiting > 0 {
            found.push((name, view));
        }
    }
    Ok(found)
}
