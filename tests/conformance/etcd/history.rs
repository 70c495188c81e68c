//! Nobody holds twice, whatever becomes of the members.
//!
//! `LEASEHOLD_SECTIONS=20000` asks for longer runs.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leasehold::Standing;

use super::members::within;
use super::*;
use crate::bench::ms;
use crate::history::{Rules, Section, check};
use crate::servers::Fsync;

/// Cases of one server.
pub(super) fn cases_of_one() -> Vec<(&'static str, Case)> {
    cases!("history", [nobody_holds_twice_while_the_server_dies_and_stands_still]).cases
}

/// Cases of a cluster.
pub(super) fn cases_of_three() -> Vec<(&'static str, Case)> {
    cases!(
        "history",
        [
            nobody_holds_twice_while_members_die_and_stand_still,
            nobody_holds_twice_while_the_leaders_disk_is_slow,
        ]
    )
    .cases
}

/// How many sections are to be seen.
fn wanted() -> usize {
    std::env::var("LEASEHOLD_SECTIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(1500)
}

/// Eight clients that want one name, and what they have seen.
struct Work {
    stop: Arc<AtomicBool>,
    seen: Arc<std::sync::Mutex<Vec<Section>>>,
    workers: Vec<JoinHandle<()>>,
    limit: Instant,
}

impl Work {
    async fn start(mut client: impl AsyncFnMut() -> Client) -> Work {
        const WORKERS: u64 = 8;
        let began = Instant::now();
        let limit = began + if wanted() > 2000 { ms(3_000_000) } else { ms(100_000) };
        let mut work = Work { stop: Arc::default(), seen: Arc::default(), workers: Vec::new(), limit };
        for worker in 0..WORKERS {
            let client = client().await;
            let (stop, seen) = (Arc::clone(&work.stop), Arc::clone(&work.seen));
            work.workers.push(tokio::spawn(async move {
                let micros = || began.elapsed().as_micros() as u64;
                while !stop.load(Ordering::Acquire) {
                    let mutex = client.mutex("x").expect("a name").lease(ms(3000));
                    let asked = micros();
                    let Ok(Some(guard)) = mutex.lock_for(ms(4000)).await else { continue };
                    let granted = micros();
                    tokio::task::yield_now().await;
                    // What ends before the guard says so is not counted as held.
                    let (token, released) = (guard.token().get(), micros());
                    if guard.standing() != Standing::Lost {
                        let section = Section { worker, asked, granted, released, token, weight: 1 };
                        seen.lock().expect("no panic").push(section);
                    }
                    guard.release().await.ok();
                }
            }));
        }
        work
    }

    fn count(&self) -> usize {
        self.seen.lock().expect("no panic").len()
    }

    fn goes_on(&self) -> bool {
        self.count() < wanted() && Instant::now() < self.limit
    }

    /// Waits for some more sections, or for as long as an election takes.
    async fn some_more(&self) {
        let more = self.count() + (wanted() / 40).max(150);
        let until = Instant::now() + ms(6000);
        while self.count() < more && Instant::now() < until {
            tokio::time::sleep(ms(20)).await;
        }
    }

    async fn end(self, faults: usize) {
        self.stop.store(true, Ordering::Release);
        for worker in self.workers {
            within("a worker", worker).await.expect("no panic");
        }
        let seen = self.seen.lock().expect("no panic");
        let rules = Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None };
        let summary = check(&seen, rules).expect("a good history");
        println!("{summary:?} with {faults} faults");
        assert!(summary.sections >= wanted() && faults >= 3, "{summary:?} with {faults} faults");
    }
}

/// Kills a member, or pauses it.
fn hurt(member: &Etcd, fault: usize) {
    if fault.is_multiple_of(2) {
        member.kill();
    } else {
        member.pause();
    }
}

fn heal(member: &Etcd) {
    if member.runs() {
        member.resume();
    } else {
        member.restart();
    }
}

async fn nobody_holds_twice_while_the_server_dies_and_stands_still(mut ground: Ground) {
    let work = Work::start(async || ground.client().await).await;
    ground.bench_of::<SingleServer>().server.spoil();
    let server = server(&ground);
    let mut faults = 0;
    while work.goes_on() {
        work.some_more().await;
        hurt(server, faults);
        // Once for longer than a lease, so that all claims are lost.
        tokio::time::sleep(if faults % 5 == 4 { ms(3500) } else { ms(300) }).await;
        heal(server);
        faults += 1;
        within("the server", async { until("it is up", async || server.is_healthy()).await }).await;
    }
    work.end(faults).await;
}

async fn nobody_holds_twice_while_members_die_and_stand_still(mut ground: Ground) {
    let work = Work::start(async || ground.client().await).await;
    let members = cluster(&ground);
    let mut faults = 0;
    while work.goes_on() {
        let member = match faults % 3 {
            0 | 2 => members.leader(),
            _ => &members.members[faults % 3],
        };
        hurt(member, faults);
        faults += 1;
        // A while with a member less, until somebody gets on again.
        work.some_more().await;
        heal(member);
        members.wait_until_healthy();
    }
    work.end(faults).await;
}

/// `strace` makes a process wait for its disk.
struct SlowDisk(Child);

impl SlowDisk {
    fn of(member: &Etcd) -> SlowDisk {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
        command.args(["-e", "inject=fdatasync,fsync:delay_enter=150000", "-p", &member.pid().to_string()]);
        SlowDisk(command.stdin(Stdio::null()).spawn().expect("strace runs"))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // It lets go of what it traces.
        let pid = rustix::process::Pid::from_raw(self.0.id().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok();
        self.0.wait().ok();
    }
}

/// Each write to the leader's disk takes 150 ms for a while, then it is another's turn.
async fn nobody_holds_twice_while_the_leaders_disk_is_slow(mut ground: Ground) {
    // Those of the other cases do not wait for their disks.
    let members = EtcdCluster::start_syncing(3, Fsync::On);
    let url = format!("etcd://{}/slow", members.hosts());
    let work = Work::start(async || {
        let options = ground.options();
        leasehold::connect_with(&url, options).await.expect("the engine is there")
    })
    .await;
    let mut faults = 0;
    while work.goes_on() || faults < 3 {
        let slow = SlowDisk::of(members.leader());
        tokio::time::sleep(ms(2000)).await;
        drop(slow);
        faults += 1;
        work.some_more().await;
    }
    work.end(faults).await;
}
