//! Rate limits.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{CellValue, Swap, Write};
use leasehold::kit::rate::{
    Algorithm, Allowed, Decide, Limit, Limiter, Mode, Receipt, Request, Verdict, WhenAway,
};
use leasehold::{Client, Error};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::cells::{WAYS, Way, name};
use crate::wire::{Fault, Wire};
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "rate",
        limits,
        [
            each_algorithm_keeps_its_limit,
            a_refusal_takes_nothing_and_says_when,
            clients_share_a_limit,
            keys_and_names_are_apart,
            several_limits_are_taken_all_or_none,
            several_limiters_are_asked_in_one_call,
            what_did_not_go_is_given_back,
            a_reset_forgets_all,
            a_leaky_bucket_says_when_to_go,
            it_waits_until_allowed,
            many_keys_are_asked_at_once,
            a_batch_is_spent_without_asking,
            batches_of_several_clients_keep_the_limit,
            a_refusal_is_remembered,
            while_the_engine_is_away_the_chosen_mode_decides,
            an_engine_that_is_away_costs_no_waiting,
            a_lost_answer_is_counted_once,
            a_dropped_check_was_counted_or_not,
            nothing_stays_in_the_store,
            a_cell_of_something_else_is_no_limit,
            a_twin_decides_as_its_limit_does,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse limits.
async fn limits(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let client = ground.client().await;
    refuses(client.limiter("x", Limit::per_second(1), WhenAway::Open));
    None
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A limiter that waits for a slow machine.
fn limiter(client: &Client, name: &str, limit: impl Into<leasehold::kit::rate::Limits>) -> Limiter {
    client.limiter(name, limit, WhenAway::Closed).expect("in range").deadline(ms(5000))
}

fn allowed(verdict: leasehold::Result<Verdict>) -> Allowed {
    match verdict.expect("an answer") {
        Verdict::Allowed(allowed) => allowed,
        other => panic!("{other:?}"),
    }
}

/// When to come back, and who says so.
fn denied(verdict: leasehold::Result<Verdict>) -> (Duration, Mode) {
    match verdict.expect("an answer") {
        Verdict::Denied { retry_after, by, .. } => (retry_after, by),
        other => panic!("{other:?}"),
    }
}

fn one_of_each(amount: u32, period: Duration) -> [Limit; 5] {
    [
        Limit::token_bucket(amount, period),
        Limit::fixed_window(amount, period),
        Limit::sliding_log(amount, period),
        Limit::sliding_window(amount, period),
        Limit::leaky_bucket(amount, period).queue(amount - 1),
    ]
}

async fn each_algorithm_keeps_its_limit(mut ground: Ground) {
    let client = ground.client().await;
    for limit in one_of_each(7, HOUR) {
        let limiter = limiter(&client, "x", limit.clone());
        for left in (0..7).rev() {
            let one = allowed(limiter.check("k").await);
            assert_eq!((one.left(), one.by()), (left, Mode::Engine), "{limit:?}");
        }
        let (retry_after, _) = denied(limiter.check("k").await);
        assert!(retry_after > Duration::ZERO && retry_after <= HOUR * 2, "{limit:?}: {retry_after:?}");
        // Another client sees the same.
        let other = self::limiter(&ground.client().await, "x", limit);
        denied(other.check("k").await);
        assert!(matches!(other.check_cost("k", 8).await, Ok(Verdict::Impossible { capacity: 7, .. })));
        assert!(matches!(other.check_cost("k", 0).await, Err(Error::Invalid { .. })));
    }
}

async fn a_refusal_takes_nothing_and_says_when(mut ground: Ground) {
    let client = ground.client().await;
    for limit in one_of_each(4, ms(400)) {
        let limiter = limiter(&client, "x", limit.clone()).remember(0);
        // A slow machine may get the first ones back before it has taken the last.
        let mut taken = 0;
        let (retry_after, asked, answered) = loop {
            let asked = Instant::now();
            match limiter.check_cost("k", 2).await.expect("an answer") {
                Verdict::Allowed(_) => taken += 1,
                Verdict::Denied { retry_after, .. } => break (retry_after, asked, Instant::now()),
                other => panic!("{other:?}"),
            }
            assert!(taken < 100, "{limit:?}");
        };
        let mut slow = false;
        for _ in 0..5 {
            // Refusals do not make it later.
            match limiter.check_cost("k", 2).await.expect("an answer") {
                Verdict::Denied { retry_after: again, .. } => assert!(again <= retry_after, "{limit:?}"),
                // A slow machine: it has taken something again.
                _ => {
                    assert!(asked.elapsed() >= retry_after, "{limit:?}");
                    slow = true;
                    break;
                }
            }
        }
        if slow {
            continue;
        }
        let wait = retry_after.saturating_sub(answered.elapsed()) + ms(2);
        tokio::time::sleep(wait).await;
        assert!(limiter.check_cost("k", 2).await.expect("an answer").is_allowed(), "{limit:?}");
    }
}

async fn clients_share_a_limit(mut ground: Ground) {
    for limit in one_of_each(50, HOUR) {
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let client = ground.client().await;
            for _ in 0..4 {
                let limiter = limiter(&client, "x", limit.clone());
                tasks.spawn(async move {
                    let mut passed = 0;
                    for _ in 0..10 {
                        passed += u32::from(limiter.check("k").await.expect("an answer").is_allowed());
                    }
                    passed
                });
            }
        }
        let passed: u32 = soon("all have asked", tasks.join_all()).await.iter().sum();
        assert_eq!(passed, 50, "{limit:?}");
    }
}

async fn keys_and_names_are_apart(mut ground: Ground) {
    let client = ground.client().await;
    let limit = Limit::fixed_window(1, HOUR);
    for name in ["x", "y", "x/y", "{x}", ""] {
        let limiter = limiter(&client, name, limit.clone());
        for key in ["k", "{k}", "", "%", "{", "é/1", "="] {
            allowed(limiter.check(key).await);
            denied(limiter.check(key).await);
        }
    }
    let inside = limiter(&client.namespace("space"), "x", limit.clone());
    allowed(inside.check("k").await);
    // A latch of that name is something else.
    client.latch("x", 1).expect("a latch").count_down().await.expect("counted");
}

async fn several_limits_are_taken_all_or_none(mut ground: Ground) {
    let client = ground.client().await;
    let strict = Limit::fixed_window(3, HOUR);
    for other in [Limit::token_bucket(5, 2 * HOUR), Limit::sliding_window(5, 2 * HOUR)] {
        let limiter = limiter(&client, &format!("{other:?}"), [strict.clone(), other.clone()]).remember(0);
        for left in [2, 1, 0] {
            assert_eq!(allowed(limiter.check("k").await).left(), left);
        }
        for _ in 0..4 {
            let verdict = limiter.check("k").await.expect("an answer");
            let Verdict::Denied { limit: 0, left: 0, quotas, .. } = &verdict else { panic!("{verdict:?}") };
            // Of the other one nothing was taken.
            assert_eq!((quotas[0].left, quotas[1].left), (0, 2));
        }
    }
    let twice = client.limiter("x", [strict.clone(), strict.clone()], WhenAway::Open);
    assert!(matches!(twice, Err(Error::Invalid { .. })));
    assert!(matches!(client.limiter("x", [], WhenAway::Open), Err(Error::Invalid { .. })));
}

async fn several_limiters_are_asked_in_one_call(mut ground: Ground) {
    let client = ground.client().await;
    let per_user = limiter(&client, "user", Limit::fixed_window(2, HOUR));
    let per_tenant = limiter(&client, "tenant", Limit::fixed_window(3, HOUR));
    let check = async |user: &str| {
        Limiter::check_all(&[(&per_tenant, "{t}"), (&per_user, user)], 1).await.expect("an answer")
    };
    for _ in 0..2 {
        assert!(check("{t}/1").await.is_allowed());
    }
    // The user has none left, and the tenant loses nothing by it.
    for _ in 0..3 {
        let verdict = check("{t}/1").await;
        assert!(matches!(verdict, Verdict::Denied { limit: 1, .. }), "{verdict:?}");
    }
    assert!(check("{t}/2").await.is_allowed());
    let verdict = check("{t}/3").await;
    assert!(matches!(verdict, Verdict::Denied { limit: 0, .. }), "{verdict:?}");
    assert_eq!(allowed(per_user.peek("{t}/3", 1).await).left(), 2);
    // Given back, it is given back to both.
    per_tenant.reset("{t}").await.expect("forgotten");
    check("{t}/4").await.allowed().expect("allowed").refund().await.expect("given back");
    assert_eq!(allowed(per_user.peek("{t}/4", 1).await).left(), 2);
    assert_eq!(allowed(per_tenant.peek("{t}", 1).await).left(), 3);
    let stranger = limiter(&ground.client().await, "user", Limit::fixed_window(2, HOUR));
    let mixed = Limiter::check_all(&[(&per_user, "{t}/1"), (&stranger, "{t}/2")], 1).await;
    assert!(matches!(mixed, Err(Error::Invalid { .. })));
}

async fn what_did_not_go_is_given_back(mut ground: Ground) {
    let client = ground.client().await;
    for limit in one_of_each(3, HOUR) {
        let limiter = limiter(&client, "x", limit.clone());
        for _ in 0..5 {
            let one = allowed(limiter.check_cost("k", 3).await);
            denied(limiter.check("k").await);
            one.refund().await.expect("given back");
            // What was given back counts at once, also for a refusal that is remembered here.
            let left = allowed(limiter.peek("k", 1).await).left();
            // A bucket has had time for less than a token.
            assert!(left >= 2, "{limit:?}: {left}");
            limiter.reset("k").await.expect("forgotten");
        }
    }
}

async fn a_reset_forgets_all(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    for limit in one_of_each(3, HOUR) {
        let (one, two) = (limiter(&one, "x", limit.clone()), limiter(&two, "x", limit));
        allowed(one.check_cost("k", 3).await);
        denied(one.check("k").await);
        one.reset("k").await.expect("forgotten");
        assert_eq!(allowed(one.check("k").await).left(), 2);
        assert_eq!(allowed(two.check("k").await).left(), 1);
    }
}

async fn a_leaky_bucket_says_when_to_go(mut ground: Ground) {
    let client = ground.client().await;
    let limiter = limiter(&client, "x", Limit::leaky_bucket(10, Duration::from_secs(1)).queue(3)).remember(0);
    let started = Instant::now();
    let mut delays = Vec::new();
    for _ in 0..4 {
        delays.push(allowed(limiter.check("k").await).delay());
    }
    let took = started.elapsed();
    assert_eq!(delays[0], Duration::ZERO);
    for (place, delay) in (0u32..).zip(&delays) {
        assert!(*delay <= ms(100) * place && *delay + took >= ms(100) * place, "{delays:?}");
    }
    let (retry_after, _) = denied(limiter.check_cost("k", 4).await);
    assert!(retry_after > delays[3]);
}

async fn it_waits_until_allowed(mut ground: Ground) {
    let client = ground.client().await;
    for limit in [Limit::per_second(10).burst(1), Limit::leaky_bucket(10, Duration::from_secs(1))] {
        let limiter = limiter(&client, "x", limit.clone());
        let started = Instant::now();
        for _ in 0..4 {
            allowed(soon("it goes", limiter.until_allowed("k", ms(10_000))).await);
        }
        assert!(started.elapsed() >= ms(295), "{:?}", started.elapsed());
    }
    // What can not be in time is told at once, and takes no place.
    for limit in [Limit::per_hour(1), Limit::leaky_bucket(1, HOUR).queue(1)] {
        let limiter = limiter(&client, "y", limit);
        allowed(limiter.check("k").await);
        let started = Instant::now();
        denied(limiter.until_allowed("k", Duration::from_secs(60)).await);
        denied(limiter.until_allowed("k", Duration::from_secs(60)).await);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

async fn many_keys_are_asked_at_once(mut ground: Ground) {
    let client = ground.client().await;
    let limiter = limiter(&client, "x", Limit::fixed_window(2, HOUR));
    let keys: Vec<String> = (0..100).map(|number| format!("k{}", number % 40)).collect();
    let verdicts = soon("all are answered", limiter.check_many(&keys)).await;
    assert_eq!(verdicts.len(), 100);
    // The first 20 keys were asked three times, the others twice.
    let passed =
        verdicts.into_iter().filter(|verdict| verdict.as_ref().is_ok_and(Verdict::is_allowed)).count();
    assert_eq!(passed, 80);
}

async fn wired(ground: &mut Ground) -> (Client, Arc<Wire>) {
    let options = ground.options();
    ground.client_on_wire(options).await
}

async fn a_batch_is_spent_without_asking(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    let shapes = [
        Limit::per_hour(1000).batches(10, HOUR / 10),
        Limit::fixed_window(1000, HOUR).batches(10, HOUR / 10),
        Limit::sliding_window(1000, HOUR).batches(10, HOUR / 10),
    ];
    for limit in shapes {
        wire.set(Fault::None);
        let limiter = limiter(&client, "x", limit.clone()).deadline(ms(2000));
        let first = allowed(limiter.check("k").await);
        assert_eq!((first.left(), first.by()), (9, Mode::Batch), "{limit:?}");
        wire.set(Fault::Refuse);
        let mut last = None;
        for left in (0..9).rev() {
            let one = allowed(limiter.check("k").await);
            assert_eq!((one.left(), one.by()), (left, Mode::Batch));
            last = Some(one);
        }
        assert_eq!(denied(limiter.check("k").await).1, Mode::Closed);
        // What is given back can be spent again.
        last.expect("some").refund().await.expect("given back");
        allowed(limiter.check("k").await);
        assert_eq!(denied(limiter.check("k").await).1, Mode::Closed);
    }
    assert!(
        client
            .limiter("x", [Limit::per_hour(9).batches(1, ms(1)), Limit::per_day(9)], WhenAway::Open)
            .is_err()
    );
}

async fn batches_of_several_clients_keep_the_limit(mut ground: Ground) {
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = ground.client().await;
        let limiter = limiter(&client, "x", Limit::fixed_window(100, HOUR).batches(7, HOUR / 2));
        for _ in 0..3 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut passed = 0;
                for _ in 0..50 {
                    passed += u32::from(limiter.check("k").await.expect("an answer").is_allowed());
                }
                passed
            });
        }
    }
    let passed: u32 = soon("all have asked", tasks.join_all()).await.iter().sum();
    // Nobody who found none left had any left.
    assert_eq!(passed, 100);
}

async fn a_refusal_is_remembered(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    let limiter = limiter(&client, "x", Limit::fixed_window(5, HOUR)).deadline(ms(2000));
    allowed(limiter.check_cost("k", 4).await);
    assert_eq!(denied(limiter.check_cost("k", 2).await).1, Mode::Engine);
    wire.set(Fault::Refuse);
    assert_eq!(denied(limiter.check_cost("k", 2).await).1, Mode::Remembered);
    assert_eq!(denied(limiter.check_cost("k", 3).await).1, Mode::Remembered);
    // Less may pass, and another key too: that must be asked.
    assert_eq!(denied(limiter.check_cost("k", 1).await).1, Mode::Closed);
    assert_eq!(denied(limiter.check_cost("other", 2).await).1, Mode::Closed);
    wire.set(Fault::None);
    until("the engine is asked again", async || limiter.check("k").await.expect("an answer").is_allowed())
        .await;
}

async fn while_the_engine_is_away_the_chosen_mode_decides(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    let limit = Limit::fixed_window(8, HOUR);
    let make = |when_away| client.limiter("x", limit.clone(), when_away).expect("in range").deadline(ms(500));
    for fault in [Fault::Refuse, Fault::Hang] {
        let modes = [
            (make(WhenAway::Open), Mode::Open, usize::MAX),
            (make(WhenAway::Closed), Mode::Closed, 0),
            (make(WhenAway::Shed), Mode::Shed, 0),
            (make(WhenAway::LocalShare { nodes: 4 }), Mode::LocalShare, 2),
            (make(WhenAway::LocalShare { nodes: 9 }), Mode::LocalShare, 0),
        ];
        for (limiter, mode, passes) in modes {
            wire.set(Fault::None);
            assert_eq!(
                limiter.check(&format!("{fault:?}{mode:?}{passes}")).await.expect("an answer").by(),
                Mode::Engine
            );
            wire.set(fault);
            let mut passed = 0;
            for _ in 0..20 {
                let verdict = limiter.check("k").await.expect("a verdict");
                assert_eq!(verdict.by(), mode);
                passed += usize::from(verdict.is_allowed());
            }
            assert_eq!(passed, passes.min(20));
            // All limiters of a request have a word in it.
            let both = Limiter::check_all(&[(&limiter, "k2"), (&make(WhenAway::Closed), "k3")], 1).await;
            assert_eq!(denied(both).1 == mode, passes == 0, "{mode:?}");
            wire.set(Fault::None);
            until("it is asked again", async || {
                limiter.check("z").await.expect("a verdict").by() == Mode::Engine
            })
            .await;
            // A call that is behind what hung may still be told that it took too long.
            until("it is forgotten", async || limiter.reset("z").await.is_ok()).await;
        }
    }
}

async fn an_engine_that_is_away_costs_no_waiting(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    let limiter =
        client.limiter("x", Limit::per_hour(100), WhenAway::Open).expect("in range").deadline(ms(200));
    allowed(limiter.check("k").await);
    wire.set(Fault::Hang);
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(allowed(limiter.check("k").await).by(), Mode::Open);
    }
    assert!(started.elapsed() >= ms(550), "it has waited for an answer");
    let started = Instant::now();
    for _ in 0..500 {
        assert_eq!(allowed(limiter.check("k").await).by(), Mode::Open);
    }
    assert!(started.elapsed() < ms(150), "500 verdicts took {:?}", started.elapsed());
    let error = limiter.peek("k", 1).await.expect_err("a look can not be made up");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

async fn a_lost_answer_is_counted_once(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    for limit in one_of_each(10, HOUR) {
        let limiter = limiter(&client, "x", limit.clone()).remember(0);
        wire.set(Fault::LoseAnswer);
        assert_eq!(denied(limiter.check("k").await).1, Mode::Closed);
        wire.set(Fault::None);
        until("it answers", async || limiter.peek("k", 1).await.is_ok()).await;
        assert_eq!(allowed(limiter.peek("k", 1).await).left(), 9, "{limit:?}");
    }
}

async fn a_dropped_check_was_counted_or_not(mut ground: Ground) {
    let (client, wire) = wired(&mut ground).await;
    for limit in one_of_each(1000, HOUR) {
        let limiter = limiter(&client, "x", limit);
        let mut left = 1000;
        for polls in 0..8 {
            wire.set(Fault::Stutter);
            let mut check = Box::pin(limiter.check("k"));
            for _ in 0..polls {
                let ready = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(check.as_mut().poll(context).is_ready())
                });
                if ready.await {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
            drop(check);
            wire.set(Fault::None);
            let now = allowed(limiter.peek("k", 1).await).left();
            assert!(now == left || now + 1 == left, "{left} and then {now}");
            left = now;
        }
    }
}

async fn nothing_stays_in_the_store(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    for limit in one_of_each(4, ms(200)) {
        let limiter = limiter(&client, "x", limit.clone());
        allowed(limiter.check_cost("k", 3).await);
        let word = limit.algorithm().expect("in range").word();
        let cell = [name(&format!("limit/x/{word}-200000us/{{k}}"))];
        assert!(engine.read(&cell).await.expect("a cell").cells[0].value.is_some(), "{limit:?}");
        until("it is gone", async || engine.read(&cell).await.expect("a cell").cells[0].value.is_none())
            .await;
    }
}

async fn a_cell_of_something_else_is_no_limit(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    for limit in one_of_each(4, HOUR) {
        let word = limit.algorithm().expect("in range").word();
        let put = Write::Put(CellValue { bytes: b"something".to_vec(), lives: ms(60_000) });
        let cell = name(&format!("limit/x/{word}-3600s/{{k}}"));
        engine.swap(vec![Swap { name: cell, version: 0, write: put }]).await.expect("an answer");
        let limiter = limiter(&client, "x", limit);
        for error in [
            limiter.check("k").await.expect_err("not a limit"),
            limiter.peek("k", 1).await.expect_err("not a limit"),
            limiter.reset("k").await.expect_err("not a limit"),
        ] {
            assert!(matches!(error, Error::Engine { .. }), "{error}");
        }
    }
}

/// The same requests, run as the engine does it and by reading and swapping. The answers carry the
/// time, so only what does not depend on it is compared; limits are so slow that nothing comes back
/// meanwhile.
async fn a_twin_decides_as_its_limit_does(mut ground: Ground) {
    let engine = ground.engine().await;
    let algorithms = |limits: &[Limit]| -> Vec<Algorithm> {
        limits.iter().map(|limit| limit.algorithm().expect("in range")).collect()
    };
    let sets = [
        algorithms(&[Limit::token_bucket(20, HOUR)]),
        algorithms(&[Limit::fixed_window(20, HOUR)]),
        algorithms(&[Limit::token_bucket(30, HOUR), Limit::fixed_window(25, HOUR), Limit::per_day(28)]),
    ];
    let mut dice = 7u64;
    let mut roll = |sides: u32| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((dice >> 33) % u64::from(sides)).expect("small")
    };
    for (number, set) in sets.iter().enumerate() {
        let names = |way: Way| -> Vec<_> {
            let cell = |part| name(&format!("{{{number}}}/{part}{way:?}"));
            (0..set.len()).map(cell).collect()
        };
        for _ in 0..100 {
            let request = match roll(10) {
                0..5 => Request::Take { least: roll(4), most: roll(6) },
                5..7 => Request::Peek(roll(40)),
                7..9 => Request::Refund(Receipt { at: u64::from(roll(2)), delay: 0, cost: roll(5) }),
                _ => Request::Reset,
            };
            let rule: Arc<dyn leasehold::engine::Rule> =
                Arc::new(Decide::new(set.iter().map(|one| (*one, request)).collect()));
            let mut answers = Vec::new();
            for way in WAYS {
                let answer = way.apply(&*engine, &names(way), &rule).await.expect("applied");
                // The word, what was taken and what is left.
                let told: Vec<Vec<u8>> = answer.chunks(33).map(|one| one[..9].to_vec()).collect();
                answers.push(told);
            }
            assert_eq!(answers[0], answers[1], "{rule:?}");
        }
    }
}
