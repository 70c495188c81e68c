//! A server that is gone, and may come back.

use super::*;

/// A command that says when it is told to end.
pub(crate) const OBEYS: &str = "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done";

/// Whoever asks a server that is dead is told so, soon.
pub(crate) fn is_said_at_once(bench: &Bench) {
    let started = Instant::now();
    for args in
        [&["run", "a", "--", "true"][..], &["ls"], &["show", "a"], &["break", "a", "--yes"], &["watch"]]
    {
        bench.leasehold(args).gives(69).says("onnection refused");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// A command whose server goes is told to end before its claim is over, which has `left` at most.
/// Its token.
pub(crate) fn takes_the_command_with_it(
    bench: &Bench,
    lease: &str,
    left: Duration,
    go: impl FnOnce(),
) -> u64 {
    let holder = bench.start_run(&["--lease", lease, "a"], OBEYS);
    assert_eq!(holder.line(), "ready");
    let shown = bench.json(&["show", "--json", "a"]);
    let started = Instant::now();
    go();
    assert_eq!(holder.line(), "got TERM");
    assert!(started.elapsed() < left, "{:?}", started.elapsed());
    holder.ended().gives(76).says("lost `a` (token ");
    shown[0]["holders"][0]["token"].as_u64().unwrap()
}

/// The name is free again, some time after that, and tokens go on.
pub(crate) fn is_back(bench: &Bench, last_token: u64) {
    let ran = bench.leasehold(["run", "a", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]).gives(0);
    let token: u64 = ran.stdout.trim().parse().unwrap();
    assert!(token > last_token, "{token} after {last_token}");
}

/// A command goes on whose servers come back before its claim is over.
pub(crate) fn comes_back_in_time(bench: &Bench, lease: &str, go_and_come_back: impl FnOnce()) {
    let go = bench.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    let holder = bench.start_run(&["--lease", lease, "a"], &script);
    go_and_come_back();
    bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    fs::write(go, "").unwrap();
    holder.ended().gives(0);
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
}
