//! Disks that fail and processes that die, at any instant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use leasehold::Family;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::{boot_dir, dir};
use crate::bench::{Ground, ms, soon};
use crate::child::Child;
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "store",
        [
            a_read_only_disk_is_a_clear_error,
            a_full_disk_is_a_clear_error_and_nothing_is_lost,
            the_stores_own_lock_is_kept,
            a_kill_at_any_system_call_leaves_the_store_whole,
            what_dead_processes_leave_is_cleared_away
        ]
    )
    .cases
}

/// Runs this binary as a child in a mount namespace of its own, with a small disk at `at`.
async fn on_a_disk(at: &Path, options: &str, before: &str) -> String {
    fs::create_dir_all(at).expect("a mount point");
    let program = std::env::current_exe().expect("this binary");
    let script = format!(
        "mount -t tmpfs -o {options} tmpfs '{at}' && {before} exec '{program}' child 'file:{at}/store'",
        at = at.display(),
        program = program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await.expect("unshare runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn a_read_only_disk_is_a_clear_error(ground: Ground) {
    let said = on_a_disk(&dir(&ground), "ro,size=1m", "").await;
    assert!(said.starts_with("refused file: can not create") && said.contains("Read-only"), "{said}");
    assert!(said.contains("choose a directory that can be written"), "{said}");
}

async fn a_full_disk_is_a_clear_error_and_nothing_is_lost(ground: Ground) {
    let at = dir(&ground);
    let fill = format!("head -c 4m /dev/zero > '{}/fill' 2>/dev/null;", at.display());
    let said = on_a_disk(&at, "size=4m", &fill).await;
    assert!(said.contains("refused") && said.contains("full") && said.contains("make room"), "{said}");

    // Filled while it is in use: what is held stays held, and can be released; what is new is
    // refused.
    let program = std::env::current_exe().expect("this binary");
    let script = format!(
        "mount -t tmpfs -o size=3m tmpfs '{at}' && exec '{program}' child 'file:{at}/store'",
        at = at.display(),
        program = program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let mut child = Child::spawn(&mut command).await;
    assert!(child.ask("lock x 30000").await.starts_with("held"));
    // The child's own view of the disk, from outside.
    let fill = PathBuf::from(format!("/proc/{}/root{}/fill", child.pid(), at.display()));
    let filled = fs::write(&fill, vec![0; 8 << 20]);
    assert!(filled.is_err(), "the disk is full");
    let mut refused = None;
    for number in 0..5000 {
        let answer = child.ask(&format!("try n{number} 30000")).await;
        if answer.starts_with("error") {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a full disk refuses at some point");
    assert!(refused.contains("make room"), "{refused}");
    assert_eq!(child.ask("standing x").await, "Held");
    fs::write(&fill, b"").expect("room again");
    assert_eq!(child.ask("release x").await, "released");
    assert!(child.ask("try x 30000").await.starts_with("held"));
}

/// The store tells its first user from later ones by a lock that a process loses when it closes any
/// descriptor of the file. Whoever loses it lets the next process wind the store back.
async fn the_stores_own_lock_is_kept(mut ground: Ground) {
    use std::os::unix::fs::MetadataExt as _;
    let client = ground.client().await;
    let inode = fs::metadata(boot_dir(&dir(&ground)).join("lock.mdb")).expect("a lock file").ino();
    let kept = || {
        let locks = fs::read_to_string("/proc/locks").expect("the kernel's list");
        let pid = std::process::id().to_string();
        locks.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.contains(&"POSIX")
                && fields.contains(&pid.as_str())
                && line.contains(&format!(":{inode} "))
        })
    };
    assert!(kept(), "lost by the process that made the store");
    let second = ground.client().await;
    second.mutex("x").expect("a name").lock().await.expect("free").release().await.expect("held");
    client.list(Family::Lock, None, 10).await.expect("a list");
    second.close().await.expect("closed");
    drop(second);
    assert!(kept(), "lost on the way");
}

/// Kills a child at the n-th system call of a kind, for every n that it makes while it takes and
/// gives back a name.
async fn a_kill_at_any_system_call_leaves_the_store_whole(mut ground: Ground) {
    let client = ground.client().await;
    let program = std::env::current_exe().expect("this binary");
    let mut killed = 0;
    for call in
        ["pwrite64", "writev", "flock", "lseek", "ftruncate", "mknodat", "rename", "write", "mmap", "close"]
    {
        for nth in 1..40 {
            let mut command = Command::new("strace");
            command.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
            command.arg(format!("inject={call}:signal=KILL:when={nth}"));
            command.arg(&program).args(["child", ground.url()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut process = command.spawn().expect("strace runs");
            let mut input = process.stdin.take().expect("piped");
            tokio::io::AsyncWriteExt::write_all(&mut input, b"lock x 30000\nlock y 30000\nrelease x\n")
                .await
                .ok();
            drop(input);
            let output = tokio::time::timeout(ms(20_000), process.wait_with_output()).await;
            let output = output.expect("it ends").expect("it ran");
            // Whatever was under way, everything works and nothing is held.
            let what = format!("the name after a kill at {call} {nth}");
            for name in ["x", "y"] {
                let guard = soon(&what, client.mutex(name).expect("a name").lock()).await;
                guard.expect("the store is whole").release().await.expect("held");
            }
            if output.status.success() {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > 20, "only {killed} kills");
}

async fn what_dead_processes_leave_is_cleared_away(mut ground: Ground) {
    let client = ground.client().await;
    for _ in 0..3 {
        let mut child = ground.child().await.expect("a process");
        child.lock("x", ms(30_000)).await;
        let command = child.ask("lifeline").await.parse().ok().and_then(Pid::from_raw);
        child.kill().await;
        kill_process(command.expect("a program"), Signal::KILL).expect("it runs");
    }
    let alive = boot_dir(&dir(&ground)).join("alive");
    assert!(fs::read_dir(&alive).expect("a directory").count() >= 2);
    // One in so many clients tidies up.
    let mut others = 0;
    while fs::read_dir(&alive).expect("a directory").count() > 1 {
        drop(ground.client().await);
        others += 1;
        assert!(others < 5000, "nobody tidies up");
    }
    drop(client);
}
