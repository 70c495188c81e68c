//! The same on Redis servers: what operators do every day, and the days on which a server is not
//! what it should be.

use super::servers::{Cluster, Quorum, Redis, Sentinels};
use super::working_day::{Families, a_working_day};
use super::*;

#[test]
fn a_server_serves_an_operator() {
    let server = Redis::start();
    a_working_day(&Bench::on(server.url()), Families::All);
}

#[test]
fn a_primary_behind_sentinels_serves_an_operator() {
    let sentinels = Sentinels::start();
    a_working_day(&Bench::on(sentinels.url()), Families::All);
}

#[test]
fn a_cluster_serves_an_operator() {
    let cluster = Cluster::start();
    a_working_day(&Bench::on(cluster.url()), Families::All);
}

#[test]
fn a_quorum_serves_an_operator() {
    let quorum = Quorum::start(3);
    a_working_day(&Bench::on(quorum.url()), Families::Locks);
}

#[test]
fn a_wrong_password_is_said_and_not_repeated() {
    let server = Redis::start_with(&["--requirepass", "canary-right"]);
    let at = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
    let ran = Bench::on(at("canary-wrong")).leasehold(["run", "a", "--", "true"]).gives(69);
    assert!(ran.stderr.contains("does not accept the user or the password"), "{ran:?}");
    assert!(!ran.stderr.contains("canary"), "{ran:?}");
    Bench::on(at("canary-right")).leasehold(["run", "a", "--", "true"]).gives(0);
}

#[test]
fn a_dead_server_is_said_at_once() {
    let server = Redis::start();
    server.kill();
    let bench = Bench::on(server.url());
    let started = Instant::now();
    for args in
        [&["run", "a", "--", "true"][..], &["ls"], &["show", "a"], &["break", "a", "--yes"], &["watch"]]
    {
        bench.leasehold(args).gives(69).says("connection refused");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_replica_is_refused_with_the_name_of_its_primary() {
    let primary = Redis::start();
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    Bench::on(replica.url())
        .leasehold(["run", "a", "--", "true"])
        .gives(69)
        .says(&format!("127.0.0.1:{port}"));
}

#[test]
fn a_server_that_dies_takes_the_command_with_it_in_time() {
    let server = Redis::start();
    let bench = Bench::on(server.url());
    let script = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let holder = bench.start_run(&["--lease", "1s", "a"], script);
    assert_eq!(holder.line(), "ready");
    let started = Instant::now();
    server.kill();
    assert_eq!(holder.line(), "got TERM");
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    holder.ended().gives(76).says("lost `a` (token ");
}

#[test]
fn a_server_that_comes_back_in_time_with_its_data_is_not_noticed() {
    let server = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let bench = Bench::on(server.url());
    let go = bench.path("go");
    let holder = bench
        .start_run(&["--lease", "6s", "a"], &format!("until [ -e {} ]; do sleep 0.02; done", go.display()));
    let before = bench.json(&["show", "--json", "a"]);
    server.kill();
    server.restart();
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    fs::write(go, "").unwrap();
    holder.ended().gives(0);
    let ran = bench.leasehold(["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]).gives(0);
    let token: u64 = ran.stdout.trim().parse().unwrap();
    assert!(token > before[0]["holders"][0]["token"].as_u64().unwrap(), "{token} {before}");
}

/// A run whose command ends after the server died.
fn a_release_that_nobody_hears(lease: Duration, ends_after: Duration) -> Ran {
    let server = Redis::start();
    let bench = Bench::on(server.url());
    let go = bench.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    let holder = bench.start_run(&["--lease", &format!("{}s", lease.as_secs()), "a"], &script);
    let started = Instant::now();
    server.kill();
    until("the time to end", || started.elapsed() >= ends_after);
    fs::write(go, "").unwrap();
    let told = Instant::now();
    let ran = holder.ended();
    // Five seconds for the release, and one to leave, however long the lease is.
    assert!(told.elapsed() < Duration::from_secs(12), "{:?} after its command", told.elapsed());
    ran
}

#[test]
fn a_release_that_was_not_heard_is_told_and_changes_no_code_while_the_lease_stands() {
    let ran = a_release_that_nobody_hears(Duration::from_secs(30), Duration::ZERO).gives(3);
    assert!(ran.stderr.contains("`a` was not given back and ends with its lease: redis: "), "{ran:?}");
}

#[test]
fn a_release_that_was_not_heard_after_a_failed_renewal_is_a_loss() {
    // A third of the lease is when it is renewed.
    let lease = Duration::from_secs(9);
    let ran = a_release_that_nobody_hears(lease, lease / 2).gives(76);
    assert!(ran.stderr.contains("lost before the command ended with 3"), "{ran:?}");
}

#[test]
fn a_command_is_the_same_on_a_server() {
    let server = Redis::start();
    let bench = Bench::on(server.url());
    let files = the_command::its_files(&bench);
    assert!(!files.contains("socket:") && !files.contains("anon_inode:"), "{files}");
    killed::nothing_is_left(&bench, &[]);
    terminal::as_without_leasehold(&bench);
}

#[test]
fn a_command_ends_with_its_leasehold() {
    let server = Redis::start();
    let bench = Bench::on(server.url());
    killed::ends_with_its_leasehold(&bench, &["--lease", "3s"]);
    killed::without_a_supervisor(&bench, &[]);
    let refused = bench.leasehold(["run", "--if-killed", "keep", "b", "--", "true"]).gives(64);
    assert!(refused.stderr.contains("`redis:` can not keep a name"), "{refused:?}");
}

#[test]
fn what_the_command_started_ends_with_it() {
    let server = Redis::start();
    losing::all_end(&Bench::on(server.url()));
}

#[test]
fn runs_inside_runs_are_recognised() {
    let server = Redis::start();
    let bench = Bench::on(server.url());
    nested::would_wait_for_itself(&bench);
    nested::slots(&bench);
    // The same name on another server is not the same.
    let other = Redis::start();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let inner = ["--", leasehold, "run", "--on", &other.url(), "a", "--", "true"];
    bench.leasehold(["run", "a"].iter().chain(&inner)).gives(0);
}

#[test]
fn runs_inside_runs_are_recognised_on_a_quorum() {
    let quorum = Quorum::start(3);
    nested::would_wait_for_itself(&Bench::on(quorum.url()));
}
