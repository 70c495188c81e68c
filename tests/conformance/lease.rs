//! Leases: how they are renewed, how they end, and who is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Clock, Error, Event, Loss, Moment, Options, Standing, TokioClock};

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "lease",
        [
            the_deadline_counts_from_before_the_request,
            a_renewals_deadline_counts_from_before_the_request,
            an_answer_after_the_deadline_is_a_no,
            loss_fires_before_the_engine_frees_the_name,
            a_holder_whose_clock_is_slow_stops_before_the_engine_frees_the_name,
            loss_fires_while_a_renewal_hangs,
            a_failed_renewal_is_doubt_and_a_good_one_ends_it,
            loss_does_not_fire_on_a_release,
            a_lost_guard_says_so_on_release,
            a_released_claim_is_not_renewed,
            a_broken_claim_is_lost_at_once,
            a_break_that_overtakes_the_grant_is_heard,
            one_of_many_leases_is_lost_alone,
            many_leases_are_renewed_in_few_calls,
            short_leases_cost_long_ones_nothing,
            a_call_that_hangs_holds_up_only_leases_of_its_length,
            a_clock_that_jumps_forward_ends_the_lease,
            work_that_ends_as_the_lease_does_is_not_done,
            a_renewal_that_is_answered_after_the_deadline_is_too_late,
            a_starved_runtime_reports_the_loss_first,
        ]
    )
}

async fn the_deadline_counts_from_before_the_request(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    wire.set(Fault::Delay(ms(400)));
    let guard = client.mutex("x").expect("a name").lease(ms(1000)).lock().await.expect("free");
    assert!(guard.remaining() <= ms(600), "{:?} left", guard.remaining());
}

async fn a_renewals_deadline_counts_from_before_the_request(mut ground: Ground) {
    let (lease, delay) = (ms(6000), ms(400));
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let guard = client.mutex("x").expect("a name").lease(lease).lock().await.expect("free");
    wire.set(Fault::Delay(delay));
    let mut before = guard.remaining();
    for _ in 0..2 {
        let mut after = guard.remaining();
        until("it is renewed", async || {
            before = std::mem::replace(&mut after, guard.remaining());
            after > before
        })
        .await;
        assert!(after <= lease - delay, "{after:?} left after a renewal that took {delay:?}");
    }
    guard.release().await.expect("held");
}

async fn an_answer_after_the_deadline_is_a_no(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    wire.set(Fault::Delay(ms(500)));
    let late = client.mutex("x").expect("a name").lease(ms(200)).try_lock().await.expect("an answer");
    assert!(late.is_none(), "a grant that was over when it arrived");
    wire.set(Fault::None);
    drop(soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("free"));
}

async fn loss_fires_before_the_engine_frees_the_name(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    for _ in 0..3 {
        let guard = client.mutex("x").expect("a name").lease(ms(300)).lock().await.expect("free");
        wire.set(Fault::Refuse);
        let next = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("granted");
        // Somebody else holds it now: the guard must know, whatever its timers did.
        assert_eq!(guard.standing(), Standing::Lost);
        wire.set(Fault::None);
        next.release().await.expect("held");
    }
}

/// A clock that runs half a hundredth too slow.
#[derive(Debug, Default)]
struct Slow(TokioClock);

impl Clock for Slow {
    fn now(&self) -> Moment {
        Moment::from_micros(self.0.now().as_micros() / 1000 * 995)
    }
}

async fn a_holder_whose_clock_is_slow_stops_before_the_engine_frees_the_name(mut ground: Ground) {
    let lease = ms(4000);
    let other = ground.client().await;
    let (client, wire) = ground.client_on_wire(Options::new().clock(Slow::default())).await;
    // So long that a slow answer does not hide what is believed.
    let long = ms(60_000);
    let guard = client.mutex("y").expect("a name").lease(long).lock().await.expect("free");
    assert!(guard.remaining() <= long - long / 100, "{:?} of {long:?} are believed", guard.remaining());
    guard.release().await.expect("held");
    let guard = client.mutex("x").expect("a name").lease(lease).lock().await.expect("free");
    wire.set(Fault::Refuse);
    let next = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("granted");
    assert_eq!(guard.standing(), Standing::Lost, "two hold the name");
    next.release().await.expect("held");
}

async fn loss_fires_while_a_renewal_hangs(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let guard = client.mutex("x").expect("a name").lease(ms(600)).lock().await.expect("free");
    let before = tokio::time::Instant::now();
    wire.set(Fault::Hang);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deadline);
    assert!(before.elapsed() < ms(800), "told after {:?}", before.elapsed());
}

async fn a_failed_renewal_is_doubt_and_a_good_one_ends_it(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let mut events = client.events();
    let guard = client.mutex("x").expect("a name").lease(ms(1200)).lock().await.expect("free");
    wire.set(Fault::Refuse);
    assert_eq!(soon("the doubt", guard.endangered()).await, Standing::InDoubt);
    assert!(guard.is_held() && guard.check().is_ok());
    wire.set(Fault::None);
    until("the doubt ends", async || guard.standing() == Standing::Held).await;
    guard.release().await.expect("held");
    let mut told = Vec::new();
    while told.last() != Some(&"released") {
        told.push(match soon("the next event", events.next()).await.expect("the client lives") {
            Event::Granted { .. } => "granted",
            Event::InDoubt { why, .. } => {
                assert!(why.contains("cut by the test"), "{why}");
                "in doubt"
            }
            Event::Recovered { .. } => "recovered",
            Event::Released { .. } => "released",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["granted", "in doubt", "recovered", "released"]);
}

async fn loss_does_not_fire_on_a_release(mut ground: Ground) {
    let client = ground.client().await;
    let guard = client.mutex("x").expect("a name").lease(ms(200)).lock().await.expect("free");
    let lost = guard.lost();
    guard.release().await.expect("held");
    not_within(ms(600), "the loss fired", lost).await;
}

async fn a_lost_guard_says_so_on_release(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    other.break_claims(leasehold::Family::Lock, "x").await.expect("broken");
    let error = guard.release().await.expect_err("it was broken");
    assert!(matches!(error, Error::Lost { why: Loss::Gone, .. }), "{error}");
}

async fn a_released_claim_is_not_renewed(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let mutex = client.mutex("x").expect("a name").lease(ms(200));
    mutex.lock().await.expect("free").release().await.expect("held");
    tokio::time::sleep(ms(600)).await;
    assert_eq!(wire.renewed_claims(), 0);
    let guard = mutex.lock().await.expect("free");
    until("it is renewed", async || wire.renewed_claims() > 2).await;
    guard.release().await.expect("held");
    let renewed = wire.renewed_claims();
    tokio::time::sleep(ms(600)).await;
    assert_eq!(wire.renewed_claims(), renewed);
}

async fn a_broken_claim_is_lost_at_once(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    // The holder listens for hints once it has waited for something.
    let busy = other.mutex("y").expect("a name").lock().await.expect("free");
    not_within(ms(50), "y was free", client.mutex("y").expect("a name").lock()).await;
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    let before = tokio::time::Instant::now();
    let broken = other.break_claims(leasehold::Family::Lock, "x").await.expect("broken");
    assert_eq!(broken.len(), 1);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    assert!(before.elapsed() < ms(5000), "told after {:?}", before.elapsed());
    drop(busy);
}

async fn a_break_that_overtakes_the_grant_is_heard(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    // The holder listens for hints once it has waited for something.
    let busy = other.mutex("y").expect("a name").lock().await.expect("free");
    not_within(ms(50), "y was free", client.mutex("y").expect("a name").lock()).await;
    wire.set(Fault::Delay(ms(400)));
    let mutex = client.mutex("x").expect("a name");
    let locking = tokio::spawn(async move { mutex.lock().await });
    until("it is granted", async || {
        !other.look(leasehold::Family::Lock, "x").await.expect("a view").claims.is_empty()
    })
    .await;
    wire.set(Fault::None);
    other.break_claims(leasehold::Family::Lock, "x").await.expect("broken");
    let guard = soon("the answer", locking).await.expect("no panic").expect("granted once");
    // The first renewal would be after ten seconds.
    let before = tokio::time::Instant::now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    assert!(before.elapsed() < ms(5000), "told after {:?}", before.elapsed());
    drop(busy);
}

async fn one_of_many_leases_is_lost_alone(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mut guards = Vec::new();
    for name in 0..50 {
        let mutex = client.mutex(format!("n{name}")).expect("a name").lease(ms(2500));
        guards.push(mutex.lock().await.expect("free"));
    }
    other.break_claims(leasehold::Family::Lock, "n7").await.expect("broken");
    soon("the loss", guards[7].lost()).await;
    // Longer than a lease: the others were renewed.
    tokio::time::sleep(ms(3000)).await;
    for (number, guard) in guards.iter().enumerate() {
        // One that is lost stays lost; one that a busy machine has put in doubt recovers.
        let expected = if number == 7 { Standing::Lost } else { Standing::Held };
        until(&format!("n{number} is {expected:?}"), async || guard.standing() == expected).await;
    }
}

async fn many_leases_are_renewed_in_few_calls(mut ground: Ground) {
    const LEASES: usize = 3000;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let mut guards = Vec::new();
    for name in 0..LEASES {
        let mutex = client.mutex(format!("n{name}")).expect("a name").lease(ms(6000));
        guards.push(mutex.lock().await.expect("free"));
    }
    let before = (wire.renews.load(Ordering::Acquire), wire.renewed_claims());
    tokio::time::sleep(ms(6000)).await;
    let calls = wire.renews.load(Ordering::Acquire) - before.0;
    let claims = wire.renewed_claims() - before.1;
    assert!(claims >= 2 * LEASES as u64, "{claims} renewals");
    // Each server has calls of its own.
    assert!(calls <= 40 * wire.shards(), "{calls} calls for {claims} renewals");
    assert!(guards.iter().all(|guard| guard.standing() == Standing::Held));
}

/// A clock that can be pushed forward, as a suspended machine's is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspended(TokioClock, Arc<AtomicU64>);

impl Suspended {
    pub(crate) fn push(&self, time: std::time::Duration) {
        self.1.store(time.as_micros().try_into().expect("not for ever"), Ordering::Release);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Moment {
        self.0.now() + std::time::Duration::from_micros(self.1.load(Ordering::Acquire))
    }
}

/// The engine answers, but too late for the short leases: their calls have a limit of their own.
async fn short_leases_cost_long_ones_nothing(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let long = client.mutex("long").expect("a name").lease(ms(2400)).lock().await.expect("free");
    let mut endangered = std::pin::pin!(long.endangered());
    wire.set(Fault::Delay(ms(30)));
    let until = tokio::time::Instant::now() + ms(5000);
    while tokio::time::Instant::now() < until {
        let short = client.mutex("short").expect("a name").lease(ms(120)).lock().await.expect("free");
        tokio::select! {
            why = &mut endangered => panic!("the long lease is {why:?}"),
            _ = short.lost() => {}
            () = tokio::time::sleep(ms(200)) => {}
        }
        short.release().await.ok();
    }
    long.release().await.expect("held all the time");
}

/// A renewal that hangs for the whole limit of a long lease must not keep a short one from being
/// renewed.
async fn a_call_that_hangs_holds_up_only_leases_of_its_length(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let long = client.mutex("long").expect("a name").lease(ms(9000)).lock().await.expect("free");
    let short = client.mutex("short").expect("a name").lease(ms(900)).lock().await.expect("free");
    wire.hang_renewals_of(ms(9000));
    assert_eq!(soon("the doubt", long.endangered()).await, Standing::InDoubt);
    assert_eq!(short.standing(), Standing::Held, "renewed while the other call hung");
    short.release().await.expect("held all the time");
    long.release().await.expect("held still");
}

async fn a_clock_that_jumps_forward_ends_the_lease(ground: Ground) {
    let clock = Suspended::default();
    let client =
        leasehold::connect_with(ground.url(), Options::new().clock(clock.clone())).await.expect("a client");
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    assert_eq!(guard.standing(), Standing::Held);
    // An hour of sleep, in which no timer ran.
    clock.push(ms(3_600_000));
    assert_eq!(guard.standing(), Standing::Lost);
    soon("the loss", guard.lost()).await;
}

/// The machine sleeps while the last step is made: nobody can say that it was made in time.
async fn work_that_ends_as_the_lease_does_is_not_done(ground: Ground) {
    let clock = Suspended::default();
    let client =
        leasehold::connect_with(ground.url(), Options::new().clock(clock.clone())).await.expect("a client");
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    let done = guard.run(async { clock.push(ms(3_600_000)) }).await;
    assert!(matches!(done, Err(Error::Lost { why: Loss::Deadline, .. })), "{done:?}");
}

async fn a_renewal_that_is_answered_after_the_deadline_is_too_late(mut ground: Ground) {
    let clock = Suspended::default();
    let (client, wire) = ground.client_on_wire(Options::new().clock(clock.clone())).await;
    let guard = client.mutex("x").expect("a name").lease(ms(3000)).lock().await.expect("free");
    // The machine sleeps from the request to the answer, past the end of the lease: somebody else
    // may have held the name.
    wire.set(Fault::Delay(ms(200)));
    until("a renewal", async || wire.renews.load(Ordering::Acquire) > 0).await;
    clock.push(ms(2200));
    tokio::time::sleep(ms(400)).await;
    assert_eq!(guard.standing(), Standing::Lost);
}

async fn a_starved_runtime_reports_the_loss_first(ground: Ground) {
    // Real time on a thread of its own: everything in it stands still.
    let url = ground.url().to_owned();
    let starved = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = leasehold::connect(&url).await.expect("a client");
            let guard = client.mutex("x").expect("a name").lease(ms(100)).lock().await.expect("free");
            std::thread::sleep(ms(300));
            guard.standing()
        })
    });
    assert_eq!(starved.join().expect("no panic"), Standing::Lost);
}
