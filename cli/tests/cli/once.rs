//! `once`: a command runs once, and prints the same ever after.

use super::*;

#[test]
fn the_second_call_prints_what_the_first_printed_and_ends_as_it_did() {
    let bench = Bench::new();
    let file = bench.path("ran");
    let script = format!("echo x >> {0}; wc -l < {0}; echo wrong >&2; exit 3", file.display());
    for _ in 0..3 {
        let ran = bench.leasehold(["once", "k", "--", "sh", "-c", &script]).gives(3);
        assert_eq!((ran.stdout.trim(), ran.stderr.as_str()), ("1", "wrong\n"));
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "x\n");
    // Another key is another submission.
    let ran = bench.leasehold(["once", "l", "--", "sh", "-c", &script]).gives(3);
    assert_eq!(ran.stdout.trim(), "2");
}

#[test]
fn the_same_key_with_another_command_is_refused() {
    let bench = Bench::new();
    bench.leasehold(["once", "k", "--", "echo", "a"]).gives(0);
    bench.leasehold(["once", "k", "--", "echo", "b"]).gives(64).says("another command");
}

#[test]
fn one_that_runs_is_told_of_or_waited_for() {
    let bench = Bench::new();
    let go = bench.path("go");
    let began = bench.path("began");
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.01; done; echo done", began.display(), go.display());
    let words = |more: &[&str]| -> Vec<String> {
        let words = ["once", "k"].iter().chain(more).chain(&["--", "sh", "-c"]);
        words.map(ToString::to_string).chain([script.clone()]).collect()
    };
    let first = bench.start(words(&[]));
    until("it to begin", || began.exists());
    bench.leasehold(words(&[])).gives(75).says("`k` is running");
    let waiting = bench.start(words(&["--wait"]));
    fs::write(&go, "").unwrap();
    assert_eq!(first.ended().gives(0).stdout, "done\n");
    assert_eq!(waiting.ended().gives(0).stdout, "done\n");
}

#[test]
fn one_that_was_killed_is_unknown_until_it_may_run_again() {
    let bench = Bench::new();
    let began = bench.path("began");
    let script = format!("[ -e {0} ] && echo again && exit; touch {0}; sleep 60", began.display());
    let words = |more: &[&str]| -> Vec<String> {
        let words = ["once", "k", "--lease", "500ms"].iter().chain(more).chain(&["--", "sh", "-c"]);
        words.map(ToString::to_string).chain([script.clone()]).collect()
    };
    let running = bench.start(words(&[]));
    until("it to begin", || began.exists());
    running.kill_all();
    running.left();
    until("it to be unknown", || bench.leasehold(words(&[])).code == Some(76));
    bench.leasehold(words(&[])).gives(76).says("fell silent");
    assert_eq!(bench.leasehold(words(&["--run-again"])).gives(0).stdout, "again\n");
    assert_eq!(bench.leasehold(words(&[])).gives(0).stdout, "again\n");
}

#[test]
fn a_command_that_could_not_be_started_can_be_tried_again() {
    let bench = Bench::new();
    bench.leasehold(["once", "k", "--", "no-such-command-here"]).gives(127).says("was not found");
    bench.leasehold(["once", "k", "--", "echo", "a"]).gives(0);
    bench.leasehold(["once", "k"]).gives(64).says("<CMD>");
    bench.leasehold(["once", "", "--", "true"]).gives(64).says("empty");
}
