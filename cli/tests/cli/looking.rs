//! Who holds what: `ls` and `show`.

use super::*;

#[test]
fn a_free_name_is_1_and_a_held_one_0() {
    let bench = Bench::new();
    let free = bench.leasehold(["show", "a"]).gives(1);
    assert_eq!(free.stdout, "`a` is free\n");
    let free = bench.leasehold(["show", "--json", "a"]).gives(1);
    assert_eq!(free.stdout, "[]\n");
    let _holder = bench.start_run(&["--label", "backup", "a"], "sleep 60");
    let shown = bench.leasehold(["show", "a"]).gives(0);
    assert!(shown.stdout.starts_with("lock a: held\n  held by backup (pid "), "{shown:?}");
    bench.leasehold(["show", "--family", "lock", "a"]).gives(0);
    bench.leasehold(["show", "--family", "semaphore", "a"]).gives(1);
}

#[test]
fn show_tells_who_waits_in_order() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--label", "zero", "a"], "sleep 60");
    let _one = bench.start_queued(&["--label", "one", "a"], "true");
    bench.until_waiting("a", 1);
    let _two = bench.start_queued(&["--label", "two", "--shared", "a"], "true");
    bench.until_waiting("a", 2);
    let shown = bench.json(&["show", "--json", "a"]);
    let held = &shown[0]["holders"][0];
    assert_eq!((&shown[0]["family"], &shown[0]["name"]), (&"lock".into(), &"a".into()));
    assert_eq!(held["label"], "zero");
    assert_eq!(held["pid"], holder.child.id());
    assert_eq!(held["shared"], false);
    assert!(held["token"].as_u64().unwrap() > 0 && held["ends_in_ms"].as_u64().unwrap() <= 30_000);
    assert_eq!(shown[0]["waiting"], 2);
    let waiters = shown[0]["waiters"].as_array().unwrap();
    assert_eq!((&waiters[0]["label"], &waiters[1]["label"]), (&"one".into(), &"two".into()));
    assert_eq!(waiters[1]["shared"], true);
    let text = bench.leasehold(["show", "a"]).gives(0).stdout;
    assert!(text.contains("  waiting 1: one (") && text.contains("  waiting 2: two ("), "{text}");
}

#[test]
fn ls_lists_all_families_and_only_what_starts_with_the_prefix() {
    let bench = Bench::new();
    assert_eq!(bench.leasehold(["ls"]).gives(0).stdout, "");
    assert_eq!(bench.leasehold(["ls", "--json"]).gives(0).stdout, "[]\n");
    let _a = bench.start_run(&["app/a"], "sleep 60");
    let _b = bench.start_run(&["--slots", "4", "app/b"], "sleep 60");
    let _c = bench.start_run(&["other"], "sleep 60");
    let names = |listed: &Value| -> Vec<String> {
        let listed = listed.as_array().unwrap().iter();
        listed.map(|name| format!("{} {}", name["family"], name["name"]).replace('"', "")).collect()
    };
    assert_eq!(names(&bench.json(&["ls", "--json"])), ["lock app/a", "lock other", "semaphore app/b"]);
    let listed = bench.json(&["ls", "--json", "app/"]);
    assert_eq!(names(&listed), ["lock app/a", "semaphore app/b"]);
    assert_eq!(listed[1]["slots"], 4);
    assert_eq!(listed[1]["holders"][0]["slots"], 1);
    let text = bench.leasehold(["ls", "app/"]).gives(0).stdout;
    assert!(text.starts_with("FAMILY") && text.contains("1/4") && text.lines().count() == 3, "{text}");
    // What is not in it is in `show`: the rest leaves room for the holder in 80 columns.
    let before_holder = text.lines().next().and_then(|line| line.find("HOLDER"));
    assert!(before_holder.is_some_and(|columns| columns <= 50), "{text}");
}

#[test]
fn the_dead_are_not_listed() {
    let bench = Bench::new();
    let holder = bench.start_run(&["a"], "sleep 60");
    let waiter = bench.start_queued(&["a"], "sleep 60");
    bench.until_waiting("a", 1);
    waiter.send(Signal::KILL);
    waiter.ended();
    assert_eq!(bench.json(&["ls", "--json"])[0]["waiting"], 0);
    holder.kill_all();
    holder.ended();
    assert_eq!(bench.json(&["ls", "--json"]), Value::Array(vec![]));
}

#[test]
fn no_colours_where_nobody_sees_them_and_no_escape_from_a_name() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["--label", "red\u{1b}[31m", "odd\u{1b}[2J\nname"], "sleep 60");
    for args in [&["ls"][..], &["show", "odd\u{1b}[2J\nname"], &["--help"], &["run", "--help"]] {
        let ran = bench.leasehold(args).gives(0);
        assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
    }
    let ran = bench.leasehold(["run", "--no-wait", "odd\u{1b}[2J\nname", "--", "true"]).gives(75);
    assert!(!ran.stderr.contains('\u{1b}') && ran.stderr.lines().count() == 1, "{ran:?}");
    assert_eq!(bench.json(&["ls", "--json"])[0]["name"], "odd\u{1b}[2J\nname");
}

#[test]
fn output_that_can_not_be_written_is_74_and_a_closed_pipe_is_fine() {
    let bench = Bench::new();
    let _holder = bench.start_run(&["a"], "sleep 60");
    let mut command = bench.command(["ls"]);
    command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code(), Some(74));
    assert!(String::from_utf8_lossy(&stderr).contains("can not write to stdout"));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = bench.command(["ls"]);
    command.stdout(writer);
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]));
}
