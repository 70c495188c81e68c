//! `once`: a command runs once, and prints the same ever after.

use super::*;

#[test]
fn the_second_call_prints_what_the_first_printed_and_ends_as_it_did() {
    let bench = Bench::new();
    let file = bench.path("ran");
    let script = format!("echo x >> {0}; wc -l < {0}; echo wrong >&2; exit 3", file.display());
    for _ in 0..3 {
        let ran = bench.leasehold(["once", "k", "--", "sh", "-c", &script]).gives(3);
        assert_eq!((ran.stdout.trim(), ran.stderr.as_str()), ("1", "wrong\n"));
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "x\n");
    // Another key is another submission.
    let ran = bench.leasehold(["once", "l", "--", "sh", "-c", &script]).gives(3);
    assert_eq!(ran.stdout.trim(), "2");
}

#[test]
fn the_same_key_with_another_command_is_refused() {
    let bench = Bench::new();
    bench.leasehold(["once", "k", "--", "echo", "a"]).gives(0);
    bench.leasehold(["once", "k", "--", "echo", "b"]).gives(64).says("another command");
}

#[test]
fn one_that_runs_is_told_of_or_waited_for() {
    let bench = Bench::new();
    let go = bench.path("go");
    let began = bench.path("began");
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.01; done; echo done", began.display(), go.display());
    let words = |more: &[&str]| -> Vec<String> {
        let words = ["once", "k"].iter().chain(more).chain(&["--", "sh", "-c"]);
        words.map(ToString::to_string).chain([script.clone()]).collect()
    };
    let first = bench.start(words(&[]));
    until("it to begin", || began.exists());
    bench.leasehold(words(&[])).gives(75).says("`k` is running");
    let waiting = bench.start(words(&["--wait"]));
    fs::write(&go, "").unwrap();
    assert_eq!(first.ended().gives(0).stdout, "done\n");
    assert_eq!(waiting.ended().gives(0).stdout, "done\n");
}

#[test]
fn one_that_was_killed_is_unknown_until_it_may_run_again() {
    let bench = Bench::new();
    let began = bench.path("began");
    let script = format!("[ -e {0} ] && echo again && exit; touch {0}; sleep 60", began.display());
    let words = |more: &[&str]| -> Vec<String> {
        let words = ["once", "k", "--lease", "500ms"].iter().chain(more).chain(&["--", "sh", "-c"]);
        words.map(ToString::to_string).chain([script.clone()]).collect()
    };
    let running = bench.start(words(&[]));
    until("it to begin", || began.exists());
    running.kill_all();
    running.left();
    until("it to be unknown", || bench.leasehold(words(&[])).code == Some(76));
    bench.leasehold(words(&[])).gives(76).says("fell silent");
    assert_eq!(bench.leasehold(words(&["--run-again"])).gives(0).stdout, "again\n");
    assert_eq!(bench.leasehold(words(&[])).gives(0).stdout, "again\n");
}

#[test]
fn a_command_that_could_not_be_started_can_be_tried_again() {
    let bench = Bench::new();
    bench.leasehold(["once", "k", "--", "no-such-command-here"]).gives(127).says("no such command in PATH");
    let no_program = bench.path("script");
    fs::write(&no_program, "\0").unwrap();
    fs::set_permissions(&no_program, fs::Permissions::from_mode(0o755)).unwrap();
    bench.leasehold(["once", "k", "--", &no_program.to_string_lossy()]).gives(126).says("not a program");
    // One that ends with the same code has run.
    for _ in 0..2 {
        let ran = bench.leasehold(["once", "l", "--", "sh", "-c", "echo a; exit 127"]).gives(127);
        assert_eq!(ran.stdout, "a\n");
    }
    bench.leasehold(["once", "k", "--", "echo", "a"]).gives(0);
    bench.leasehold(["once", "k"]).gives(64).says("<CMD>");
    bench.leasehold(["once", "", "--", "true"]).gives(64).says("empty");
}

/// A command that starts others, and the files in which all of them tell their numbers. The second
/// time it does nothing.
fn family(bench: &Bench) -> (String, [PathBuf; 2]) {
    let files = [bench.path("command"), bench.path("started")];
    let [command, started] = files.each_ref().map(|file| file.display().to_string());
    let script = format!(
        "[ -e {command} ] && exit; (setsid sh -c 'echo $$ > {started}.new; mv {started}.new {started}; exec sleep 60' &) ; \
         echo $$ > {command}.new; mv {command}.new {command}; sleep 60"
    );
    (script, files)
}

fn numbers(files: &[PathBuf; 2]) -> [Pid; 2] {
    until("all to have started", || files.iter().all(|file| file.exists()));
    files
        .each_ref()
        .map(|file| Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap())
}

#[test]
fn a_lost_lease_ends_the_command_and_all_that_it_started() {
    let bench = Bench::new();
    let (script, files) = family(&bench);
    let once = bench.start(["once", "k", "--lease", "500ms", "--", "sh", "-c", &script]);
    let family = numbers(&files);
    once.send(Signal::STOP);
    // It is unknown once the lease has run out, and somebody else may run it.
    let again = || bench.leasehold(["once", "k", "--run-again", "--", "sh", "-c", &script]).code == Some(0);
    until("it to run again", again);
    once.send(Signal::CONT);
    once.ended().gives(76).says("sending TERM");
    assert!(family.into_iter().all(|pid| !lives(pid)), "some of it lives");
}

#[test]
fn a_command_whose_leasehold_is_killed_ends() {
    let bench = Bench::new();
    let (script, files) = family(&bench);
    let once = bench.start(["once", "k", "--", "sh", "-c", &script]);
    let family = numbers(&files);
    once.send(Signal::KILL);
    until("all to have ended", || family.into_iter().all(|pid| !lives(pid)));
    once.left();
}

#[test]
fn a_command_whose_supervisor_is_killed_is_unknown() {
    let bench = Bench::new();
    let (script, files) = family(&bench);
    let words = ["once", "k", "--lease", "500ms", "--", "sh", "-c", &script];
    let once = bench.start(words);
    let family = numbers(&files);
    let children = format!("/proc/{0}/task/{0}/children", once.child.id());
    let supervisor = fs::read_to_string(children).unwrap();
    let supervisor = Pid::from_raw(supervisor.trim().parse().unwrap()).unwrap();
    kill_process(supervisor, Signal::KILL).unwrap();
    once.ended().gives(76).says("was ended by signal 9");
    assert!(family.into_iter().all(|pid| !lives(pid)), "some of it lives");
    until("it to be unknown", || bench.leasehold(words).code == Some(76));
}

#[test]
fn ls_and_show_tell_how_submissions_and_limits_stand() {
    let bench = Bench::new();
    bench.leasehold(["once", "deploy 7", "--", "echo", "a"]).gives(0);
    bench
        .leasehold(["limit", "mail", "--rate", "10/h", "--cost", "3", "--key", "ann", "--", "true"])
        .gives(0);
    let ls = bench.leasehold(["ls"]).gives(0);
    let [limit, submission] = ls.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{ls:?}") };
    assert!(
        limit.starts_with("limit mail for ann: 3 used ") && limit.ends_with(" ago (bucket of 1h)"),
        "{limit}"
    );
    assert!(submission.starts_with("submission deploy 7: done "), "{submission}");
    assert!(bench.leasehold(["show", "mail"]).gives(0).stdout.starts_with("limit mail for ann: 3 used "));
    assert_eq!(bench.leasehold(["ls", "dep"]).gives(0).stdout.lines().count(), 1);

    let found: Value = serde_json::from_str(&bench.leasehold(["ls", "--json"]).gives(0).stdout).unwrap();
    assert_eq!((&found[0]["family"], &found[0]["used"]), (&"limit".into(), &3.into()), "{found}");
    assert_eq!((&found[1]["key"], &found[1]["progress"]), (&"deploy 7".into(), &"done".into()), "{found}");
    let found = bench.leasehold(["show", "deploy 7", "--json"]).gives(0).stdout;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(bench.leasehold(["show", "deploy"]).stdout, "`deploy` is free\n");
}
