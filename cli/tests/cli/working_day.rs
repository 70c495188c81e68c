//! What operators do every day, on names that a server keeps.

use super::*;

impl Bench {
    /// Names on a server instead of in a store.
    pub(crate) fn on(url: impl Into<String>) -> Bench {
        Bench { url: url.into(), ..Bench::new() }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Families {
    All,
    /// No semaphores and no elections.
    Locks,
}

/// Every command, once.
pub(crate) fn a_working_day(bench: &Bench, families: Families) {
    bench.leasehold(["run", "a", "--", "sh", "-c", "exit 3"]).gives(3);
    let watch = bench.start(["watch", "--json"]);
    let event = |watch: &Running| -> String {
        let event: Value = serde_json::from_str(&watch.line()).unwrap();
        format!("{} {} {}", event["event"], event["name"], event["label"]).replace('"', "")
    };

    let holder = bench.start_run(&["--label", "nightly", "a"], "exec sleep 60");
    let started = event(&watch);
    assert!(started == "granted a nightly" || started == "held a nightly", "{started}");
    let busy = bench.leasehold(["run", "--no-wait", "a", "--", "true"]).gives(75);
    assert!(busy.stderr.contains("`a` is held by nightly (pid "), "{busy:?}");

    let next = bench.start_queued(&["--label", "next", "a"], "exec sleep 60");
    assert_eq!(event(&watch), "waiting a next");
    bench.until_waiting("a", 1);
    let shown = bench.leasehold(["show", "a"]).gives(0);
    assert!(shown.stdout.contains("nightly") && shown.stdout.contains("next"), "{shown:?}");
    let slots = ["--slots", "2"].into_iter().filter(|_| families == Families::All);
    let _other = bench.start_run(&slots.chain(["b"]).collect::<Vec<_>>(), "exec sleep 60");
    event(&watch);
    if families == Families::Locks {
        bench.leasehold(["run", "--slots", "2", "c", "--", "true"]).gives(64).says("semaphore");
    }
    let listed = bench.json(&["ls", "--json"]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|name| name["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);

    // Taken away from one, it goes to the next.
    bench.leasehold(["break", "a", "--yes"]).gives(0);
    holder.ended().gives(76).says("lost `a` (token ");
    assert_eq!(next.line(), "running");
    next.send(Signal::TERM);
    next.ended();
    watch.send(Signal::INT);
    watch.ended().gives(0);

    let elected = bench.leasehold(["elect", "leader", "-c", "echo $LEASEHOLD_TOKEN; exit 3"]);
    if families == Families::All {
        assert!(elected.gives(3).stdout.trim().parse::<u64>().is_ok());
    } else {
        elected.gives(64).says("elections");
    }
}
