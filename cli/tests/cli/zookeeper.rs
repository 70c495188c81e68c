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
    let bench = Bench::on(url(&server));
    let started = Instant::now();
    for args in
        [&["run", "a", "--", "true"][..], &["ls"], &["show", "a"], &["break", "a", "--yes"], &["watch"]]
    {
        bench.leasehold(args).gives(69).says("onnection refused");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// A command that says when it is told to end.
const OBEYS: &str = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done";

#[test]
fn a_majority_that_is_lost_takes_the_command_with_it_in_time_and_comes_back() {
    let ensemble = Ensemble::start(3);
    let bench = Bench::on(format!("zookeeper://{}?session_timeout=4s", ensemble.hosts()));
    let holder = bench.start_run(&["--lease", "60s", "a"], OBEYS);
    assert_eq!(holder.line(), "ready");
    let before = bench.json(&["show", "--json", "a"]);
    let started = Instant::now();
    ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    // Its session has four seconds, whatever its lease.
    assert_eq!(holder.line(), "got TERM");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    holder.ended().gives(76).says("lost `a` (token ");
    bench.leasehold(["run", "--wait", "2s", "a", "--", "true"]).gives(69).says("127.0.0.1:");
    ensemble.members[1..].iter().for_each(ZooKeeper::restart);
    ensemble.wait_until_it_serves();
    let ran = bench.leasehold(["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]).gives(0);
    let token: u64 = ran.stdout.trim().parse().unwrap();
    assert!(token > before[0]["holders"][0]["token"].as_u64().unwrap(), "{token} {before}");
}

#[test]
fn a_majority_that_comes_back_in_time_is_not_noticed() {
    let ensemble = Ensemble::start(3);
    let bench = Bench::on(format!("zookeeper://{}?session_timeout=40s", ensemble.hosts()));
    let go = bench.path("go");
    let holder = bench
        .start_run(&["--lease", "40s", "a"], &format!("until [ -e {} ]; do sleep 0.02; done", go.display()));
    ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    ensemble.members[1..].iter().for_each(ZooKeeper::restart);
    ensemble.wait_until_it_serves();
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    fs::write(go, "").unwrap();
    holder.ended().gives(0);
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
}

#[test]
fn a_name_is_shared_with_others() {
    let server = ZooKeeper::start();
    let bench = Bench::on(format!("zookeeper://127.0.0.1:{}?raw&session_timeout=4s", server.port()));
    let holder = bench.start_run(&["locks/a"], OBEYS);
    assert_eq!(holder.line(), "ready");
    let nodes = server.cli(&["ls", "/locks/a"]);
    assert!(nodes.contains("[_c_") && nodes.contains("-lock-0000000000]"), "{nodes}");
    let shown = bench.leasehold(["show", "locks/a"]).gives(0);
    assert!(shown.stdout.contains("lock locks/a: held") && !shown.stdout.contains("election"), "{shown:?}");
    bench.leasehold(["ls"]).gives(64).says("raw mode");
    bench.leasehold(["break", "locks/a", "--yes"]).gives(0);
    assert_eq!(holder.line(), "got TERM");
}
