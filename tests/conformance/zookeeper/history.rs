//! Nobody holds twice, whatever becomes of the members.

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
    cases!("history", [nobody_holds_twice_while_members_die_and_stand_still]).cases
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
