//! Nobody holds twice, whatever becomes of the members.
//!
//! `LEASEHOLD_SECTIONS=20000` asks for longer runs.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::bench::ms;
use crate::members::{work_on_members, work_on_one_server};
use crate::servers::Fsync;
use crate::work::Work;

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

async fn nobody_holds_twice_while_the_server_dies_and_stands_still(ground: Ground) {
    work_on_one_server(ground, ms(3500), |ground| server(ground).is_healthy()).await;
}

async fn nobody_holds_twice_while_members_die_and_stand_still(ground: Ground) {
    work_on_members::<EtcdCluster>(ground).await;
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
