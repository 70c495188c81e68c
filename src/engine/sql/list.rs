//! Listing the names in use.

use super::database::{Database, Failure};
use super::row::{keys_with, name_of};
use super::state::Sql;
use crate::engine::View;
use crate::engine::table::view;
use crate::error::Result;
use crate::name::{Family, Name};

impl<D: Database> Sql<D> {
    /// The names in use.
    pub(super) async fn list_names(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        const PAGE: usize = 1000;
        let (mut from, to) = keys_with(family, prefix);
        if let Some(after) = after {
            from = from.max(keys_with(family, after).0);
        }
        let mut shown: Vec<(Name, View)> = Vec::new();
        loop {
            let page = self.database.list_names(&from, &to, PAGE).await;
            let (now, rows) = page.map_err(Failure::into_error)?;
            for (key, row) in &rows {
                let Ok(Some(record)) = row.record() else { continue };
                let Some(name) = name_of(key, &record) else { continue };
                let text = name.as_str();
                if !text.starts_with(prefix) || after.is_some_and(|after| text <= after) {
                    continue;
                }
                let view = view(&record.state, Vec::new(), u64::MAX, now);
                if !view.claims.is_empty() || view.waiting > 0 {
                    shown.push((name, view));
                }
            }
            // Folded names are not stored in the order of what they stand for, but their first part
            // is.
            shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let last = rows.last().filter(|_| rows.len() == PAGE);
            let Some((last, _)) = last else { break };
            let enough = shown.get(limit.saturating_sub(1)).is_some_and(|(name, _)| {
                let (_, end) = keys_with(family, name.as_str());
                *last >= end
            });
            if enough {
                break;
            }
            from.clone_from(last);
            from.push(0);
        }
        shown.truncate(limit);
        Ok(shown)
    }
}
