//! Locks and elections of an etcd cluster, shared with Go's `concurrency` package, `etcdctl lock`
//! and `etcdctl elect`.

mod elections;
mod locks;

use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Family};
use libtest_mimic::Trial;

use crate::servers::{self, Etcd};
use crate::strangers::{Stranger, installed};
use crate::{may_ignore, patiently, run_once};

/// A case: given a server, it returns or panics.
type Case = fn(Etcd) -> Pin<Box<dyn Future<Output = ()>>>;

/// The cases of a module, named as they are.
macro_rules! etcd_cases {
    ([$($case:ident),* $(,)?]) => {
        vec![$((stringify!($case), (|etcd| Box::pin($case(etcd))) as crate::etcd::Case)),*]
    };
}
use etcd_cases;

/// The name that all share.
const NAME: &str = "jobs/nightly";

pub(crate) fn trials() -> Vec<Trial> {
    let stranger = installed("etcd/stranger");
    let missing = (!stranger.is_file()).then(|| "Go's client of etcd (tests/interop/install.sh)".to_owned());
    let ignored = may_ignore(Etcd::missing().or(missing).as_deref());
    let groups = [("locks", locks::all()), ("elections", elections::all())];
    let cases =
        groups.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group, case)));
    let trial = |(group, (case, run)): (&str, (&str, Case))| {
        let once = move || run_once(async move { run(Etcd::start()).await });
        Trial::test(format!("etcd::{group}::{case}"), move || patiently(once)).with_ignored_flag(ignored)
    };
    cases.map(trial).collect()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn client(etcd: &Etcd) -> Client {
    client_at(etcd.port()).await
}

async fn client_at(port: u16) -> Client {
    leasehold::connect(&format!("etcd://127.0.0.1:{port}?raw")).await.expect("a client")
}

/// A process with Go's package: `mutex` or `election`. Its lease has so many seconds.
async fn go(etcd: &Etcd, which: &str, lease: u32) -> Stranger {
    let program = installed("etcd/stranger");
    let prepare = |command: &mut Command| {
        command.args([&etcd.port().to_string(), NAME, which, &lease.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    };
    let child = servers::spawn(program.to_str().expect("a path"), prepare).expect("setpriv starts");
    let mut stranger = Stranger::new(child);
    assert_eq!(stranger.answer().await, "ready");
    stranger
}

/// `etcdctl`, whose lines can be read.
fn etcdctl(etcd: &Etcd, arguments: &[&str]) -> Stranger {
    let mut command = etcd.ctl_command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Stranger::new(command.spawn().expect("etcdctl starts"))
}

/// Asks a process to end, as a user does.
fn interrupt(stranger: &Stranger) {
    let pid = rustix::process::Pid::from_raw(stranger.pid().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

/// Waits until so many stand in the queue, whoever they are.
async fn until_waiting(client: &Client, family: Family, waiting: u32) {
    while client.look(family, NAME).await.expect("a look").waiting != waiting {
        tokio::time::sleep(ms(5)).await;
    }
}

/// Everything was given back.
fn assert_empty(etcd: &Etcd) {
    let left = etcd.ctl(&["get", NAME, "--prefix", "--keys-only"]);
    assert_eq!(left.trim(), "", "something is left behind");
}
