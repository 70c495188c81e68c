//! Listing names, and clearing away their nodes.

use super::messages::{Get, Got};
use super::paths::{BUCKETS, unescape};
use super::requests::{Fresh, into_value};
use super::store::Nodes;
use crate::engine::sessions::Attempt;
use crate::engine::sessions::store::{Page, Version};
use crate::name::{Family, Name};

/// A node that nobody uses is deleted after so many milliseconds. No request takes that long, so
/// nobody can take a node that is made later for this one (see also `free::KEPT`).
const IDLE: i64 = 5 * 60 * 1000;
/// How many directories are listed at once.
const SWEPT: u8 = 4;

impl Nodes {
    /// Names in order: all directories are listed.
    pub(super) async fn names_in_order(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Attempt<Page> {
        let gets: Vec<Get> =
            (0..BUCKETS).map(|bucket| Get::Children(self.paths.bucket(family, bucket))).collect();
        let got = self.requests.read(&gets, Fresh::Vouched).await?;
        let mut names = Vec::new();
        for (bucket, got) in (0..BUCKETS).zip(got) {
            if let Got::Children(children) = got {
                names.extend(self.names_in(family, bucket, &children));
            }
        }
        let is_wanted = |text: &str| text.starts_with(prefix) && after.is_none_or(|after| text > after);
        names.retain(|(name, _)| is_wanted(name.as_str()));
        names.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        let more = names.len() > limit;
        names.truncate(limit);
        let more_after = names.last().filter(|_| more).map(|(name, _)| name.as_str().to_owned());
        let gets: Vec<Get> = names.iter().map(|(_, path)| Get::Data(path.clone())).collect();
        let got = self.requests.read(&gets, Fresh::Already).await?;
        let names = names.into_iter().zip(got).map(|((name, _), got)| (name, into_value(got)));
        Ok(Page { now: 0, names: names.collect(), more_after })
    }

    /// Names of some directories, in any order. Nodes that nobody has used for long are deleted.
    pub(super) async fn names_to_sweep(
        &self,
        family: Family,
        after: Option<&str>,
        limit: usize,
    ) -> Attempt<Page> {
        // A few directories at a time: a directory can only be listed as a whole.
        let mut next: u8 = after.and_then(|bucket| bucket.parse().ok()).unwrap_or(0);
        let mut names = Vec::new();
        while next < BUCKETS && names.len() < limit {
            let last = (next + SWEPT).min(BUCKETS);
            let buckets: Vec<u8> = (next..last).collect();
            let gets: Vec<Get> =
                buckets.iter().map(|bucket| Get::Children(self.paths.bucket(family, *bucket))).collect();
            let got = self.requests.read(&gets, Fresh::Already).await?;
            for (bucket, got) in buckets.iter().zip(got) {
                if let Got::Children(children) = got {
                    names.extend(self.names_in(family, *bucket, &children));
                }
            }
            next = last;
        }
        let gets: Vec<Get> = names.iter().map(|(_, path)| Get::Data(path.clone())).collect();
        let got = self.requests.read(&gets, Fresh::Already).await?;
        let mut page = Page { more_after: (next < BUCKETS).then(|| next.to_string()), ..Page::default() };
        let mut idle = Vec::new();
        for ((name, path), got) in names.into_iter().zip(got) {
            match into_value(got) {
                value if value.bytes.is_some() => page.names.push((name, value)),
                value if value.version != Version::default() => idle.push((path, value.version.count)),
                _ => {}
            }
        }
        if !idle.is_empty() {
            let now = self.requests.leader_time().await?;
            for (path, count) in idle {
                self.requests.delete_if_idle(&path, count, now - IDLE).await?;
            }
        }
        Ok(page)
    }

    fn names_in(&self, family: Family, bucket: u8, children: &[String]) -> Vec<(Name, String)> {
        let directory = self.paths.bucket(family, bucket);
        let name = |child: &String| {
            let name = Name::new(family, unescape(child)?).ok()?;
            Some((name, format!("{directory}/{child}")))
        };
        children.iter().filter_map(name).collect()
    }
}
