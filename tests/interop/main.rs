//! Locks shared with the clients of others, as they are installed from their registries, on a real
//! server.
//!
//! Every case on Redis runs with every client: `cargo test -p leasehold --features
//! redis,etcd,zookeeper --test interop` runs them all, a name (`redsync::`) picks some.
//! `install.sh` installs the clients, and `./test.sh` calls it.

mod anybody;
#[cfg(feature = "etcd")]
mod etcd;
mod fleet;
mod pairs;
mod quorum;
#[path = "../servers/mod.rs"]
mod servers;
mod strangers;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use servers::Redis;
use strangers::Ground;

/// A case: given a server and a client that is not ours, it returns or panics.
pub(crate) type Case = fn(Ground) -> Pin<Box<dyn Future<Output = ()>>>;

/// The cases of a module, named as they are.
macro_rules! cases {
    ([$($case:ident),* $(,)?]) => {
        vec![$((stringify!($case), (|ground| Box::pin($case(ground))) as crate::Case)),*]
    };
}
pub(crate) use cases;

/// No case takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases wait more than they work, but how long they wait is what they measure.
    arguments.test_threads = arguments.test_threads.or(Some(5));
    thread::spawn(count_stalls);
    let mut trials = Vec::new();
    for foreign in strangers::ALL {
        let ignored = may_ignore(Redis::missing().or_else(|| foreign.missing()).as_deref());
        for (case, run) in pairs::all().into_iter().chain(fleet::all()) {
            let once = move || run_once(async move { run(Ground { redis: Redis::start(), foreign }).await });
            let trial = Trial::test(format!("{}::{case}", foreign.word), move || patiently(once));
            trials.push(trial.with_ignored_flag(ignored));
        }
        let asks_many = quorum::THEIRS.contains(&foreign.word);
        for (case, run) in quorum::all().into_iter().filter(|_| asks_many) {
            let once = move || run_once(async move { run(quorum::Ground::new(foreign)).await });
            let trial = Trial::test(format!("{}::quorum::{case}", foreign.word), move || patiently(once));
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    let ignored = may_ignore(Redis::missing().as_deref());
    for (case, run) in anybody::all() {
        let ground = || Ground { redis: Redis::start(), foreign: &strangers::ANYBODY };
        let once = move || run_once(async move { run(ground()).await });
        let trial = Trial::test(format!("anybody::{case}"), move || patiently(once));
        trials.push(trial.with_ignored_flag(ignored));
    }
    #[cfg(feature = "etcd")]
    trials.extend(etcd::trials());
    #[cfg(feature = "zookeeper")]
    trials.extend(zookeeper::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What is missing is ignored on a laptop, and a failure in CI.
pub(crate) fn may_ignore(missing: Option<&str>) -> bool {
    if let Some(missing) = missing {
        eprintln!("interop: {missing} is missing; `./test.sh` installs it");
    }
    missing.is_some() && std::env::var_os("CI").is_none()
}

/// How often this machine has stood still since the start.
static STALLS: AtomicU32 = AtomicU32::new(0);

fn count_stalls() {
    const NAP: Duration = Duration::from_millis(20);
    const TOO_LONG: Duration = Duration::from_millis(200);
    loop {
        let before = Instant::now();
        thread::sleep(NAP);
        if before.elapsed() > TOO_LONG {
            STALLS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs a case, and again if it failed while the machine stood still: leases end meanwhile, of
/// strangers too, and what was late then proves nothing.
pub(crate) fn patiently(case: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    const TRIES: u32 = 5;
    for _ in 1..TRIES {
        let before = STALLS.load(Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(&case)) {
            Ok(Ok(())) => return Ok(()),
            _ if STALLS.load(Ordering::Relaxed) > before => {
                eprintln!("interop: the machine stood still; again");
            }
            Ok(failed) => return failed,
            Err(panic) => resume_unwind(panic),
        }
    }
    case()
}

pub(crate) fn run_once(case: impl Future<Output = ()>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, case).await.map_err(|_| Failed::from("the case takes too long"))
    })
}
