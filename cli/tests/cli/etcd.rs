//! The same on an etcd cluster.

use super::servers::{Etcd, EtcdCluster};
use super::working_day::{Families, a_working_day};
use super::*;

fn url(server: &Etcd) -> String {
    format!("etcd://127.0.0.1:{}", server.port())
}

#[test]
fn a_server_serves_an_operator() {
    let server = Etcd::start();
    a_working_day(&Bench::on(url(&server)), Families::All);
}

#[test]
fn three_members_serve_an_operator_and_one_may_be_down() {
    let cluster = EtcdCluster::start(3);
    let bench = Bench::on(format!("etcd://{}", cluster.hosts()));
    a_working_day(&bench, Families::All);
    // Whoever comes while another is elected waits for that.
    cluster.leader().kill();
    for _ in 0..3 {
        bench.leasehold(["run", "a", "--", "true"]).gives(0);
    }
    bench.leasehold(["ls"]).gives(0);
}

#[test]
fn a_command_ends_with_its_leasehold() {
    let server = Etcd::start();
    let bench = Bench::on(url(&server));
    killed::ends_with_its_leasehold(&bench, &["--lease", "3s"]);
    killed::without_a_supervisor(&bench, &[]);
    losing::all_end(&bench);
}

#[test]
fn runs_inside_runs_are_recognised() {
    let server = Etcd::start();
    nested::would_wait_for_itself(&Bench::on(url(&server)));
}

#[test]
fn a_wrong_password_is_said_and_not_repeated() {
    let server = Etcd::start();
    server.ctl(&["user", "add", "root:canary-right"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["auth", "enable"]);
    let at = |password: &str| format!("etcd://root:{password}@127.0.0.1:{}", server.port());
    let ran = Bench::on(at("canary-wrong")).leasehold(["run", "a", "--", "true"]).gives(69);
    assert!(ran.stderr.contains("password"), "{ran:?}");
    assert!(!ran.stderr.contains("canary"), "{ran:?}");
    Bench::on(url(&server)).leasehold(["run", "a", "--", "true"]).gives(69).says("USER:PASSWORD");
    Bench::on(at("canary-right")).leasehold(["run", "a", "--", "true"]).gives(0);
}

#[test]
fn a_wrong_endpoint_is_said_at_once() {
    let server = Etcd::start();
    let peers = Bench::on(format!("etcd://127.0.0.1:{}", server.peer_port()));
    if !server.serves_clients_everywhere() {
        peers.leasehold(["run", "a", "--", "true"]).gives(69).says(&server.peer_port().to_string());
    }
    server.kill();
    gone::is_said_at_once(&Bench::on(url(&server)));
}

#[test]
fn a_majority_that_is_lost_takes_the_command_with_it_in_time_and_comes_back() {
    let cluster = EtcdCluster::start(3);
    let bench = Bench::on(format!("etcd://{}", cluster.hosts()));
    let lose = || cluster.members[1..].iter().for_each(Etcd::kill);
    let token = gone::takes_the_command_with_it(&bench, "4s", Duration::from_secs(6), lose);
    bench.leasehold(["run", "--wait", "2s", "a", "--", "true"]).gives(69).says("127.0.0.1:");
    cluster.members[1..].iter().for_each(Etcd::restart);
    cluster.wait_until_healthy();
    gone::is_back(&bench, token);
}

#[test]
fn a_majority_that_comes_back_in_time_is_not_noticed() {
    let cluster = EtcdCluster::start(3);
    gone::comes_back_in_time(&Bench::on(format!("etcd://{}", cluster.hosts())), "40s", || {
        cluster.members[1..].iter().for_each(Etcd::kill);
        cluster.members[1..].iter().for_each(Etcd::restart);
        cluster.wait_until_healthy();
    });
}

#[test]
fn a_name_is_shared_with_etcdctl() {
    let server = Etcd::start();
    let bench = Bench::on(format!("etcd://127.0.0.1:{}?raw", server.port()));
    let holder = bench.start_run(&["a"], gone::OBEYS);
    assert_eq!(holder.line(), "ready");
    let shown = server.ctl(&["get", "a/", "--prefix", "--keys-only"]);
    assert!(shown.starts_with("a/"), "{shown}");
    let shown = bench.leasehold(["show", "a"]).gives(0);
    assert!(shown.stdout.contains("lock a: held") && !shown.stdout.contains("semaphore"), "{shown:?}");
    bench.leasehold(["ls"]).gives(64).says("raw mode");
    // Its keys do not tell whether it is a lock or an election.
    bench.leasehold(["break", "a", "--yes"]).gives(64).says("--family");
    bench.leasehold(["break", "a", "--yes", "--family", "lock"]).gives(0);
    assert_eq!(holder.line(), "got TERM");
}
