//! What happens when the lease is lost while the command runs.

use super::*;

const SHORT: &str = "300ms";

fn break_name(bench: &Bench) -> Ran {
    bench.leasehold(["break", "a", "--yes"]).gives(0)
}

#[test]
fn a_broken_lease_stops_the_command_with_term() {
    let bench = Bench::new();
    let script = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let holder = bench.start_run(&["--lease", SHORT, "a"], script);
    assert_eq!(holder.line(), "ready");
    break_name(&bench);
    assert_eq!(holder.line(), "got TERM");
    let ran = holder.ended().gives(76).says("lost `a` (token ");
    assert!(ran.stderr.contains("sending TERM to `sh` (pid "), "{ran:?}");
    assert!(!ran.stderr.contains("KILL"), "{ran:?}");
}

#[test]
fn one_that_ignores_term_is_killed_after_the_grace_period() {
    let bench = Bench::new();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.02; done";
    let holder = bench.start_run(&["--lease", SHORT, "--grace", "200ms", "a"], script);
    let command = Pid::from_raw(holder.line().parse().unwrap()).unwrap();
    break_name(&bench);
    holder.ended().gives(76).says("`sh` did not end within 200ms; sending KILL");
    assert!(test_kill_process(command).is_err(), "the command lives");
}

#[test]
fn one_that_was_stopped_for_longer_than_its_lease_finds_out() {
    let bench = Bench::new();
    let mut holder = bench.start_run(&["--lease", SHORT, "a"], "echo $$; exec sleep 60");
    let command = Pid::from_raw(holder.line().parse().unwrap()).unwrap();
    holder.send(Signal::STOP);
    // The next one is in only once the lease has run out.
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    assert!(holder.is_running() && test_kill_process(command).is_ok());
    holder.send(Signal::CONT);
    holder.ended().gives(76).says("the lease was not renewed in time");
    assert!(test_kill_process(command).is_err(), "the command lives");
}

#[test]
fn a_command_that_is_stopped_ends_and_does_nothing_more() {
    const STOPPED: usize = 60;
    // Each stops, and goes on to say something. One that was told to go on before it was told to
    // end may do that. With so many of them some do, more often than not; so it is tried several
    // times.
    let script = format!(
        "for i in $(seq {STOPPED}); do sh -c 'kill -STOP $$; echo went on' & echo $!; done; \
         kill -STOP $$; echo went on"
    );
    for _ in 0..8 {
        let bench = Bench::new();
        let holder = bench.start_run(&["--lease", SHORT, "a"], &script);
        let number = |number: &str| Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        let mut stopped: Vec<Pid> = (0..STOPPED).map(|_| number(&holder.line())).collect();
        let children = format!("/proc/{0}/task/{0}/children", holder.child.id());
        stopped.push(number(&fs::read_to_string(children).unwrap()));
        until("all to be stopped", || {
            stopped.iter().all(|pid| stat(*pid).is_some_and(|stat| stat[0] == "T"))
        });
        break_name(&bench);
        let ran = holder.ended().gives(76).says("lost `a`");
        for pid in stopped {
            assert!(!lives(pid), "process {pid} lives");
        }
        assert!(!ran.stdout.contains("went on"), "a stopped command went on after the loss: {ran:?}");
        assert!(!ran.stderr.contains("KILL"), "it was not told to go on, and killed: {ran:?}");
    }
}

#[test]
fn a_command_that_ended_after_the_loss_does_not_count_as_done() {
    let bench = Bench::new();
    let go = bench.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    let holder = bench.start_run(&["--lease", SHORT, "a"], &script);
    holder.send(Signal::STOP);
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    fs::write(go, "").unwrap();
    let command = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.child.id())).unwrap();
    until("the command to end", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", command.trim())).unwrap_or_default();
        stat.contains(") Z ")
    });
    holder.send(Signal::CONT);
    holder.ended().gives(76).says("before the command ended with 0");
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let bench = Bench::new();
    let mut holder = bench.start_run(&["--lease", SHORT, "a"], "sleep 60");
    until("three leases to pass", || {
        let shown = bench.json(&["show", "--json", "a"]);
        shown[0]["holders"][0]["held_for_ms"].as_u64().unwrap() > 900
    });
    assert!(holder.is_running());
}

#[test]
fn a_store_that_does_not_answer_stops_the_command_in_time() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--lease", SHORT, "a"], "exec sleep 60");
    // As a process does that is stopped in the middle of a write.
    let mut in_store = fs::read_dir(bench.path("store")).unwrap().map(|entry| entry.unwrap().path());
    let gate = in_store.find_map(|path| fs::File::open(path.join("gate")).ok()).unwrap();
    rustix::fs::flock(&gate, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let shut = Instant::now();
    holder.ended().gives(76).says("the lease was not renewed in time");
    assert!(shut.elapsed() < Duration::from_secs(3), "took {:?}", shut.elapsed());
}

#[test]
fn a_store_that_was_removed_stops_the_command() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--lease", SHORT, "a"], "exec sleep 60");
    fs::remove_dir_all(bench.path("store")).unwrap();
    holder.ended().gives(76).says("lost `a`");
}

#[test]
fn a_store_that_went_away_while_another_held_the_name_is_a_loss() {
    for away in [
        |store: &Path| fs::remove_dir_all(store),
        |store: &Path| fs::rename(store, store.with_extension("moved")),
    ] {
        let bench = Bench::new();
        let go = bench.path("go");
        let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
        // A lease so long that no renewal finds out before the command ends.
        let first = bench.start_run(&["--lease", "1h", "a"], &script);
        away(&bench.path("store")).unwrap();
        let _second = bench.start_run(&["--lease", "1h", "a"], "sleep 60");
        fs::write(go, "").unwrap();
        first.ended().gives(76).says("`a` may have been lost before the command ended with 0");
    }
}

#[test]
fn what_the_command_started_ends_with_it() {
    all_end(&Bench::new());
}

/// Breaks the lease of a run; the command, and what it has started in all the ways that there are,
/// must end.
pub(super) fn all_end(bench: &Bench) {
    let script = format!("trap 'echo got TERM; exit' TERM; {FAMILY} while :; do sleep 0.02; done");
    let holder = bench.start_run(&["--lease", SHORT, "--grace", "1s", "a"], &script);
    let family = numbers(&holder);
    break_name(bench);
    assert_eq!(holder.line(), "got TERM");
    let mut holder = holder;
    until("the run to end", || !holder.is_running());
    for pid in family {
        assert!(!lives(pid), "process {pid} lives");
    }
    let ran = holder.ended().gives(76).says("sending TERM to `sh`");
    assert!(ran.stderr.contains("what `sh` has started did not end within 1.0s; sending KILL"), "{ran:?}");
}

#[test]
fn what_a_command_starts_in_order_to_clean_up_is_left_alone() {
    let bench = Bench::new();
    let script = "trap 'sleep 0.3 && echo cleaned up; exit' TERM; echo ready; while :; do sleep 0.02; done";
    let holder = bench.start_run(&["--lease", SHORT, "a"], script);
    assert_eq!(holder.line(), "ready");
    break_name(&bench);
    assert_eq!(holder.line(), "cleaned up");
    let ran = holder.ended().gives(76);
    assert!(!ran.stderr.contains("KILL"), "{ran:?}");
}

#[test]
fn processes_that_start_others_all_the_time_end_too() {
    let bench = Bench::new();
    let script =
        "for i in 1 2 3; do sh -c 'while :; do true & true; sh -c \"sleep 0.01 &\"; done' & done; wait";
    let holder = bench.start_run(&["--lease", SHORT, "a"], script);
    let leader = holder.pid();
    break_name(&bench);
    let mut holder = holder;
    until("the run to end", || !holder.is_running());
    assert!(group_is_empty(leader), "something lives");
    let ran = holder.ended().gives(76);
    assert!(!ran.stderr.contains("KILL"), "{ran:?}");
}

#[test]
fn those_whose_parents_have_ended_are_not_left_as_zombies() {
    let bench = Bench::new();
    let mut holder =
        bench.start_run(&["a"], "for i in 1 2 3 4 5 6 7 8; do sh -c 'true &'; done; echo made; sleep 60");
    assert_eq!(holder.line(), "made");
    let children = format!("/proc/{0}/task/{0}/children", holder.child.id());
    until("the command to be the only child", || {
        fs::read_to_string(&children).unwrap().split_whitespace().count() == 1
    });
    assert!(holder.is_running());
}
