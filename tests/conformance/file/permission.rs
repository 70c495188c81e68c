//! Who may use a store: its user, and a group that was asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use super::{boot_dir, dir, refused};
use crate::bench::{Ground, ms};
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "store",
        [
            a_store_is_private_unless_shared,
            a_store_of_another_user_is_refused,
            another_users_store_is_used_only_if_sharing_was_asked_for,
            a_store_that_others_can_write_to_is_refused,
            a_new_store_is_never_open_to_more_than_its_user
        ]
    )
    .cases
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

/// Gives something to another user, as only root can; false for others, who have nobody to give it
/// to.
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
