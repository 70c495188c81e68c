//! Ends all sessions of a user while they are in use, and counts what is left of them.
//!
//! ```text
//! cargo run -p leasehold --features sessions --example end_all_sessions
//! cargo run -p leasehold --features sessions,redis --example end_all_sessions -- --on redis://127.0.0.1/
//! ```
//!
//! A hundred thousand sessions of a thousand users are created. Then eight clients use the sessions
//! of one user, save to them and sign in again and again, while all sessions of that user are ended
//! five times. If a session that was there before is valid afterwards, if one is valid that is not
//! listed, or if the store has a cell more than it should, the program ends with an error.
//!
//! `--sessions 100000`, `--users 1000`. The store should have nothing else in it.

#[path = "processes/mod.rs"]
mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::engine::Hints;
use leasehold::kit::sessions::{Session, Sessions};
use leasehold::{Client, Options};
use processes::{Arguments, Result, random};
use tokio::task::JoinSet;

const CLIENTS: usize = 8;
/// How many sessions are created at the same time.
const AT_ONCE: u32 = 32;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    let dir = tempfile::tempdir()?;
    let url = arguments.url(&dir);
    if url == "memory:" {
        return Err(
            "each client of `memory:` has a store of its own; say `memory:NAME`, which those of one \
                    process share"
                .into(),
        );
    }
    let (count, users) = (arguments.number("--sessions", 100_000)?, arguments.number("--users", 1000)?);
    let client = leasehold::connect(&url).await?;
    let name = format!("sessions-{}", random(u64::MAX));
    let sessions = client.sessions(&name)?;
    let cells = async || cells(&url, &name).await;

    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let sessions = sessions.clone();
        tasks.spawn(async move {
            for number in (task..count).step_by(AT_ONCE as usize) {
                sessions.create(format!("user {}", number % users), b"what was put into it").await?;
            }
            Ok::<(), leasehold::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!("{count} sessions of {users} users were created in {:.1?}", begun.elapsed());
    let before = cells().await?;
    println!("the store has {before} cells: one for each session, and two for each user");
    expect("cells", before, u64::from(count) + 2 * u64::from(users))?;

    let user = "user 7";
    let others = count - u32::try_from(sessions.list(user).await?.len())?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut uses = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = leasehold::connect(&url).await?;
        uses.spawn(use_sessions(client, name.clone(), user, Arc::clone(&stop)));
    }
    let mut last = Instant::now();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        last = Instant::now();
        let ended = sessions.end_all(user).await?;
        println!("{ended} sessions of `{user}` were ended in {:.1?}", last.elapsed());
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.store(true, Ordering::Release);
    let (mut made, mut valid, mut used) = (0, 0, 0);
    while let Some(of_client) = uses.join_next().await {
        let (sessions_of_client, loads) = of_client??;
        used += loads;
        for (session, created) in sessions_of_client {
            made += 1;
            if sessions.load(session.id()).await?.is_some() {
                valid += 1;
                if created < last {
                    return Err("a session that was ended is valid".into());
                }
            }
        }
    }
    println!(
        "meanwhile {CLIENTS} clients created {made} sessions of `{user}`, and loaded and saved {used} times"
    );
    expect("sessions listed", sessions.list(user).await?.len() as u64, valid)?;
    println!("{valid} were created after the last end: they are valid, and all of them are listed");
    expect("sessions ended", sessions.end_all(user).await?, valid)?;
    let after = cells().await?;
    println!(
        "after the last end the store has {after} cells: those of the other users, and nothing of this one"
    );
    expect("cells", after, u64::from(others) + 2 * u64::from(users - 1))
}

fn expect(what: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{found} {what}, not {expected}").into()) }
}

/// Signs in, and uses what was signed in before, until it is told to stop; how often it did.
async fn use_sessions(
    client: Client,
    name: String,
    user: &'static str,
    stop: Arc<AtomicBool>,
) -> leasehold::Result<(Vec<(Session, Instant)>, u64)> {
    let sessions: Sessions = client.sessions(name)?;
    let (mut made, mut used) = (Vec::new(), 0);
    while !stop.load(Ordering::Acquire) {
        made.push((sessions.create(user, "").await?, Instant::now()));
        for (session, _) in made.iter().rev().take(5) {
            if let Some(found) = sessions.load(session.id()).await? {
                sessions.save(&found, "used").await?;
                used += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok((made, used))
}

/// How many cells of these sessions the store has.
async fn cells(url: &str, name: &str) -> Result<u64> {
    let engine = leasehold::engine::open(url, &Options::new()).await?;
    engine.listen(Hints::new(|_| {}));
    let (prefix, mut after, mut count) = (format!("sessions/{name}/"), None, 0);
    loop {
        let page = engine.list_cells(&prefix, after.as_deref(), 10_000).await?;
        count += page.len() as u64;
        match page.last() {
            Some(last) => after = Some(last.as_str().to_owned()),
            None => break,
        }
    }
    engine.close().await?;
    Ok(count)
}
