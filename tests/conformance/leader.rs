//! Elections and latches.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use leasehold::lock::{LONGEST_VALUE, Observed};
use leasehold::{Error, Family, Standing};

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    let mut group = cases!(
        "leader",
        crate::bench::elects,
        [
            there_is_one_leader_and_everybody_sees_it,
            an_observer_sees_every_change_in_order,
            a_slow_observer_is_told_what_it_missed,
            an_observer_is_told_that_the_log_was_forgotten,
            resigning_elects_the_next_at_once,
            one_who_resigned_is_not_elected_again_by_itself,
            every_term_has_a_greater_token,
            a_leader_that_lost_the_engine_steps_down,
            a_vacancy_is_seen,
            a_value_that_is_too_long_is_refused,
            leading_goes_on_after_a_loss,
            leading_goes_on_after_an_outage,
            leading_stops_when_told_to,
            a_dropped_leader_resigns,
            a_candidate_waits_through_an_outage,
        ]
    );
    let latches = cases!(
        "leader",
        crate::bench::latches,
        [a_latch_opens_at_zero_and_stays_open, a_latch_with_another_count_is_refused]
    );
    group.cases.extend(latches.cases);
    group
}

async fn there_is_one_leader_and_everybody_sees_it(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (a, b) = (one.election("x").expect("a name"), two.election("x").expect("a name"));
    assert!(b.leader().await.expect("an answer").is_none());
    let leader = a.campaign("a").await.expect("elected");
    assert!(b.try_campaign("b").await.expect("an answer").is_none());
    assert!(b.campaign_for("b", ms(50)).await.expect("an answer").is_none());
    let seen = b.leader().await.expect("an answer").expect("there is one");
    assert_eq!((seen.value.as_slice(), seen.token), (b"a".as_slice(), leader.token()));
    leader.proclaim("a again").await.expect("still leading");
    assert_eq!(b.leader().await.expect("an answer").expect("there is one").value, b"a again");
}

fn value(observed: &Observed) -> String {
    match observed {
        Observed::Leader(leader) => String::from_utf8_lossy(&leader.value).into_owned(),
        Observed::Vacant => "-".to_owned(),
        other => format!("{other:?}"),
    }
}

async fn an_observer_sees_every_change_in_order(mut ground: Ground) {
    let (one, two, watcher) = (ground.client().await, ground.client().await, ground.client().await);
    let mut observer = watcher.election("x").expect("a name").observe().await.expect("an observer");
    assert_eq!(observer.next().await.expect("an answer"), Observed::Vacant);
    let first = one.election("x").expect("a name").campaign("a1").await.expect("elected");
    let election = two.election("x").expect("a name");
    let second = tokio::spawn(async move { election.campaign("b1").await });
    until("it stands", async || one.look(Family::Election, "x").await.expect("a view").waiting == 1).await;
    first.proclaim("a2").await.expect("leading");
    first.proclaim("a3").await.expect("leading");
    first.resign().await.expect("leading");
    let second = soon("the second", second).await.expect("no panic").expect("elected");
    second.proclaim("b2").await.expect("leading");
    second.resign().await.expect("leading");
    let mut seen = Vec::new();
    let mut tokens = Vec::new();
    while seen.last().is_none_or(|last| last != "-") {
        let observed = soon("the next change", observer.next()).await.expect("an answer");
        if let Observed::Leader(leader) = &observed {
            tokens.push(leader.token);
        }
        seen.push(value(&observed));
    }
    assert_eq!(seen, ["a1", "a2", "a3", "b1", "b2", "-"]);
    assert!(tokens.is_sorted());
}

async fn a_slow_observer_is_told_what_it_missed(mut ground: Ground) {
    let (one, watcher) = (ground.client().await, ground.client().await);
    let mut observer = watcher.election("x").expect("a name").observe().await.expect("an observer");
    assert_eq!(observer.next().await.expect("an answer"), Observed::Vacant);
    let leader = one.election("x").expect("a name").campaign("0").await.expect("elected");
    for number in 1..100 {
        leader.proclaim(number.to_string()).await.expect("leading");
    }
    let Observed::Missed(missed) = soon("a word", observer.next()).await.expect("an answer") else {
        panic!("a gap is told")
    };
    let mut next = usize::try_from(missed).expect("few");
    while next < 100 {
        assert_eq!(value(&soon("the next", observer.next()).await.expect("an answer")), next.to_string());
        next += 1;
    }
}

/// Whatever the length of the new log, and whether it was seen empty.
async fn an_observer_is_told_that_the_log_was_forgotten(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let cases =
        [("", "-"), ("l", "b1"), ("lr", "-"), ("lp", "b2"), ("lpp", "b3"), ("lppr", "-"), ("lpppp", "b5")];
    for (number, (before, (after, last))) in
        [2_u64, 4].into_iter().flat_map(|before| cases.map(|case| (before, case))).enumerate()
    {
        let name = format!("x{number}");
        let options = ground.options();
        let (watcher, wire) = ground.client_on_wire(options).await;
        let mut observer = watcher.election(&name).expect("a name").observe().await.expect("an observer");
        let leader = one.election(&name).expect("a name").campaign("a").await.expect("elected");
        for number in 2..before {
            leader.proclaim(format!("a{number}")).await.expect("leading");
        }
        leader.resign().await.expect("leading");
        // Who leads when it starts, and every change.
        let mut seen = Vec::new();
        for _ in 0..=before {
            seen.push(value(&soon("the first leader", observer.next()).await.expect("an answer")));
        }
        let expected = ["-", "a", "a2", "a3"].into_iter().take(before as usize).chain(["-"]);
        assert!(seen.iter().eq(expected), "{seen:?}");
        if number == 0 {
            not_within(ms(1500), "a log was forgotten", observer.next()).await;
        }
        wire.forget_log(before);
        let mut leader = None;
        for (number, step) in after.bytes().enumerate() {
            let value = format!("b{}", number + 1);
            match (step, leader.take()) {
                (b'l', _) => {
                    leader =
                        Some(two.election(&name).expect("a name").campaign(value).await.expect("elected"));
                }
                (b'p', Some(old)) => leader.insert(old).proclaim(value).await.expect("leading"),
                (_, old) => old.expect("a leader").resign().await.expect("leading"),
            }
        }
        let what = format!("{before} changes were forgotten, and then {after:?}");
        let missed = soon(&what, observer.next()).await.expect("an answer");
        assert!(matches!(missed, Observed::Missed(_)), "{what}: {missed:?}");
        let now = value(&soon(&what, observer.next()).await.expect("an answer"));
        assert_eq!(now, last, "{what}");
        // From here on it follows the new log.
        let next = match leader {
            Some(leader) => leader,
            None => two.election(&name).expect("a name").campaign("new").await.expect("elected"),
        };
        next.proclaim("newer").await.expect("leading");
        let mut seen = vec![value(&soon(&what, observer.next()).await.expect("an answer"))];
        if seen[0] == "new" {
            seen.push(value(&soon(&what, observer.next()).await.expect("an answer")));
        }
        assert_eq!(seen.pop().as_deref(), Some("newer"), "{what}");
        next.resign().await.expect("leading");
    }
}

async fn resigning_elects_the_next_at_once(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let leader = one.election("x").expect("a name").campaign("a").await.expect("elected");
    let election = two.election("x").expect("a name");
    let next = tokio::spawn(async move { election.campaign("b").await });
    until("it stands", async || one.look(Family::Election, "x").await.expect("a view").waiting == 1).await;
    let before = tokio::time::Instant::now();
    leader.resign().await.expect("leading");
    let next = soon("the next", next).await.expect("no panic").expect("elected");
    assert!(before.elapsed() < ms(1000), "{:?}", before.elapsed());
    assert_eq!(
        one.election("x").expect("a name").leader().await.expect("an answer").expect("one").token,
        next.token()
    );
}

async fn one_who_resigned_is_not_elected_again_by_itself(mut ground: Ground) {
    let client = ground.client().await;
    let election = client.election("x").expect("a name");
    election.campaign("a").await.expect("elected").resign().await.expect("leading");
    let mut observer = election.observe().await.expect("an observer");
    assert_eq!(observer.next().await.expect("an answer"), Observed::Vacant);
    not_within(ms(1500), "somebody was elected", observer.next()).await;
}

async fn every_term_has_a_greater_token(mut ground: Ground) {
    let client = ground.client().await;
    let election = client.election("x").expect("a name");
    let mut last = None;
    for _ in 0..10 {
        let leader = election.campaign("a").await.expect("elected");
        assert!(Some(leader.token()) > last);
        last = Some(leader.token());
        leader.resign().await.expect("leading");
    }
}

async fn a_leader_that_lost_the_engine_steps_down(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let leader = client.election("x").expect("a name").lease(ms(300)).campaign("a").await.expect("elected");
    wire.set(Fault::Hang);
    let next = soon("the next", other.election("x").expect("a name").campaign("b")).await.expect("elected");
    assert_eq!(leader.guard().standing(), Standing::Lost);
    assert!(matches!(leader.proclaim("still me").await, Err(Error::Lost { .. })));
    assert!(next.token() > leader.token());
}

async fn a_vacancy_is_seen(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let watcher = ground.client().await;
    let _leader = client.election("x").expect("a name").lease(ms(300)).campaign("a").await.expect("elected");
    let mut observer = watcher.election("x").expect("a name").observe().await.expect("an observer");
    assert_eq!(value(&observer.next().await.expect("an answer")), "a");
    wire.set(Fault::Hang);
    assert_eq!(soon("the vacancy", observer.next()).await.expect("an answer"), Observed::Vacant);
}

async fn a_value_that_is_too_long_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    let election = client.election("x").expect("a name");
    let too_long = vec![b'v'; LONGEST_VALUE + 1];
    assert!(matches!(election.campaign(&too_long).await, Err(Error::Invalid { .. })));
    let leader = election.campaign(&too_long[1..]).await.expect("elected");
    assert!(matches!(leader.proclaim(&too_long).await, Err(Error::Invalid { .. })));
}

async fn leading_goes_on_after_a_loss(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let election = client.election("x").expect("a name").lease(ms(600));
    let (terms, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        election
            .lead("me", |leadership| {
                let terms = terms.clone();
                async move {
                    leadership.check().expect("leading");
                    leadership.proclaim("me again").await.expect("leading");
                    // Only now: the test ends the client when it has heard of the second term.
                    terms.send(leadership.token()).expect("the test listens");
                    std::future::pending::<ControlFlow<()>>().await
                }
            })
            .await
    });
    let first = soon("the first term", begun.recv()).await.expect("elected");
    until("it has spoken", async || {
        let leader = other.election("x").expect("a name").leader().await.expect("an answer");
        leader.is_some_and(|leader| leader.value == b"me again")
    })
    .await;
    other.break_claims(Family::Election, "x").await.expect("broken");
    let second = soon("the second term", begun.recv()).await.expect("elected again");
    assert!(second > first);
    client.close().await.expect("closed");
    let error = soon("the end", leading).await.expect("no panic").expect_err("the client is closed");
    assert!(error.to_string().contains("closed"), "{error}");
}

async fn leading_goes_on_after_an_outage(mut ground: Ground) {
    let options = ground.options().call_limit(ms(200));
    let (client, wire) = ground.client_on_wire(options).await;
    wire.set(Fault::Refuse);
    let election = client.election("x").expect("a name").lease(ms(600));
    let (terms, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        let work = |leadership: leasehold::lock::Leadership| {
            terms.send(leadership.token()).expect("the test listens");
            std::future::pending::<ControlFlow<()>>()
        };
        election.lead("me", work).await
    });
    until("it has asked in vain", async || wire.acquires.load(Ordering::Acquire) >= 3).await;
    wire.set(Fault::None);
    let first = soon("the first term", begun.recv()).await.expect("elected");
    // Longer than the lease: the leadership is lost, and taken again when the engine is back.
    wire.set(Fault::Refuse);
    let asked = wire.acquires.load(Ordering::Acquire);
    until("it campaigns again", async || wire.acquires.load(Ordering::Acquire) >= asked + 2).await;
    wire.set(Fault::None);
    let second = soon("the second term", begun.recv()).await.expect("elected again");
    assert!(second > first);
    leading.abort();
}

async fn leading_stops_when_told_to(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let election = client.election("x").expect("a name");
    let mut terms = 0;
    let work = |leadership: leasehold::lock::Leadership| {
        terms += 1;
        let last = terms == 3;
        async move { if last { ControlFlow::Break(leadership.token()) } else { ControlFlow::Continue(()) } }
    };
    let token = soon("three terms", election.lead("me", work)).await.expect("it led");
    let next = other.election("x").expect("a name").try_campaign("other").await.expect("an answer");
    assert!(next.expect("it has resigned").token() > token);
}

async fn a_dropped_leader_resigns(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let election = client.election("x").expect("a name");
    let leading =
        tokio::spawn(async move { election.lead("me", |_| std::future::pending::<ControlFlow<()>>()).await });
    let theirs = other.election("x").expect("a name");
    until("it leads", async || theirs.leader().await.expect("an answer").is_some()).await;
    leading.abort();
    drop(soon("the next leader", theirs.campaign("other")).await.expect("elected"));
}

async fn a_candidate_waits_through_an_outage(mut ground: Ground) {
    let options = ground.options().call_limit(ms(200));
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let leader = other.election("x").expect("a name").campaign("a").await.expect("elected");
    let election = client.election("x").expect("a name");
    let waiting = tokio::spawn(async move { election.campaign("b").await });
    until("it stands", async || other.look(Family::Election, "x").await.expect("a view").waiting == 1).await;
    wire.set(Fault::Refuse);
    let asked = wire.acquires.load(Ordering::Acquire);
    until("it has asked in vain", async || wire.acquires.load(Ordering::Acquire) >= asked + 3).await;
    wire.set(Fault::None);
    leader.resign().await.expect("leading");
    drop(soon("its turn", waiting).await.expect("no panic").expect("it waited through the outage"));
}

async fn a_latch_opens_at_zero_and_stays_open(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let latch = one.latch("x", 3).expect("a name");
    let waiting = two.latch("x", 3).expect("a name");
    let waiter = tokio::spawn(async move { waiting.wait().await });
    assert_eq!(latch.count_down().await.expect("counted"), 2);
    assert!(!latch.wait_for(ms(50)).await.expect("an answer"));
    assert_eq!(two.latch("x", 3).expect("a name").count_down().await.expect("counted"), 1);
    assert!(!waiter.is_finished());
    let before = tokio::time::Instant::now();
    assert_eq!(latch.count_down().await.expect("counted"), 0);
    soon("the waiter", waiter).await.expect("no panic").expect("open");
    assert!(before.elapsed() < ms(900), "woken after {:?}", before.elapsed());
    assert_eq!(latch.count_down().await.expect("counted"), 0);
    two.latch("x", 3).expect("a name").wait().await.expect("open");
    // Counted by many at once, each counts once.
    let many = one.latch("many", 50).expect("a name");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let many = many.clone();
        tasks.spawn(async move { many.count_down().await.expect("counted") });
    }
    let mut left = tasks.join_all().await;
    left.sort_unstable();
    assert!(left.into_iter().eq(0..50));
}

async fn a_latch_with_another_count_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    assert!(matches!(client.latch("x", 0), Err(Error::Invalid { .. })));
    client.latch("x", 3).expect("a name").count_down().await.expect("counted");
    let error = client.latch("x", 4).expect("a name").count_down().await.expect_err("another count");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let brief = client.latch("brief", 1).expect("a name").kept_for(ms(100));
    brief.count_down().await.expect("counted");
    until("it is forgotten", async || brief.left().await.expect("a number") == 1).await;
}
