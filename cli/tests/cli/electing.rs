//! `leasehold elect`: one machine of several runs the command.

use super::*;

const SHORT: &str = "300ms";

impl Bench {
    /// Starts a candidate whose command says when it runs, and does what the script says.
    fn stand(&self, before: &[&str], script: &str) -> Running {
        let args = ["elect"].iter().chain(before).chain(&["x", "-c"]).map(ToString::to_string);
        self.start(args.chain([format!("echo running; {script}")]))
    }

    fn until_candidates_wait(&self, count: usize) {
        until("the candidates to wait", || {
            let shown = self.json(&["show", "--json", "x"]);
            shown.as_array().unwrap().iter().any(|name| {
                name["family"] == "election" && name["waiters"].as_array().unwrap().len() == count
            })
        });
    }
}

/// The environment of the command that leads.
fn token(running: &Running) -> u64 {
    running.line().parse().unwrap()
}

#[test]
fn one_of_two_runs_the_command_and_the_other_takes_over() {
    let bench = Bench::new();
    let first = bench.stand(&["--value", "10.0.0.7:9000"], "echo $LEASEHOLD_TOKEN; exec sleep 60");
    assert_eq!(first.line(), "running");
    let before = token(&first);
    let shown = bench.leasehold(["show", "x"]).gives(0);
    assert!(shown.stdout.contains(", with the value 10.0.0.7:9000"), "{shown:?}");
    assert_eq!(bench.json(&["show", "--json", "x"])[0]["holders"][0]["value"], "10.0.0.7:9000");
    let second = bench.stand(&[], "echo $LEASEHOLD_TOKEN; exit 4");
    bench.until_candidates_wait(1);
    // A lock of that name is another thing.
    bench.leasehold(["run", "-n", "x", "--", "true"]).gives(0);
    first.send(Signal::TERM);
    first.ended().gives(128 + 15);
    assert_eq!(second.line(), "running");
    assert!(token(&second) > before);
    second.ended().gives(4);
}

#[test]
fn the_codes_of_the_command_are_passed_on_and_busy_is_said() {
    let bench = Bench::new();
    bench.stand(&[], "exit 3").ended().gives(3);
    let leader = bench.stand(&["--label", "boss"], "exec sleep 60");
    assert_eq!(leader.line(), "running");
    bench.stand(&["--no-wait"], "").ended().gives(75).says("`x` is held by boss (pid ");
    bench.stand(&["--wait", "50ms", "-E", "9"], "").ended().gives(9);
    bench.leasehold(["elect", "y", "--", "/no/such/command"]).gives(127);
    bench.leasehold(["elect", "y"]).gives(64);
    bench.leasehold(["elect", "y", "--slots", "2", "--", "true"]).gives(64);
}

#[test]
fn who_lost_the_leadership_stops_the_command_and_stands_again() {
    let bench = Bench::new();
    let script = "trap 'echo stopped; exit 0' TERM; echo $LEASEHOLD_TOKEN; while :; do sleep 0.02; done";
    let leader = bench.stand(&["--lease", SHORT], script);
    assert_eq!(leader.line(), "running");
    let first = token(&leader);
    bench.leasehold(["break", "x", "--yes"]).gives(0);
    assert_eq!(leader.line(), "stopped");
    assert_eq!(leader.line(), "running");
    assert!(token(&leader) > first);
    leader.send(Signal::TERM);
    assert_eq!(leader.line(), "stopped");
    leader.ended().gives(0).says("lost `x` (token ");
}

#[test]
fn one_term_ends_with_the_loss() {
    let bench = Bench::new();
    let leader = bench.stand(&["--lease", SHORT, "--one-term"], "exec sleep 60");
    assert_eq!(leader.line(), "running");
    bench.leasehold(["break", "x", "--yes"]).gives(0);
    leader.ended().gives(76).says("lost `x` (token ");
}

#[test]
fn who_was_told_to_end_does_not_stand_again() {
    let bench = Bench::new();
    // It does not end when it is told to, so that the leadership can be lost afterwards.
    let script = "trap 'echo told' TERM; echo deaf; while :; do sleep 0.02; done";
    let leader = bench.stand(&["--lease", SHORT, "--grace", "200ms"], script);
    assert_eq!((leader.line().as_str(), leader.line().as_str()), ("running", "deaf"));
    leader.send(Signal::TERM);
    assert_eq!(leader.line(), "told");
    bench.leasehold(["break", "x", "--yes"]).gives(0);
    leader.ended().gives(128 + 15).says("did not end within 200ms; sending KILL");
}

#[test]
fn a_candidate_that_waits_ends_with_the_signal() {
    let bench = Bench::new();
    let leader = bench.stand(&[], "exec sleep 60");
    assert_eq!(leader.line(), "running");
    let candidate = bench.stand(&[], "");
    bench.until_candidates_wait(1);
    candidate.send(Signal::TERM);
    candidate.ended().gives(128 + 15);
    bench.until_candidates_wait(0);
}

#[test]
fn a_command_that_stands_for_its_own_leader_is_refused() {
    let bench = Bench::new();
    let ran = bench.leasehold([
        "elect",
        "x",
        "-c",
        &format!("'{}' elect x -- true", env!("CARGO_BIN_EXE_leasehold")),
    ]);
    ran.gives(64).says("would wait for itself for ever");
}
