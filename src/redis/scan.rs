//! The keys of a server.

use std::collections::BTreeSet;
use std::pin::pin;

use super::link::Link;
use crate::error::Result;

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
