//! `cron`: a command at set times, on one machine each time.

use super::*;

/// Notes the instant, the token and the process of each run in a file.
fn notes(file: &Path) -> String {
    format!("echo $LEASEHOLD_SCHEDULED $LEASEHOLD_TOKEN $LEASEHOLD_ATTEMPT >> {}", file.display())
}

fn noted(file: &Path) -> Vec<Vec<u64>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect()
}

fn words<'a>(more: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let start = ["cron", "@every 200ms", "t", "--late", "1h"];
    start.iter().chain(more).chain(&["--", "sh", "-c", script]).copied().collect()
}

#[test]
fn several_run_each_occurrence_once() {
    let bench = Bench::new();
    let file = bench.path("runs");
    let script = notes(&file);
    let nodes: Vec<Running> = (0..3).map(|_| bench.start(words(&[], &script))).collect();
    until("ten runs", || noted(&file).len() >= 10);
    for node in &nodes {
        node.send(Signal::TERM);
    }
    for node in nodes {
        node.ended().gives(0);
    }
    let runs = noted(&file);
    for pair in runs.windows(2) {
        assert_eq!(pair[1][0], pair[0][0] + 200, "{runs:?}");
        assert!(pair[1][1] > pair[0][1], "{runs:?}");
    }
    let listed = bench.json(&["ls", "--json"]);
    let task = &listed[0];
    assert_eq!((&task["family"], &task["name"]), (&"task".into(), &"t".into()));
    assert_eq!(task["done"].as_u64().unwrap() as usize, runs.len());
    let shown = bench.leasehold(["show", "t"]).gives(0).stdout;
    assert!(shown.starts_with("task t: every 200ms, next at ") && shown.contains(" done in "), "{shown}");
    let listed = bench.leasehold(["ls"]).gives(0).stdout;
    assert!(listed.starts_with("task t: every 200ms"), "{listed}");
    assert_eq!(bench.leasehold(["ls", "other"]).gives(0).stdout, "");
}

#[test]
fn one_that_was_killed_is_replaced_and_what_it_ran_is_found() {
    let bench = Bench::new();
    let file = bench.path("runs");
    let began = bench.path("began");
    // The first one hangs.
    let script = format!("{}; [ -e {1} ] || {{ touch {1}; exec sleep 60; }}", notes(&file), began.display());
    let more = ["--lease", "500ms", "--run-again=1h"];
    let first = bench.start(words(&more, &script));
    until("it to begin", || began.exists());
    let second = bench.start(words(&[more[0], more[1], more[2], "--runs", "2"], &script));
    first.kill_all();
    second.ended().gives(0);
    let runs = noted(&file);
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert_eq!((runs[0][0], runs[0][2], runs[1][0], runs[1][2]), (runs[1][0], 1, runs[0][0], 2), "{runs:?}");
    assert!(runs[1][1] > runs[0][1]);
    let shown = bench.json(&["show", "--json", "t"]);
    assert_eq!((&shown[0]["lost"], &shown[0]["done"]), (&1.into(), &2.into()));
    assert_eq!(shown[0]["history"][0]["outcome"], "lost");
}

#[test]
fn a_command_that_fails_is_told_and_recorded_and_the_next_one_runs() {
    let bench = Bench::new();
    let ran = bench.leasehold(words(&["--runs", "2"], "exit 3")).gives(0).says("ended with 3");
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    let missing = ["cron", "@every 100ms", "t", "--runs", "1", "--", "no-such-command-here"];
    bench.leasehold(missing).gives(0).says("no-such-command-here");
    let shown = bench.json(&["show", "--json", "t"]);
    assert_eq!(shown[0]["failed"], 3);
    assert_eq!(shown[0]["history"][0]["why"], "the command ended with 3");
}

#[test]
fn a_signal_reaches_the_command_and_ends_cron_after_it() {
    let bench = Bench::new();
    let script = "trap 'echo told; exit 0' TERM; echo running; while :; do sleep 0.05; done";
    let running = bench.start(words(&[], script));
    assert_eq!(running.line(), "running");
    running.send(Signal::TERM);
    assert_eq!(running.line(), "told");
    running.ended().gives(0);
    assert_eq!(bench.json(&["show", "--json", "t"])[0]["done"], 1);
}

#[test]
fn a_task_can_be_paused_and_resumed() {
    let bench = Bench::new();
    bench.leasehold(["pause", "t"]).gives(1).says("is not known");
    bench.leasehold(words(&["--runs", "1"], "true")).gives(0);
    bench.leasehold(["pause", "t"]).gives(0);
    bench.leasehold(["pause", "t"]).gives(1).says("is paused already");
    let shown = bench.leasehold(["show", "t"]).gives(0).stdout;
    assert!(shown.contains("paused since"), "{shown}");
    bench.leasehold(["resume", "t"]).gives(0);
    bench.leasehold(["resume", "t"]).gives(1).says("is not paused");
    bench.leasehold(words(&["--runs", "1"], "true")).gives(0);
}

#[test]
fn what_is_no_schedule_is_refused() {
    let bench = Bench::new();
    let refused = |spec: &'static str, more: &[&'static str]| {
        let words = [&["cron", spec, "t"], more, &["--", "true"]].concat();
        bench.leasehold(words).gives(64)
    };
    refused("61 * * * *", &[]).says("not a cron expression");
    refused("0 0 30 2 *", &[]).says("no day");
    refused("* * * * *", &["--zone", "Mars/Olympus"]).says("no time zone");
    refused("@every x", &[]).says("no period");
    refused("@every 1s", &["--misfire", "often"]).says("`skip`, `once` or `all=N`");
    bench.leasehold(["cron", "* * * * *", "t"]).gives(64).says("<CMD>");
    bench.leasehold(["cron", "* * * * *", "", "--", "true"]).gives(64).says("empty");
}
