//! What happens to the command, and to the name, if leasehold itself is killed.

use super::*;

/// Uses all descriptors that scripts use, says its number and waits to be ended.
const SAYS_PID: &str = "exec 3>&1 4>&1 5>&1 6>&1 7>&1 8>&1 9>&1; echo $$; exec sleep 60";

fn pid(line: &str) -> Pid {
    Pid::from_raw(line.parse().unwrap()).unwrap()
}

fn until_gone(what: &str, pid: Pid) {
    until(&format!("the end of {what}"), || !lives(pid));
}

#[test]
fn the_command_keeps_the_name_until_it_has_ended() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--lease", "300ms", "a"], SAYS_PID);
    let command = pid(&holder.line());
    holder.send(Signal::KILL);
    assert_eq!(holder.left(), Some(9));
    let killed = Instant::now();
    let waiter = bench.start_queued(&["a"], "true");
    // For longer than the lease that nobody renews any more.
    until("some leases to pass", || {
        bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75).says("held by sh (pid ");
        killed.elapsed() > Duration::from_secs(2)
    });
    kill_process(command, Signal::KILL).unwrap();
    assert_eq!(waiter.line(), "running");
    waiter.ended().gives(0);
}

#[test]
fn so_do_those_that_the_command_started() {
    let bench = Bench::new();
    let holder = bench.start_run(&["a"], "sleep 60 & echo $!; echo $$; wait");
    let (started, command) = (pid(&holder.line()), pid(&holder.line()));
    holder.send(Signal::KILL);
    holder.left();
    kill_process(command, Signal::KILL).unwrap();
    until_gone("the command", command);
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    kill_process(started, Signal::KILL).unwrap();
    until("the name to be free", || bench.leasehold(["run", "--no-wait", "a", "--", "true"]).code == Some(0));
}

#[test]
fn a_name_is_free_at_a_normal_end_whatever_the_command_left_behind() {
    for mode in ["keep", "stop"] {
        let bench = Bench::new();
        let file = bench.path("pid");
        let script = format!(
            "setsid sh -c 'echo $$ > {0}; exec sleep 60' >/dev/null 2>&1 & until [ -s {0} ]; do sleep 0.02; done; cat {0}",
            file.display()
        );
        let ran = bench.leasehold(["run", "--if-killed", mode, "a", "--", "sh", "-c", &script]).gives(0);
        let daemon = pid(ran.stdout.trim());
        bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(0);
        assert!(lives(daemon), "what the command left behind was ended");
        kill_process(daemon, Signal::KILL).unwrap();
    }
}

#[test]
fn a_command_can_be_told_to_end_with_its_leasehold() {
    let bench = Bench::new();
    ends_with_its_leasehold(&bench, &["--if-killed", "stop"]);
    // The name is free as soon as all have ended, and not before.
    until("the name to be free", || bench.leasehold(["run", "--no-wait", "a", "--", "true"]).code == Some(0));
}

#[test]
fn the_name_stays_taken_while_such_a_command_ends() {
    let bench = Bench::new();
    let go = bench.path("go");
    let script =
        format!("trap 'echo got TERM' TERM; echo ready; until [ -e {} ]; do sleep 0.02; done", go.display());
    let holder = bench.start_run(&["--if-killed", "stop", "--grace", "1m", "a"], &script);
    assert_eq!(holder.line(), "ready");
    holder.send(Signal::KILL);
    assert_eq!(holder.line(), "got TERM");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    fs::write(go, "").unwrap();
    until("the name to be free", || bench.leasehold(["run", "--no-wait", "a", "--", "true"]).code == Some(0));
}

/// Kills a run; the command, and what it has started in all the ways that there are, must end.
pub(super) fn ends_with_its_leasehold(bench: &Bench, options: &[&str]) {
    let script = format!("trap 'echo got TERM; exit' TERM; {FAMILY} while :; do sleep 0.02; done");
    let before = [options, &["--grace", "1s", "a"]].concat();
    let holder = bench.start_run(&before, &script);
    let family = numbers(&holder);
    holder.send(Signal::KILL);
    assert_eq!(holder.line(), "got TERM");
    for pid in family {
        until_gone("what the command started", pid);
    }
    until("the end of what watched over them", || group_is_empty(holder.pid()));
}

#[test]
fn nothing_is_left_of_a_run_that_ended_as_it_should() {
    let bench = Bench::new();
    nothing_is_left(&bench, &["--if-killed", "stop"]);
    nothing_is_left(&bench, &["--if-killed", "keep"]);
}

pub(super) fn nothing_is_left(bench: &Bench, options: &[&str]) {
    let before = [&["run"][..], options, &["a", "--", "sh", "-c"]].concat();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -INT $$", 130)] {
        let mut running = bench.start(before.iter().chain(&[script]));
        let leader = running.pid();
        until("the run to end", || !running.is_running());
        // The run has been waited for, and was the last of its group.
        assert!(group_is_empty(leader), "something was left of {script}");
        running.ended().gives(code);
    }
    bench
        .leasehold(before.iter().take(before.len() - 2).chain(&["no-such-command"]))
        .gives(127)
        .says("can not start `no-such-command`");
}

#[test]
fn a_command_does_not_outlive_what_watches_over_it() {
    let bench = Bench::new();
    without_a_supervisor(&bench, &["--if-killed", "stop"]);
}

pub(super) fn without_a_supervisor(bench: &Bench, options: &[&str]) {
    let script = "trap 'echo got TERM; exit' TERM; echo $$; while :; do sleep 0.02; done";
    let holder = bench.start_run(&[options, &["a"]].concat(), script);
    let command = pid(&holder.line());
    let between = pid(&stat(command).unwrap()[1]);
    assert_ne!(between, holder.pid(), "nothing watches over it");
    kill_process(between, Signal::KILL).unwrap();
    assert_eq!(holder.line(), "got TERM");
    until_gone("the command", command);
    holder.ended().gives(137).says("was ended by signal 9");
}
