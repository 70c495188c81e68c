//! Semaphores, shared with Curator's `InterProcessSemaphoreV2`.

use leasehold::lock::Semaphore;

use super::*;

pub(super) fn all() -> Vec<(&'static str, Case)> {
    zookeeper_cases!([
        permits_that_curator_has_are_counted,
        permits_that_we_have_are_counted,
        a_curator_that_dies_gives_its_permit_back,
        a_mixed_fleet_never_has_more_than_there_are,
        the_last_permit_of_a_mixed_fleet_counts_right,
    ])
}

fn semaphore(client: &Client, permits: u32) -> Semaphore {
    client.semaphore(NAME, permits).expect("a name").lease(ms(6000))
}

async fn ours(server: &ZooKeeper) -> Client {
    client(server, "raw=semaphore").await
}

async fn permits_that_curator_has_are_counted(server: ZooKeeper) {
    let (ours, mut stranger) = (ours(&server).await, curator(&server, "2").await);
    assert_eq!(stranger.ask("take").await, "held");
    let guard = semaphore(&ours, 2).try_acquire().await.expect("an answer").expect("one is left");
    assert!(semaphore(&ours, 2).try_acquire().await.expect("an answer").is_none());
    assert_eq!(stranger.ask("try").await, "busy");
    let waits = semaphore(&ours, 2);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    until_waiting_for(Family::Semaphore, &ours, 1).await;
    assert_eq!(ours.look(Family::Semaphore, NAME).await.expect("a look").claims.len(), 2);
    assert_eq!(stranger.ask("release").await, "released");
    let second = waiting.await.expect("no panic").expect("granted");
    assert!(second.token() > guard.token());
    guard.release().await.expect("released");
    second.release().await.expect("released");
    let view = ours.look(Family::Semaphore, NAME).await.expect("a look");
    assert!(view.claims.is_empty() && view.waiting == 0, "something is left behind: {view:?}");
}

async fn permits_that_we_have_are_counted(server: ZooKeeper) {
    let (ours, mut stranger) = (ours(&server).await, curator(&server, "2").await);
    let first = semaphore(&ours, 2).acquire().await.expect("held");
    assert_eq!(stranger.ask("try").await, "held");
    assert_eq!(stranger.ask("release").await, "released");
    let second = semaphore(&ours, 2).acquire().await.expect("held");
    assert_eq!(stranger.ask("try").await, "busy");
    stranger.tell("take");
    until_waiting_for(Family::Semaphore, &ours, 1).await;
    // Whoever comes after it waits for it, even if there are permits then.
    let waits = semaphore(&ours, 2);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    until_waiting_for(Family::Semaphore, &ours, 2).await;
    // Longer than our session.
    tokio::time::sleep(ms(5000)).await;
    assert!(stranger.is_silent() && first.is_held() && second.is_held(), "three have two permits");
    assert!(!waiting.is_finished(), "three have two permits");
    first.release().await.expect("released");
    assert_eq!(stranger.answer().await, "held");
    assert!(!waiting.is_finished(), "three have two permits");
    second.release().await.expect("released");
    let third = waiting.await.expect("no panic").expect("granted");
    assert_eq!(stranger.ask("release").await, "released");
    third.release().await.expect("released");
}

async fn a_curator_that_dies_gives_its_permit_back(server: ZooKeeper) {
    let (ours, mut stranger) = (ours(&server).await, curator(&server, "1").await);
    assert_eq!(stranger.ask("take").await, "held");
    let waits = semaphore(&ours, 1);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    until_waiting_for(Family::Semaphore, &ours, 1).await;
    drop(stranger);
    waiting.await.expect("no panic").expect("granted").release().await.expect("released");
}

/// Ours see how many have a permit while they have one: three at most.
async fn a_mixed_fleet_never_has_more_than_there_are(server: ZooKeeper) {
    const EACH: usize = 25;
    let dir = TempDir::new().expect("a directory");
    let mut strangers = vec![curator(&server, "3").await, curator(&server, "3").await];
    for (number, stranger) in strangers.iter_mut().enumerate() {
        let file = dir.path().join(format!("count{number}"));
        fs::write(&file, "0\n").expect("a file");
        stranger.tell(&format!("work {} {EACH}", file.display()));
    }
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = ours(&server).await;
        tasks.push(tokio::spawn(async move {
            let mut most = 0;
            for _ in 0..EACH {
                let guard = semaphore(&client, 3).acquire().await.expect("held");
                tokio::time::sleep(ms(5)).await;
                let view = client.look(Family::Semaphore, NAME).await.expect("a look");
                assert!(guard.is_held() && view.claims.len() <= 3, "{view:?}");
                most = most.max(view.claims.len());
                guard.release().await.expect("released");
            }
            most
        }));
    }
    let mut most = 0;
    for task in tasks {
        most = most.max(task.await.expect("no panic"));
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.answer().await, "worked");
    }
    assert!(most > 1, "nobody has seen another holder");
}

async fn the_last_permit_of_a_mixed_fleet_counts_right(server: ZooKeeper) {
    const EACH: usize = 20;
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("count");
    fs::write(&file, "0\n").expect("a file");
    let mut strangers = vec![curator(&server, "1").await, curator(&server, "1").await];
    for stranger in &mut strangers {
        stranger.tell(&format!("work {} {EACH}", file.display()));
    }
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (client, file) = (ours(&server).await, file.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = semaphore(&client, 1).acquire().await.expect("held");
                let number = fs::read_to_string(&file).expect("a file");
                let number: usize = number.trim().parse().expect("a number");
                tokio::time::sleep(ms(5)).await;
                fs::write(&file, format!("{}\n", number + 1)).expect("a file");
                guard.release().await.expect("released");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.answer().await, "worked");
    }
    let count = fs::read_to_string(&file).expect("a file");
    assert_eq!(count.trim(), (4 * EACH).to_string(), "two held the only permit");
}
