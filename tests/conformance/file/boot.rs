//! Boots of the machine: a store does not outlive one, and tokens rise over all of them.

use std::fs;
use std::process::Stdio;

use leasehold::claim::{Answer, Ask};
use leasehold::{Family, Name};
use tokio::process::Command;

use super::{boot_dir, dir};
use crate::bench::{Ground, ask, ms, soon};
use crate::child::Child;
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "store",
        [
            a_store_of_another_boot_is_thrown_away_and_tokens_rise,
            tokens_rise_even_if_the_clock_was_set_back,
            a_token_is_below_the_floor_before_it_is_given,
            the_floor_is_on_the_disk_before_a_token_is_given,
            processes_of_one_number_make_one_store
        ]
    )
    .cases
}

async fn a_store_of_another_boot_is_thrown_away_and_tokens_rise(mut ground: Ground) {
    let mut child = ground.child().await.expect("a process");
    let token = child.lock("x", ms(30_000)).await;
    child.kill().await;
    // What the machine finds after a crash: a store of a boot that is over, torn in the middle.
    let boot = boot_dir(&dir(&ground));
    let other = dir(&ground).join("boot-00000000-0000-0000-0000-000000000000");
    fs::rename(&boot, &other).expect("another boot");
    fs::write(other.join("data.mdb"), b"torn").expect("a torn file");
    let client = soon("the next boot", ground.client()).await;
    let guard = client
        .mutex("x")
        .expect("a name")
        .try_lock()
        .await
        .expect("an answer")
        .expect("all holders are dead");
    assert!(guard.token().get() > token);
    assert!(!other.exists(), "it is thrown away");
}

async fn tokens_rise_even_if_the_clock_was_set_back(mut ground: Ground) {
    let client = ground.client().await;
    let token = client.mutex("x").expect("a name").lock().await.expect("free").token().get();
    client.close().await.expect("closed");
    drop(client);
    // A year ahead: for the next boot, the wall clock is a year behind the last token.
    let ahead = token + 365 * 24 * 3_600_000_000;
    fs::write(dir(&ground).join("floor"), format!("{ahead}\n")).expect("a floor");
    fs::remove_dir_all(boot_dir(&dir(&ground))).expect("a new boot");
    let client = ground.client().await;
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    assert!(guard.token().get() > ahead);
    let floor: u64 =
        fs::read_to_string(dir(&ground).join("floor")).expect("a floor").trim().parse().expect("a number");
    assert!(floor > guard.token().get(), "the floor is on disk before the token is given");
}

/// The floor is written ten minutes ahead of the clock. A block of tokens can reach further than
/// that, as can a process that runs for longer.
async fn a_token_is_below_the_floor_before_it_is_given(mut ground: Ground) {
    let engine = ground.engine().await;
    let name = Name::new(Family::Lock, "x").expect("a name");
    let ask = Ask { tokens: u32::MAX, ..ask(1) };
    let answer = engine.acquire(&name, &ask).await.expect("an answer");
    let Answer::Granted(grant) = answer else { panic!("not granted: {answer:?}") };
    let last = grant.token + u64::from(grant.tokens) - 1;
    // The machine goes down now, with the claim held, and the next boot has nothing but the floor.
    let boot = boot_dir(&dir(&ground));
    fs::rename(&boot, dir(&ground).join("boot-00000000-0000-0000-0000-000000000000")).expect("another boot");
    let client = soon("the next boot", ground.client()).await;
    let guard = client.mutex("x").expect("a name").lock().await.expect("all holders are dead");
    let token = guard.token().get();
    assert!(token > last, "token {token} was given before: {last} was the last");
    drop(engine);
}

/// Looks at what a process asks the kernel for. A file that was renamed is there after a crash only
/// if its directory was flushed too.
async fn the_floor_is_on_the_disk_before_a_token_is_given(ground: Ground) {
    let program = std::env::current_exe().expect("this binary");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", "trace=fsync,rename,renameat,renameat2,write"]);
    command.arg(&program).args(["child", ground.url()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().expect("strace runs");
    let mut input = process.stdin.take().expect("piped");
    tokio::io::AsyncWriteExt::write_all(&mut input, b"lock x 30000\n").await.expect("it listens");
    drop(input);
    let output = soon("the child", process.wait_with_output()).await.expect("it ran");
    let traced = String::from_utf8_lossy(&output.stderr);
    let store = fs::canonicalize(dir(&ground)).expect("a store");
    let flushed_dir = format!("<{}>", store.display());
    let floor = format!("{}\"", store.join("floor").display());
    let calls: Vec<&str> = traced.lines().take_while(|line| !line.contains("\"held ")).collect();
    assert!(calls.len() < traced.lines().count(), "no token was given: {traced}");
    let renames: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].contains("rename")).collect();
    let mut written = 0;
    for (number, at) in renames.iter().copied().enumerate() {
        if !calls[at].contains(&floor) {
            continue;
        }
        written += 1;
        let before = number.checked_sub(1).map_or(0, |number| renames[number]);
        let after = renames.get(number + 1).copied().unwrap_or(calls.len());
        let flushed = |calls: &[&str], what: &str| {
            calls.iter().any(|call| call.contains("fsync(") && call.contains(what))
        };
        assert!(flushed(&calls[before..at], "/.new-"), "the floor itself is not flushed: {traced}");
        assert!(flushed(&calls[at..after], &flushed_dir), "the floor's directory is not flushed: {traced}");
    }
    // Once when the store is made, and once when the boot is.
    assert!(written >= 2, "the floor was written {written} times: {traced}");
}

/// After a boot, containers that share a directory start together, and all may be process 1.
async fn processes_of_one_number_make_one_store(ground: Ground) {
    for round in 0..8 {
        let store = dir(&ground).with_extension(format!("round-{round}"));
        let url = format!("file:{}", store.display());
        let mut starting = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let url = url.clone();
            starting.spawn(async move {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
                command.arg(std::env::current_exe().expect("this binary")).args(["child", &url]);
                Child::spawn(&mut command).await
            });
        }
        let mut said = Vec::new();
        for mut child in starting.join_all().await {
            said.push((child.ask("try x 30000").await, child));
        }
        let held = said.iter().filter(|(said, _)| said.starts_with("held ")).count();
        let busy = said.iter().filter(|(said, _)| said == "busy").count();
        assert_eq!((held, busy), (1, 5), "in round {round}");
    }
}
