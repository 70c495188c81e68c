//! `hold`: a name without a command.

use super::*;

#[test]
fn it_holds_until_a_signal_comes() {
    let bench = Bench::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let holder = bench.start(["hold", "a"]);
        let said = holder.line();
        assert!(said.starts_with("held lock a, token "), "{said}");
        bench.leasehold(["run", "-n", "a", "--", "true"]).gives(75).says("`a` is held by hold (pid ");
        holder.send(signal);
        holder.ended().gives(0);
        bench.leasehold(["run", "-n", "a", "--", "true"]).gives(0);
    }
}

#[test]
fn it_holds_for_a_time() {
    let bench = Bench::new();
    let started = Instant::now();
    let ran = bench.leasehold(["hold", "--for", "0.4", "a", "-a", "b"]).gives(0);
    assert!((Duration::from_millis(400)..LIMIT).contains(&started.elapsed()));
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
}

#[test]
fn it_waits_its_turn_and_says_when_it_has_come() {
    let bench = Bench::new();
    let first = bench.start(["hold", "--json", "--slots", "1", "a"]);
    let held: Value = serde_json::from_str(&first.line()).unwrap();
    assert_eq!((&held["family"], &held["name"]), (&"semaphore".into(), &"a".into()));
    let second = bench.start(["hold", "--slots", "1", "a"]);
    bench.until_waiting("a", 1);
    first.send(Signal::TERM);
    assert!(second.line().starts_with("held semaphore a, token "));
    let third = bench.start(["hold", "--slots", "1", "a"]);
    bench.until_waiting("a", 1);
    third.send(Signal::INT);
    third.ended().gives(130);
    bench.leasehold(["hold", "-w", "50ms", "--slots", "1", "a"]).gives(75).says("`a` is held by hold");
}

#[test]
fn a_loss_is_76() {
    let bench = Bench::new();
    let holder = bench.start(["hold", "-s", "a"]);
    assert!(holder.line().starts_with("held lock a"));
    bench.leasehold(["break", "--yes", "a"]).gives(0);
    holder.ended().gives(76).says("lost `a`");
}

#[test]
fn a_store_that_went_away_while_another_held_the_name_is_a_loss() {
    let bench = Bench::new();
    // A lease so long that no renewal finds out.
    let holder = bench.start(["hold", "--lease", "1h", "a"]);
    assert!(holder.line().starts_with("held lock a"));
    fs::rename(bench.path("store"), bench.path("moved")).unwrap();
    let _second = bench.start_run(&["a"], "sleep 60");
    holder.send(Signal::TERM);
    holder.ended().gives(76).says("`a` may have been lost before the end");
}

#[test]
fn what_can_not_be_said_is_not_held() {
    let bench = Bench::new();
    let mut command = bench.command(["hold", "a"]);
    command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert_eq!(command.output().unwrap().status.code(), Some(74));
    bench.leasehold(["run", "-n", "a", "--", "true"]).gives(0);
}
