//! Writers that are killed between their commit and their invalidation.
//!
//! ```text
//! cargo run --release -p leasehold --features cache,postgres,redis --example cache_outbox -- \
//!     --database postgres://user:password@127.0.0.1/db --on redis://127.0.0.1/
//! cargo run --release -p leasehold --features cache,postgres,mysql --example cache_outbox -- \
//!     --database mysql://user:password@127.0.0.1/db
//! ```
//!
//! A writer is a process that changes a row of the database, writes the invalidation into the
//! outbox in the same transaction, commits, and ends itself with `kill -9`: nobody tells the cache.
//! The program fills the cache, lets some writers die, counts the values in the cache that are
//! older than the database, relays the outbox, and counts again. It ends with an error if there is
//! one left.
//!
//! `--kills 500`, `--names 40`. Without `--on` the cache is in a directory of this machine.

#[path = "../processes/mod.rs"]
mod processes;

mod database;

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use database::Database;
use leasehold::kit::cache::{Cache, Loaded};
use processes::{Arguments, Result, random};
use rustix::process::{Signal, getpid, kill_process};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const LIFE: Duration = Duration::from_secs(3600);
/// Writers that die before the outbox is relayed and the cache compared.
const WAVE: u32 = 20;
const AT_ONCE: u32 = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url, table, name]) = arguments.of_worker() {
        return write_and_die(url, table, name).await;
    }
    let url =
        arguments.text("--database").ok_or("say which: --database postgres://… or mysql://…")?.to_owned();
    let dir = tempfile::tempdir()?;
    let (kills, names) = (arguments.number("--kills", 500)?, arguments.number("--names", 40)?);
    let table = format!("prices_{}", random(1 << 40));
    let mut source = Database::open(&url).await?;
    source.run(&format!("create table {table} (name varchar(20) primary key, version bigint)")).await?;
    for name in 0..names {
        source.run(&format!("insert into {table} values ('{name}', 0)")).await?;
    }
    let outbox = leasehold::connect(&url).await?.outbox(&table)?;
    let client = leasehold::connect(&arguments.url(&dir)).await?;
    let cache = cache(&client, Database::open(&url).await?, &table)?;

    let (mut died, mut relayed, mut stale_before, mut stale_after) = (0, 0, 0, 0);
    let began = Instant::now();
    while died < kills {
        stale(&cache, &mut source, &table, names).await?;
        let mut writers = JoinSet::new();
        for _ in 0..WAVE.min(kills - died) {
            if writers.len() >= AT_ONCE as usize {
                died += u32::from(writers.join_next().await.ok_or("a writer")???);
            }
            let name = random(names.into()).to_string();
            let mut writer = Command::new(std::env::current_exe()?);
            writer.args(["worker", &url, &table, &name]).stdin(Stdio::null());
            writers.spawn(async move { Ok::<_, std::io::Error>(writer.status().await?.signal() == Some(9)) });
        }
        while let Some(writer) = writers.join_next().await {
            died += u32::from(writer??);
        }
        stale_before += stale(&cache, &mut source, &table, names).await?;
        relayed += outbox.drain(&cache).await?.rows;
        stale_after += stale(&cache, &mut source, &table, names).await?;
    }
    let mut commits = 0;
    for name in 0..names {
        commits += source.version(&table, &name.to_string()).await?.unwrap_or(0);
    }
    source.run(&format!("drop table {table}")).await?;
    println!("{died} writers were killed after their commit, in {:.0?}", began.elapsed());
    println!("  commits                                {commits}");
    println!("  rows of the outbox that were relayed   {relayed}");
    println!("  stale values before the relay          {stale_before}");
    println!("  stale values after the relay           {stale_after}");
    if stale_after > 0 || commits != i64::from(died) || relayed != u64::from(died) || stale_before == 0 {
        return Err("a value was stale, or the run proves nothing".into());
    }
    Ok(())
}

fn cache(client: &leasehold::Client, source: Database, table: &str) -> Result<Cache> {
    let (source, table) = (Arc::new(Mutex::new(source)), table.to_owned());
    let name = table.clone();
    let load = move |name: String| {
        let (source, table) = (Arc::clone(&source), table.clone());
        async move {
            let version = source.lock().await.version(&table, &name).await?;
            let loaded = version.map(|version| version.to_be_bytes().to_vec());
            Ok::<Loaded, Box<dyn std::error::Error + Send + Sync>>(loaded.into())
        }
    };
    Ok(client.cache(name, LIFE, load)?.early(0.0)?.deadline(Duration::from_secs(20))?)
}

/// How many values the cache has that are older than the database. It has all of them afterwards.
async fn stale(cache: &Cache, source: &mut Database, table: &str, names: u32) -> Result<u32> {
    let mut stale = 0;
    for name in (0..names).map(|name| name.to_string()) {
        let got = cache.get(&name).await?;
        let cached = i64::from_be_bytes(got.value().ok_or("no value")?.try_into()?);
        let now = source.version(table, &name).await?.ok_or("no row")?;
        stale += u32::from(cached < now);
    }
    Ok(stale)
}

/// A writer: it commits, and is gone.
async fn write_and_die(url: &str, table: &str, name: &str) -> Result<()> {
    let outbox = leasehold::connect(url).await?.outbox(table)?;
    Database::open(url).await?.change(table, name, &outbox).await?;
    kill_process(getpid(), Signal::KILL)?;
    Ok(())
}
