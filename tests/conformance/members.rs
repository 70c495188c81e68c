//! Servers of which most must agree, killed, paused and started again: etcd and ZooKeeper.

use std::time::{Duration, Instant};

use leasehold::{Client, Family, Guard, Loss, Options, Result, Standing};
use tokio::task::JoinHandle;

use crate::bench::{Ground, ms, not_within, until};
use crate::setup::{AnyServer, Store, Under};
use crate::steps::lock;
use crate::work::Work;
use crate::{Case, case};

/// Servers of which one leads.
pub(crate) trait Members: Store {
    /// What a claim of 30 seconds has left at least when it is renewed.
    const RENEWED: Duration;

    fn leader(&self) -> &AnyServer;
    fn wait_until_all_serve(&self);
}

/// Cases of three members.
pub(crate) fn cases<M: Members>() -> Vec<(&'static str, Case)> {
    vec![
        ("a_leader_that_is_killed_costs_no_claim", case(a_leader_that_is_killed_costs_no_claim::<M>)),
        ("a_leader_that_is_paused_costs_no_claim", case(a_leader_that_is_paused_costs_no_claim::<M>)),
        ("a_client_leaves_a_member_that_is_paused", case(a_client_leaves_a_member_that_is_paused::<M>)),
        (
            "members_that_are_all_restarted_cost_no_claim",
            case(members_that_are_all_restarted_cost_no_claim::<M>),
        ),
    ]
}

/// The members of a case that hurts them.
pub(crate) fn members<M: Members>(ground: &Ground) -> &M {
    let store = &ground.bench_of::<Under<M>>().store;
    store.spoil();
    store
}

/// A client whose calls, and whose session where it has one, outlive an election on a machine that
/// is busy.
pub(crate) async fn patient(url: &str) -> Client {
    let url = url.replace("session_timeout=4s", "session_timeout=20s");
    let options = Options::new().call_limit(ms(20_000));
    leasehold::connect_with(&url, options).await.expect("the engine is there")
}

/// Somebody who stands in the queue.
pub(crate) async fn wait(client: &Client, name: &str, lease: Duration) -> JoinHandle<Result<Guard>> {
    let mutex = client.mutex(name).expect("a name").lease(lease);
    let before = client.look(Family::Lock, name).await.expect("a view").waiting;
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || client.look(Family::Lock, name).await.expect("a view").waiting > before).await;
    waiting
}

/// Runs something that may have to wait for an election, on a machine that is busy.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(ms(30_000), work).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

/// Whoever holds and whoever waits go on.
async fn goes_on<M: Members>(one: &Client, two: &Client, held: Guard, waiting: JoinHandle<Result<Guard>>) {
    // It may be in doubt for a moment.
    within("the renewal", async {
        while held.standing() != Standing::Held || held.remaining() < M::RENEWED {
            assert_ne!(held.standing(), Standing::Lost, "a claim was lost");
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    assert!(!waiting.is_finished(), "two hold the name");
    within("the release", held.release()).await.expect("held");
    let next = within("its turn", waiting).await.expect("no panic").expect("granted");
    let third = within("an answer", one.mutex("x").expect("a name").try_lock()).await;
    assert!(third.expect("an answer").is_none());
    within("the release", next.release()).await.expect("held");
    within("a lock", lock(two, "y", ms(5000))).await.release().await.expect("held");
}

async fn a_leader_that_is_killed_costs_no_claim<M: Members>(ground: Ground) {
    let (one, two) = (patient(ground.url()).await, patient(ground.url()).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    members::<M>(&ground).leader().kill();
    goes_on::<M>(&one, &two, held, waiting).await;
}

async fn a_leader_that_is_paused_costs_no_claim<M: Members>(ground: Ground) {
    let (one, two) = (patient(ground.url()).await, patient(ground.url()).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let leader = members::<M>(&ground).leader();
    leader.pause();
    goes_on::<M>(&one, &two, held, waiting).await;
    leader.resume();
    // The old leader hears of what it has missed, and ends nothing.
    within("a lock", lock(&one, "x", ms(30_000))).await.release().await.expect("held");
}

async fn a_client_leaves_a_member_that_is_paused<M: Members>(ground: Ground) {
    let all = members::<M>(&ground);
    let (scheme, rest) = ground.url().split_once("://").expect("a URL");
    let (_, place) = rest.split_once('/').expect("a place");
    let servers = all.servers();
    for (number, member) in servers.iter().enumerate() {
        // Connected to this one at first.
        let (first, second) = (member.port(), servers[(number + 1) % servers.len()].port());
        let client = patient(&format!("{scheme}://127.0.0.1:{first},127.0.0.1:{second}/{place}")).await;
        let held = lock(&client, "x", ms(20_000)).await;
        member.pause();
        let started = Instant::now();
        within("another lock", lock(&client, "y", ms(20_000))).await.release().await.expect("held");
        assert_eq!(held.standing(), Standing::Held, "after {:?}", started.elapsed());
        within("the release", held.release()).await.expect("held");
        member.resume();
        all.wait_until_all_serve();
    }
    let client = patient(ground.url()).await;
    lock(&client, "x", ms(20_000)).await.release().await.expect("held");
}

async fn members_that_are_all_restarted_cost_no_claim<M: Members>(ground: Ground) {
    let (one, two) = (patient(ground.url()).await, patient(ground.url()).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let all = members::<M>(&ground);
    all.servers().iter().for_each(|member| member.kill());
    all.servers().iter().for_each(|member| member.restart());
    all.wait_until_all_serve();
    goes_on::<M>(&one, &two, held, waiting).await;
}

/// Kills a server, or pauses it.
fn hurt(server: &AnyServer, fault: usize) {
    if fault.is_multiple_of(2) {
        server.kill();
    } else {
        server.pause();
    }
}

fn heal(server: &AnyServer) {
    if server.runs() {
        server.resume();
    } else {
        server.restart();
    }
}

/// Work on one server, which dies and stands still: now and then for so long that all claims are
/// lost.
pub(crate) async fn work_on_one_server(
    mut ground: Ground,
    all_is_lost: Duration,
    serves: impl Fn(&Ground) -> bool,
) {
    let work = Work::start(async || ground.client().await).await;
    let server = ground.servers()[0];
    let mut faults = 0;
    while work.goes_on() {
        work.some_more().await;
        hurt(server, faults);
        tokio::time::sleep(if faults % 5 == 4 { all_is_lost } else { ms(300) }).await;
        heal(server);
        faults += 1;
        within("the server", until("it is up", async || serves(&ground))).await;
    }
    work.end(faults).await;
}

/// Work on three members, of which always one is killed or paused.
pub(crate) async fn work_on_members<M: Members>(mut ground: Ground) {
    let work = Work::start(async || ground.client().await).await;
    let all = members::<M>(&ground);
    let mut faults = 0;
    while work.goes_on() {
        let member = match faults % 3 {
            0 | 2 => all.leader(),
            number => all.servers()[number],
        };
        hurt(member, faults);
        faults += 1;
        // A while with a member less, until somebody gets on again.
        work.some_more().await;
        heal(member);
        all.wait_until_all_serve();
    }
    work.end(faults).await;
}

/// One client is on each side of a cut. Each has something, and wants what the other has. Those who
/// are many elect a leader meanwhile; their leases must outlive that.
pub(crate) async fn a_side_that_is_cut_off_is_granted_nothing(
    inside: &Client,
    outside: &Client,
    lease: Duration,
    cut_off: impl FnOnce(),
    heal: impl FnOnce(),
) {
    let (lost, kept) = (lock(inside, "lost", lease).await, lock(outside, "kept", lease).await);
    let waiting = wait(outside, "lost", lease).await;
    cut_off();
    let ask = |name| {
        let mutex = inside.mutex(name).expect("a name").lease(lease);
        tokio::spawn(async move { mutex.lock().await })
    };
    let (mut asks, mut asks_for_more) = (ask("kept"), ask("free"));
    // It learns of its loss by its own clock, before anybody else can hold the name.
    assert_eq!(within("the loss", lost.lost()).await, Loss::Deadline);
    assert!(!waiting.is_finished(), "two held the name");
    let next = within("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > lost.token());
    drop(lost);
    // Those who are many go on, and for longer than a lease or a session; the other gets nothing.
    for _ in 0..5 {
        within("a lock", lock(outside, "free", lease)).await.release().await.expect("held");
        not_within(ms(700), "a member that is cut off grants", &mut asks).await;
        not_within(ms(700), "a member that is cut off grants", &mut asks_for_more).await;
    }
    assert!(kept.is_held() && next.is_held(), "those who are many lost a claim");
    heal();
    within("the release", next.release()).await.expect("held");
    within("the release", kept.release()).await.expect("held");
    for asked in [asks, asks_for_more] {
        // A call that was not answered in time is an error, and no claim.
        if let Ok(guard) = within("its turn", asked).await.expect("no panic") {
            guard.release().await.expect("held");
        }
    }
    for name in ["lost", "kept", "free"] {
        within("a lock", lock(inside, name, lease)).await.release().await.expect("held");
    }
}
