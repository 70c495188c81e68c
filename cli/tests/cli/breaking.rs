//! Taking a name away from its holders.

use super::*;

#[test]
fn it_says_who_they_were() {
    let bench = Bench::new();
    bench.leasehold(["break", "--yes", "a"]).gives(1).says("nobody holds `a`");
    let _one = bench.start_run(&["--shared", "--label", "one", "a"], "sleep 60");
    let _two = bench.start_run(&["--shared", "--label", "two", "a"], "sleep 60");
    let broken = bench.leasehold(["break", "-y", "a"]).gives(0);
    assert!(broken.stdout.contains("held by one (") && broken.stdout.contains("held by two ("), "{broken:?}");
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
