//! Elections, shared with Curator's `LeaderLatch` and kazoo's `Election`.

use leasehold::lock::Election;

use super::*;

pub(super) fn all() -> Vec<(&'static str, Case)> {
    zookeeper_cases!([
        a_latch_that_is_closed_lets_us_lead,
        our_resignation_opens_a_latch,
        a_latch_whose_process_dies_lets_us_lead,
        a_latch_sees_who_leads_and_so_do_we,
        latches_and_ours_lead_one_at_a_time,
        kazoos_resignation_lets_us_lead,
        our_resignation_lets_kazoo_lead,
        kazoos_election_sees_who_leads_and_so_do_we,
        kazoos_elections_and_ours_lead_one_at_a_time,
    ])
}

fn election(client: &Client) -> Election {
    client.election(NAME).expect("a name").lease(ms(6000))
}

async fn they_resign(server: &ZooKeeper, raw: &str, mut stranger: Stranger) {
    let (one, two) = (client(server, raw).await, client(server, raw).await);
    assert_eq!(stranger.ask("take").await, "held");
    assert!(election(&one).try_campaign("a").await.expect("an answer").is_none());
    let campaign = |client: &Client, value: &'static str| {
        let election = election(client);
        tokio::spawn(async move { election.campaign(value).await })
    };
    let first = campaign(&one, "a");
    until_waiting_for(Family::Election, &one, 1).await;
    let second = campaign(&two, "b");
    until_waiting_for(Family::Election, &one, 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "two lead");
    assert_eq!(stranger.ask("release").await, "released");
    let leader = first.await.expect("no panic").expect("elected");
    assert!(!second.is_finished(), "who came second leads second");
    let before = leader.token();
    leader.resign().await.expect("leading");
    let leader = second.await.expect("no panic").expect("elected");
    assert!(leader.token() > before);
    leader.resign().await.expect("leading");
    assert!(election(&one).leader().await.expect("an answer").is_none(), "something is left behind");
}

async fn we_resign(server: &ZooKeeper, raw: &str, mut stranger: Stranger) {
    let ours = client(server, raw).await;
    let leader = election(&ours).campaign("a").await.expect("elected");
    assert_eq!(stranger.ask("try").await, "busy");
    stranger.tell("take");
    until_waiting_for(Family::Election, &ours, 1).await;
    // Longer than our session.
    tokio::time::sleep(ms(5000)).await;
    assert!(stranger.is_silent() && leader.is_held(), "two lead");
    leader.resign().await.expect("leading");
    assert_eq!(stranger.answer().await, "held");
    assert!(election(&ours).try_campaign("a").await.expect("an answer").is_none());
    assert_eq!(stranger.ask("release").await, "released");
    election(&ours).campaign("a").await.expect("elected").resign().await.expect("leading");
}

/// Everybody adds one to the number in a file while it leads.
async fn one_at_a_time(server: &ZooKeeper, raw: &str, mut strangers: Vec<Stranger>) {
    const EACH: usize = 15;
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("count");
    fs::write(&file, "0\n").expect("a file");
    for stranger in &mut strangers {
        stranger.tell(&format!("work {} {EACH}", file.display()));
    }
    let mut ours = Vec::new();
    for _ in 0..2 {
        let (client, file) = (client(server, raw).await, file.clone());
        ours.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..EACH {
                let leader = election(&client).campaign("us").await.expect("elected");
                let number = fs::read_to_string(&file).expect("a file");
                let number: usize = number.trim().parse().expect("a number");
                tokio::time::sleep(ms(5)).await;
                fs::write(&file, format!("{}\n", number + 1)).expect("a file");
                assert!(leader.token().get() > last, "tokens rise");
                last = leader.token().get();
                leader.resign().await.expect("leading");
            }
        }));
    }
    for task in ours {
        task.await.expect("no panic");
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.answer().await, "worked");
    }
    let count = fs::read_to_string(&file).expect("a file");
    assert_eq!(count.trim(), ((strangers.len() + 2) * EACH).to_string(), "two have led");
}

/// Each side says who leads, and hears it of the other.
async fn everybody_sees_who_leads(server: &ZooKeeper, raw: &str, mut stranger: Stranger, theirs: &str) {
    let ours = client(server, raw).await;
    let leader = election(&ours).campaign("us:8080").await.expect("elected");
    assert_eq!(stranger.ask("leader").await, "us:8080");
    leader.proclaim("us:9090").await.expect("leading");
    assert_eq!(stranger.ask("leader").await, "us:9090");
    leader.resign().await.expect("leading");
    assert_eq!(stranger.ask("take").await, "held");
    let seen = election(&ours).leader().await.expect("an answer").expect("there is one");
    assert_eq!(String::from_utf8_lossy(&seen.value), theirs);
    assert_eq!(stranger.ask("release").await, "released");
}

async fn a_latch_that_is_closed_lets_us_lead(server: ZooKeeper) {
    they_resign(&server, "raw=latch", curator(&server, "latch").await).await;
}

async fn our_resignation_opens_a_latch(server: ZooKeeper) {
    we_resign(&server, "raw=latch", curator(&server, "latch").await).await;
}

async fn a_latch_whose_process_dies_lets_us_lead(server: ZooKeeper) {
    let mut stranger = curator(&server, "latch").await;
    assert_eq!(stranger.ask("take").await, "held");
    let ours = client(&server, "raw=latch").await;
    let election = election(&ours);
    let waiting = tokio::spawn(async move { election.campaign("a").await });
    until_waiting_for(Family::Election, &ours, 1).await;
    drop(stranger);
    waiting.await.expect("no panic").expect("elected").resign().await.expect("leading");
}

async fn a_latch_sees_who_leads_and_so_do_we(server: ZooKeeper) {
    everybody_sees_who_leads(&server, "raw=latch", curator(&server, "latch").await, "curator").await;
}

async fn latches_and_ours_lead_one_at_a_time(server: ZooKeeper) {
    let strangers = vec![curator(&server, "latch").await, curator(&server, "latch").await];
    one_at_a_time(&server, "raw=latch", strangers).await;
}

async fn kazoos_resignation_lets_us_lead(server: ZooKeeper) {
    they_resign(&server, "raw=kazoo", kazoo(&server, &["election"]).await).await;
}

async fn our_resignation_lets_kazoo_lead(server: ZooKeeper) {
    we_resign(&server, "raw=kazoo", kazoo(&server, &["election"]).await).await;
}

async fn kazoos_election_sees_who_leads_and_so_do_we(server: ZooKeeper) {
    everybody_sees_who_leads(&server, "raw=kazoo", kazoo(&server, &["election"]).await, "kazoo").await;
}

async fn kazoos_elections_and_ours_lead_one_at_a_time(server: ZooKeeper) {
    let strangers = vec![kazoo(&server, &["election"]).await, kazoo(&server, &["election"]).await];
    one_at_a_time(&server, "raw=kazoo", strangers).await;
}
