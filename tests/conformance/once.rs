//! Submissions that must have an effect once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::kit::once::{IfRunning, IfUnknown, LONGEST_RESULT, Once, Submission};
use leasehold::{Client, Error, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "once",
        submissions,
        [
            the_first_runs_and_the_others_get_its_result,
            many_at_once_have_one_effect,
            the_same_key_with_something_else_is_refused,
            a_failure_can_be_submitted_again,
            whoever_runs_it_is_waited_for_or_told_of,
            one_that_fell_silent_is_unknown,
            an_unknown_one_can_be_resolved,
            an_unknown_one_runs_again_if_that_does_no_harm,
            a_long_effect_keeps_its_lease,
            an_effect_is_dropped_before_others_are_told,
            nothing_runs_while_the_engine_is_away,
            a_lost_answer_does_not_run_it_twice,
            a_result_that_could_not_be_recorded_says_so,
            one_dropped_before_it_began_leaves_nothing,
            a_record_is_forgotten_in_the_end,
            a_result_that_is_too_long_is_refused,
            a_cell_of_something_else_is_no_submission,
            a_transaction_needs_a_database,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse submissions.
async fn submissions(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.once("x"));
    None
}

/// An effect that is counted.
#[derive(Clone, Default)]
struct Effect(Arc<AtomicU32>);

impl Effect {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    async fn run(&self, once: &Once, key: &str, payload: &str) -> Result<Submission<String>> {
        let count = Arc::clone(&self.0);
        let effect = |_| async move {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(format!("effect {number}\0").into_bytes())
        };
        once.run(key, payload, effect).await
    }
}

fn once(client: &Client) -> Once {
    client.once("x").expect("a name")
}

fn done(submission: Result<Submission<String>>) -> (Vec<u8>, bool) {
    match submission.expect("an answer") {
        Submission::Done { result, replayed, recorded: true, .. } => (result, replayed),
        other => panic!("{other:?}"),
    }
}

/// One that has begun and never ends. Dropped, it is gone.
struct Silent(tokio::task::JoinHandle<()>);

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn silent(once: Once, key: &'static str) -> Silent {
    let (sender, began) = oneshot::channel();
    let task = tokio::spawn(async move {
        let effect = |_| async move {
            sender.send(()).ok();
            std::future::pending::<std::result::Result<Vec<u8>, String>>().await
        };
        once.run(key, "p", effect).await.ok();
    });
    soon("it has begun", began).await.expect("it has begun");
    Silent(task)
}

async fn the_first_runs_and_the_others_get_its_result(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let effect = Effect::default();
    assert_eq!(done(effect.run(&once(&one), "k", "p").await), (b"effect 1\0".to_vec(), false));
    for client in [&one, &two] {
        assert_eq!(done(effect.run(&once(client), "k", "p").await), (b"effect 1\0".to_vec(), true));
    }
    // Keys and names are apart.
    assert_eq!(done(effect.run(&once(&two), "other", "p").await), (b"effect 2\0".to_vec(), false));
    let other = two.once("y").expect("a name");
    assert_eq!(done(effect.run(&other, "k", "p").await), (b"effect 3\0".to_vec(), false));
    assert_eq!(effect.count(), 3);
}

async fn many_at_once_have_one_effect(mut ground: Ground) {
    let effect = Effect::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let once = once(&ground.client().await).if_running(IfRunning::Wait(Duration::from_secs(60)));
        for _ in 0..10 {
            let (once, effect) = (once.clone(), effect.clone());
            tasks.spawn(async move { done(effect.run(&once, "k", "p").await) });
        }
    }
    let results = soon("all are answered", tasks.join_all()).await;
    assert_eq!(effect.count(), 1);
    assert!(results.iter().all(|(result, _)| result == b"effect 1\0"));
    assert_eq!(results.iter().filter(|(_, replayed)| !replayed).count(), 1);
}

async fn the_same_key_with_something_else_is_refused(mut ground: Ground) {
    let once = once(&ground.client().await).lease(ms(60_000));
    let effect = Effect::default();
    done(effect.run(&once, "k", "p").await);
    assert_eq!(effect.run(&once, "k", "q").await.expect("an answer"), Submission::Mismatch);
    let _running = silent(once.clone(), "running").await;
    assert_eq!(effect.run(&once, "running", "q").await.expect("an answer"), Submission::Mismatch);
    assert_eq!(effect.count(), 1);
}

async fn a_failure_can_be_submitted_again(mut ground: Ground) {
    let once = once(&ground.client().await);
    let fail = || async { Err::<Vec<u8>, _>("no".to_owned()) };
    for _ in 0..2 {
        let failed = once.run("k", "p", |_| fail()).await.expect("an answer");
        assert_eq!(failed, Submission::Failed("no".to_owned()));
    }
    // It had no effect, so even another payload is taken.
    done(Effect::default().run(&once, "k", "q").await);
    let once = once.errors_leave_unknown().lease(ms(50));
    once.run("l", "p", |_| fail()).await.expect("an answer");
    let again = async || Effect::default().run(&once, "l", "p").await.expect("an answer");
    until("it is unknown", async || matches!(again().await, Submission::Unknown { .. })).await;
}

async fn whoever_runs_it_is_waited_for_or_told_of(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (go, gone) = oneshot::channel();
    let (began, begun) = oneshot::channel();
    let runs = once(&one).lease(ms(60_000));
    let running = tokio::spawn(async move {
        let effect = |_| async move {
            began.send(()).ok();
            gone.await.ok();
            Ok::<_, String>(b"late".to_vec())
        };
        runs.run("k", "p", effect).await
    });
    soon("it has begun", begun).await.expect("it has begun");
    let effect = Effect::default();
    let told = effect.run(&once(&two), "k", "p").await.expect("an answer");
    let Submission::InProgress { retry_after } = told else { panic!("{told:?}") };
    assert!(retry_after > ms(10_000) && retry_after <= ms(60_000));
    // A look must be answered in that time, on a machine that is busy.
    let brief = once(&two).if_running(IfRunning::Wait(ms(800)));
    let told = effect.run(&brief, "k", "p").await;
    assert!(matches!(told, Ok(Submission::InProgress { .. })), "{told:?}");
    let waits = once(&two).if_running(IfRunning::Wait(ms(60_000)));
    let waiting = tokio::spawn(async move { Effect::default().run(&waits, "k", "p").await });
    tokio::time::sleep(ms(20)).await;
    go.send(()).expect("it runs");
    assert_eq!(done(soon("the result", waiting).await.expect("no panic")), (b"late".to_vec(), true));
    assert_eq!(done(soon("the result", running).await.expect("no panic")), (b"late".to_vec(), false));
    assert_eq!(effect.count(), 0);
}

async fn one_that_fell_silent_is_unknown(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let once = |client| once(client).lease(ms(300));
    // A task that is killed in the middle of its effect.
    drop(silent(once(&one), "k").await);
    let effect = Effect::default();
    let again = async || effect.run(&once(&two), "k", "p").await.expect("an answer");
    until("it is unknown", async || matches!(again().await, Submission::Unknown { .. })).await;
    assert!(matches!(again().await, Submission::Unknown { .. }));
    assert_eq!(effect.count(), 0, "nobody has run it again");
}

async fn an_unknown_one_can_be_resolved(mut ground: Ground) {
    let once = once(&ground.client().await).lease(ms(100));
    let effect = Effect::default();
    for (key, result) in [("done", Some(b"by hand".to_vec())), ("undone", None)] {
        let running = silent(once.clone(), key).await;
        assert!(!once.resolve(key, result.clone()).await.expect("an answer"), "it is running");
        drop(running);
        until("it is unknown", async || once.resolve(key, result.clone()).await.expect("an answer")).await;
        let expected = result.clone().unwrap_or(b"effect 1\0".to_vec());
        assert_eq!(done(effect.run(&once, key, "p").await), (expected, result.is_some()));
        assert!(!once.resolve(key, result).await.expect("an answer"), "it is known");
    }
    assert!(!once.resolve("never", None).await.expect("an answer"));
}

async fn an_unknown_one_runs_again_if_that_does_no_harm(mut ground: Ground) {
    let once = once(&ground.client().await).lease(ms(100)).if_unknown(IfUnknown::RunAgain);
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    for round in 0..3 {
        let (once, tokens) = (once.clone(), Arc::clone(&tokens));
        until("it runs again", async || {
            let tokens = Arc::clone(&tokens);
            let (sender, began) = oneshot::channel();
            let effect = |token| async move {
                tokens.lock().expect("no panic").push(token);
                sender.send(()).ok();
                if round < 2 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>(Vec::new())
            };
            // Dropped in the middle of its effect, or refused.
            tokio::select! {
                _ = began => true,
                ended = once.run("k", "p", effect) => matches!(ended, Ok(Submission::Done { .. })),
            }
        })
        .await;
    }
    let tokens = tokens.lock().expect("no panic");
    // On a slow machine a lease may end before its effect was seen to begin.
    assert!(tokens.len() >= 3 && tokens.is_sorted_by(|one, two| one < two), "{tokens:?}");
}

async fn a_long_effect_keeps_its_lease(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let once = |client| once(client).lease(ms(400));
    let runs = once(&one);
    let running = tokio::spawn(async move {
        let effect = |_| async {
            tokio::time::sleep(ms(1500)).await;
            Ok::<_, String>(b"slow".to_vec())
        };
        runs.run("k", "p", effect).await
    });
    until("it has begun", async || {
        let asked = Effect::default().run(&once(&two), "other", "p").await;
        asked.is_ok() && one.held() == 0
    })
    .await;
    while !running.is_finished() {
        let asked = once(&two).run("k", "p", |_| async { Err::<Vec<u8>, _>(String::new()) }).await;
        assert!(!matches!(asked, Ok(Submission::Unknown { .. })), "{asked:?}");
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(done(running.await.expect("no panic")).0, b"slow");
}

async fn an_effect_is_dropped_before_others_are_told(mut ground: Ground) {
    struct Dropped(Option<oneshot::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.take().map(|sender| sender.send(()));
        }
    }
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let (sender, mut dropped) = oneshot::channel();
    let runs = once(&client).lease(ms(600));
    let running = tokio::spawn(async move {
        let guard = Dropped(Some(sender));
        let effect = |_| async move {
            let _guard = guard;
            std::future::pending::<std::result::Result<Vec<u8>, String>>().await
        };
        runs.run("k", "p", effect).await
    });
    let effect = Effect::default();
    let asks = once(&other).lease(ms(600));
    until("it has begun", async || {
        matches!(
            effect.run(&asks, "k", "p").await.expect("an answer"),
            Submission::InProgress { .. } | Submission::Done { .. }
        )
    })
    .await;
    if effect.count() > 0 {
        // It was slower than we were.
        return;
    }
    wire.set(Fault::Hang);
    until("it is unknown", async || {
        matches!(effect.run(&asks, "k", "p").await.expect("an answer"), Submission::Unknown { .. })
    })
    .await;
    assert!(dropped.try_recv().is_ok(), "the effect was dropped before that");
    assert!(matches!(running.await.expect("no panic"), Err(Error::Lost { .. })));
    assert_eq!(effect.count(), 0);
}

async fn nothing_runs_while_the_engine_is_away(mut ground: Ground) {
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let effect = Effect::default();
    for fault in [Fault::Refuse, Fault::Hang] {
        wire.set(fault);
        let refused = effect.run(&once(&client), "k", "p").await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    }
    assert_eq!(effect.count(), 0);
    wire.set(Fault::None);
    done(effect.run(&once(&client), "k", "p").await);
}

async fn a_lost_answer_does_not_run_it_twice(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let effect = Effect::default();
    wire.set(Fault::LoseAnswer);
    assert!(matches!(effect.run(&once(&client), "k", "p").await, Err(Error::Unavailable { .. })));
    assert_eq!(effect.count(), 0);
    wire.set(Fault::None);
    // It was taken back, so it need not be unknown.
    let once = once(&client);
    let again = async || effect.run(&once, "k", "p").await.expect("an answer");
    until("it runs", async || matches!(again().await, Submission::Done { .. })).await;
    assert_eq!(effect.count(), 1);
}

async fn a_result_that_could_not_be_recorded_says_so(mut ground: Ground) {
    let options = ground.options().call_limit(ms(200));
    let (client, wire) = ground.client_on_wire(options).await;
    let once = once(&client).lease(ms(400));
    let effect = |_| async {
        wire.set(Fault::Refuse);
        Ok::<_, String>(b"unheard".to_vec())
    };
    let submission = once.run("k", "p", effect).await.expect("it has run");
    assert!(matches!(&submission, Submission::Done { result, recorded: false, .. } if result == b"unheard"));
    wire.set(Fault::None);
    let again = async || Effect::default().run(&once, "k", "p").await.expect("an answer");
    until("it is unknown", async || matches!(again().await, Submission::Unknown { .. })).await;
}

async fn one_dropped_before_it_began_leaves_nothing(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = once(&ground.client().await);
    for polls in 0..6 {
        wire.set(Fault::Stutter);
        let (key, effect) = (format!("k{polls}"), Effect::default());
        let submitted = once(&client);
        {
            let mut running = Box::pin(effect.run(&submitted, &key, "p"));
            for _ in 0..polls {
                let ready = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(running.as_mut().poll(context).is_ready())
                });
                if effect.count() > 0 || ready.await {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        wire.set(Fault::None);
        if effect.count() == 0 {
            let again = async || effect.run(&other, &key, "p").await.expect("an answer");
            until("it can be run", async || matches!(again().await, Submission::Done { .. })).await;
            assert_eq!(effect.count(), 1);
        }
    }
}

async fn a_record_is_forgotten_in_the_end(mut ground: Ground) {
    let once = once(&ground.client().await).kept_for(ms(300));
    let effect = Effect::default();
    done(effect.run(&once, "k", "p").await);
    until("it is forgotten", async || !done(effect.run(&once, "k", "p").await).1).await;
}

async fn a_result_that_is_too_long_is_refused(mut ground: Ground) {
    let once = once(&ground.client().await).lease(ms(200));
    let result = |length| move |_| async move { Ok::<_, String>(vec![7; length]) };
    let longest = once.run("k", "p", result(LONGEST_RESULT)).await.expect("an answer");
    assert!(matches!(longest, Submission::Done { recorded: true, .. }));
    assert_eq!(done(Effect::default().run(&once, "k", "p").await).0.len(), LONGEST_RESULT);
    let error = once.run("l", "p", result(LONGEST_RESULT + 1)).await.expect_err("too long");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let again = async || Effect::default().run(&once, "l", "p").await.expect("an answer");
    until("it is unknown", async || matches!(again().await, Submission::Unknown { .. })).await;
}

async fn a_cell_of_something_else_is_no_submission(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let put = leasehold::engine::Write::Put(leasehold::engine::CellValue {
        bytes: b"other".to_vec(),
        lives: ms(60_000),
    });
    let swap = leasehold::engine::Swap { name: name("once/x/{k}"), version: 0, write: put };
    engine.swap(vec![swap]).await.expect("an answer");
    let effect = Effect::default();
    let error = effect.run(&once(&client), "k", "p").await.expect_err("not a submission");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(matches!(once(&client).resolve("k", None).await, Err(Error::Engine { .. })));
    assert_eq!(effect.count(), 0);
}

async fn a_transaction_needs_a_database(mut ground: Ground) {
    let client = ground.client().await;
    if !matches!(ground.promises().engine, "mysql" | "postgres") {
        let effect = |_| async { Ok::<_, ()>(Vec::new()) };
        refuses(once(&client).run_in_transaction("key", "", effect).await);
    }
}
