//! How near the SQL engines come to the bare statements, in one run, on a server whose disk is
//! waited for.
//!
//! ```text
//! cargo bench -p leasehold --features postgres --bench sql              # about five minutes
//! cargo bench -p leasehold --features postgres --bench sql -- --quick   # about a minute
//! cargo bench -p leasehold --features postgres --bench sql -- --on URL  # on a server of yours
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kit::{Goal, Result, Runner, race, verdict};
use leasehold::{Client, Options};
use servers::{MariaDb, Postgres};
use tokio::runtime::Runtime;

mod bare;
#[path = "../kit.rs"]
mod kit;
mod pgbench;
mod processes;
#[path = "../../tests/servers/mod.rs"]
mod servers;

const CONNECTIONS: usize = 4;

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sql: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    if let [flag, child @ ..] = arguments
        && flag == "--child"
    {
        return processes::child(child);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, slice) =
        if quick { (3, Duration::from_millis(300)) } else { (7, Duration::from_millis(1000)) };
    let server = match kit::value_after(arguments, "--on") {
        Some(_) => None,
        None => match Postgres::missing() {
            Some(missing) => return Err(format!("{missing} is missing; `./test.sh` installs it").into()),
            None => Some(Postgres::start_with(&["fsync=on", "full_page_writes=on"])),
        },
    };
    let url = match (kit::value_after(arguments, "--on"), &server) {
        (Some(url), _) => url.to_owned(),
        (None, Some(server)) => server.url(),
        (None, None) => return Err("no server".into()),
    };
    let runtime = kit::two_threads()?;
    for tasks in [1, 64] {
        free_names(&runtime, &url, tasks, rounds, slice)?;
    }
    one_name(&runtime, &url, rounds, slice)?;
    many_clients(&runtime, &url, rounds, slice)?;
    many_processes(&runtime, &url, rounds, slice)?;
    // The tables of pgbench do not belong into a database of somebody's.
    match &server {
        Some(server) => pgbench::run(&runtime, server, rounds.div_ceil(2), 3 * slice),
        None => Ok(()),
    }
}

async fn turn(client: Client, name: String, held: Duration) -> Result<()> {
    let guard = client.mutex(name)?.lock().await?;
    if !held.is_zero() {
        tokio::time::sleep(held).await;
    }
    Ok(guard.release().await?)
}

/// Names that nobody else wants, beside the two statements that an application would write by hand.
fn free_names(runtime: &Runtime, url: &str, tasks: usize, rounds: usize, slice: Duration) -> Result<()> {
    println!("names that nobody else wants, {tasks} tasks, {CONNECTIONS} connections");
    let client = runtime.block_on(leasehold::connect(&format!("{url}?connections={CONNECTIONS}")))?;
    let bare = Arc::new(runtime.block_on(bare::Pool::open(url, CONNECTIONS))?);
    let ours = Runner::new("ours", |slice| {
        let client = client.clone();
        kit::rate_of_tasks(runtime, tasks, slice, move |task| {
            turn(client.clone(), format!("n{task}"), Duration::ZERO)
        })
    });
    let theirs = Runner::new("bare statements", |slice| {
        let bare = Arc::clone(&bare);
        kit::rate_of_tasks(runtime, tasks, slice, move |task| {
            let bare = Arc::clone(&bare);
            async move { bare.cycle(task).await }
        })
    });
    let race = race(rounds, slice, vec![ours, theirs])?;
    race.print();
    verdict("ours / bare statements", Goal::AtLeast(0.8), race.ratio(0, 1));
    Ok(())
}

/// Tasks of one process that want the same name.
fn one_name(runtime: &Runtime, url: &str, rounds: usize, slice: Duration) -> Result<()> {
    println!("one name, 16 tasks of one process");
    let with = runtime.block_on(leasehold::connect(url))?;
    let without = Options::new().hand_over(Duration::ZERO, 0);
    let without = runtime.block_on(leasehold::connect_with(url, without))?;
    let cycle = |client: &Client| {
        let client = client.clone();
        move |_| turn(client.clone(), "one".to_owned(), Duration::ZERO)
    };
    let local =
        Runner::new("with the local queue", |slice| kit::rate_of_tasks(runtime, 16, slice, cycle(&with)));
    let engine = Runner::new("without it", |slice| kit::rate_of_tasks(runtime, 16, slice, cycle(&without)));
    let race = race(rounds, slice, vec![local, engine])?;
    race.print();
    verdict("with / without the local queue", Goal::AtLeast(10.0), race.ratio(0, 1));
    Ok(())
}

/// Clients that want the same name, as processes do: each has its connections and its queue.
fn many_clients(runtime: &Runtime, url: &str, rounds: usize, slice: Duration) -> Result<()> {
    println!("one name, 16 clients");
    let options = || Options::new().hand_over(Duration::ZERO, 0);
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(runtime.block_on(leasehold::connect_with(&format!("{url}?connections=1"), options()))?);
    }
    let turns: Arc<[AtomicU64]> = (0..16).map(|_| AtomicU64::new(0)).collect();
    let contended = Runner::new("16 clients", |slice| {
        let (turns, clients) = (Arc::clone(&turns), clients.clone());
        kit::rate_of_tasks(runtime, 16, slice, move |task| {
            turns[task].fetch_add(1, Ordering::Relaxed);
            turn(clients[task].clone(), "all".to_owned(), Duration::ZERO)
        })
    });
    let alone = Runner::new("one task alone", |slice| {
        let client = clients[0].clone();
        kit::rate_of_tasks(runtime, 1, slice, move |_| {
            turn(client.clone(), "alone".to_owned(), Duration::ZERO)
        })
    });
    let race = race(rounds, slice.max(Duration::from_secs(1)), vec![contended, alone])?;
    race.print();
    verdict("16 clients / one task alone", Goal::AtLeast(0.5), race.ratio(0, 1));
    let turns: Vec<f64> = turns.iter().map(|turns| turns.load(Ordering::Relaxed) as f64).collect();
    verdict("spread of the turns", Goal::AtMost(1.3), kit::spread(&turns));
    Ok(())
}

/// Processes that want the same name, beside what others do.
fn many_processes(runtime: &Runtime, url: &str, rounds: usize, slice: Duration) -> Result<()> {
    let commit = runtime.block_on(async { bare::Pool::open(url, 1).await?.commit_time().await })?;
    let mut kinds = vec![("ours", url), ("pg_advisory_lock", url), ("ShedLock's statements", url)];
    let mariadb = MariaDb::missing().is_none().then(MariaDb::start);
    let mariadb = mariadb.as_ref().map(MariaDb::url);
    kinds.extend(mariadb.as_deref().map(|url| ("GET_LOCK", url)));
    processes::run(&kinds, commit, rounds.div_ceil(2), 2 * slice)
}
