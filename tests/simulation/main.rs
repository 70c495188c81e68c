//! The real client over a simulated engine: late, lost and repeated messages, and a clock in the
//! test's hands.
//!
//! A run is decided by one number, its seed. Two to four clients of the library, with their
//! keepers, lines, backlogs and guards as they are, run in one thread on tokio's paused clock, so
//! that minutes pass in milliseconds. Their engine ([`world`]) is the rules of `leasehold::claim`
//! behind a network that does what networks do; their tasks ([`work`]) take everything that can be
//! taken and give up at any time. One judge ([`judge`]) knows what the engine knows and what each
//! guard says:
//!
//! * X1 no two holders believe at the same time in more than there is; X2 tokens are unique, and
//!   rise for those who are alone; X4 nobody's release touches another's claim; X5 nobody believes
//!   in a claim that the engine has ended.
//! * X6 when all is over, nothing is left: in the engine, in the client, in the runtime.
//! * X7 when the network heals, every task gets its turn; X9 whoever has a limit returns by then;
//!   nothing panics.
//!
//! `LEASEHOLD_SEEDS=20000` tries more runs, `LEASEHOLD_SEED=17` one run, with its log.

mod clock;
mod dice;
mod judge;
mod work;
mod world;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use leasehold::claim::{PATIENCE, WHOLE};
use leasehold::{Client, Family, Name, Options, Owner, TokioClock};
use tokio::time::{Instant, sleep, timeout};

use crate::dice::Dice;
use crate::work::{Names, Party, What};
use crate::world::{Counts, Pace, Weather, World};

/// How many seeds a run of the tests tries.
const SEEDS: u64 = 5000;

/// What must have happened often when all seeds are through.
const HAPPENS: [&str; 47] = [
    "acquires refused because they came late",
    "answers lost, with an error",
    "answers lost, without a word",
    "answers that nobody waited for",
    "breaks told where nothing went wrong",
    "calls into the void",
    "calls refused",
    "claims broken",
    "clocks that jumped",
    "closes",
    "closes that were not heard",
    "closes with calls in flight",
    "doubts",
    "doubts that were cleared",
    "downgrades",
    "elections won",
    "grants believed by hint",
    "grants to a waiter",
    "guards dropped",
    "guards taken again by their owner",
    "hints lost",
    "hints of a grant",
    "hints of an older asking",
    "hints repeated",
    "lock delays",
    "losses by closing",
    "losses by deadline",
    "losses by the engine's word",
    "names handed over",
    "nothing got",
    "outages that nobody noticed",
    "outages with errors",
    "outages with waiting",
    "pauses",
    "releases",
    "releases dropped",
    "releases given up",
    "renewals that were not carried out",
    "requests carried out twice",
    "requests dropped",
    "requests lost, with an error",
    "requests lost, without a word",
    "several names at once",
    "shares handed over",
    "terms led",
    "upgrades",
    "upgrades refused",
];

/// What came of one seed.
struct Outcome {
    violation: Option<String>,
    counts: Counts,
    log: Vec<String>,
    digest: u64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one seed in a thread of its own: what the thread has drawn before must not matter.
fn run(seed: u64, logged: bool) -> Outcome {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some("seed") {
                PANIC.set(Some(panic.to_string()));
            } else {
                before(panic);
            }
        }));
    });
    let simulate = move || {
        dice::seed_the_system(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let mut outcome = runtime.block_on(simulate(seed, logged));
        if let Some(panic) = PANIC.take() {
            outcome.violation.get_or_insert(panic);
        }
        outcome
    };
    let thread = std::thread::Builder::new().name("seed".into()).spawn(simulate).expect("a thread");
    thread.join().unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Outcome { violation: Some(what), counts: Counts::new(), log: Vec::new(), digest: 0 }
    })
}

async fn simulate(seed: u64, logged: bool) -> Outcome {
    let mut dice = Dice::new(seed);
    let weather = Weather {
        pace: dice.weigh(&[(2, Pace::None), (4, Pace::Quick), (3, Pace::Slow), (3, Pace::Wild)]),
        trouble: dice.pick(&[0, 1, 5, 15, 30]),
        deaf: dice.pick(&[0, 0, 10, 50, 100]),
        one_connection: dice.percent(50),
        tells_grants: dice.percent(70),
        breaks: dice.weigh(&[(3, 0), (1, 4)]),
    };
    let leases: Arc<[Duration]> = {
        let all = [40, 150, 500, 1500, 4000, 9000, 20_000].map(Duration::from_millis);
        let (one, other) = (dice.pick(&all), dice.pick(&all));
        Arc::new([one, one, other])
    };
    let longest = *leases.iter().max().expect("some");
    let names = Arc::new(Names {
        locks: (0..dice.between(1, 3)).map(|at| format!("lock{at}")).collect(),
        semaphores: (0..dice.below(3))
            .map(|at| (format!("semaphore{at}"), dice.between(1, 5) as u32))
            .collect(),
        elections: (0..dice.below(2)).map(|at| format!("election{at}")).collect(),
    });
    let named = |family, name: &str| Name::new(family, name).expect("a good name");
    let mut all: Vec<(Name, u32)> = Vec::new();
    all.extend(names.locks.iter().map(|name| (named(Family::Lock, name), WHOLE)));
    all.extend(names.semaphores.iter().map(|(name, permits)| (named(Family::Semaphore, name), *permits)));
    all.extend(names.elections.iter().map(|name| (named(Family::Election, name), WHOLE)));
    let options = Options::new().clock(TokioClock::new());
    let guarantees = leasehold::connect_with("memory:", options).await.expect("a client").guarantees();
    let world = World::new(seed, weather, all, longest, guarantees, logged);
    world.note(|| format!("{weather:?}, leases {leases:?}"));
    let engine = tokio::spawn(Arc::clone(&world).run());

    let lasts = Duration::from_millis(dice.between(3_000, 30_000));
    let until = Instant::now() + lasts;
    let theme =
        dice.weigh(&[(6, None), (2, Some(What::Mutex)), (2, Some(What::Read)), (2, Some(What::Semaphore))]);
    let theme = theme.filter(|what| !matches!(what, What::Semaphore) || !names.semaphores.is_empty());
    let mut parties: Vec<Party> = Vec::new();
    let mut listeners = Vec::new();
    for index in 0..dice.between(2, 4) as usize {
        let (options, clock, call_limit) = work::options(&mut dice, longest);
        world.note(|| {
            format!("client {index}: a call takes up to {call_limit:?}, its clock runs {}", clock.rate())
        });
        let client = Client::new(world.connect(), options).expect("a client");
        listeners.push(tokio::spawn(Party::listen(Arc::clone(&world), client.events())));
        parties.push(Party {
            world: Arc::clone(&world),
            index,
            client,
            clock,
            call_limit,
            owner: Owner::new(),
            closing: Arc::new(AtomicBool::new(false)),
            names: Arc::clone(&names),
            leases: Arc::clone(&leases),
            theme,
            until,
        });
    }
    let mut tasks = Vec::new();
    for party in &parties {
        let most = if theme.is_some() { 10 } else { 5 };
        for _ in 0..dice.between(1, most) {
            tasks.push(tokio::spawn(party.clone().work(dice.split())));
        }
    }
    let mean = dice.pick(&[300, 1500, 6000, 100_000]);
    let disturbing = work::disturb(parties.clone(), dice.split(), mean, weather.breaks > 0, until);
    tasks.push(tokio::spawn(disturbing));
    // One of them may be closed in the middle.
    if dice.percent(40) {
        let (party, after) = (parties[0].clone(), dice.between(0, lasts.as_millis() as u64));
        tasks.push(tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            party.close(false).await;
        }));
    }

    sleep_to(until).await;
    world.heal();
    // Each holds for less than 10 seconds; what was left behind ends after a lease and a lock
    // delay.
    let bound = Duration::from_secs(10) * tasks.len() as u32 + longest + PATIENCE + Duration::from_secs(10);
    let all = async {
        for task in tasks {
            if let Err(error) = task.await
                && !error.is_panic()
            {
                world.found(format!("a task did not end: {error}"));
            }
        }
    };
    if timeout(bound, all).await.is_err() {
        world.found(format!("X7: not all tasks had their turn {bound:?} after the network healed"));
        // What they hold would stay for ever.
        return finish(&world, logged);
    }
    // What was sent before the network healed may still fail.
    sleep(Duration::from_secs(10)).await;
    if world.registered() > 0 {
        world.found("guards are registered that nobody has".into());
    }
    for party in parties.iter().filter(|party| !party.closing.load(Ordering::Relaxed)) {
        party.prove(longest + PATIENCE + Duration::from_secs(10)).await;
        if party.client.held() > 0 {
            world.found(format!("X6: client {} holds what nobody has", party.index));
        }
    }
    let (closed, dropped): (Vec<Party>, Vec<Party>) = parties.into_iter().partition(|_| dice.percent(50));
    for party in closed {
        if !party.closing.load(Ordering::Relaxed) {
            party.close(true).await;
        }
    }
    drop(dropped);
    // A call that nobody waits for any more takes as long as any.
    sleep(Duration::from_secs(6)).await;
    for listener in listeners {
        if !listener.is_finished() {
            world.found("X10: a client is still there, although all that it was used by is gone".into());
            listener.abort();
        }
    }
    let calls = calls(&world);
    sleep(longest + PATIENCE + Duration::from_secs(1)).await;
    world.step();
    if let Some(what) = world.left() {
        world.found(format!("X6: all is over, and {what}"));
    }
    if self::calls(&world) != calls {
        world.found("X6: all is over, and somebody still calls the engine".into());
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 1 {
        world.found(format!("X10: {} tasks are left", tasks - 1));
    }
    engine.abort();
    finish(&world, logged)
}

async fn sleep_to(until: Instant) {
    // A pause of everything may have gone beyond it.
    tokio::time::sleep_until(until).await;
}

fn calls(world: &World) -> u64 {
    world.counted("calls")
}

fn finish(world: &World, _: bool) -> Outcome {
    let violation = world.violation();
    let (counts, log, digest) = world.outcome();
    Outcome { violation, counts, log, digest }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

fn report(seed: u64, violation: &str) -> ! {
    // The run is the same with a log.
    let again = run(seed, true);
    again.log.iter().for_each(|line| eprintln!("{line}"));
    if again.violation.as_deref() != Some(violation) {
        eprintln!("the same seed did not do the same again: {:?}", again.violation);
    }
    panic!(
        "seed {seed}: {violation}\nrun it again: LEASEHOLD_SEED={seed} cargo test -p leasehold --test simulation"
    );
}

#[test]
fn no_seed_finds_a_fault() {
    if let Some(seed) = setting("LEASEHOLD_SEED") {
        let outcome = run(seed, true);
        outcome.log.iter().for_each(|line| eprintln!("{line}"));
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
        return;
    }
    let seeds = setting("LEASEHOLD_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(1);
    let failed = Mutex::new(None::<(u64, String)>);
    let total = Mutex::new(Counts::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds || failed.lock().expect("no panic").is_some() {
                        return;
                    }
                    let outcome = run(seed, false);
                    let mut total = total.lock().expect("no panic");
                    for (what, count) in outcome.counts {
                        *total.entry(what).or_default() += count;
                    }
                    if let Some(violation) = outcome.violation {
                        failed.lock().expect("no panic").get_or_insert((seed, violation));
                    }
                }
            });
        }
    });
    if let Some((seed, violation)) = failed.into_inner().expect("no panic") {
        report(seed, &violation);
    }
    let total = total.into_inner().expect("no panic");
    println!("{seeds} seeds:");
    total.iter().for_each(|(what, count)| println!("{count:10} {what}"));
    // A simulation in which nothing happens finds nothing.
    if seeds >= SEEDS {
        for what in HAPPENS {
            let count = total.get(what).copied().unwrap_or(0);
            assert!(count >= SEEDS / 100, "hardly ever in {seeds} runs: {what} ({count})");
        }
    }
}

#[test]
fn a_seed_does_the_same_each_time() {
    for seed in 1..40 {
        let (one, other) = (run(seed, true), run(seed, true));
        if one.digest != other.digest {
            let differs = one.log.iter().zip(&other.log).find(|(one, other)| one != other);
            panic!("seed {seed} did not do the same twice: {differs:?}");
        }
    }
}
