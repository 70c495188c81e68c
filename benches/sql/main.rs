//! How near the SQL engines come to the bare statements, in one run, on servers whose disks are
//! waited for: PostgreSQL, then MariaDB.
//!
//! ```text
//! cargo bench -p leasehold --features mysql,postgres --bench sql                 # about ten minutes
//! cargo bench -p leasehold --features mysql,postgres --bench sql -- --quick      # about two minutes
//! cargo bench -p leasehold --features mysql,postgres --bench sql -- --only mysql # one of the two
//! cargo bench -p leasehold --features mysql,postgres --bench sql -- --on URL     # on a server of yours
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bare::Bare;
use bare::postgres::Way;
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
    let runtime = kit::two_threads()?;
    let bench = Bench { runtime: &runtime, rounds, slice };
    if let Some(url) = kit::value_after(arguments, "--on") {
        // The tables of pgbench do not belong into a database of somebody's.
        return match url.starts_with("postgres") {
            true => bench.postgres(url),
            false => bench.mysql(url),
        };
    }
    let only = kit::value_after(arguments, "--only");
    if only.is_none_or(|only| only == "postgres") {
        installed(Postgres::missing())?;
        let server = Postgres::start_with(&["fsync=on", "full_page_writes=on"]);
        bench.postgres(&server.url())?;
        pgbench::run(&runtime, &server, rounds.div_ceil(2), 3 * slice)?;
    }
    if only.is_none_or(|only| only == "mysql") {
        installed(MariaDb::missing())?;
        let server = MariaDb::start_with(&["--innodb-flush-log-at-trx-commit=1"]);
        bench.mysql(&server.url())?;
    }
    Ok(())
}

fn installed(missing: Option<String>) -> Result<()> {
    missing.map_or(Ok(()), |missing| Err(format!("{missing} is missing; `./test.sh` installs it").into()))
}

/// How long everything is measured.
struct Bench<'a> {
    runtime: &'a Runtime,
    rounds: usize,
    slice: Duration,
}

/// What an application would use instead of us, in the same database.
struct Others<B> {
    bare: Vec<(&'static str, Arc<B>)>,
    /// The same over one connection.
    alone: B,
    /// What processes use that want the same name.
    kinds: &'static [&'static str],
}

impl Bench<'_> {
    fn postgres(&self, url: &str) -> Result<()> {
        println!("PostgreSQL");
        let open =
            |way, connections| self.runtime.block_on(bare::postgres::Pool::open(url, way, connections));
        let bare = vec![
            ("bare statements, prepared", Arc::new(open(Way::Prepared, CONNECTIONS)?)),
            ("bare statements, not prepared", Arc::new(open(Way::Text, CONNECTIONS)?)),
        ];
        let alone = open(Way::Prepared, 1)?;
        self.all(url, &Others { bare, alone, kinds: &["pg_advisory_lock", "ShedLock's statements"] })
    }

    fn mysql(&self, url: &str) -> Result<()> {
        println!("MySQL or MariaDB");
        let open = |connections| self.runtime.block_on(bare::mysql::Pool::open(url, connections));
        let bare = vec![("bare statements, prepared", Arc::new(open(CONNECTIONS)?))];
        self.all(url, &Others { bare, alone: open(1)?, kinds: &["GET_LOCK"] })
    }

    fn all<B: Bare>(&self, url: &str, others: &Others<B>) -> Result<()> {
        let Bench { runtime, rounds, slice } = *self;
        for tasks in [1, bare::NAMES] {
            free_names(runtime, url, &others.bare, tasks, rounds, slice)?;
        }
        one_name(runtime, url, rounds, slice)?;
        many_clients(runtime, url, rounds, slice)?;
        let commit = runtime.block_on(bare::commit_time(&others.alone))?;
        let kinds = [&["ours"][..], others.kinds].concat();
        let kinds: Vec<_> = kinds.into_iter().map(|kind| (kind, url)).collect();
        processes::run(&kinds, commit, rounds.div_ceil(2), 2 * slice)
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
fn free_names<B: Bare>(
    runtime: &Runtime,
    url: &str,
    bare: &[(&'static str, Arc<B>)],
    tasks: usize,
    rounds: usize,
    slice: Duration,
) -> Result<()> {
    println!("names that nobody else wants, {tasks} tasks, {CONNECTIONS} connections");
    let client = runtime.block_on(leasehold::connect(&format!("{url}?connections={CONNECTIONS}")))?;
    let ours = Runner::new("ours", |slice| {
        let client = client.clone();
        kit::rate_of_tasks(runtime, tasks, slice, move |task| {
            turn(client.clone(), format!("n{task}"), Duration::ZERO)
        })
    });
    let theirs = bare.iter().map(|&(label, ref bare)| {
        Runner::new(label, move |slice| {
            let bare = Arc::clone(bare);
            kit::rate_of_tasks(runtime, tasks, slice, move |task| bare::cycle(Arc::clone(&bare), task))
        })
    });
    let race = race(rounds, slice, std::iter::once(ours).chain(theirs).collect())?;
    race.print();
    let fastest = (1..=bare.len()).max_by(|&a, &b| race.median(a).total_cmp(&race.median(b)));
    let fastest = fastest.ok_or("nothing to compare with")?;
    verdict("ours / the faster bare statements", Goal::AtLeast(0.8), race.ratio(0, fastest));
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
