//! Every case on every engine.
//!
//! `cargo test -p leasehold --test conformance` runs them all; a name (`file::mutex::`) picks some.
//! An engine gives its [`setup::Setup`]s ([`engines`]) and can not choose cases: what it does not
//! promise it must refuse, and the case checks that.
//!
//! The same binary is the other process: `conformance child …` (see [`child`],
//! `cache::crashes` and `sale::crashes`).

mod bench;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "cache")]
mod cache;
mod cancel;
mod cells;
mod child;
mod client;
#[cfg(any(feature = "etcd-tls", feature = "zookeeper-tls"))]
mod encrypted;
mod engines;
#[cfg(feature = "etcd")]
mod etcd;
mod exclusive;
mod fence;
#[cfg(feature = "file")]
mod file;
mod handover;
mod history;
mod leader;
#[cfg(feature = "leaderboards")]
mod leaderboards;
mod lease;
mod limits;
#[cfg(feature = "postgres")]
mod line;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod members;
#[cfg(feature = "metrics")]
mod metrics;
mod multi;
mod mutex;
#[cfg(feature = "mysql")]
mod mysql;
mod network;
#[cfg(feature = "once")]
mod once;
mod outage;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod pages;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod push;
mod rate;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod round_trips;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod rules;
mod rwlock;
#[cfg(feature = "sale")]
mod sale;
#[cfg(feature = "schedule")]
mod schedule;
mod semaphore;
#[path = "../servers/mod.rs"]
mod servers;
#[cfg(feature = "sessions")]
mod sessions;
mod setup;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod shedlock;
#[cfg(all(feature = "mysql", feature = "once", feature = "postgres"))]
mod sqlx;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod steps;
#[cfg(feature = "once")]
mod stored;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod stranger;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod tables;
#[cfg(feature = "topics")]
mod topics;
#[cfg(all(feature = "once", any(feature = "mysql", feature = "postgres")))]
mod transactions;
mod waiting;
mod wire;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod work;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::Ground;
use libtest_mimic::{Arguments, Failed, Trial};
use setup::Setup;
use tokio::runtime::Builder;

/// A case: given a set-up, it returns or panics.
pub(crate) type Case = Arc<dyn Fn(Ground) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Makes a case of a function.
pub(crate) fn case<F: Future<Output = ()> + 'static>(
    run: impl Fn(Ground) -> F + Send + Sync + 'static,
) -> Case {
    Arc::new(move |ground| Box::pin(run(ground)))
}

/// A group of cases by name. A case that is in no group is dead code, which the lints refuse.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    /// What must be installed first, beside what the set-up needs.
    pub(crate) missing: Option<String>,
    pub(crate) cases: Vec<(&'static str, Case)>,
}

/// The cases of a module, named as they are.
macro_rules! cases {
    ($group:expr, [$($case:ident),* $(,)?]) => {
        crate::Group {
            name: $group,
            missing: None,
            cases: vec![$((stringify!($case), crate::case($case))),*],
        }
    };
    // Cases for engines that can do something. `$able` gives the ground back, or checks that the
    // engine refuses.
    ($group:expr, $able:path, [$($case:ident),* $(,)?]) => {
        crate::Group {
            name: $group,
            missing: None,
            cases: vec![$((stringify!($case), crate::case(|ground| async move {
                if let Some(ground) = $able(ground).await {
                    $case(ground).await;
                }
            }))),*],
        }
    };
}
pub(crate) use cases;

/// Cases on another set-up than the one whose run they belong to: a mode of its engine that does
/// not promise enough to run them all.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) fn on(setup: &Arc<Setup>, name: &'static str, group: Group) -> Group {
    let moved = |(case_name, run): (&'static str, Case)| {
        let setup = Arc::clone(setup);
        (case_name, case(move |_| run(Ground::new(Arc::clone(&setup)))))
    };
    Group { name, missing: group.missing, cases: group.cases.into_iter().map(moved).collect() }
}

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
        outage::group(),
        network::group(),
        waiting::group(),
        push::group(),
        handover::group(),
        rwlock::group(),
        semaphore::group(),
        multi::group(),
        leader::group(),
        cells::group(),
        rate::group(),
        #[cfg(feature = "leaderboards")]
        leaderboards::group(),
        #[cfg(feature = "once")]
        once::group(),
        #[cfg(feature = "once")]
        stored::group(),
        #[cfg(feature = "schedule")]
        schedule::group(),
        client::group(),
        cancel::group(),
        #[cfg(feature = "blocking")]
        blocking::group(),
    ]);
    #[cfg(feature = "metrics")]
    groups.extend(metrics::groups());
    #[cfg(feature = "sale")]
    groups.extend(sale::groups());
    #[cfg(feature = "sessions")]
    groups.extend(sessions::groups());
    #[cfg(feature = "topics")]
    groups.extend(topics::groups());
    #[cfg(feature = "cache")]
    groups.extend(cache::groups());
    groups
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("child") => return child::main(),
        Some("workers") => return child::workers(),
        #[cfg(all(feature = "cache", any(feature = "mysql", feature = "postgres")))]
        Some("outbox-child") => return cache::crashes::child(),
        #[cfg(feature = "sale")]
        Some("sale-child") => return sale::crashes::child(),
        _ => {}
    }
    let mut arguments = Arguments::from_args();
    // Cases wait more than they work.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    let mut trials = Vec::new();
    for mut setup in engines::setups() {
        let own_cases = std::mem::take(&mut setup.own_cases);
        let setup = Arc::new(setup);
        let setup_ignored = may_ignore(setup.missing.as_deref());
        for group in groups().into_iter().chain(own_cases) {
            let ignored = may_ignore(group.missing.as_deref()) || setup_ignored;
            for (case, run) in group.cases {
                let name = format!("{}::{}::{case}", setup.word, group.name);
                let setup = Arc::clone(&setup);
                trials.push(Trial::test(name, move || run_case(setup, &run)).with_ignored_flag(ignored));
            }
        }
    }
    let ended = libtest_mimic::run(&arguments, trials);
    servers::drop_idle();
    ended.exit_code()
}

/// What is missing is ignored on a laptop, and a failure in CI.
fn may_ignore(missing: Option<&str>) -> bool {
    if let Some(missing) = missing {
        eprintln!("conformance: {missing} is missing; `./test.sh` installs it");
    }
    missing.is_some() && std::env::var_os("CI").is_none()
}

fn run_case(setup: Arc<Setup>, case: &Case) -> Result<(), Failed> {
    let paused_time = setup.paused_time;
    let mut runtime = if paused_time { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime =
        runtime.worker_threads(2).enable_all().start_paused(paused_time).build().expect("a runtime");
    // Paused time would jump to the limit whenever all wait for a hint. Whoever asks for a long run
    // has the time.
    let asked_for_more = std::env::var_os("LEASEHOLD_SECTIONS").is_some();
    let limit = LIMIT * if paused_time { 1000 } else { 1 } * if asked_for_more { 30 } else { 1 };
    let limited = async { tokio::time::timeout(limit, case(Ground::new(setup))).await };
    runtime.block_on(limited).map_err(|_| Failed::from("the case takes too long"))
}
