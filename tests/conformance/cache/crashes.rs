//! A process that changes the source, or relays, is killed before each of its steps, one after the
//! other until it gets through, and at any moment. Whatever it has left is done by the relay of
//! another process: then no value is too old, and the outbox is empty.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::kit::cache::{Cache, Loaded, Outbox};
use leasehold::{Client, Options};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::database::Database;
use crate::bench::{Ground, ms, until};
use crate::wire::{Stop, Wire, wire};
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "outbox",
        [
            a_writer_that_is_killed_leaves_nothing_stale,
            a_relay_that_is_killed_loses_nothing,
            processes_killed_at_any_moment_leave_nothing_stale,
        ]
    )
    .cases
}

const NAMES: [&str; 3] = ["a", "b", "c"];
/// More steps than anything here has.
const MOST: u32 = 60;

/// Changes the source and writes the invalidation down, in one transaction; then invalidates. Calls
/// to the engine are counted by themselves.
async fn change(name: &str, database: &mut Database, outbox: &Outbox, cache: &Cache, wire: &Wire) {
    let row = outbox.row([(name, 0)]).expect("a row");
    wire.count().await;
    database.run("begin").await;
    wire.count().await;
    database.run(&format!("update source set version = version + 1 where name = '{name}'")).await;
    wire.count().await;
    database.write(&row).await;
    wire.count().await;
    database.run("commit").await;
    outbox.deliver(&row, cache).await.expect("an answer");
}

/// The other process: `outbox-child URL STEPS WHAT`. It is killed after so many steps of `change
/// NAME` or `relay`; `changes` and `relays` do not end by themselves.
pub(crate) fn child() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [url, steps, what] = &words[..] else { panic!("{words:?}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let options = Options::new();
        let engine = leasehold::engine::open(url, &options).await.expect("the engine is there");
        let (engine, wire) = wire(engine);
        let client = Client::new(engine, options).expect("a client");
        let outbox = client.outbox("x").expect("a database");
        let cache = client.cache("x", ms(600_000), |_| async { Err::<Loaded, _>("nobody asks") });
        let (cache, mut database) = (cache.expect("a cache"), Database::open(url).await);
        wire.stop_after(steps.parse().expect("a number"), Stop::Kill);
        match what.split_once(' ').unwrap_or((what.as_str(), "")) {
            ("change", name) => change(name, &mut database, &outbox, &cache, &wire).await,
            ("relay", _) => drop(outbox.drain(&cache).await.expect("an answer")),
            ("changes", _) => {
                for name in NAMES.iter().cycle() {
                    change(name, &mut database, &outbox, &cache, &wire).await;
                }
            }
            // Without the turn of `run`: the dead would have it for a lease.
            ("relays", _) => loop {
                outbox.drain(&cache).await.expect("an answer");
            },
            other => panic!("nobody knows how to {other:?}"),
        }
    });
    ExitCode::SUCCESS
}

/// A source in the database, a cache of it, and those who die.
struct Stage {
    ground: Ground,
    database: Arc<Mutex<Database>>,
    engine: Box<dyn Engine>,
    outbox: Outbox,
    cache: Cache,
}

impl Stage {
    async fn new(mut ground: Ground) -> Stage {
        let mut database = Database::open(ground.url()).await;
        database.run("create table source (name varchar(20) primary key, version bigint not null)").await;
        for name in NAMES {
            database.run(&format!("insert into source values ('{name}', 0)")).await;
        }
        let (client, engine) = (ground.client().await, ground.engine().await);
        let database = Arc::new(Mutex::new(database));
        let source = Arc::clone(&database);
        let cache = client.cache("x", ms(600_000), move |name: String| {
            let source = Arc::clone(&source);
            async move { Ok::<_, String>(version(&source, &name).await.to_be_bytes().to_vec()) }
        });
        // Nothing is loaded again but what was invalidated.
        let cache = cache.and_then(|cache| cache.early(0.0)).and_then(|cache| cache.deadline(ms(10_000)));
        let outbox = client.outbox("x").expect("a database");
        Stage { ground, database, engine, outbox, cache: cache.expect("a cache") }
    }

    /// What the database has, and what the cache has. It has all of them afterwards.
    async fn versions(&self) -> ([i64; 3], [i64; 3]) {
        let (mut stored, mut cached) = ([0; 3], [0; 3]);
        for (number, name) in NAMES.iter().enumerate() {
            let got = self.cache.get(name).await.expect("a value");
            let value = got.value().expect("a value");
            cached[number] = i64::from_be_bytes(value.try_into().expect("a number"));
            stored[number] = version(&self.database, name).await;
        }
        (stored, cached)
    }

    fn command(&self, steps: u32, what: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["outbox-child", self.ground.url(), &steps.to_string(), what]).kill_on_drop(true);
        command
    }

    /// Lets a process do something, and kills it after some steps. True if it got through.
    async fn dies_after(&self, steps: u32, what: &str) -> bool {
        let ended = self.command(steps, what).status().await.expect("this binary starts");
        assert!(ended.success() || ended.signal() == Some(Signal::KILL.as_raw()), "{ended}");
        ended.success()
    }

    /// Relays what was left, and says how much. Then nothing is stale, and nothing is left.
    async fn relay(&self) -> u64 {
        let rows = self.outbox.drain(&self.cache).await.expect("an answer").rows;
        let (stored, cached) = self.versions().await;
        assert_eq!(stored, cached, "a value is too old");
        assert_eq!(self.rows().await, 0, "rows were left");
        rows
    }

    /// How many rows the outbox has.
    async fn rows(&self) -> usize {
        self.engine.list_cells("cache-outbox/", None, 100).await.expect("a list").len()
    }
}

async fn version(database: &Mutex<Database>, name: &str) -> i64 {
    database.lock().await.number(&format!("select version from source where name = '{name}'")).await
}

async fn a_writer_that_is_killed_leaves_nothing_stale(ground: Ground) {
    let stage = Stage::new(ground).await;
    let (mut uncommitted, mut stale, mut told) = (0, 0, 0);
    for steps in 0..MOST {
        let (before, _) = stage.versions().await;
        let through = stage.dies_after(steps, "change a").await;
        let (after, cached) = stage.versions().await;
        let left = stage.rows().await;
        match (after[0] - before[0], after[0] - cached[0]) {
            (0, 0) => {
                assert_eq!(left, 0, "written down and not committed, at step {steps}");
                uncommitted += 1;
            }
            // Dead after its commit, and nobody was told.
            (1, 1) => {
                assert_eq!(left, 1, "committed and not written down, at step {steps}");
                stale += 1;
            }
            (1, 0) => told += 1,
            other => panic!("{other:?} at step {steps}"),
        }
        assert_eq!(stage.relay().await, left as u64);
        if through {
            // Before each of the four statements, before the cache is told, and before the row is
            // deleted.
            assert_eq!((uncommitted, stale), (4, 1), "{told} others");
            assert!(told >= 2, "{told}");
            return;
        }
    }
    panic!("it never got through");
}

async fn a_relay_that_is_killed_loses_nothing(ground: Ground) {
    let stage = Stage::new(ground).await;
    let (mut stale, mut twice) = (0, 0);
    for steps in 0..MOST {
        stage.versions().await;
        // A writer that dies after its commit.
        assert!(!stage.dies_after(4, "change a").await);
        assert_eq!(stage.rows().await, 1);
        let through = stage.dies_after(steps, "relay").await;
        let (stored, cached) = stage.versions().await;
        let left = stage.rows().await;
        assert!(left == 1 || stored == cached, "the row is gone, and the cache has {cached:?}");
        stale += u32::from(stored != cached);
        twice += u32::from(stored == cached && left == 1);
        assert_eq!(stage.relay().await, left as u64);
        if through {
            // Before it lists, before it reads, before it invalidates; then before it deletes.
            assert!(stale == 3 && twice >= 1, "{stale} stale, {twice} relayed twice");
            return;
        }
    }
    panic!("it never got through");
}

async fn processes_killed_at_any_moment_leave_nothing_stale(ground: Ground) {
    let stage = Stage::new(ground).await;
    let mut changes = 0;
    for round in 0..6 {
        let (before, _) = stage.versions().await;
        let mut children = Vec::new();
        for what in ["changes", "relays", "changes"] {
            children.push(stage.command(u32::MAX, what).spawn().expect("this binary starts"));
        }
        let moved = async || stage.versions().await.0.iter().sum::<i64>() > before.iter().sum::<i64>() + 10;
        until("they work", moved).await;
        tokio::time::sleep(Duration::from_micros(round * 700)).await;
        for child in &mut children {
            child.kill().await.expect("it can be killed");
        }
        let (stored, _) = stage.versions().await;
        changes += stored.iter().sum::<i64>() - before.iter().sum::<i64>();
        // A commit that was on its way may still arrive, with its row.
        until("all is relayed", async || {
            stage.outbox.drain(&stage.cache).await.expect("an answer");
            let (stored, cached) = stage.versions().await;
            stored == cached && stage.rows().await == 0
        })
        .await;
    }
    assert!(changes >= 60, "{changes}");
}
