//! The command line tool as its users meet it: processes, exit codes, signals and what is printed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use serde_json::Value;

/// Longer than anything here takes on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(20);

/// A directory with a store, and the processes that a test started; all of it goes when the test ends, however it ends.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        format!("file:{}", self.path("store").display())
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).env("LEASEHOLD_ON", self.url()).env_remove("NO_COLOR");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.start(args).ended()
    }

    fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::new(self.command(args))
    }

    /// Starts `run` with these words before the `--`, and a shell script that says when it runs.
    fn start_run(&self, before: &[&str], script: &str) -> Running {
        let running = self.start_queued(before, script);
        assert_eq!(running.line(), "running", "the command did not start");
        running
    }

    /// The same, without waiting for it to run.
    fn start_queued(&self, before: &[&str], script: &str) -> Running {
        let script = format!("echo running; {script}");
        let args = ["run"].iter().chain(before).chain(&["--", "sh", "-c"]).map(ToString::to_string);
        self.start(args.chain([script]))
    }

    fn json(&self, args: &[&str]) -> Value {
        let ran = self.leasehold(args);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// Waits until that many wait for a name.
    fn until_waiting(&self, name: &str, count: usize) {
        until("the queue to be as long as it should", || {
            self.json(&["show", "--json", name])
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name["waiters"].as_array().unwrap().len() == count)
        });
    }
}

/// Waits for something, with a limit.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < LIMIT, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a process left.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn gives(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, words: &str) -> Ran {
        assert!(self.stderr.contains(words), "no `{words}` in {self:?}");
        assert!(self.stderr.starts_with("leasehold: "), "{self:?}");
        self
    }
}

/// A process that is killed, with those that it started, when the test is over.
struct Running {
    child: Child,
    /// What it prints, line by line, read by another thread: a test that waits for a line in vain must end.
    lines: Receiver<Vec<u8>>,
}

impl Running {
    fn new(mut command: Command) -> Running {
        // A group of its own, so that what it started can be found when it is gone itself.
        let mut child = command.process_group(0).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.split(b'\n').map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Running { child, lines }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).unwrap()
    }

    fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line that it prints.
    #[track_caller]
    fn line(&self) -> String {
        let line = self.lines.recv_timeout(LIMIT).expect("waited for a line in vain");
        String::from_utf8(line).unwrap()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn ended(mut self) -> Ran {
        let mut status = None;
        until("the process to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        // What it left behind would keep the pipes open.
        kill_process_group(self.pid(), Signal::KILL).ok();
        let stdout = self.lines.iter().map(|line| String::from_utf8(line).unwrap() + "\n").collect();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill_process_group(self.pid(), Signal::KILL).ok();
        self.child.wait().ok();
    }
}

mod the_command {
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
        let mut command =
            bench.command(["run", "a", "--", "sh", "-c", "cat; echo oops >&2; ls -l /proc/$$/fd"]);
        fs::write(bench.path("in"), "from stdin\n").unwrap();
        command.stdin(fs::File::open(bench.path("in")).unwrap());
        let ran = Running::new(command).ended().gives(0);
        assert!(ran.stdout.starts_with("from stdin\n"), "{ran:?}");
        assert_eq!(ran.stderr, "oops\n");
        assert!(!ran.stdout.contains("store"), "a file of the store was inherited: {ran:?}");
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
        for (signal, word) in
            [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")]
        {
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
            "trap '' HUP; exec {} run a -- sh -c 'echo ready; grep SigIgn /proc/self/status; sleep 60'",
            env!("CARGO_BIN_EXE_leasehold")
        );
        command.args(["-c", &script]).env("LEASEHOLD_ON", bench.url());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running::new(command);
        assert_eq!(running.line(), "ready");
        let ignored = running.line();
        let set = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(set & 1, 1, "HUP is not ignored: {ignored}");
        running.send(Signal::HUP);
        running.send(Signal::TERM);
        running.ended().gives(128 + 15);
    }

    #[test]
    fn it_starts_with_no_signal_blocked() {
        let bench = Bench::new();
        let ran = bench.leasehold(["run", "a", "--", "grep", "SigBlk", "/proc/self/status"]).gives(0);
        assert_eq!(ran.stdout.trim_start_matches("SigBlk:").trim(), "0000000000000000");
    }
}

mod waiting {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_75_and_says_by_whom() {
        let bench = Bench::new();
        let mut holder = bench.start_run(&["--label", "backup", "a"], "sleep 60");
        let pid = holder.child.id();
        let who = format!("`a` is held by backup (pid {pid} on ");
        bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75).says(&who);
        bench.leasehold(["run", "--wait", "50ms", "a", "--", "true"]).gives(75).says("token ");
        bench
            .leasehold(["run", "--wait", "0s", "--exit-if-busy", "9", "a", "--", "true"])
            .gives(9)
            .says(&who);
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
        for signal in [Signal::TERM, Signal::INT] {
            let waiter = bench.start_queued(&["a"], "true");
            bench.until_waiting("a", 1);
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
        let holder = bench.start_run(&["a"], "echo $$; exec sleep 60");
        let orphan = Pid::from_raw(holder.line().parse().unwrap()).unwrap();
        let waiter = bench.start_queued(&["a"], "true");
        bench.until_waiting("a", 1);
        let killed = Instant::now();
        holder.send(Signal::KILL);
        assert_eq!(waiter.line(), "running");
        let took = killed.elapsed();
        println!("the next one was in after {took:?}");
        kill_process(orphan, Signal::KILL).unwrap();
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
}

mod losing {
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
}

mod what_is_refused {
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
            ("--lease", "30", "`30` has no unit"),
            ("--lease", "0s", "longer than 0"),
            ("--lease", "1ms", "out of range"),
            ("--lease", "2d", "out of range"),
            ("--lease", "", "empty"),
            ("--wait", "-5s", "not a duration"),
            ("--wait", "soon", "not a duration"),
            ("--grace", "99999999999999999999h", "more than"),
            ("--lock-delay", "5 minutes", "not a duration"),
        ] {
            bench.leasehold(["run", option, typed, "a", "--", "true"]).gives(64).says(words);
        }
    }

    #[test]
    fn wrong_words() {
        let bench = Bench::new();
        bench.leasehold(["run", "a"]).gives(64).says("<CMD>");
        bench.leasehold(["run", "a", "true"]).gives(64).says("put `--` before the command");
        bench
            .leasehold(["run", "--wait", "1s", "--no-wait", "a", "--", "true"])
            .gives(64)
            .says("cannot be used");
        bench
            .leasehold(["run", "--shared", "--slots", "2", "a", "--", "true"])
            .gives(64)
            .says("cannot be used");
        bench.leasehold(["run", "--slots", "0", "a", "--", "true"]).gives(64).says("--slots");
        bench.leasehold(["run", "--exit-if-busy", "256", "a", "--", "true"]).gives(64).says("256");
        bench.leasehold(["lock", "a"]).gives(64).says("unrecognized subcommand");
        bench.leasehold(["show", "--family", "cell", "a"]).gives(64).says("possible values");
        bench.leasehold([""; 0]).gives(64);
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
}

mod looking {
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
        holder.send(Signal::KILL);
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
}

mod breaking {
    use super::*;

    #[test]
    fn it_says_who_they_were() {
        let bench = Bench::new();
        bench.leasehold(["break", "--yes", "a"]).gives(1).says("nobody holds `a`");
        let _one = bench.start_run(&["--shared", "--label", "one", "a"], "sleep 60");
        let _two = bench.start_run(&["--shared", "--label", "two", "a"], "sleep 60");
        let broken = bench.leasehold(["break", "-y", "a"]).gives(0);
        assert!(
            broken.stdout.contains("held by one (") && broken.stdout.contains("held by two ("),
            "{broken:?}"
        );
        bench.leasehold(["show", "a"]).gives(1);
        bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(0);
    }

    #[test]
    fn it_does_not_go_ahead_without_a_yes() {
        let bench = Bench::new();
        let _holder = bench.start_run(&["a"], "sleep 60");
        bench.leasehold(["break", "a"]).gives(64).says("--yes");
        bench.leasehold(["show", "a"]).gives(0);
    }

    #[test]
    fn it_asks_which_family_is_meant() {
        let bench = Bench::new();
        let _lock = bench.start_run(&["a"], "sleep 60");
        let _slot = bench.start_run(&["--slots", "2", "a"], "sleep 60");
        bench.leasehold(["break", "--yes", "a"]).gives(64).says("--family");
        let broken = bench.json(&["break", "--yes", "--json", "--family", "semaphore", "a"]);
        assert_eq!((&broken[0]["family"], &broken[0]["label"]), (&"semaphore".into(), &"sh".into()));
        assert_eq!(broken.as_array().unwrap().len(), 1);
        let broken = bench.json(&["break", "--yes", "--json", "a"]);
        assert_eq!((&broken[0]["family"], &broken[0]["name"]), (&"lock".into(), &"a".into()));
        assert_eq!(bench.json(&["break", "--yes", "--json", "a"]), Value::Array(vec![]));
    }
}

mod watching {
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
        one.send(Signal::KILL);
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
}

mod documents {
    use super::*;

    #[test]
    fn the_manual_has_every_command_and_every_code() {
        let page = Bench::new().leasehold(["man"]).gives(0).stdout;
        for words in
            ["RUN", "LS", "SHOW", "BREAK", "WATCH", "EXIT CODES", "LEASEHOLD_TOKEN", "\n76 ", "\n127 "]
        {
            assert!(page.contains(words), "no `{words}` in the manual");
        }
    }

    #[test]
    fn completions_are_there_for_every_shell() {
        let bench = Bench::new();
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = bench.leasehold(["completions", shell]).gives(0).stdout;
            assert!(script.contains("leasehold") && script.contains("no-wait"), "{shell}: {script}");
        }
    }

    #[test]
    fn help_and_version_are_answers_and_not_errors() {
        let bench = Bench::new();
        assert!(bench.leasehold(["--version"]).gives(0).stdout.starts_with("leasehold "));
        let help = bench.leasehold(["run", "--help"]).gives(0).stdout;
        assert!(help.contains("Exit codes:") && help.contains("--exit-if-busy"), "{help}");
        assert_eq!(help, bench.leasehold(["help", "run"]).gives(0).stdout);
    }
}
