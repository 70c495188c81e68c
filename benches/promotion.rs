//! What becomes of locks when a standby that lags is promoted under load: of PostgreSQL, and of
//! MariaDB.
//!
//! ```text
//! cargo bench -p leasehold --features mysql,postgres --bench promotion                    # 60 promotions of each kind
//! cargo bench -p leasehold --features mysql,postgres --bench promotion -- 20 mysql async  # or as many as you like, of one kind
//! ```
//!
//! Each time, eight clients take four names in turn. What the primary writes reaches its standby
//! late, and in three of four cases not at all for the last moments. Then the primary is killed,
//! and the standby promoted. Clients that hold a name then go on holding it until they are told
//! that it is lost; the others ask the new primary. If one of them gets a name before its holder
//! was told, there are two holders.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Fence, Token};
use servers::{MariaDb, Postgres, Proxy};
use tokio::sync::watch;

#[path = "../tests/servers/mod.rs"]
mod servers;

const PROMOTIONS: usize = 60;
const AT_ONCE: usize = 2;
const CLIENTS: usize = 8;
const NAMES: usize = 4;
const LEASE: Duration = Duration::from_secs(6);
/// How long a name is held, and how long the clients work before the end of the primary and after
/// that of the promotion.
const HELD: Duration = Duration::from_millis(10);
const BEFORE: Duration = Duration::from_millis(800);
const AFTER: Duration = Duration::from_millis(2500);

fn main() -> ExitCode {
    if let Some(missing) = Postgres::missing().or_else(MariaDb::missing) {
        eprintln!("promotion: {missing} is missing; `./test.sh` installs it");
        return ExitCode::FAILURE;
    }
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(PROMOTIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("a lagging standby is promoted under load; {wanted} promotions of each kind");
    let mut fenced = true;
    let engines = said([("postgres", Engine::Postgres), ("mysql", Engine::MariaDb)]);
    let kinds = said([("async", Kind::Async), ("sync", Kind::Sync)]);
    for (engine, kind) in engines.iter().flat_map(|&engine| kinds.iter().map(move |&kind| (engine, kind))) {
        let mut sum = Sum::default();
        let mut left = wanted;
        while left > 0 {
            let batch: Vec<_> =
                (0..left.min(AT_ONCE)).map(|at| runtime.spawn(promotion(engine, kind, left - at))).collect();
            left -= batch.len();
            for ended in batch {
                sum.add(&runtime.block_on(ended).expect("no panic"));
            }
        }
        sum.print(engine, kind);
        fenced &= sum.refused == sum.two_holders && sum.tokens_fell == 0;
        fenced &= kind == Kind::Async || sum.two_holders == 0;
    }
    if fenced { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Those whose words are among the arguments, or all if none is.
fn said<T: Copy>(choices: [(&str, T); 2]) -> Vec<T> {
    let is_said = |word: &str| std::env::args().any(|argument| argument == word);
    let all = !choices.iter().any(|(word, _)| is_said(word));
    choices.into_iter().filter(|(word, _)| all || is_said(word)).map(|(_, choice)| choice).collect()
}

#[derive(Clone, Copy, Debug)]
enum Engine {
    Postgres,
    MariaDb,
}

/// How the standby follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Async,
    /// A grant is answered when the standby has it on disk.
    Sync,
}

/// A name that was held: by whom does not matter.
#[derive(Clone, Copy)]
struct Section {
    token: Token,
    granted: Instant,
    /// When its holder gave it back, or was told that it is lost.
    ended: Instant,
    /// It was held when the primary was killed.
    survived: bool,
    lost: bool,
}

/// What came of promotions.
#[derive(Default)]
struct Sum {
    promotions: usize,
    grants: usize,
    /// Held when the primary was killed, and told that it is lost.
    held: usize,
    lost: usize,
    promotions_with_two: usize,
    two_holders: usize,
    /// Of those, the late write of the older one was refused.
    refused: usize,
    tokens_fell: usize,
    overlap: Duration,
    /// From the grant of the newer one until the older one was told.
    told_after: Duration,
}

impl Sum {
    fn add(&mut self, names: &BTreeMap<usize, Vec<Section>>) {
        self.promotions += 1;
        let before = self.two_holders;
        for sections in names.values() {
            self.add_name(sections);
        }
        self.promotions_with_two += usize::from(self.two_holders > before);
    }

    /// The sections of one name, in the order in which they were granted.
    fn add_name(&mut self, sections: &[Section]) {
        self.grants += sections.len();
        let mut highest: Option<Token> = None;
        for (at, section) in sections.iter().enumerate() {
            self.held += usize::from(section.survived);
            self.lost += usize::from(section.survived && section.lost);
            self.tokens_fell += usize::from(highest.is_some_and(|highest| section.token <= highest));
            highest = highest.max(Some(section.token));
            for older in sections[..at].iter().filter(|older| older.ended > section.granted) {
                self.two_holders += 1;
                self.overlap = self.overlap.max(older.ended.min(section.ended) - section.granted);
                self.told_after = self.told_after.max(older.ended - section.granted);
                let fence = Fence::new();
                fence.admit(section.token).expect("the first write");
                self.refused += usize::from(fence.admit(older.token).is_err());
            }
        }
    }

    fn print(&self, engine: Engine, kind: Kind) {
        let Sum { promotions, grants, held, lost, promotions_with_two, two_holders, .. } = self;
        let Sum { refused, tokens_fell, overlap, told_after, .. } = self;
        println!(
            "  {engine:?}, {kind:?}: {promotions} promotions, {grants} grants; {held} names held at the end of a \
             primary, of which {lost} were told lost; two holders {two_holders} times in \
             {promotions_with_two} promotions, for {overlap:.1?} at most, the older one told {told_after:.1?} \
             after the grant at most; late writes refused {refused} of {two_holders}, tokens that fell \
             {tokens_fell}"
        );
    }
}

/// A primary and a standby behind it, over a line that can be slow.
struct Pair {
    servers: Servers,
    line: Proxy,
}

enum Servers {
    Postgres {
        primary: Postgres,
        standby: Postgres,
    },
    /// Clients know one address, which moves to the new primary.
    MariaDb {
        address: Proxy,
        primary: MariaDb,
        standby: MariaDb,
    },
}

impl Pair {
    fn start(engine: Engine, kind: Kind, number: usize) -> Pair {
        let (servers, line) = match engine {
            Engine::Postgres => Pair::postgres(kind),
            Engine::MariaDb => Pair::mariadb(kind),
        };
        // Always different, and the same in every run.
        line.delay(Duration::from_micros(number as u64 * 7919 % 8000));
        Pair { servers, line }
    }

    fn postgres(kind: Kind) -> (Servers, Proxy) {
        let primary = Postgres::start();
        let line = Proxy::start(primary.port());
        let standby = primary.start_standby(line.port());
        if kind == Kind::Sync {
            primary.sql("alter system set synchronous_standby_names = '*'");
            primary.sql("select pg_reload_conf()");
            let state = "select count(*) from pg_stat_replication where sync_state = 'sync'";
            servers::until("the standby counts", || primary.sql(state) == "1");
        }
        (Servers::Postgres { primary, standby }, line)
    }

    fn mariadb(kind: Kind) -> (Servers, Proxy) {
        let primary = MariaDb::start_primary();
        let line = Proxy::start(primary.port());
        let standby = primary.start_replica(line.port());
        if kind == Kind::Sync {
            primary.wait_for_replica(&standby);
        }
        (Servers::MariaDb { address: Proxy::start(primary.port()), primary, standby }, line)
    }

    fn url(&self) -> String {
        match &self.servers {
            Servers::Postgres { primary, standby } => {
                let hosts = [primary, standby].map(|server| format!("127.0.0.1:{}", server.port()));
                primary.url().replace(&hosts[0], &hosts.join(","))
            }
            Servers::MariaDb { address, .. } => MariaDb::url_at(address.port()),
        }
    }

    fn fail_over(&self) {
        match &self.servers {
            Servers::Postgres { primary, standby } => {
                primary.kill();
                standby.promote();
            }
            Servers::MariaDb { address, primary, standby } => {
                primary.kill();
                standby.promote();
                address.move_to(standby.port());
            }
        }
    }
}

/// How far a promotion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Load,
    /// The primary is being killed, or dead.
    Killed,
    /// The standby has been the primary for a while.
    Over,
}

async fn promotion(engine: Engine, kind: Kind, number: usize) -> BTreeMap<usize, Vec<Section>> {
    let pair = tokio::task::spawn_blocking(move || Pair::start(engine, kind, number)).await.expect("servers");
    let (stage, stages) = watch::channel(Stage::Load);
    let mut workers = Vec::new();
    for worker in 0..CLIENTS {
        let client = connect(&pair.url()).await;
        workers.push(tokio::spawn(work(client, worker, stages.clone())));
    }
    tokio::time::sleep(BEFORE).await;
    if !number.is_multiple_of(4) {
        // What is written from now on does not arrive.
        pair.line.stall();
        tokio::time::sleep(Duration::from_millis(number as u64 * 31 % 40)).await;
    }
    let pair = tokio::task::spawn_blocking(move || {
        stage.send_replace(Stage::Killed);
        pair.fail_over();
        (pair, stage)
    });
    let (pair, stage) = pair.await.expect("promoted");
    tokio::time::sleep(AFTER).await;
    stage.send_replace(Stage::Over);
    let mut names: BTreeMap<usize, Vec<Section>> = BTreeMap::new();
    for worker in workers {
        for (name, section) in worker.await.expect("no panic") {
            names.entry(name).or_default().push(section);
        }
    }
    names.values_mut().for_each(|sections| sections.sort_by_key(|section| section.granted));
    tokio::task::spawn_blocking(move || drop(pair)).await.expect("no panic");
    names
}

/// A client. A machine that is busy with other servers may take its time.
async fn connect(url: &str) -> Client {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match leasehold::connect(url).await {
            Ok(client) => return client,
            Err(error) => assert!(error.is_retryable() && Instant::now() < limit, "{error}"),
        }
    }
}

/// Takes one name after the other until all is over.
async fn work(client: Client, worker: usize, mut stages: watch::Receiver<Stage>) -> Vec<(usize, Section)> {
    let mut sections = Vec::new();
    let locks: Arc<[_]> =
        (0..NAMES).map(|name| client.mutex(format!("n{name}")).expect("a name").lease(LEASE)).collect();
    for turn in worker.. {
        let before = *stages.borrow();
        if before == Stage::Over {
            break;
        }
        let name = turn * 7 % NAMES;
        // Errors are the outage between the two.
        let Ok(Some(guard)) = locks[name].lock_for(Duration::from_millis(300)).await else { continue };
        let granted = Instant::now();
        let end = async {
            tokio::time::sleep(HELD).await;
            // Who holds when the primary is killed goes on until it is over, as a long job would.
            if before == Stage::Load && *stages.borrow_and_update() == Stage::Killed {
                stages.wait_for(|stage| *stage == Stage::Over).await.ok();
                return true;
            }
            false
        };
        let (survived, lost) = tokio::select! {
            survived = end => (survived, false),
            _ = guard.lost() => (before == Stage::Load, true),
        };
        sections
            .push((name, Section { token: guard.token(), granted, ended: Instant::now(), survived, lost }));
        // Lost, or unknown.
        guard.release().await.ok();
    }
    client.close().await.ok();
    sections
}
