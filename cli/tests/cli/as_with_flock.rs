//! What users of flock(1) know: its short options, plain seconds, silence in cron.

use super::*;

#[test]
fn the_short_options_of_flock_mean_the_same() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["a"], "sleep 60");
    bench.leasehold(["run", "-n", "a", "--", "true"]).gives(75).says("`a` is held by sh (pid ");
    bench.leasehold(["run", "-n", "-E", "9", "a", "--", "true"]).gives(9);
    let started = Instant::now();
    bench.leasehold(["run", "-w", "0.3", "a", "--", "true"]).gives(75);
    assert!((Duration::from_millis(300)..LIMIT).contains(&started.elapsed()));
    let _reader = bench.start_run(&["-s", "b"], "sleep 60");
    bench.leasehold(["run", "-s", "-n", "b", "--", "true"]).gives(0);
    bench.leasehold(["run", "-n", "b", "--", "true"]).gives(75);
}

#[test]
fn durations_have_fractions_and_plain_numbers_are_seconds() {
    let bench = Bench::new();
    for typed in ["1.5s", "2", "0.5", "1h30m", "90 s"] {
        bench.leasehold(["run", "--lease", typed, "a", "--", "true"]).gives(0);
        bench.leasehold(["run", "-w", typed, "a", "--", "true"]).gives(0);
    }
    let _holder = bench.start_run(&["--lease", "1.5s", "a"], "sleep 60");
    let left = bench.json(&["show", "--json", "a"])[0]["holders"][0]["ends_in_ms"].as_u64().unwrap();
    assert!(left <= 1_500, "{left}");
}

#[test]
fn a_script_is_run_by_the_shell() {
    let bench = Bench::new();
    let script = "echo $LEASEHOLD_NAME | tr a b; exit 7";
    assert_eq!(bench.leasehold(["run", "a", "-c", script]).gives(7).stdout, "b\n");
    assert_eq!(bench.leasehold(["run", "-c", script, "a"]).gives(7).stdout, "b\n");
    let holder = bench.start(["run", "a", "-c", "/bin/echo up; exec sleep 60"]);
    assert_eq!(holder.line(), "up");
    bench.leasehold(["run", "-n", "a", "-c", "true"]).gives(75).says("held by echo (pid ");
}

#[test]
fn nothing_is_said_where_nothing_is_wanted() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["a"], "sleep 60");
    for (words, code) in [
        (&["run", "-n", "--exit-if-busy", "0", "a", "--", "echo", "ran"][..], 0),
        (&["run", "-w", "50ms", "-E", "0", "a", "--", "echo", "ran"], 0),
        (&["run", "-n", "--quiet", "a", "--", "echo", "ran"], 75),
        (&["run", "-q", "-n", "-E", "3", "a", "--", "echo", "ran"], 3),
        (&["hold", "-n", "-E", "0", "a"], 0),
    ] {
        let ran = bench.leasehold(words).gives(code);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""), "{words:?}");
    }
    // What is wrong is said all the same.
    let nowhere = ["run", "-q", "-E", "0", "--on", "file:/proc/nowhere", "a", "--", "true"];
    bench.leasehold(nowhere).gives(69).says("/proc/nowhere");
    let lost = bench.start_run(&["-q", "-E", "0", "--grace", "1s", "b"], "sleep 60");
    bench.leasehold(["break", "--yes", "b"]).gives(0);
    lost.ended().gives(76).says("lost `b`");
}
