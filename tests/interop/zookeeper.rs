//! Names of a ZooKeeper ensemble, shared with Curator and kazoo.

mod elections;
mod semaphores;

use std::fs;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Family, Loss};
use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::servers::{self, ZooKeeper, class_path};
use crate::strangers::{Stranger, installed};
use crate::{may_ignore, patiently, run_once};

/// A case: given a server, it returns or panics.
type Case = fn(ZooKeeper) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! zookeeper_cases {
    ([$($case:ident),* $(,)?]) => {
        vec![$((stringify!($case), (|server| Box::pin($case(server))) as crate::zookeeper::Case)),*]
    };
}
use zookeeper_cases;

/// The name that all share.
const NAME: &str = "jobs/nightly";

pub(crate) fn trials() -> Vec<Trial> {
    let kazoo = fs::read_dir(installed("python/lib"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|version| version.path().join("site-packages/kazoo").is_dir());
    let missing = (!kazoo).then(|| "kazoo (tests/interop/install.sh, python)".to_owned());
    let ignored = may_ignore(ZooKeeper::missing().or(missing).as_deref());
    let locks = zookeeper_cases!([
        curators_release_lets_us_in,
        our_release_lets_curator_in,
        a_curator_that_dies_lets_us_in,
        kazoos_release_lets_us_in,
        our_release_lets_kazoo_in,
        a_lock_that_curator_breaks_is_lost,
        a_mixed_fleet_with_curator_counts_right,
        a_mixed_fleet_with_kazoo_counts_right,
        readers_of_curator_share_with_ours_and_writers_do_not,
        kazoo_that_was_not_told_of_our_nodes_does_not_wait_for_us,
        curator_and_kazoo_do_not_exclude_each_other,
        kazoo_need_not_be_told_of_nodes_that_are_called_as_its_own,
    ]);
    let groups = [("locks", locks), ("elections", elections::all()), ("semaphores", semaphores::all())];
    let cases =
        groups.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group, case)));
    let trial = |(group, (case, run)): (&str, (&str, Case))| {
        let once = move || run_once(async move { run(ZooKeeper::start()).await });
        Trial::test(format!("zookeeper::{group}::{case}"), move || patiently(once)).with_ignored_flag(ignored)
    };
    cases.map(trial).collect()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn client(server: &ZooKeeper, raw: &str) -> Client {
    let url = format!("zookeeper://127.0.0.1:{}?{raw}&session_timeout=4s", server.port());
    leasehold::connect(&url).await.expect("a client")
}

async fn start(program: &str, arguments: &[&str]) -> Stranger {
    let prepare = |command: &mut Command| {
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    };
    let mut stranger = Stranger::new(servers::spawn(program, prepare).expect("setpriv starts"));
    assert_eq!(stranger.answer().await, "ready");
    stranger
}

/// A process with Curator: `mutex`, `read`, `write`, `latch`, or the permits of a semaphore.
async fn curator(server: &ZooKeeper, kind: &str) -> Stranger {
    let (host, jars) = (format!("127.0.0.1:{}", server.port()), class_path().expect("installed"));
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";
    let path = format!("/{NAME}");
    start("java", &["-XX:TieredStopAtLevel=1", quiet, "-cp", &jars, "Curator", &host, &path, kind]).await
}

/// A process with kazoo, told of the nodes of others or not; or with its `election`.
async fn kazoo(server: &ZooKeeper, patterns: &[&str]) -> Stranger {
    let python = installed("python/bin/python");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/python/kazoo_lock.py");
    let (host, path) = (format!("127.0.0.1:{}", server.port()), format!("/{NAME}"));
    let arguments = [&[program, &host, &path], patterns].concat();
    start(python.to_str().expect("a path"), &arguments).await
}

/// What kazoo must be told to see Curator's nodes, and ours.
const CURATORS: &[&str] = &["-lock-"];

async fn until_waiting(client: &Client, waiting: u32) {
    until_waiting_for(Family::Lock, client, waiting).await;
}

async fn until_waiting_for(family: Family, client: &Client, waiting: u32) {
    while client.look(family, NAME).await.expect("a look").waiting != waiting {
        tokio::time::sleep(ms(5)).await;
    }
}

async fn assert_free(client: &Client) {
    let view = client.look(Family::Lock, NAME).await.expect("a look");
    assert!(view.claims.is_empty() && view.waiting == 0, "something is left behind: {view:?}");
}

async fn their_release_lets_us_in(server: &ZooKeeper, stranger: Stranger) {
    their_release_lets_us_in_with("raw", server, stranger).await;
}

async fn their_release_lets_us_in_with(raw: &str, server: &ZooKeeper, mut stranger: Stranger) {
    let (one, two) = (client(server, raw).await, client(server, raw).await);
    assert_eq!(stranger.ask("take").await, "held");
    let mutex = one.mutex(NAME).expect("a name");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    let first = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&one, 1).await;
    let mutex = two.mutex(NAME).expect("a name");
    let second = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&one, 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "two hold the name");
    assert_eq!(stranger.ask("release").await, "released");
    let guard = first.await.expect("no panic").expect("held");
    assert!(!second.is_finished(), "who came second is let in second");
    let before = guard.token();
    guard.release().await.expect("released");
    let guard = second.await.expect("no panic").expect("held");
    assert!(guard.token() > before);
    guard.release().await.expect("released");
    assert_free(&one).await;
}

async fn our_release_lets_them_in(server: &ZooKeeper, stranger: Stranger) {
    our_release_lets_them_in_with("raw", server, stranger).await;
}

async fn our_release_lets_them_in_with(raw: &str, server: &ZooKeeper, mut stranger: Stranger) {
    let ours = client(server, raw).await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(3000)).lock().await.expect("held");
    assert_eq!(stranger.ask("try").await, "busy");
    stranger.tell("take");
    until_waiting(&ours, 1).await;
    // Longer than our session, and than a lease.
    tokio::time::sleep(ms(5000)).await;
    assert!(stranger.is_silent() && guard.is_held(), "two hold the name");
    guard.release().await.expect("released");
    assert_eq!(stranger.answer().await, "held");
    assert!(ours.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_none());
    assert_eq!(stranger.ask("release").await, "released");
    ours.mutex(NAME).expect("a name").lock().await.expect("held").release().await.expect("released");
}

async fn curators_release_lets_us_in(server: ZooKeeper) {
    let stranger = curator(&server, "mutex").await;
    their_release_lets_us_in(&server, stranger).await;
}

async fn our_release_lets_curator_in(server: ZooKeeper) {
    let stranger = curator(&server, "mutex").await;
    our_release_lets_them_in(&server, stranger).await;
}

async fn kazoos_release_lets_us_in(server: ZooKeeper) {
    let stranger = kazoo(&server, CURATORS).await;
    their_release_lets_us_in(&server, stranger).await;
}

async fn our_release_lets_kazoo_in(server: ZooKeeper) {
    let stranger = kazoo(&server, CURATORS).await;
    our_release_lets_them_in(&server, stranger).await;
}

async fn a_curator_that_dies_lets_us_in(server: ZooKeeper) {
    let mut stranger = curator(&server, "mutex").await;
    assert_eq!(stranger.ask("take").await, "held");
    let ours = client(&server, "raw").await;
    let mutex = ours.mutex(NAME).expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&ours, 1).await;
    drop(stranger);
    waiting.await.expect("no panic").expect("held").release().await.expect("released");
}

async fn a_lock_that_curator_breaks_is_lost(server: ZooKeeper) {
    let ours = client(&server, "raw").await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(3000)).lock().await.expect("held");
    let mut stranger = curator(&server, "mutex").await;
    stranger.tell("take");
    until_waiting(&ours, 1).await;
    let other = client(&server, "raw").await;
    assert_eq!(other.break_claims(Family::Lock, NAME).await.expect("an answer").len(), 1);
    assert_eq!(stranger.answer().await, "held");
    assert_eq!(guard.lost().await, Loss::Gone);
    guard.release().await.expect_err("it was lost");
    assert!(ours.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_none());
}

/// Everybody adds one to the number in a file, which nothing else protects.
async fn counts_right(server: &ZooKeeper, strangers: Vec<Stranger>) {
    const EACH: usize = 25;
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("count");
    fs::write(&file, "0\n").expect("a file");
    let everybody = strangers.len() + 2;
    let mut strangers = strangers;
    for stranger in &mut strangers {
        stranger.tell(&format!("work {} {EACH}", file.display()));
    }
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (client, file) = (client(server, "raw").await, file.clone());
        ours.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..EACH {
                let guard = client.mutex(NAME).expect("a name").lease(ms(6000)).lock().await.expect("held");
                let number: usize =
                    fs::read_to_string(&file).expect("a file").trim().parse().expect("a number");
                tokio::time::sleep(ms(5)).await;
                fs::write(&file, format!("{}\n", number + 1)).expect("a file");
                assert!(guard.token().get() > last, "tokens rise");
                last = guard.token().get();
                guard.release().await.expect("released");
            }
        }));
    }
    for task in ours {
        task.await.expect("no panic");
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.answer().await, "worked");
    }
    let count = fs::read_to_string(&file).expect("a file");
    assert_eq!(count.trim(), (everybody * EACH).to_string(), "two held the name");
}

async fn a_mixed_fleet_with_curator_counts_right(server: ZooKeeper) {
    let strangers = vec![curator(&server, "mutex").await, curator(&server, "mutex").await];
    counts_right(&server, strangers).await;
}

async fn a_mixed_fleet_with_kazoo_counts_right(server: ZooKeeper) {
    let strangers = vec![kazoo(&server, CURATORS).await, kazoo(&server, CURATORS).await];
    counts_right(&server, strangers).await;
}

async fn readers_of_curator_share_with_ours_and_writers_do_not(server: ZooKeeper) {
    let ours = client(&server, "raw=rwlock").await;
    let lock = || ours.rwlock(NAME).expect("a name").lease(ms(6000));
    let (mut reader, mut writer) = (curator(&server, "read").await, curator(&server, "write").await);
    let guard = lock().read().await.expect("held");
    assert_eq!(reader.ask("try").await, "held");
    assert_eq!(writer.ask("try").await, "busy");
    assert_eq!(reader.ask("release").await, "released");
    writer.tell("take");
    until_waiting(&ours, 1).await;
    // Whoever comes after a writer waits for it.
    assert!(lock().try_read().await.expect("an answer").is_none());
    guard.release().await.expect("released");
    assert_eq!(writer.answer().await, "held");
    assert!(lock().try_read().await.expect("an answer").is_none());
    assert!(lock().try_write().await.expect("an answer").is_none());
    assert_eq!(writer.ask("release").await, "released");
    let guard = lock().write().await.expect("held");
    assert_eq!(reader.ask("try").await, "busy");
    assert_eq!(writer.ask("try").await, "busy");
    guard.release().await.expect("released");
    assert_eq!(reader.ask("try").await, "held");
}

/// Why docs/zookeeper.md says that kazoo must be told.
async fn kazoo_that_was_not_told_of_our_nodes_does_not_wait_for_us(server: ZooKeeper) {
    let ours = client(&server, "raw").await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(6000)).lock().await.expect("held");
    let (mut told, mut not_told) = (kazoo(&server, CURATORS).await, kazoo(&server, &[]).await);
    assert_eq!(told.ask("try").await, "busy");
    assert_eq!(not_told.ask("try").await, "held", "it has learnt: the page can say so");
    assert!(guard.is_held());
}

/// Why docs/zookeeper.md says that the two must not share a path, whatever kazoo is told.
async fn curator_and_kazoo_do_not_exclude_each_other(server: ZooKeeper) {
    let (mut curator, mut kazoo) = (curator(&server, "mutex").await, kazoo(&server, CURATORS).await);
    assert_eq!(kazoo.ask("take").await, "held");
    assert_eq!(curator.ask("try").await, "held", "it has learnt: the page can say so");
    // We see both.
    let ours = client(&server, "raw").await;
    assert!(ours.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_none());
}

/// It sees nodes that are called as its own, and needs no patterns.
async fn kazoo_need_not_be_told_of_nodes_that_are_called_as_its_own(server: ZooKeeper) {
    let stranger = kazoo(&server, &[]).await;
    their_release_lets_us_in_with("raw=kazoo", &server, stranger).await;
    let stranger = kazoo(&server, &[]).await;
    our_release_lets_them_in_with("raw=kazoo", &server, stranger).await;
    // Nor do those of ours that were told otherwise.
    let (ours, other) = (client(&server, "raw=kazoo").await, client(&server, "raw").await);
    let guard = ours.mutex(NAME).expect("a name").lock().await.expect("held");
    assert!(other.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_none());
    guard.release().await.expect("released");
}
