//! The keys of a server, and the names behind them.

use std::collections::BTreeSet;
use std::pin::pin;

use super::link::Link;
use crate::engine::View;
use crate::error::{Error, Result};
use crate::name::Name;

/// The keys at one server that fit a pattern.
pub(crate) async fn scan(link: &Link, pattern: &str) -> Result<BTreeSet<String>> {
    const AT_ONCE: usize = 1000;
    let mut found = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let connected = link.connected().await?;
        let mut connection = connected.connection.clone();
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(AT_ONCE);
        let scanned = link.call(&connected, pin!(scan.query_async(&mut connection))).await;
        let (next, keys): (u64, Vec<Vec<u8>>) = scanned?;
        found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
        cursor = next;
        if cursor == 0 {
            return Ok(found);
        }
    }
}

/// Of some names those in use that start with `prefix`, in order, after `after`, at most `limit`.
pub(crate) async fn in_use<L: Future<Output = Result<View>>>(
    names: BTreeSet<Name>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    look: impl Fn(Name) -> L,
) -> Result<Vec<(Name, View)>> {
    let mut found = Vec::new();
    for name in names {
        if found.len() == limit {
            break;
        }
        if !name.as_str().starts_with(prefix) || after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        // With names that are keys as they are, a key may be anything.
        let view = match look(name.clone()).await {
            Err(Error::Engine { .. }) => continue,
            view => view?,
        };
        if !view.claims.is_empty() || view.waiting > 0 {
            found.push((name, view));
        }
    }
    Ok(found)
}
