//! Runs inside runs.

use super::*;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

impl Bench {
    /// Runs `run OUTER... -- leasehold run INNER... -- true`, with names in it.
    fn nested(&self, outer: &[&str], inner: &[&str]) -> Ran {
        let words = [&["run"], outer, &["--", LEASEHOLD, "run"], inner, &["--", "echo", "inside"]].concat();
        self.leasehold(words)
    }
}

#[test]
fn one_that_would_wait_for_itself_is_refused() {
    would_wait_for_itself(&Bench::new());
}

pub(super) fn would_wait_for_itself(bench: &Bench) {
    let refused = |outer: &[&str], inner: &[&str]| {
        let ran = bench.nested(outer, inner).gives(64);
        assert!(ran.stderr.contains("would wait for itself for ever"), "{ran:?}");
        assert_eq!(ran.stdout, "");
    };
    refused(&["a"], &["a"]);
    refused(&["a"], &["--shared", "a"]);
    refused(&["--shared", "a"], &["a"]);
    // However deep, and whatever is in between.
    refused(&["a"], &["b", "--", LEASEHOLD, "run", "a"]);
    // Where it does not wait for ever, it is told that the name is taken.
    let ran = bench.nested(&["a"], &["--no-wait", "a"]).gives(75);
    assert!(ran.stderr.contains("`a` is held by leasehold (pid "), "{ran:?}");
    bench.nested(&["a"], &["--wait", "100ms", "a"]).gives(75);
    // What can be had is had.
    for (outer, inner) in
        [(&["a"][..], &["b"][..]), (&["--shared", "a"], &["--shared", "a"]), (&["--shared", "a"], &["A"])]
    {
        assert_eq!(bench.nested(outer, inner).gives(0).stdout, "inside\n");
    }
}

#[test]
fn slots_are_refused_only_if_all_are_held_around_it() {
    slots(&Bench::new());
}

pub(super) fn slots(bench: &Bench) {
    let one = ["--slots", "1", "a"];
    bench.nested(&one, &one).gives(64).says("all slots of `a` are held by runs around this one");
    let two = ["--slots", "2", "a"];
    assert_eq!(bench.nested(&two, &two).gives(0).stdout, "inside\n");
    let three = [&two[..], &["--", LEASEHOLD, "run"], &two].concat();
    bench.nested(&two, &three).gives(64);
    // A lock of the same name is another thing.
    assert_eq!(bench.nested(&two, &["a"]).gives(0).stdout, "inside\n");

    // A slot that somebody else holds can become free.
    let other = bench.start_run(&two, "sleep 60");
    let inner = format!("echo running; {LEASEHOLD} run --slots 2 a -- echo inside");
    let nested = bench.start(["run", "--slots", "2", "a", "--", "sh", "-c", &inner]);
    assert_eq!(nested.line(), "running");
    bench.until_waiting("a", 1);
    other.send(Signal::TERM);
    assert_eq!(nested.line(), "inside");
    nested.ended().gives(0);
}

#[test]
fn one_that_shares_is_refused_if_another_wants_the_name_alone_and_is_before_it() {
    let bench = Bench::new();
    let inner = format!("read go; {LEASEHOLD} run --shared a -- echo inside");
    let mut outer =
        bench.command(["run", "--shared", "a", "--", "sh", "-c", &format!("echo running; {inner}")]);
    outer.stdin(Stdio::piped());
    let mut outer = Running::new(outer);
    assert_eq!(outer.line(), "running");
    let writer = bench.start_queued(&["a"], "true");
    bench.until_waiting("a", 1);
    // The end of the input lets it go on.
    drop(outer.child.stdin.take());
    outer.ended().gives(64).says("somebody who wants it alone is next");
    assert_eq!(writer.line(), "running");
}

#[test]
fn the_same_name_elsewhere_or_later_is_not_the_same() {
    let (here, there) = (Bench::new(), Bench::new());
    let ran = here.nested(&["a"], &["--on", &there.url(), "a"]).gives(0);
    assert_eq!(ran.stdout, "inside\n");
    // The same place in other words is.
    let other_words = format!("file://{}", here.path("./store/").display());
    here.nested(&["a"], &["--on", &other_words, "a"]).gives(64);

    // One that the command left behind, and that runs when the name has been given back.
    let (here_now, go, done) = (here.path("here"), here.path("go"), here.path("done"));
    let later = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done; {LEASEHOLD} run a -- touch {}",
        here_now.display(),
        go.display(),
        done.display()
    );
    let script = format!(
        "setsid sh -c '{later}' >/dev/null 2>&1 & until [ -e {} ]; do sleep 0.02; done",
        here_now.display()
    );
    here.leasehold(["run", "a", "--", "sh", "-c", &script]).gives(0);
    let _other = here.start_run(&["--lease", "1s", "a"], "exec sleep 0.3");
    fs::write(go, "").unwrap();
    until("the one that was left behind", || done.exists());
}

#[test]
fn the_command_is_told_what_is_held_around_it() {
    let bench = Bench::new();
    let script = "echo $LEASEHOLD_HELD";
    let ran = bench
        .leasehold(["run", "a \"b\"", "--", LEASEHOLD, "run", "--slots", "2", "c", "--", "sh", "-c", script]);
    let held: Value = serde_json::from_str(&ran.gives(0).stdout).unwrap();
    assert_eq!((&held[0]["family"], &held[0]["name"]), (&"lock".into(), &"a \"b\"".into()));
    assert_eq!((&held[1]["family"], &held[1]["name"]), (&"semaphore".into(), &"c".into()));
    assert!(held[0]["token"].as_u64() > Some(0) && held.as_array().unwrap().len() == 2, "{held}");

    // What somebody else has put there says nothing.
    let mut command = bench.command(["run", "a", "--", "true"]);
    command.env("LEASEHOLD_HELD", "[{\"family\":");
    Running::new(command).ended().gives(0);
}
