//! Nobody holds twice, whatever becomes of the members.
//!
//! `LEASEHOLD_SECTIONS=20000` asks for longer runs.

use super::members::within;
use super::*;
use crate::bench::ms;
use crate::work::Work;

/// Cases of one server.
pub(super) fn cases_of_one() -> Vec<(&'static str, Case)> {
    cases!("history", [nobody_holds_twice_while_the_server_dies_and_stands_still]).cases
}

/// Cases of an ensemble.
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

/// Kills a member, or pauses it.
fn hurt(member: &ZooKeeper, fault: usize) {
    if fault.is_multiple_of(2) {
        member.kill();
    } else {
        member.pause();
    }
}

fn heal(member: &ZooKeeper) {
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
        // Once for longer than a session, so that all claims are lost.
        tokio::time::sleep(if faults % 5 == 4 { ms(4500) } else { ms(300) }).await;
        heal(server);
        faults += 1;
        within("the server", async { until("it is up", async || server.serves()).await }).await;
    }
    work.end(faults).await;
}

async fn nobody_holds_twice_while_members_die_and_stand_still(mut ground: Ground) {
    let work = Work::start(async || ground.client().await).await;
    let members = ensemble(&ground);
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
        members.wait_until_it_serves();
    }
    work.end(faults).await;
}

/// Each write to the leader's disk takes 150 ms for a while, then it is another's turn.
async fn nobody_holds_twice_while_the_leaders_disk_is_slow(mut ground: Ground) {
    // Those of the other cases do not wait for their disks.
    let (ensemble, disks) = Ensemble::start_on_disks(3);
    let url = format!("zookeeper://{}/slow?session_timeout=4s", ensemble.hosts());
    let work = Work::start(async || {
        let options = ground.options();
        leasehold::connect_with(&url, options).await.expect("the engine is there")
    })
    .await;
    let mut faults = 0;
    while work.goes_on() || faults < 3 {
        let leader = ensemble.leader().port();
        let number = ensemble.members.iter().position(|member| member.port() == leader).expect("a member");
        disks[number].slow(ms(150));
        tokio::time::sleep(ms(2000)).await;
        disks[number].mend();
        faults += 1;
        work.some_more().await;
    }
    work.end(faults).await;
}
