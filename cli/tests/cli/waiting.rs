//! Waiting for a name, and not waiting.

use super::*;

#[test]
fn a_name_that_is_taken_is_75_and_says_by_whom() {
    let bench = Bench::new();
    let mut holder = bench.start_run(&["--label", "backup", "a"], "sleep 60");
    let pid = holder.child.id();
    let who = format!("`a` is held by backup (pid {pid} on ");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75).says(&who);
    bench.leasehold(["run", "--wait", "50ms", "a", "--", "true"]).gives(75).says("token ");
    bench.leasehold(["run", "--wait", "0s", "--exit-if-busy", "9", "a", "--", "true"]).gives(9).says(&who);
    assert!(holder.is_running());
}

#[test]
fn the_label_is_the_name_of_the_command_if_none_is_given() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["a"], "sleep 60");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75).says("held by sh (pid ");
}

#[test]
fn it_runs_when_its_turn_comes() {
    let bench = Bench::new();
    let go = bench.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done; echo first", go.display());
    let mut first = bench.start_run(&["a"], &script);
    let mut second = bench.start_queued(&["--wait", "1m", "a"], "echo second");
    bench.until_waiting("a", 1);
    assert!(first.is_running() && second.is_running());
    fs::write(go, "").unwrap();
    assert_eq!(second.line(), "running");
    assert!(!first.is_running() || first.line() == "first");
    second.ended().gives(0);
    first.ended().gives(0);
}

#[test]
fn a_signal_ends_the_wait_and_leaves_the_queue() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["a"], "sleep 60");
    for signal in [Signal::TERM, Signal::INT, Signal::USR1, Signal::ALARM] {
        let waiter = bench.start_queued(&["a"], "true");
        bench.until_waiting("a", 1);
        // A window that changes its size ends nothing.
        waiter.send(Signal::WINCH);
        let sent = Instant::now();
        waiter.send(signal);
        let ran = waiter.ended().gives(128 + signal.as_raw());
        assert!(sent.elapsed() < Duration::from_secs(2), "took {:?}", sent.elapsed());
        assert_eq!(ran.stdout, "", "the command ran");
        bench.until_waiting("a", 0);
    }
}

#[test]
fn a_killed_holder_lets_the_next_one_in_at_once() {
    let bench = Bench::new();
    let holder = bench.start_run(&["a"], "sleep 60");
    let waiter = bench.start_queued(&["a"], "true");
    bench.until_waiting("a", 1);
    let killed = Instant::now();
    holder.kill_all();
    assert_eq!(waiter.line(), "running");
    let took = killed.elapsed();
    println!("the next one was in after {took:?}");
    assert!(took < Duration::from_secs(1), "took {took:?}");
    waiter.ended().gives(0);
    assert_eq!(holder.ended().signal, Some(9));
}

#[test]
fn shared_holders_keep_out_one_that_wants_it_alone() {
    let bench = Bench::new();
    let _one = bench.start_run(&["--shared", "a"], "sleep 60");
    bench.leasehold(["run", "--shared", "--no-wait", "a", "--", "true"]).gives(0);
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    let _two = bench.start_run(&["--shared", "a"], "sleep 60");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75).says("and 1 more");
    let ls = bench.leasehold(["ls"]).gives(0);
    assert!(ls.stdout.contains("2 shared"), "{ls:?}");
}

#[test]
fn slots_are_counted_and_are_no_lock() {
    let bench = Bench::new();
    let _one = bench.start_run(&["--slots", "2", "a"], "sleep 60");
    bench.leasehold(["run", "--slots", "2", "--no-wait", "a", "--", "true"]).gives(0);
    let _two = bench.start_run(&["--slots", "2", "a"], "sleep 60");
    bench.leasehold(["run", "--slots", "2", "--no-wait", "a", "--", "true"]).gives(75).says("and 1 more");
    bench.leasehold(["run", "--slots", "3", "--no-wait", "a", "--", "true"]).gives(64).says("capacity 2");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(0);
    let ls = bench.leasehold(["ls"]).gives(0);
    assert!(ls.stdout.contains("2/2"), "{ls:?}");
}

#[test]
fn a_delay_keeps_the_name_closed_after_a_lease_ran_out() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--lease", "200ms", "--lock-delay", "1m", "a"], "sleep 60");
    holder.send(Signal::STOP);
    until("the lease to run out", || {
        bench
            .leasehold(["run", "--no-wait", "a", "--", "true"])
            .gives(75)
            .stderr
            .contains("closed for another")
    });
    holder.send(Signal::CONT);
}
