//! Tasks that run at set times, on one node each time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use leasehold::kit::schedule::{IfLost, Misfire, Occurrence, Outcome, Overlap, Run, Status, Task};
use leasehold::{Client, Error};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, not_within, refuses, soon, until};
use crate::cells::name;
use crate::child::Child;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "schedule",
        tasks,
        [
            each_occurrence_runs_on_one_node,
            what_was_due_before_the_task_was_known_does_not_run,
            late_occurrences_are_skipped,
            the_newest_of_the_late_runs_once,
            all_that_are_late_run_up_to_a_number,
            an_occurrence_waits_for_the_one_before,
            occurrences_run_side_by_side_if_they_may,
            a_later_occurrence_replaces_the_one_that_runs,
            a_failure_is_recorded,
            one_that_was_dropped_is_lost_and_does_not_run_again,
            one_that_was_lost_runs_again_if_that_does_no_harm,
            a_node_that_was_killed_is_replaced,
            a_node_that_was_paused_is_replaced,
            work_is_dropped_before_another_node_starts,
            nothing_starts_while_the_engine_is_away,
            a_store_that_stands_still_runs_nothing_twice,
            lost_answers_run_nothing_twice,
            a_dropped_wait_leaves_nothing,
            a_paused_task_starts_nothing,
            a_node_that_stops_ends_what_it_has_begun,
            tasks_are_listed,
            options_out_of_range_are_refused,
            a_cell_of_something_else_is_no_task,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse tasks.
async fn tasks(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let client = ground.client().await;
    refuses(client.schedule("x").every(ms(1000)));
    refuses(client.schedule("x").cron("* * * * *", "UTC"));
    assert!(client.tasks().await.expect("an answer").is_empty());
    None
}

const PERIOD: u64 = 100;

/// A task that is due ten times a second and never late.
fn task(client: &Client) -> Task {
    let task = client.schedule("x").every(ms(PERIOD)).expect("a task");
    task.grace(ms(600_000)).lease(ms(60_000)).history(500)
}

/// Which multiple of the period an occurrence is.
fn number(occurrence: &Occurrence) -> u64 {
    let time = occurrence.scheduled().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(time.as_millis()).expect("before the end of time") / PERIOD
}

async fn next(task: &Task) -> Run {
    soon("the next occurrence", task.next()).await.expect("an occurrence")
}

/// Runs the next occurrence; its number.
async fn run_one(task: &Task) -> u64 {
    let run = next(task).await;
    let number = number(run.occurrence());
    run.done().await.expect("recorded");
    number
}

async fn status(client: &Client) -> Status {
    client.schedule("x").status().await.expect("an answer").expect("a task")
}

/// What nodes have started.
#[derive(Clone, Default)]
struct Starts(Arc<Mutex<Vec<(u64, u64)>>>);

impl Starts {
    fn add(&self, occurrence: &Occurrence) {
        let mut starts = self.0.lock().expect("no panic");
        starts.push((number(occurrence), occurrence.token().get()));
    }

    fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// Each occurrence was started once, none was left out, and tokens rise with them.
    fn check(&self) {
        let mut starts = self.0.lock().expect("no panic").clone();
        starts.sort_unstable();
        for pair in starts.windows(2) {
            assert_eq!(pair[1].0, pair[0].0 + 1, "{starts:?}");
            assert!(pair[1].1 > pair[0].1, "{starts:?}");
        }
    }

    /// A node that runs everything at once, until it is aborted.
    fn node(&self, task: Task) -> impl Future<Output = ()> + Send + use<> {
        let starts = self.clone();
        async move {
            let work = |occurrence: Occurrence| {
                starts.add(&occurrence);
                async { Ok::<_, String>(()) }
            };
            task.run(work).await.expect("it runs for ever");
        }
    }
}

async fn each_occurrence_runs_on_one_node(mut ground: Ground) {
    let (starts, mut nodes) = (Starts::default(), JoinSet::new());
    let client = ground.client().await;
    for _ in 0..3 {
        nodes.spawn(starts.node(task(&ground.client().await)));
    }
    until("many have run", async || starts.count() >= 12).await;
    nodes.shutdown().await;
    starts.check();
    let status = status(&client).await;
    assert_eq!((status.failed, status.missed), (0, 0));
    assert!(status.done + status.lost + status.running.len() as u64 >= 12, "{status:?}");
    assert_eq!(status.timing, "every 100ms");
}

async fn what_was_due_before_the_task_was_known_does_not_run(mut ground: Ground) {
    let client = ground.client().await;
    // Due every day; none of the days before is caught up.
    let daily = client.schedule("x").every(ms(86_400_000)).expect("a task");
    let daily = daily.misfire(Misfire::All { at_most: 100 }).grace(ms(86_400_000_000));
    not_within(ms(300), "an old occurrence runs", daily.next()).await;
    let status = status(&client).await;
    assert_eq!((status.missed, status.history.len()), (0, 0));
    assert!(status.next.is_some() && status.paused.is_none());
}

/// Waits until a task that nobody runs has been due some times.
async fn fall_behind(task: &Task, client: &Client) {
    // Known, and not run.
    let known = async || client.schedule("x").status().await.expect("an answer").is_some();
    if !known().await {
        let mut waiting = Box::pin(task.next());
        until("it is known", async || {
            tokio::select! {
                biased;
                run = &mut waiting => drop(run),
                () = tokio::time::sleep(ms(1)) => {}
            }
            known().await
        })
        .await;
    }
    tokio::time::sleep(ms(6 * PERIOD)).await;
}

async fn late_occurrences_are_skipped(mut ground: Ground) {
    let client = ground.client().await;
    let task = task(&client).grace(ms(0)).misfire(Misfire::Skip);
    fall_behind(&task, &client).await;
    let waiting = task.next();
    let missed = async {
        until("they are missed", async || status(&client).await.missed >= 5).await;
    };
    tokio::select! {
        biased;
        () = missed => {}
        // Only if it was started in the very microsecond.
        run = waiting => assert_eq!(run.expect("a run").occurrence().delay(), ms(0)),
    }
    let status = status(&client).await;
    assert_eq!(status.done + status.lost, 0);
    let first = status.history.first().expect("a gap");
    assert!(matches!(first.outcome, Outcome::Missed { more: false, .. }), "{first:?}");
    assert!(first.started.is_none() && first.token.is_none());
}

async fn the_newest_of_the_late_runs_once(mut ground: Ground) {
    let client = ground.client().await;
    let task = task(&client).grace(ms(0)).misfire(Misfire::Once);
    fall_behind(&task, &client).await;
    let run = next(&task).await;
    assert!(run.occurrence().delay() < ms(60_000));
    run.done().await.expect("recorded");
    let status = status(&client).await;
    assert!(status.missed >= 4, "{status:?}");
    assert_eq!(status.done, 1);
}

async fn all_that_are_late_run_up_to_a_number(mut ground: Ground) {
    let client = ground.client().await;
    let task = task(&client).grace(ms(0)).misfire(Misfire::All { at_most: 3 });
    fall_behind(&task, &client).await;
    let first = run_one(&task).await;
    let status = status(&client).await;
    assert!(status.missed >= 2, "{status:?}");
    let Outcome::Missed { count, .. } = status.history[0].outcome else { panic!("{status:?}") };
    let missed = status.history[0].scheduled.duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    // What runs comes right after what was missed.
    assert_eq!(u128::from(first), missed / u128::from(PERIOD) + u128::from(count));
}

async fn an_occurrence_waits_for_the_one_before(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (first, second) = (task(&one), task(&two).lease(ms(300)));
    let running = next(&first).await;
    not_within(ms(4 * PERIOD), "another one starts", second.next()).await;
    let token = running.occurrence().token();
    let before = number(running.occurrence());
    running.done().await.expect("recorded");
    let run = next(&second).await;
    assert_eq!((number(run.occurrence()), run.occurrence().attempt()), (before + 1, 1));
    assert!(run.occurrence().token() > token);
    run.done().await.expect("recorded");
    assert_eq!(status(&one).await.lost, 0);
}

async fn occurrences_run_side_by_side_if_they_may(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (first, second) = (task(&one).overlap(Overlap::Allow), task(&two).overlap(Overlap::Allow));
    let (a, b, c) = (next(&first).await, next(&second).await, next(&first).await);
    let numbers = [&a, &b, &c].map(|run| number(run.occurrence()));
    assert_eq!(numbers, [numbers[0], numbers[0] + 1, numbers[0] + 2]);
    assert_eq!(status(&one).await.running.len(), 3);
    for run in [a, b, c] {
        run.done().await.expect("recorded");
    }
    let status = status(&one).await;
    assert_eq!((status.done, status.lost, status.running.len()), (3, 0, 0));
    // One that is lost is found beside those that run.
    let (lost, runs) = (next(&first).await, next(&first).await);
    drop(lost);
    let found = async || {
        let waiting = tokio::time::timeout(ms(50), second.next()).await;
        if let Ok(run) = waiting {
            run.expect("a run").done().await.expect("recorded");
        }
        self::status(&two).await.lost == 1
    };
    until("it is found", found).await;
    runs.done().await.expect("recorded");
}

async fn a_later_occurrence_replaces_the_one_that_runs(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let replacing = |client| task(client).overlap(Overlap::Replace);
    let starts = Starts::default();
    let (node, noted) = (replacing(&one), starts.clone());
    // Work that never ends by itself.
    let node = tokio::spawn(async move {
        let work = |occurrence: Occurrence| {
            noted.add(&occurrence);
            std::future::pending::<Result<(), String>>()
        };
        node.run(work).await
    });
    until("some were replaced", async || starts.count() >= 3).await;
    node.abort();
    // Another node asks for it too.
    let run = next(&replacing(&two).lease(ms(300))).await;
    let other = replacing(&one);
    soon("it is told to stop", async {
        tokio::select! {
            _ = other.next() => {}
            told = run.replaced() => told.expect("an answer"),
        }
    })
    .await;
    run.stopped().await.expect("recorded");
    starts.check();
    let status = status(&one).await;
    assert!(status.replaced >= 3 && status.done == 0, "{status:?}");
}

async fn a_failure_is_recorded(mut ground: Ground) {
    let client = ground.client().await;
    let task = task(&client);
    let run = next(&task).await;
    let (token, scheduled) = (run.occurrence().token(), run.occurrence().scheduled());
    run.failed("ä".repeat(500)).await.expect("recorded");
    let status = status(&client).await;
    assert_eq!((status.failed, status.done), (1, 0));
    let past = &status.history[0];
    assert_eq!((past.token, past.scheduled, past.attempt), (Some(token), scheduled, 1));
    let Outcome::Failed(why) = &past.outcome else { panic!("{past:?}") };
    assert_eq!(*why, "ä".repeat(100), "it is cut");
    assert!(past.node.contains(&std::process::id().to_string()), "{past:?}");
}

async fn one_that_was_dropped_is_lost_and_does_not_run_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (first, second) = (task(&one), task(&two).lease(ms(300)));
    let run = next(&first).await;
    let before = number(run.occurrence());
    drop(run);
    let run = next(&second).await;
    assert_eq!((number(run.occurrence()), run.occurrence().attempt()), (before + 1, 1));
    let status = status(&two).await;
    assert_eq!((status.lost, &status.history[0].outcome), (1, &Outcome::Lost));
    run.done().await.expect("recorded");
}

async fn one_that_was_lost_runs_again_if_that_does_no_harm(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let again = IfLost::RunAgain { within: ms(600_000), attempts: 3 };
    let tasks = [task(&one).lease(ms(300)).if_lost(again), task(&two).lease(ms(300)).if_lost(again)];
    let mut seen: Vec<(u64, u32)> = Vec::new();
    let mut last = None;
    for attempt in 0..4 {
        let run = next(&tasks[attempt % 2]).await;
        assert!(Some(run.occurrence().token()) > last);
        last = Some(run.occurrence().token());
        seen.push((number(run.occurrence()), run.occurrence().attempt()));
        drop(run);
    }
    let first = seen[0].0;
    assert_eq!(seen, [(first, 1), (first, 2), (first, 3), (first + 1, 1)]);
}

/// What another node runs after one that holds an occurrence was hurt.
async fn taken_over(ground: &mut Ground, hurt: impl AsyncFnOnce(&mut Child)) {
    let client = ground.client().await;
    let again = IfLost::RunAgain { within: ms(600_000), attempts: 2 };
    let task = task(&client).lease(ms(600)).if_lost(again);
    let Some(mut child) = ground.child().await else { return };
    let said = child.ask("task x 100 600").await;
    let words: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [instant, token] = words[..] else { panic!("the child said `{said}`") };
    hurt(&mut child).await;
    let run = next(&task).await;
    assert_eq!((number(run.occurrence()), run.occurrence().attempt()), (instant / PERIOD, 2));
    assert!(run.occurrence().token().get() > token);
    run.done().await.expect("recorded");
}

async fn a_node_that_was_killed_is_replaced(mut ground: Ground) {
    taken_over(&mut ground, async |child: &mut Child| child.kill().await).await;
}

async fn a_node_that_was_paused_is_replaced(mut ground: Ground) {
    taken_over(&mut ground, async |child: &mut Child| child.stop()).await;
}

async fn work_is_dropped_before_another_node_starts(mut ground: Ground) {
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
    let (began, begun) = oneshot::channel();
    let mut parts = Some((Dropped(Some(sender)), began));
    let runs = task(&client).lease(ms(1500));
    let node = tokio::spawn(async move {
        let work = move |_| {
            let parts = parts.take();
            async move {
                if let Some((guard, began)) = parts {
                    let _guard = guard;
                    began.send(()).ok();
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>(())
            }
        };
        runs.run(work).await
    });
    soon("it has begun", begun).await.expect("it has begun");
    wire.set(Fault::Hang);
    let run = next(&task(&other).lease(ms(1500))).await;
    assert!(dropped.try_recv().is_ok(), "the work was dropped before that");
    assert_eq!(status(&other).await.lost, 1);
    run.done().await.expect("recorded");
    node.abort();
}

async fn nothing_starts_while_the_engine_is_away(mut ground: Ground) {
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let task = task(&client);
    run_one(&task).await;
    for fault in [Fault::Refuse, Fault::Hang] {
        wire.set(fault);
        not_within(ms(800), "it starts", task.next()).await;
        wire.set(Fault::None);
        let before = run_one(&task).await;
        assert_eq!(run_one(&task).await, before + 1);
    }
    assert_eq!((status(&client).await.missed, status(&client).await.lost), (0, 0));
}

async fn a_store_that_stands_still_runs_nothing_twice(mut ground: Ground) {
    let (starts, mut nodes) = (Starts::default(), JoinSet::new());
    for _ in 0..2 {
        let options = ground.options().call_limit(ms(1000));
        nodes.spawn(starts.node(task(&ground.client_with(options).await)));
    }
    until("some have run", async || starts.count() >= 3).await;
    // Servers that are watched by others would fail over, and may forget.
    if !ground.redirects()
        && let Some(paused) = ground.pause()
    {
        tokio::time::sleep(ms(1500)).await;
        drop(paused);
    }
    let before = starts.count();
    until("more have run", async || starts.count() >= before + 10).await;
    nodes.shutdown().await;
    starts.check();
}

async fn lost_answers_run_nothing_twice(mut ground: Ground) {
    let starts = Starts::default();
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let node = tokio::spawn(starts.node(task(&client)));
    for fault in [Fault::LoseAnswer, Fault::HangAnswer, Fault::LoseAnswer] {
        let before = starts.count();
        until("some have run", async || starts.count() >= before + 2).await;
        wire.set(fault);
        tokio::time::sleep(ms(3 * PERIOD)).await;
        wire.set(Fault::None);
    }
    let before = starts.count();
    until("more have run", async || starts.count() >= before + 4).await;
    node.abort();
    starts.check();
    let status = status(&ground.client().await).await;
    assert!(status.lost <= 1, "only what the abort has cut off: {status:?}");
}

async fn a_dropped_wait_leaves_nothing(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = task(&ground.client().await).lease(ms(300));
    let mut last = run_one(&other).await;
    wire.set(Fault::Stutter);
    for polls in 1..24 {
        tokio::time::sleep(ms(PERIOD)).await;
        let waits = task(&client);
        let mut waiting = Box::pin(waits.next());
        let mut taken = None;
        for _ in 0..polls {
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(waiting.as_mut().poll(context)));
            if let std::task::Poll::Ready(run) = polled.await {
                taken = Some(run.expect("a run"));
                break;
            }
            tokio::time::sleep(ms(1)).await;
        }
        drop(waiting);
        let run = match taken {
            Some(run) => run,
            None => next(&other).await,
        };
        assert_eq!((number(run.occurrence()), run.occurrence().attempt()), (last + 1, 1), "{polls}");
        last += 1;
        run.done().await.expect("recorded");
    }
    assert_eq!(status(&client).await.lost, 0);
}

async fn a_paused_task_starts_nothing(mut ground: Ground) {
    let client = ground.client().await;
    let (task, schedule) = (task(&client), client.schedule("x"));
    assert!(!schedule.pause().await.expect("an answer"), "nobody knows it");
    let before = run_one(&task).await;
    assert!(schedule.pause().await.expect("an answer"));
    assert!(!schedule.pause().await.expect("an answer"), "it is paused");
    assert!(status(&client).await.paused.is_some() && status(&client).await.next.is_none());
    not_within(ms(4 * PERIOD), "it starts", task.next()).await;
    assert!(schedule.resume().await.expect("an answer"));
    assert!(!schedule.resume().await.expect("an answer"), "it is not paused");
    // What was due in between does not run, although it would not be late.
    assert!(run_one(&task).await >= before + 4);
    let status = status(&client).await;
    assert_eq!(status.history.iter().filter(|past| past.outcome == Outcome::Paused).count(), 1);
    assert_eq!((status.missed, status.done), (0, 2));
}

async fn a_node_that_stops_ends_what_it_has_begun(mut ground: Ground) {
    let client = ground.client().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let (go, gone) = oneshot::channel::<()>();
    let (began, begun) = oneshot::channel();
    let mut parts = Some((began, gone));
    let runs = task(&client);
    let node = tokio::spawn(async move {
        let work = move |_| {
            let (began, gone) = parts.take().expect("it runs once");
            async move {
                began.send(()).ok();
                gone.await.map_err(|_| "no".to_owned())
            }
        };
        runs.run_until(async { drop(stopped.await) }, work).await
    });
    soon("it has begun", begun).await.expect("it has begun");
    stop.send(()).expect("it listens");
    tokio::time::sleep(ms(2 * PERIOD)).await;
    assert!(!node.is_finished());
    go.send(()).expect("it runs");
    soon("it ends", node).await.expect("no panic").expect("no error");
    let status = status(&client).await;
    assert_eq!((status.done, status.lost, status.running.len()), (1, 0, 0));
}

async fn tasks_are_listed(mut ground: Ground) {
    let client = ground.client().await;
    let inside = client.namespace("inside");
    for (client, name) in [(&client, "b"), (&client, "a {x}"), (&inside, "c")] {
        let task = client.schedule(name).every(ms(PERIOD)).expect("a task");
        soon("a run", task.next()).await.expect("a run").done().await.expect("recorded");
    }
    assert_eq!(client.tasks().await.expect("an answer"), ["a {x}", "b", "inside/c"]);
    assert_eq!(inside.tasks().await.expect("an answer"), ["c"]);
    for name in client.tasks().await.expect("an answer").iter().take(2) {
        let status = client.schedule(name).status().await.expect("an answer");
        assert_eq!(status.expect("a task").done, 1);
    }
    assert!(client.schedule("d").status().await.expect("an answer").is_none());
}

async fn options_out_of_range_are_refused(mut ground: Ground) {
    let client = ground.client().await;
    for wrong in [
        task(&client).history(0),
        task(&client).history(100_000),
        task(&client).misfire(Misfire::All { at_most: 100_000 }),
        task(&client).lease(Duration::from_micros(1)),
    ] {
        let error = soon("it is refused", wrong.next()).await.expect_err("out of range");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert!(matches!(client.schedule("x".repeat(5000)).every(ms(1000)), Err(Error::Invalid { .. })));
    client.close().await.expect("closed");
    assert!(matches!(task(&client).next().await, Err(Error::Invalid { .. })));
}

async fn a_cell_of_something_else_is_no_task(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let value = leasehold::engine::CellValue { bytes: b"other".to_vec(), lives: ms(60_000) };
    let write = leasehold::engine::Write::Put(value);
    let swap = leasehold::engine::Swap { name: name("schedule/{x}"), version: 0, write };
    engine.swap(vec![swap]).await.expect("an answer");
    let error = soon("it is refused", task(&client).next()).await.expect_err("not a task");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(matches!(client.schedule("x").status().await, Err(Error::Engine { .. })));
    assert!(matches!(client.schedule("x").pause().await, Err(Error::Engine { .. })));
    // Nothing is held for it.
    assert_eq!(client.held(), 0);
}
