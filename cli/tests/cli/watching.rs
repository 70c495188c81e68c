//! What happens, as it happens.

use super::*;

#[test]
fn changes_are_told_in_order() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--label", "zero", "a"], "exec sleep 60");
    let watch = bench.start(["watch", "--json"]);
    let next = || -> Value { serde_json::from_str(&watch.line()).unwrap() };
    let event = |event: Value| format!("{} {}", event["event"], event["label"]).replace('"', "");

    let first = next();
    assert_eq!(first["pid"], holder.child.id());
    assert!(first["token"].as_u64().unwrap() > 0 && first["at_ms"].as_u64().unwrap() > 0);
    assert_eq!((&first["family"], &first["name"]), (&"lock".into(), &"a".into()));
    assert_eq!(event(first), "held zero");
    let one = bench.start_queued(&["--label", "one", "a"], "exec sleep 60");
    assert_eq!(event(next()), "waiting one");
    let two = bench.start_queued(&["--label", "two", "a"], "exec sleep 60");
    assert_eq!(event(next()), "waiting two");
    two.send(Signal::TERM);
    assert_eq!(event(next()), "left two");
    holder.send(Signal::TERM);
    assert_eq!(event(next()), "released zero");
    assert_eq!(event(next()), "granted one");
    one.kill_all();
    assert_eq!(event(next()), "released one");

    watch.send(Signal::INT);
    let ran = watch.ended().gives(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn one_name_can_be_watched_alone() {
    let bench = Bench::new();
    let _other = bench.start_run(&["ab"], "sleep 60");
    let watch = bench.start(["watch", "a"]);
    let _holder = bench.start_run(&["--slots", "2", "a"], "sleep 60");
    let line = watch.line();
    assert!(line.contains(" granted  semaphore a to sh (pid ") || line.contains(" held "), "{line}");
    assert!(!line.contains('\u{1b}'));
}

#[test]
fn it_ends_when_nobody_reads() {
    let bench = Bench::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = bench.command(["watch"]);
    command.stdout(writer);
    let _holder = bench.start_run(&["a"], "sleep 60");
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]));
}
