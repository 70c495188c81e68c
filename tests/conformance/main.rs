//! Every case on every engine.
//!
//! `cargo test -p leasehold --test conformance` runs them all; a name (`file::mutex::`) picks some. An engine gives a
//! [`bench::Bench`] and can not choose cases: what it does not promise it must refuse, and the case checks that.
//!
//! The same binary is the other process: `conformance child …` (see [`child`]).

mod bench;
mod cancel;
mod child;
mod client;
mod exclusive;
mod fence;
#[cfg(feature = "file")]
mod file;
mod handover;
mod history;
mod leader;
mod lease;
mod limits;
mod multi;
mod mutex;
mod process;
mod push;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
mod rwlock;
mod semaphore;
#[path = "../servers/mod.rs"]
mod servers;
mod waiting;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::{Bench, Ground};
use libtest_mimic::{Arguments, Failed, Trial};

/// A case: given the ground of one engine, it returns or panics.
pub(crate) type Case = fn(Ground) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// A group of cases by name. A case that is in no group is dead code, which the lints refuse.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) cases: Vec<(&'static str, Case)>,
}

/// The cases of a module, named as they are.
macro_rules! cases {
    ($group:expr, [$($case:ident),* $(,)?]) => {
        crate::Group {
            name: $group,
            cases: vec![$((stringify!($case), (|ground| Box::pin($case(ground))) as crate::Case)),*],
        }
    };
    // Cases for engines that can do something. `$able` gives the ground back, or checks that the engine refuses.
    ($group:expr, $able:path, [$($case:ident),* $(,)?]) => {
        crate::Group {
            name: $group,
            cases: vec![$((stringify!($case), (|ground| {
                Box::pin(async move {
                    if let Some(ground) = $able(ground).await {
                        $case(ground).await;
                    }
                })
            }) as crate::Case)),*],
        }
    };
}
pub(crate) use cases;

/// No case takes longer than this.
const LIMIT: Duration = Duration::from_secs(120);

fn groups() -> Vec<Group> {
    let mut groups = exclusive::groups();
    groups.extend([
        mutex::group(),
        lease::group(),
        limits::group(),
        fence::group(),
        process::group(),
        waiting::group(),
        push::group(),
        handover::group(),
        rwlock::group(),
        semaphore::group(),
        multi::group(),
        leader::group(),
        client::group(),
        cancel::group(),
    ]);
    groups
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("child") => return child::main(),
        Some("workers") => return child::workers(),
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    // Cases wait more than they work.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    let mut trials = Vec::new();
    for engine in bench::engines() {
        for group in groups() {
            for (case, run) in group.cases {
                let engine = Arc::clone(&engine);
                let name = format!("{}::{}::{case}", engine.word(), group.name);
                let ignored = may_ignore(engine.missing().as_deref());
                let trial = Trial::test(name, move || run_case(&*engine, run));
                trials.push(trial.with_ignored_flag(ignored));
            }
        }
    }
    #[cfg(feature = "file")]
    let ignored = may_ignore(file::store::missing().as_deref());
    #[cfg(feature = "file")]
    for (case, run) in file::store::cases() {
        let trial = Trial::test(format!("file::store::{case}"), move || run_case(&bench::File, run));
        trials.push(trial.with_ignored_flag(ignored));
    }
    #[cfg(feature = "redis")]
    let ignored = may_ignore(bench::Redis.missing().as_deref());
    #[cfg(feature = "redis")]
    for (case, run) in redis::topology::cases() {
        let trial = Trial::test(format!("redis::topology::{case}"), move || {
            let limited = bench::Redis.runtime().block_on(async { tokio::time::timeout(LIMIT, run()).await });
            limited.map_err(|_| Failed::from("the case takes too long"))
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    #[cfg(feature = "redis")]
    for (case, run) in redis::cases() {
        let trial = Trial::test(format!("redis::server::{case}"), move || run_case(&bench::Redis, run));
        trials.push(trial.with_ignored_flag(ignored));
    }
    #[cfg(feature = "redis")]
    for servers in [3, 5] {
        for (case, run) in redlock::cases() {
            let trial = Trial::test(format!("redlock{servers}::faults::{case}"), move || {
                let case = async { tokio::time::timeout(LIMIT, run(servers)).await };
                bench::Redis.runtime().block_on(case).map_err(|_| Failed::from("the case takes too long"))
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What is missing is ignored on a laptop, and a failure in CI.
fn may_ignore(missing: Option<&str>) -> bool {
    if let Some(missing) = missing {
        eprintln!("conformance: {missing} is missing; `./test.sh` installs it");
    }
    missing.is_some() && std::env::var_os("CI").is_none()
}

fn run_case(engine: &dyn Bench, case: Case) -> Result<(), Failed> {
    let runtime = engine.runtime();
    let ground = engine.ground();
    runtime.block_on(async {
        // Paused time would jump to the limit whenever all wait for a hint.
        let limit = if ground.paused_time() { LIMIT * 1000 } else { LIMIT };
        tokio::time::timeout(limit, case(ground)).await.map_err(|_| Failed::from("the case takes too long"))
    })
}
