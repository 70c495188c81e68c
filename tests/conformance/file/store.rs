//! What only a store in files must survive.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use leasehold::claim::{Answer, Ask};
use leasehold::{Error, Family, Name, Standing};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::bench::{Ground, ask, ms, soon, until};
use crate::child::Child;
use crate::engines::file::Directory;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    let group = cases!(
        "store",
        [
            a_store_of_another_boot_is_thrown_away_and_tokens_rise,
            tokens_rise_even_if_the_clock_was_set_back,
            a_token_is_below_the_floor_before_it_is_given,
            the_floor_is_on_the_disk_before_a_token_is_given,
            a_foreign_directory_is_refused_and_untouched,
            a_newer_format_is_refused,
            a_damaged_mark_is_refused,
            a_file_in_place_of_the_directory_is_refused,
            a_read_only_disk_is_a_clear_error,
            a_full_disk_is_a_clear_error_and_nothing_is_lost,
            a_removed_store_is_noticed,
            a_moved_store_is_noticed,
            a_moved_store_is_refused_at_the_next_use,
            a_path_that_leads_elsewhere_is_noticed,
            a_store_is_private_unless_shared,
            a_store_of_another_user_is_refused,
            another_users_store_is_used_only_if_sharing_was_asked_for,
            a_store_that_others_can_write_to_is_refused,
            a_link_in_place_of_the_store_is_refused,
            a_new_store_is_never_open_to_more_than_its_user,
            a_path_of_any_length_works,
            the_stores_own_lock_is_kept,
            a_kill_at_any_system_call_leaves_the_store_whole,
            a_client_in_another_time_is_refused,
            an_unknown_option_is_refused,
            what_dead_processes_leave_is_cleared_away,
        ]
    );
    Group { missing: missing(), ..group }
}

/// The tools that hurt a process from outside.
fn missing() -> Option<String> {
    let works = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let tools =
        [("strace", &["-V"] as &[&str]), ("unshare", &["--user", "--map-root-user", "--mount", "true"])];
    tools
        .iter()
        .find(|(program, arguments)| !works(program, arguments))
        .map(|(program, _)| (*program).to_owned())
}

fn dir(ground: &Ground) -> PathBuf {
    ground.bench_of::<Directory>().store()
}

fn boot_dir(store: &Path) -> PathBuf {
    let found = fs::read_dir(store).expect("a store").flatten().map(|entry| entry.path());
    let mut boots =
        found.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("boot-")));
    boots.next().expect("one boot")
}

async fn refused(ground: &Ground) -> Error {
    let error = leasehold::connect(ground.url()).await.expect_err("it must be refused");
    crate::client::says_each_cause_once(&error);
    error
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

async fn a_foreign_directory_is_refused_and_untouched(ground: Ground) {
    fs::create_dir(dir(&ground)).expect("a directory");
    fs::write(dir(&ground).join("precious"), b"data").expect("a file");
    let error = refused(&ground).await;
    assert!(
        matches!(error, Error::Engine { .. }) && error.to_string().contains("not a store of leasehold"),
        "{error}"
    );
    assert_eq!(fs::read_dir(dir(&ground)).expect("the directory").count(), 1);
}

async fn a_newer_format_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    fs::write(dir(&ground).join("format"), "leasehold file store\nformat 7\nshare private\n")
        .expect("written");
    let error = refused(&ground).await;
    assert!(error.to_string().contains("format 7") && error.to_string().contains("format 1"), "{error}");
}

async fn a_damaged_mark_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    for mark in [
        b"leasehold file store\n".as_slice(),
        b"",
        b"\xff\xfe",
        b"leasehold file store\nformat 1\nshare moon\n",
    ] {
        fs::write(dir(&ground).join("format"), mark).expect("written");
        assert!(matches!(refused(&ground).await, Error::Engine { .. }));
    }
    fs::write(dir(&ground).join("format"), "leasehold file store\nformat 1\nshare private\n")
        .expect("written");
    fs::write(dir(&ground).join("floor"), "many\n").expect("written");
    fs::remove_dir_all(boot_dir(&dir(&ground))).expect("a new boot");
    let error = refused(&ground).await;
    assert!(error.to_string().contains("damaged") && error.to_string().contains("floor"), "{error}");
}

async fn a_file_in_place_of_the_directory_is_refused(ground: Ground) {
    fs::write(dir(&ground), b"").expect("a file");
    let error = refused(&ground).await;
    assert!(
        matches!(error, Error::Invalid { .. }) && error.to_string().contains("not a directory"),
        "{error}"
    );
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

    // Filled while it is in use: what is held stays held, and can be released; what is new is refused.
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

async fn a_removed_store_is_noticed(mut ground: Ground) {
    let client = ground.client().await;
    let guard = client.mutex("x").expect("a name").lease(ms(1000)).lock().await.expect("free");
    fs::remove_dir_all(dir(&ground)).expect("removed");
    tokio::time::sleep(ms(20)).await;
    let error = client.mutex("y").expect("a name").lock().await.expect_err("the store is gone");
    assert!(error.to_string().contains("was removed or moved"), "{error}");
    soon("the loss", guard.lost()).await;
    drop((guard, client));
    let client = soon("a new store", ground.client()).await;
    drop(client.mutex("x").expect("a name").try_lock().await.expect("an answer").expect("free"));
}

async fn a_moved_store_is_noticed(mut ground: Ground) {
    let client = ground.client().await;
    let guard = client.mutex("x").expect("a name").lease(ms(600)).lock().await.expect("free");
    fs::rename(dir(&ground), dir(&ground).with_extension("moved")).expect("moved");
    assert_eq!(soon("the doubt", guard.endangered()).await, Standing::InDoubt);
    soon("the loss", guard.lost()).await;
}

fn says_moved<T: std::fmt::Debug>(answer: leasehold::Result<T>) {
    let error = answer.expect_err("the store is not there any more");
    assert!(error.to_string().contains("was removed or moved while in use"), "{error}");
}

async fn a_moved_store_is_refused_at_the_next_use(mut ground: Ground) {
    for round in 0..30 {
        let old = ground.client().await;
        let held = old.mutex("held").expect("a name").lock().await.expect("free");
        let waits = old.mutex("waits").expect("a name");
        drop(waits.lock_for(ms(5)).await.expect("an answer"));
        let moved = dir(&ground).with_extension(format!("moved-{round}"));
        fs::rename(dir(&ground), &moved).expect("moved");
        // In this process and in another one, those who come now find a new store.
        let new = ground.client().await;
        let mut child = ground.child().await.expect("a process");
        let x = new.mutex("x").expect("a name").lock().await.expect("free");
        assert_eq!(child.ask("try x 30000").await, "busy");
        says_moved(old.mutex("x").expect("a name").try_lock().await);
        says_moved(old.look(Family::Lock, "x").await.map(drop));
        says_moved(old.list(Family::Lock, None, 10).await);
        says_moved(old.break_claims(Family::Lock, "x").await);
        says_moved(held.release().await);
        x.release().await.expect("held");
        // What was held is still held where the store is now, and known to this process.
        let there = leasehold::connect(&format!("file:{}", moved.display())).await.expect("a store");
        let listed = there.list(Family::Lock, None, 10).await.expect("a list");
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert!(there.mutex("held").expect("a name").try_lock().await.expect("an answer").is_none());
        drop((old, new, there));
    }
}

async fn a_path_that_leads_elsewhere_is_noticed(ground: Ground) {
    let base = dir(&ground);
    for version in ["v1", "v2"] {
        fs::create_dir_all(base.join(version)).expect("a directory");
    }
    let current = base.join("current");
    std::os::unix::fs::symlink("v1", &current).expect("a link");
    let url = format!("file:{}", current.join("locks").display());
    let old = leasehold::connect(&url).await.expect("a store");
    let held = old.mutex("x").expect("a name").lock().await.expect("free");
    std::os::unix::fs::symlink("v2", base.join("next")).expect("a link");
    fs::rename(base.join("next"), &current).expect("replaced");
    let new = leasehold::connect(&url).await.expect("a store");
    says_moved(old.mutex("y").expect("a name").try_lock().await);
    let taken = new.mutex("x").expect("a name").try_lock().await.expect("an answer");
    assert!(taken.is_some(), "another store");
    says_moved(held.release().await);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o7777
}

async fn a_store_is_private_unless_shared(mut ground: Ground) {
    let client = ground.client().await;
    let held = client.mutex("x").expect("a name").lock().await.expect("free");
    let boot = boot_dir(&dir(&ground));
    for path in [dir(&ground), boot.clone(), boot.join("alive"), boot.join("wake")] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
    for name in ["data.mdb", "lock.mdb", "gate", "base", "../format", "../floor"] {
        assert_eq!(mode(&boot.join(name)), 0o600, "{name}");
    }
    drop(held);
    let shared = dir(&ground).with_extension("shared");
    let client =
        leasehold::connect(&format!("file:{}?share=group", shared.display())).await.expect("a store");
    let other = leasehold::connect(&format!("file:{}", shared.display())).await.expect("found as it is");
    let _held = client.mutex("x").expect("a name").lock().await.expect("free");
    let waiting = other.mutex("x").expect("a name").lock_for(ms(20)).await.expect("an answer");
    assert!(waiting.is_none());
    let boot = boot_dir(&shared);
    for path in [shared.clone(), boot.clone(), boot.join("alive"), boot.join("wake")] {
        assert_eq!(mode(&path), 0o2770, "{}", path.display());
    }
    for name in ["data.mdb", "lock.mdb", "gate", "base", "../format", "../floor"] {
        assert_eq!(mode(&boot.join(name)), 0o660, "{name}");
    }
    for kind in ["alive", "wake"] {
        for entry in fs::read_dir(boot.join(kind)).expect("a directory").flatten() {
            assert_eq!(mode(&entry.path()), 0o660, "{kind}");
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

/// A user that is not this one.
const STRANGER: u32 = 65_534;

/// Gives something to another user, as only root can; false for others, who have nobody to give it to.
fn give_away(path: &Path, user: Option<u32>, group: Option<u32>) -> bool {
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::lchown(path, user, group).expect("root can");
    } else {
        eprintln!("conformance: only root can make a store of another user");
    }
    root
}

async fn a_store_of_another_user_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    let store = dir(&ground);
    let boot = boot_dir(&store);
    let data = fs::read(boot.join("data.mdb")).expect("data");
    // The whole, or any part of it.
    for part in ["", "format", "floor", "boot", "boot/base", "boot/gate", "boot/data.mdb", "boot/alive"] {
        let path = match part.strip_prefix("boot") {
            Some(part) => boot.join(part.trim_start_matches('/')),
            None => store.join(part),
        };
        if !give_away(&path, Some(STRANGER), None) {
            return;
        }
        // A plain connection meets what a first one of a boot meets, too.
        let again = part == "floor";
        if again {
            fs::rename(&boot, boot.with_extension("aside")).expect("another boot");
        }
        let error = refused(&ground).await;
        let told = error.to_string();
        assert!(told.contains("belongs to user 65534") && told.contains("of your own"), "{part}: {told}");
        if again {
            fs::rename(boot.with_extension("aside"), &boot).expect("this boot");
        }
        give_away(&path, Some(0), None);
    }
    assert_eq!(fs::read(boot.join("data.mdb")).expect("data"), data, "nothing was touched");
    drop(ground.client().await);
}

async fn another_users_store_is_used_only_if_sharing_was_asked_for(ground: Ground) {
    let store = dir(&ground);
    let shared = format!("{}?share=group", ground.url());
    drop(leasehold::connect(&shared).await.expect("a store"));
    // Found as it is by its owner, with what other members of the group have made in it.
    if !give_away(&store.join("floor"), Some(STRANGER), None) {
        return;
    }
    drop(leasehold::connect(ground.url()).await.expect("this user's store"));
    // A mark of somebody else is not believed.
    give_away(&store.join("format"), Some(STRANGER), None);
    assert!(refused(&ground).await.to_string().contains("belongs to user 65534"));
    drop(leasehold::connect(&shared).await.expect("asked for"));
    // Another user's, of a group of ours.
    give_away(&store, Some(STRANGER), None);
    assert!(refused(&ground).await.to_string().contains("say `?share=group`"));
    drop(leasehold::connect(&shared).await.expect("asked for"));
    // Another user's, of a group that is not.
    give_away(&store, Some(STRANGER), Some(STRANGER));
    let error = leasehold::connect(&shared).await.expect_err("not our group");
    assert!(error.to_string().contains("belongs to user 65534 and group 65534"), "{error}");
}

async fn a_store_that_others_can_write_to_is_refused(ground: Ground) {
    let store = dir(&ground);
    fs::create_dir(&store).expect("a directory");
    for mode in [0o777, 0o1777, 0o702] {
        set_mode(&store, mode);
        let error = refused(&ground).await;
        assert!(error.to_string().contains("can be written by everybody"), "{mode:o}: {error}");
    }
    set_mode(&store, 0o775);
    let error = refused(&ground).await;
    assert!(error.to_string().contains("can be written by its group"), "{error}");
    assert_eq!(fs::read_dir(&store).expect("a directory").count(), 0, "nothing was made in it");
    drop(leasehold::connect(&format!("{}?share=group", ground.url())).await.expect("asked for"));
    fs::remove_dir_all(&store).expect("removed");

    // A directory above it, in which everybody could put another one in its place.
    let above = store.with_extension("above");
    fs::create_dir(&above).expect("a directory");
    set_mode(&above, 0o777);
    let url = format!("file:{}", above.join("between/store").display());
    let error = leasehold::connect(&url).await.expect_err("it can be replaced");
    assert!(error.to_string().contains("could put another store in place of yours"), "{error}");
    set_mode(&above, 0o1777);
    let client = leasehold::connect(&url).await.expect("sticky, as /tmp is");
    drop(client);
    set_mode(&boot_dir(&above.join("between/store")).join("data.mdb"), 0o666);
    let error = leasehold::connect(&url).await.expect_err("its data can be cut");
    assert!(error.to_string().contains("data.mdb` can be written by everybody"), "{error}");
}

async fn a_link_in_place_of_the_store_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    let store = dir(&ground);
    let link = store.with_extension("link");
    std::os::unix::fs::symlink(&store, &link).expect("a link");
    for url in [format!("file:{}", link.display()), format!("file:{}/", link.display())] {
        let error = leasehold::connect(&url).await.expect_err("a link");
        assert!(error.to_string().contains("is a symbolic link, which is not followed"), "{error}");
    }
    // Above the store, links are the business of whoever made the path.
    let above = store.parent().expect("a directory").join("above");
    std::os::unix::fs::symlink(store.parent().expect("a directory"), &above).expect("a link");
    drop(leasehold::connect(&format!("file:{}", above.join("store").display())).await.expect("a store"));
    // And in the store.
    let boot = boot_dir(&store);
    for path in [store.join("format"), boot.clone(), boot.join("gate"), boot.join("data.mdb")] {
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).expect("aside");
        std::os::unix::fs::symlink(&aside, &path).expect("a link");
        let error = refused(&ground).await;
        assert!(error.to_string().contains("is a symbolic link, which is not followed"), "{error}");
        fs::remove_file(&path).expect("removed");
        fs::rename(&aside, &path).expect("back");
    }
    drop(ground.client().await);
}

/// Looks at what a process asks the kernel for, with a umask that takes nothing away.
async fn a_new_store_is_never_open_to_more_than_its_user(ground: Ground) {
    let program = std::env::current_exe().expect("this binary");
    let script = format!(
        "umask 0; exec strace -f -qq -e trace=mkdir,mkdirat,openat,mknodat '{}' child '{}'",
        program.display(),
        ground.url()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null());
    let output = command.output().await.expect("strace runs");
    let traced = String::from_utf8_lossy(&output.stderr);
    let store = dir(&ground).display().to_string();
    let made: Vec<&str> = traced
        .lines()
        .filter(|line| line.contains(&store) && (!line.contains("openat") || line.contains("O_CREAT")))
        .collect();
    assert!(made.len() > 8, "{traced}");
    for line in made {
        let narrow = ["0700)", "0600)", "S_IFIFO|0600"].iter().any(|mode| line.contains(mode));
        assert!(narrow, "{line}");
    }
}

async fn a_path_of_any_length_works(ground: Ground) {
    // Below, around and beyond the length at which the address of a socket gets too long.
    for length in (1..60).chain([200]) {
        let deep = dir(&ground).with_file_name("s".repeat(length));
        let url = format!("file:{}", deep.display());
        let (one, two) = (
            leasehold::connect(&url).await.expect("a store"),
            leasehold::connect(&url).await.expect("a store"),
        );
        let held = one.mutex("x").expect("a name").lock().await.expect("free");
        let mutex = two.mutex("x").expect("a name");
        let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
        until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
        let before = tokio::time::Instant::now();
        held.release().await.expect("held");
        soon("the waiter", waiting).await.expect("no panic").expect("granted");
        assert!(
            before.elapsed() < ms(900),
            "woken after {:?}, so the message did not arrive",
            before.elapsed()
        );
    }
}

/// The store tells its first user from later ones by a lock that a process loses when it closes any descriptor of the
/// file. Whoever loses it lets the next process wind the store back.
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

/// Kills a child at the n-th system call of a kind, for every n that it makes while it takes and gives back a name.
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

async fn a_client_in_another_time_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    let program = std::env::current_exe().expect("this binary");
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--time", "--boottime", "1000"])
        .arg(program)
        .args(["child", ground.url()]);
    let output = command.stdin(Stdio::null()).output().await.expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("refused") && said.contains("time namespace"), "{said}");
}

async fn an_unknown_option_is_refused(ground: Ground) {
    let error =
        leasehold::connect(&format!("{}?shared=yes", ground.url())).await.expect_err("no such option");
    assert!(error.to_string().contains("share=group"), "{error}");
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
