//! Nobody holds twice, whatever becomes of the members.
//!
//! `LEASEHOLD_SECTIONS=20000` asks for longer runs.

use super::*;
use crate::bench::ms;
use crate::members::{work_on_members, work_on_one_server};
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

async fn nobody_holds_twice_while_the_server_dies_and_stands_still(ground: Ground) {
    work_on_one_server(ground, ms(4500), |ground| server(ground).serves()).await;
}

async fn nobody_holds_twice_while_members_die_and_stand_still(ground: Ground) {
    work_on_members::<Ensemble>(ground).await;
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
