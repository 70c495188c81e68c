//! The path of a store: removed, moved, replaced by a link, and of any length.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold::{Family, Standing};

use super::{boot_dir, dir, refused};
use crate::bench::{Ground, ms, soon, until};
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "store",
        [
            a_removed_store_is_noticed,
            a_moved_store_is_noticed,
            a_moved_store_is_refused_at_the_next_use,
            nobody_is_granted_a_name_where_a_store_was,
            a_path_that_leads_elsewhere_is_noticed,
            a_link_in_place_of_the_store_is_refused,
            a_path_of_any_length_works
        ]
    )
    .cases
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

/// A look at where the store is serves several calls. It is not enough for a grant: the store may
/// have been moved since.
async fn nobody_is_granted_a_name_where_a_store_was(mut ground: Ground) {
    for round in 0..50 {
        let client = ground.client().await;
        let mutex = client.mutex("x").expect("a name");
        let (from, to) = (dir(&ground), dir(&ground).with_extension(format!("was-{round}")));
        let (turns, moved) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let moving = std::thread::spawn({
            let (turns, moved) = (Arc::clone(&turns), Arc::clone(&moved));
            move || {
                while turns.load(Ordering::Acquire) < 20 {
                    std::thread::yield_now();
                }
                fs::rename(from, to).expect("moved");
                moved.store(true, Ordering::Release);
            }
        });
        loop {
            let was_moved = moved.load(Ordering::Acquire);
            let error = match mutex.try_lock().await {
                Ok(granted) => {
                    assert!(
                        !was_moved || granted.is_none(),
                        "granted by a store that is not there: {granted:?}"
                    );
                    // Moved meanwhile, it is not heard.
                    drop(granted);
                    turns.fetch_add(1, Ordering::AcqRel);
                    continue;
                }
                Err(error) => error,
            };
            says_moved(Err::<(), _>(error));
            break;
        }
        moving.join().expect("no panic");
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
