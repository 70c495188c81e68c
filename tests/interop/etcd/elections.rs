//! Elections.

use leasehold::Family;
use leasehold::lock::{Observed, Observer};

use super::{Case, NAME, assert_empty, client, etcd_cases, etcdctl, go, interrupt, ms, until_waiting};
use crate::servers::Etcd;

pub(super) fn all() -> Vec<(&'static str, Case)> {
    etcd_cases!([
        a_leader_of_gos_is_seen_and_followed,
        a_leader_of_ours_is_seen_and_followed,
        etcdctl_leads_and_we_stand,
        we_lead_and_etcdctl_stands,
        a_mixed_fleet_has_one_leader_at_a_time,
    ])
}

/// What an observer sees next.
async fn next(observer: &mut Observer) -> String {
    match observer.next().await.expect("an answer") {
        Observed::Leader(leader) => String::from_utf8(leader.value).expect("text"),
        Observed::Vacant => "-".to_owned(),
        other => format!("{other:?}"),
    }
}

async fn a_leader_of_gos_is_seen_and_followed(etcd: Etcd) {
    let ours = client(&etcd).await;
    let election = ours.election(NAME).expect("a name");
    let mut observer = election.observe().await.expect("an observer");
    assert_eq!(next(&mut observer).await, "-");
    let mut stranger = go(&etcd, "election", 10).await;
    assert_eq!(stranger.ask("take go/1").await, "held");
    assert_eq!(next(&mut observer).await, "go/1");
    assert!(election.try_campaign("ours").await.expect("an answer").is_none());
    assert_eq!(election.leader().await.expect("an answer").expect("one").value, b"go/1");
    assert_eq!(stranger.ask("proclaim go/2").await, "proclaimed");
    assert_eq!(next(&mut observer).await, "go/2");
    let standing = {
        let election = election.clone();
        tokio::spawn(async move { election.campaign("ours").await })
    };
    until_waiting(&ours, Family::Election, 1).await;
    assert!(!standing.is_finished(), "two lead");
    assert_eq!(stranger.ask("release").await, "released");
    let leader = standing.await.expect("no panic").expect("elected");
    assert_eq!(next(&mut observer).await, "ours");
    assert_eq!(stranger.ask("leader").await, "ours");
    leader.resign().await.expect("led");
    assert_eq!(next(&mut observer).await, "-");
    assert_eq!(stranger.ask("leader").await, "nobody");
    assert_empty(&etcd);
}

async fn a_leader_of_ours_is_seen_and_followed(etcd: Etcd) {
    let ours = client(&etcd).await;
    let election = ours.election(NAME).expect("a name").lease(ms(6000));
    let mut stranger = go(&etcd, "election", 10).await;
    let leader = election.campaign("ours/1").await.expect("elected");
    assert_eq!(stranger.ask("leader").await, "ours/1");
    leader.proclaim("ours/2").await.expect("leads");
    assert_eq!(stranger.ask("leader").await, "ours/2");
    assert_eq!(stranger.ask("try").await, "busy");
    stranger.tell("take go/1");
    until_waiting(&ours, Family::Election, 1).await;
    // Longer than a renewal.
    tokio::time::sleep(ms(2500)).await;
    assert!(stranger.is_silent() && leader.guard().is_held(), "two lead");
    let before = leader.token();
    leader.resign().await.expect("led");
    assert_eq!(stranger.answer().await, "held");
    let theirs = election.leader().await.expect("an answer").expect("one");
    assert_eq!(theirs.value, b"go/1");
    assert!(theirs.token > before, "tokens rise from ours to theirs");
}

async fn etcdctl_leads_and_we_stand(etcd: Etcd) {
    let ours = client(&etcd).await;
    let mut leads = etcdctl(&etcd, &["elect", NAME, "ctl/1"]);
    // Its key, and what it says.
    assert!(leads.answer().await.starts_with(NAME));
    assert_eq!(leads.answer().await, "ctl/1");
    let election = ours.election(NAME).expect("a name");
    let mut observer = election.observe().await.expect("an observer");
    assert_eq!(next(&mut observer).await, "ctl/1");
    let standing = tokio::spawn(async move { election.campaign("ours").await });
    until_waiting(&ours, Family::Election, 1).await;
    assert!(!standing.is_finished(), "two lead");
    interrupt(&leads);
    standing.await.expect("no panic").expect("elected").resign().await.expect("led");
    assert_eq!(next(&mut observer).await, "ours");
}

async fn we_lead_and_etcdctl_stands(etcd: Etcd) {
    let ours = client(&etcd).await;
    let election = ours.election(NAME).expect("a name");
    let leader = election.campaign("ours/1").await.expect("elected");
    let mut listens = etcdctl(&etcd, &["elect", "--listen", NAME]);
    assert!(listens.answer().await.starts_with(NAME));
    assert_eq!(listens.answer().await, "ours/1");
    leader.proclaim("ours/2").await.expect("leads");
    assert!(listens.answer().await.starts_with(NAME));
    assert_eq!(listens.answer().await, "ours/2");
    let mut stands = etcdctl(&etcd, &["elect", NAME, "ctl/1"]);
    until_waiting(&ours, Family::Election, 1).await;
    assert!(stands.is_silent() && leader.guard().is_held(), "two lead");
    leader.resign().await.expect("led");
    assert!(stands.answer().await.starts_with(NAME));
    assert_eq!(election.leader().await.expect("an answer").expect("one").value, b"ctl/1");
}

/// Three of ours and two processes with Go's package, each of which leads many times.
async fn a_mixed_fleet_has_one_leader_at_a_time(etcd: Etcd) {
    const EACH: u64 = 25;
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("count");
    std::fs::write(&file, "0\n").expect("a file");
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = go(&etcd, "election", 20).await;
        stranger.tell(&format!("work 3000 {}", file.display()));
        strangers.push(stranger);
    }
    let mut ours = Vec::new();
    for number in 0..3 {
        let (client, file) = (client(&etcd).await, file.clone());
        ours.push(tokio::spawn(async move {
            let election = client.election(NAME).expect("a name");
            for _ in 0..EACH {
                let leader = election.campaign(format!("ours/{number}")).await.expect("elected");
                let text = std::fs::read_to_string(&file).expect("a file");
                let count: u64 = text.trim().parse().expect("a number");
                tokio::time::sleep(ms(2)).await;
                std::fs::write(&file, format!("{}\n", count + 1)).expect("a file");
                leader.resign().await.expect("led");
            }
        }));
    }
    let mut counted = 3 * EACH;
    for task in ours {
        task.await.expect("no panic");
    }
    for stranger in &mut strangers {
        let done = crate::fleet::worked(&stranger.answer().await);
        println!("Go led {} times, longest wait {:?}; ours {} in all", done.sections, done.longest, 3 * EACH);
        assert!(done.sections > 0, "one was starved");
        counted += done.sections;
    }
    let found: u64 = std::fs::read_to_string(&file).expect("a file").trim().parse().expect("a number");
    assert_eq!(found, counted, "two led at once");
}
