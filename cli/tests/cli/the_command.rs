//! The command that runs under a name: its surroundings, its exit code, its signals.

use super::*;

#[test]
fn its_code_is_passed_on() {
    let bench = Bench::new();
    for code in [0, 1, 7, 75, 255] {
        bench.leasehold(["run", "a", "--", "sh", "-c", &format!("exit {code}")]).gives(code);
    }
}

#[test]
fn a_signal_that_ended_it_is_128_and_more() {
    let bench = Bench::new();
    bench.leasehold(["run", "a", "--", "sh", "-c", "kill -KILL $$"]).gives(128 + 9);
    bench.leasehold(["run", "a", "--", "sh", "-c", "kill -TERM $$"]).gives(128 + 15);
}

#[test]
fn it_finds_name_token_and_deadline() {
    let bench = Bench::new();
    let unix_ms = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let before = unix_ms();
    let script = r#"echo "$LEASEHOLD_NAME|$LEASEHOLD_TOKEN|$LEASEHOLD_DEADLINE""#;
    let token = |ran: &Ran| ran.stdout.trim().split('|').nth(1).unwrap().parse::<u64>().unwrap();
    let first = bench.leasehold(["run", "--lease", "5s", "a b", "--", "sh", "-c", script]).gives(0);
    let second = bench.leasehold(["run", "a b", "--", "sh", "-c", script]).gives(0);
    assert!(first.stdout.starts_with("a b|"), "{first:?}");
    assert!(token(&second) > token(&first), "tokens must rise");
    let deadline: u128 = first.stdout.trim().rsplit('|').next().unwrap().parse().unwrap();
    assert!((before + 4_000..unix_ms() + 5_000).contains(&deadline), "{deadline} is no time in 5 s");
}

#[test]
fn it_has_our_stdin_stdout_and_stderr_and_no_other_file() {
    let bench = Bench::new();
    let files = its_files(&bench);
    // What keeps the name for it if we are killed.
    assert_eq!(files.lines().filter(|file| file.contains("store")).count(), 1, "{files}");
    assert!(!files.contains("socket:") && !files.contains("anon_inode:"), "{files}");
}

/// What a command has open.
pub(super) fn its_files(bench: &Bench) -> String {
    let script = "cat; echo oops >&2; cd /proc/$$/fd; for file in *; do readlink $file; done; true";
    let mut command = bench.command(["run", "a", "--", "sh", "-c", script]);
    fs::write(bench.path("in"), "from stdin\n").unwrap();
    command.stdin(fs::File::open(bench.path("in")).unwrap());
    let ran = Running::new(command).ended().gives(0);
    assert_eq!(ran.stderr, "oops\n");
    ran.stdout.strip_prefix("from stdin\n").unwrap_or_else(|| panic!("{:?}", ran.stdout)).to_owned()
}

#[test]
fn its_arguments_need_not_be_text() {
    let bench = Bench::new();
    let odd = OsString::from_vec(b"\xff".to_vec());
    let args = [OsStr::new("run"), OsStr::new("a"), OsStr::new("--"), OsStr::new("echo"), &odd];
    let running = bench.start(args);
    assert_eq!(running.lines.recv_timeout(LIMIT).unwrap(), b"\xff");
    running.ended().gives(0);
}

#[test]
fn one_that_does_not_exist_is_127_and_the_name_is_free() {
    let bench = Bench::new();
    bench.leasehold(["run", "a", "--", "no-such-command"]).gives(127).says("`no-such-command`");
    bench.leasehold(["run", "a", "--", "/no/such"]).gives(127).says("`/no/such`");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(0);
}

#[test]
fn one_that_can_not_be_started_is_126_and_the_name_is_free() {
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, "echo not a program").unwrap();
    let file = file.to_str().unwrap();
    bench.leasehold(["run", "a", "--", file]).gives(126).says("not executable");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    bench.leasehold(["run", "a", "--", file]).gives(126).says("#!/bin/sh");
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(0);
}

#[test]
fn it_gets_the_signals_that_we_get() {
    let bench = Bench::new();
    for (signal, word) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::ALARM, "ALRM"),
        (Signal::WINCH, "WINCH"),
        (Signal::XCPU, "XCPU"),
        (Signal::XFSZ, "XFSZ"),
        (Signal::VTALARM, "VTALRM"),
        (Signal::PROF, "PROF"),
        (Signal::IO, "IO"),
        (Signal::POWER, "PWR"),
    ] {
        let script =
            format!("trap 'echo got {word}; exit 3' {word}; echo ready; while :; do sleep 0.02; done");
        let running = bench.start_run(&["a"], &script);
        assert_eq!(running.line(), "ready");
        running.send(signal);
        assert_eq!(running.line(), format!("got {word}"));
        running.ended().gives(3);
    }
}

#[test]
fn the_name_is_held_until_it_has_ended() {
    let bench = Bench::new();
    let go = bench.path("go");
    let script = format!(
        "trap 'echo heard' TERM; echo ready; until [ -e {} ]; do sleep 0.02; done; exit 4",
        go.display()
    );
    let running = bench.start_run(&["b"], &script);
    assert_eq!(running.line(), "ready");
    running.send(Signal::TERM);
    assert_eq!(running.line(), "heard");
    bench.leasehold(["run", "--no-wait", "b", "--", "true"]).gives(75);
    fs::write(go, "").unwrap();
    running.ended().gives(4);
}

#[test]
fn it_ignores_what_was_ignored_before() {
    let bench = Bench::new();
    // As nohup does it.
    let mut command = Command::new("sh");
    let script = format!(
        "trap '' HUP USR1; exec {} run a -- sh -c 'echo ready; grep SigIgn /proc/self/status; sleep 60'",
        env!("CARGO_BIN_EXE_leasehold")
    );
    command.args(["-c", &script]).env("LEASEHOLD_ON", bench.url());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::new(command);
    assert_eq!(running.line(), "ready");
    let ignored = running.line();
    let set = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    for signal in [Signal::HUP, Signal::USR1] {
        assert_eq!(set >> (signal.as_raw() - 1) & 1, 1, "{signal:?} is not ignored: {ignored}");
        running.send(signal);
    }
    running.send(Signal::TERM);
    running.ended().gives(128 + 15);
}

#[test]
fn it_starts_with_no_signal_blocked() {
    let bench = Bench::new();
    let ran = bench.leasehold(["run", "a", "--", "grep", "SigBlk", "/proc/self/status"]).gives(0);
    assert_eq!(ran.stdout.trim_start_matches("SigBlk:").trim(), "0000000000000000");
}

#[test]
fn a_key_at_the_terminal_reaches_it_once() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let bench = Bench::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = fs::File::options().read(true).write(true).open(OsStr::new(name.to_str().unwrap())).unwrap();

    let count = "n=0; trap 'n=$((n+1))' INT; echo running; for i in 1 2 3 4 5 6; do sleep 0.1; done; exit $n";
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_leasehold"), "run", "a", "--", "sh", "-c", count]);
    command.env("LEASEHOLD_ON", bench.url()).stdin(side).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::new(command);
    assert_eq!(running.line(), "running");
    rustix::io::write(&terminal, b"\x03").unwrap();
    running.ended().gives(1);
}
