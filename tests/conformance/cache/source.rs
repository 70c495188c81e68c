//! What is loaded from, in these cases.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Client;
use leasehold::kit::cache::{Cache, Failure, Got, Loaded, Origin};
use tokio::sync::watch;

use crate::bench::ms;

/// A source that counts how often it is asked.
#[derive(Clone, Default)]
pub(crate) struct Source(Arc<Inside>);

struct Inside {
    values: Mutex<HashMap<String, (Option<String>, u64)>>,
    loads: AtomicU32,
    /// How many loads run now, and the most that ever did.
    running: AtomicU32,
    most: AtomicU32,
    fails: AtomicBool,
    /// Whether loads go on after they have read.
    open: watch::Sender<bool>,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside {
            values: Mutex::default(),
            loads: AtomicU32::new(0),
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
            fails: AtomicBool::new(false),
            open: watch::Sender::new(true),
        }
    }
}

impl Source {
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.set_version(name, value, 0);
    }

    pub(crate) fn set_version(&self, name: &str, value: &str, version: u64) {
        self.insert(name, (Some(value.to_owned()), version));
    }

    /// From now on there is none, and that has a version.
    pub(crate) fn delete_version(&self, name: &str, version: u64) {
        self.insert(name, (None, version));
    }

    fn insert(&self, name: &str, row: (Option<String>, u64)) {
        self.0.values.lock().expect("no panic").insert(name.to_owned(), row);
    }

    /// How many loads have read.
    pub(crate) fn loads(&self) -> u32 {
        self.0.loads.load(Ordering::SeqCst)
    }

    /// How many loads run now.
    pub(crate) fn running(&self) -> u32 {
        self.0.running.load(Ordering::SeqCst)
    }

    /// The most loads that ever ran at the same time.
    pub(crate) fn most(&self) -> u32 {
        self.0.most.load(Ordering::SeqCst)
    }

    /// From now on loads stop after they have read, until this is undone.
    pub(crate) fn hold(&self) {
        self.0.open.send_replace(false);
    }

    pub(crate) fn go_on(&self) {
        self.0.open.send_replace(true);
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
    }

    async fn load(self, name: String) -> Result<Loaded, String> {
        let inside = &self.0;
        // Counted after it has read: what is set from then on is not in it.
        let read = inside.values.lock().expect("no panic").get(&name).cloned();
        let running = inside.running.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(running, Ordering::SeqCst);
        inside.loads.fetch_add(1, Ordering::SeqCst);
        inside.open.subscribe().wait_for(|open| *open).await.expect("the source is there");
        inside.running.fetch_sub(1, Ordering::SeqCst);
        if inside.fails.load(Ordering::SeqCst) {
            return Err("the source is down".into());
        }
        Ok(match read {
            Some((Some(value), version)) => Loaded::value(value).version(version),
            Some((None, version)) => Loaded::none().version(version),
            None => Loaded::none(),
        })
    }

    /// A cache of this source, without anything left to chance.
    pub(crate) fn cache(&self, client: &Client, fresh: Duration) -> Cache {
        self.cache_named(client, "x", fresh)
    }

    pub(crate) fn cache_named(&self, client: &Client, name: &str, fresh: Duration) -> Cache {
        let source = self.clone();
        let cache = client.cache(name, fresh, move |name| source.clone().load(name)).expect("a cache");
        let cache = cache.jitter(0).and_then(|cache| cache.early(0.0)).expect("in range");
        // Servers of a busy machine may take their time.
        cache.deadline(ms(10_000)).and_then(|cache| cache.wait_limit(ms(60_000))).expect("in range")
    }
}

/// The value, and where it came from.
#[track_caller]
pub(crate) fn told(got: Result<Got, Failure>) -> (String, Origin) {
    let got = got.expect("a value");
    let value = got.value().map_or("(none)".into(), |value| String::from_utf8_lossy(value).into_owned());
    (value, got.origin())
}

#[track_caller]
pub(crate) fn value(got: Result<Got, Failure>) -> String {
    told(got).0
}
