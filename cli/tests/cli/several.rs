//! Several names at once.

use super::*;

#[test]
fn all_are_held_while_the_command_runs() {
    let bench = Bench::new();
    let holder = bench.start_run(&["b", "-a", "a", "--also", "c", "-a", "b"], "sleep 60");
    for name in ["a", "b", "c"] {
        bench.leasehold(["run", "-n", name, "--", "true"]).gives(75).says(&format!("`{name}` is held by sh"));
    }
    bench.leasehold(["run", "-n", "d", "-a", "c", "--", "true"]).gives(75).says("`c` is held by sh");
    bench.leasehold(["run", "-n", "d", "--", "true"]).gives(0);
    assert_eq!(bench.json(&["ls", "--json"]).as_array().unwrap().len(), 3);
    holder.kill_all();
    holder.ended();
    assert_eq!(bench.json(&["ls", "--json"]), Value::Array(vec![]));
}

#[test]
fn the_command_finds_the_first_name_and_all_tokens() {
    let bench = Bench::new();
    let script = "echo \"$LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_HELD\"";
    let said = bench.leasehold(["run", "b", "-a", "a", "-c", script]).gives(0).stdout;
    let (name, rest) = said.split_once(' ').unwrap();
    let (token, held) = rest.split_once(' ').unwrap();
    let held: Value = serde_json::from_str(held).unwrap();
    assert_eq!((name, &held[0]["name"], &held[1]["name"]), ("b", &"b".into(), &"a".into()));
    assert_eq!(held[0]["token"].to_string(), token);
    assert!(held[1]["token"].as_u64().unwrap() > 0);
}

#[test]
fn the_loss_of_one_ends_the_command() {
    let bench = Bench::new();
    let holder = bench.start_run(&["--grace", "1s", "a", "-a", "b"], "sleep 60");
    bench.leasehold(["break", "--yes", "b"]).gives(0);
    holder.ended().gives(76).says("lost `b`");
    assert_eq!(bench.json(&["ls", "--json"]), Value::Array(vec![]));
}

#[test]
fn one_that_would_wait_for_itself_is_refused() {
    let bench = Bench::new();
    let inner = [env!("CARGO_BIN_EXE_leasehold"), "run", "c", "-a", "b", "--", "true"];
    let ran = bench.leasehold(["run", "a", "-a", "b", "--"].into_iter().chain(inner)).gives(64);
    assert!(ran.stderr.contains("`b` is held by a run around this one"), "{ran:?}");
}
