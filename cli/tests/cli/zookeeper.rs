//! The same on a ZooKeeper ensemble.

use super::servers::{Ensemble, ZooKeeper};
use super::working_day::{Families, a_working_day};
use super::*;

fn url(server: &ZooKeeper) -> String {
    format!("zookeeper://127.0.0.1:{}?session_timeout=4s", server.port())
}

#[test]
fn a_server_serves_an_operator() {
    let server = ZooKeeper::start();
    a_working_day(&Bench::on(url(&server)), Families::All);
}

#[test]
fn three_members_serve_an_operator_and_one_may_be_down() {
    let ensemble = Ensemble::start(3);
    let bench = Bench::on(format!("zookeeper://{}", ensemble.hosts()));
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    ensemble.members[0].kill();
    for _ in 0..3 {
        bench.leasehold(["run", "a", "--", "true"]).gives(0);
    }
    bench.leasehold(["ls"]).gives(0);
}

#[test]
fn a_command_ends_with_its_leasehold() {
    let server = ZooKeeper::start();
    let bench = Bench::on(url(&server));
    killed::ends_with_its_leasehold(&bench, &["--lease", "3s"]);
    killed::without_a_supervisor(&bench, &[]);
    losing::all_end(&bench);
}

#[test]
fn nodes_of_another_user_are_said_and_the_password_is_not_repeated() {
    let server = ZooKeeper::start();
    let at = |password: &str| format!("zookeeper://app:{password}@127.0.0.1:{}", server.port());
    Bench::on(at("canary-right")).leasehold(["run", "a", "--", "true"]).gives(0);
    let ran = Bench::on(at("canary-wrong")).leasehold(["run", "a", "--", "true"]).gives(69);
    assert!(ran.stderr.contains("password"), "{ran:?}");
    assert!(!ran.stderr.contains("canary"), "{ran:?}");
    Bench::on(url(&server)).leasehold(["run", "a", "--", "true"]).gives(69).says("USER:PASSWORD");
}

#[test]
fn a_wrong_endpoint_is_said_at_once() {
    let server = ZooKeeper::start();
    server.kill();
    gone::is_said_at_once(&Bench::on(url(&server)));
}

#[test]
fn a_majority_that_is_lost_takes_the_command_with_it_in_time_and_comes_back() {
    let ensemble = Ensemble::start(3);
    let bench = Bench::on(format!("zookeeper://{}?session_timeout=4s", ensemble.hosts()));
    let lose = || ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    // Its session has four seconds, whatever its lease.
    let token = gone::takes_the_command_with_it(&bench, "60s", Duration::from_secs(6), lose);
    bench.leasehold(["run", "--wait", "2s", "a", "--", "true"]).gives(69).says("127.0.0.1:");
    ensemble.members[1..].iter().for_each(ZooKeeper::restart);
    ensemble.wait_until_it_serves();
    gone::is_back(&bench, token);
}

#[test]
fn a_majority_that_comes_back_in_time_is_not_noticed() {
    let ensemble = Ensemble::start(3);
    gone::comes_back_in_time(
        &Bench::on(format!("zookeeper://{}?session_timeout=40s", ensemble.hosts())),
        "40s",
        || {
            ensemble.members[1..].iter().for_each(ZooKeeper::kill);
            ensemble.members[1..].iter().for_each(ZooKeeper::restart);
            ensemble.wait_until_it_serves();
        },
    );
}

#[test]
fn a_name_is_shared_with_others() {
    let server = ZooKeeper::start();
    let bench = Bench::on(format!("zookeeper://127.0.0.1:{}?raw&session_timeout=4s", server.port()));
    let holder = bench.start_run(&["locks/a"], gone::OBEYS);
    assert_eq!(holder.line(), "ready");
    let nodes = server.cli(&["ls", "/locks/a"]);
    assert!(nodes.contains("[_c_") && nodes.contains("-lock-0000000000]"), "{nodes}");
    let shown = bench.leasehold(["show", "locks/a"]).gives(0);
    assert!(shown.stdout.contains("lock locks/a: held") && !shown.stdout.contains("election"), "{shown:?}");
    bench.leasehold(["ls"]).gives(64).says("raw mode");
    bench.leasehold(["break", "locks/a", "--yes"]).gives(0);
    assert_eq!(holder.line(), "got TERM");
}
