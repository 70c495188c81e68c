//! `limit`: a command runs only as often as a rate allows.

use super::*;

#[test]
fn what_is_used_up_is_refused_with_the_time_to_come_back() {
    let bench = Bench::new();
    for _ in 0..2 {
        let ran = bench.leasehold(["limit", "mail", "--rate", "2/h", "--", "echo", "sent"]).gives(0);
        assert_eq!(ran.stdout, "sent\n");
    }
    let ran = bench.leasehold(["limit", "mail", "--rate", "2/h", "--", "echo", "sent"]).gives(75);
    assert_eq!(ran.stdout, "");
    ran.says("`mail` is used up; come back in ");
    // Another key and another name have limits of their own.
    bench.leasehold(["limit", "mail", "--rate", "2/h", "--key", "b@example.org"]).gives(0);
    bench.leasehold(["limit", "post", "--rate", "2/h"]).gives(0);
    bench.leasehold(["limit", "mail", "--rate", "2/h", "--exit-if-limited", "9"]).gives(9);
}

#[test]
fn the_command_is_run_as_it_is() {
    let bench = Bench::new();
    let limit =
        |command: &[&str]| bench.leasehold(["limit", "x", "--rate", "100/s", "--"].iter().chain(command));
    limit(&["sh", "-c", "exit 7"]).gives(7);
    assert_eq!(limit(&["sh", "-c", "kill -9 $$"]).signal, Some(9));
    limit(&["no-such-command-here"]).gives(127).says("was not found");
    limit(&["/"]).gives(126).says("can not start");
}

#[test]
fn waiting_spaces_commands_out() {
    let bench = Bench::new();
    let started = Instant::now();
    for _ in 0..4 {
        bench.leasehold(["limit", "x", "--rate", "5/s", "--burst", "1", "--wait", "--", "true"]).gives(0);
    }
    assert!(started.elapsed() >= Duration::from_millis(590), "{:?}", started.elapsed());
    // It is known at once that it would take too long.
    bench.leasehold(["limit", "y", "--rate", "1/h"]).gives(0);
    bench.leasehold(["limit", "y", "--rate", "1/h", "--wait=2s"]).gives(75).says("used up");
}

#[test]
fn a_verdict_can_be_read_by_programs() {
    let bench = Bench::new();
    let ask = ["limit", "x", "--rate", "2/h", "--cost", "2", "--json"];
    let told = bench.json(&ask);
    assert_eq!((&told["allowed"], &told["left"]), (&Value::from(true), &Value::from(0)));
    let ran = bench.leasehold(ask).gives(75);
    assert_eq!(ran.stderr, "");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let wait = told["retry_after_ms"].as_u64().unwrap();
    assert!(told["allowed"] == false && (3_590_000..=3_600_000).contains(&wait), "{told}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = Bench::new();
    bench.leasehold(["limit", "x", "--rate", "often"]).gives(64).says("not a rate");
    bench.leasehold(["limit", "x"]).gives(64).says("--rate");
    bench.leasehold(["limit", "x", "--rate", "2/s", "--cost", "3"]).gives(64).says("can never pass");
    bench.leasehold(["limit", "x", "--rate", "2/s", "--json", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["limit", "x", "--rate", "2/s", "--on", "file:/dev/null/x"]).gives(69);
}

#[test]
fn several_processes_share_a_limit() {
    let bench = Bench::new();
    let running: Vec<Running> =
        (0..12).map(|_| bench.start(["limit", "x", "--rate", "5/h", "--", "echo", "ran"])).collect();
    let ran: Vec<Ran> = running.into_iter().map(Running::ended).collect();
    let passed = ran.iter().filter(|ran| ran.stdout == "ran\n").count();
    assert_eq!(passed, 5, "{ran:?}");
    assert!(ran.iter().all(|ran| ran.code == Some(if ran.stdout == "ran\n" { 0 } else { 75 })));
}
