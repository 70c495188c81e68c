//! Bad input, and what is said about it.

use super::*;

#[test]
fn wrong_names() {
    let bench = Bench::new();
    bench.leasehold(["run", "", "--", "true"]).gives(64).says("is it a shell variable that is not set?");
    bench.leasehold(["show", ""]).gives(64).says("the name is empty");
    let long = "x".repeat(4097);
    bench.leasehold(["run", &long, "--", "true"]).gives(64).says("4097 bytes");
    bench.leasehold(["run", &long[1..], "--", "true"]).gives(0);
    let odd = OsString::from_vec(b"a\xff".to_vec());
    let args = [OsStr::new("run"), &odd, OsStr::new("--"), OsStr::new("true")];
    bench.leasehold(args).gives(64).says("not UTF-8");
}

#[test]
fn wrong_durations() {
    let bench = Bench::new();
    for (option, typed, words) in [
        ("--lease", "1m30", "`30` has no unit"),
        ("--lease", "0s", "longer than 0"),
        ("--lease", "1ms", "out of range"),
        ("--lease", "2d", "out of range"),
        ("--lease", "", "empty"),
        ("--wait", "-5s", "not a duration"),
        ("--wait", "soon", "not a duration"),
        ("--grace", "99999999999999999999h", "too long"),
        ("--wait", "5M", "no unit `M`"),
        ("--lock-delay", "400d", "more than 366d"),
    ] {
        bench.leasehold(["run", option, typed, "a", "--", "true"]).gives(64).says(words);
    }
}

#[test]
fn wrong_words() {
    let bench = Bench::new();
    bench.leasehold(["run", "a"]).gives(64).says("<CMD>");
    bench.leasehold(["run", "a", "true"]).gives(64).says("put `--` before the command");
    bench.leasehold(["run", "--wait", "1s", "--no-wait", "a", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["run", "--shared", "--slots", "2", "a", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["run", "--slots", "0", "a", "--", "true"]).gives(64).says("--slots");
    bench.leasehold(["run", "--exit-if-busy", "256", "a", "--", "true"]).gives(64).says("256");
    bench.leasehold(["run", "a", "-c", "true", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["run", "--shared", "-a", "b", "a", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["run", "--slots", "2", "-a", "b", "a", "--", "true"]).gives(64).says("cannot be used");
    bench.leasehold(["show", "--family", "cell", "a"]).gives(64).says("possible values");
    bench.leasehold([""; 0]).gives(64);
}

#[test]
fn slips_of_the_finger_are_met_with_what_was_meant() {
    let bench = Bench::new();
    for (words, meant) in [
        (&["rnu", "a", "--", "true"][..], "`leasehold run`"),
        (&["run", "--no-wiat", "a", "--", "true"], "'--no-wait'"),
        (&["run", "--exit-if-bussy", "0", "a", "--", "true"], "'--exit-if-busy'"),
        (&["run", "--if-killed", "kepe", "a", "--", "true"], "'keep'"),
        (&["show", "--family", "lok", "a"], "'lock'"),
        (&["run", "--on", "reids://h", "a", "--", "true"], "did you mean `redis://HOST:PORT`?"),
        (&["run", "--on", "localhost:6379", "a", "--", "true"], "did you mean `redis://localhost:6379`?"),
        // What others call it.
        (&["lock", "a"], "`leasehold run NAME -- CMD`"),
        (&["list"], "`leasehold ls`"),
        (&["unlock", "a"], "`leasehold break NAME`"),
        (&["status"], "`leasehold show NAME`"),
    ] {
        bench.leasehold(words).gives(64).says(meant);
    }
}

#[test]
fn engines_that_are_none_or_keep_nobody_out() {
    let bench = Bench::new();
    bench.leasehold(["ls", "--on", "carrier-pigeon://coop"]).gives(64).says("`carrier-pigeon:`");
    bench.leasehold(["ls", "--on", "/tmp/locks"]).gives(64).says("say `file:/tmp/locks`");
    bench
        .leasehold(["run", "--on", "memory:", "a", "--", "true"])
        .gives(64)
        .says("would keep nobody else out");
}

#[test]
fn a_directory_that_can_not_be_written() {
    let bench = Bench::new();
    let closed = bench.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not stop root; the kernel's own file system does.
    let dir = if rustix::process::geteuid().is_root() { Path::new("/sys/kernel") } else { &closed };
    let url = format!("file:{}", dir.join("leasehold").display());
    bench.leasehold(["run", "--on", &url, "a", "--", "true"]).gives(69).says("can not create");
}

#[test]
fn a_store_that_is_private_to_another() {
    // Only root can become somebody else.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const NOBODY: u32 = 65_534;
    let bench = Bench::new();
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    // The store is in their way, not the road to it.
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), bench.path("leasehold")).unwrap();
    let mut command = Command::new(bench.path("leasehold"));
    command.args(["run", "a", "--", "true"]).env("LEASEHOLD_ON", bench.url()).uid(NOBODY).gid(NOBODY);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::new(command).ended().gives(69).says("Permission denied");
}

#[test]
fn a_directory_that_is_not_ours() {
    let bench = Bench::new();
    fs::create_dir(bench.path("store")).unwrap();
    fs::write(bench.path("store/letters"), "dear").unwrap();
    bench.leasehold(["run", "a", "--", "true"]).gives(69).says("is not a store of leasehold");
    assert_eq!(fs::read_dir(bench.path("store")).unwrap().count(), 1, "something was left in it");
}

#[test]
fn a_store_of_a_newer_format() {
    let bench = Bench::new();
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    let format = bench.path("store/format");
    let newer = fs::read_to_string(&format).unwrap().replace("format 1", "format 9");
    fs::write(&format, newer).unwrap();
    bench.leasehold(["run", "a", "--", "true"]).gives(69).says("has format 9");
}

#[test]
fn nothing_that_was_typed_moves_the_cursor_or_forges_a_line() {
    let bench = Bench::new();
    let odd = "odd\u{1b}[2J\r\nleasehold all is well\u{202e}";
    let seen = r"odd\u{1b}[2J\r\nleasehold all is well\u{202e}";
    let not_text = OsString::from_vec([odd.as_bytes(), b"\xff"].concat());
    // In messages of the library, of this program, and of the parser of the command line.
    let _holder = bench.start_run(&["--slots", "2", odd], "sleep 60");
    for args in [
        &["run", "--slots", "3", odd, "--", "true"][..],
        &["run", "--on", odd, "a", "--", "true"],
        &["run", "--on", &format!("file:/proc/{odd}"), "a", "--", "true"],
        &["run", "a", "--", odd],
        &["run", "a", odd, "--", "true"],
        &["run", "--lease", odd, "a", "--", "true"],
        &["run", &format!("--{odd}"), "a", "--", "true"],
        &["break", "--yes", "--family", "lock", odd],
        &["show", "--family", odd, "a"],
        &[odd],
    ] {
        shows(&bench.leasehold(args), seen);
    }
    shows(&bench.leasehold([OsStr::new("show"), &not_text]), seen);

    fn shows(ran: &Ran, seen: &str) {
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(seen), "{ran:?}");
        assert!(!ran.stderr.contains(['\u{1b}', '\r', '\u{202e}']), "{ran:?}");
        assert!(!ran.stderr.contains("\nleasehold all is well"), "{ran:?}");
    }
}
