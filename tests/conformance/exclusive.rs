//! What every lock that excludes must do: mutex, the write side of a read-write lock, a semaphore
//! of one permit, and the last permit of five.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, Guard, Mutex, RwLock, Semaphore, Standing, Token};

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::history::{self, Rules, Section};
use crate::wire::Fault;
use crate::{Group, case};

/// Something that one can hold at a time.
#[derive(Clone)]
pub(crate) enum Lock {
    Mutex(Mutex),
    Write(RwLock),
    Permit(Semaphore),
    /// Four of five permits are taken by the guard, for as long as any of the locks lives.
    LastPermit(Semaphore, Arc<Option<Guard>>),
}

/// What is held.
pub(crate) enum Held {
    Guard(Guard),
    Write(leasehold::lock::WriteGuard),
}

impl Held {
    pub(crate) fn guard(&self) -> &Guard {
        match self {
            Held::Guard(guard) => guard,
            Held::Write(guard) => guard,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.guard().token()
    }

    pub(crate) async fn release(self) -> leasehold::Result<()> {
        match self {
            Held::Guard(guard) => guard.release().await,
            Held::Write(guard) => guard.release().await,
        }
    }
}

impl Lock {
    async fn lock(&self) -> leasehold::Result<Held> {
        match self {
            Lock::Mutex(mutex) => mutex.lock().await.map(Held::Guard),
            Lock::Write(rwlock) => rwlock.write().await.map(Held::Write),
            Lock::Permit(semaphore) | Lock::LastPermit(semaphore, _) => {
                semaphore.acquire().await.map(Held::Guard)
            }
        }
    }

    async fn try_lock(&self) -> leasehold::Result<Option<Held>> {
        match self {
            Lock::Mutex(mutex) => mutex.try_lock().await.map(|held| held.map(Held::Guard)),
            Lock::Write(rwlock) => rwlock.try_write().await.map(|held| held.map(Held::Write)),
            Lock::Permit(semaphore) | Lock::LastPermit(semaphore, _) => {
                semaphore.try_acquire().await.map(|held| held.map(Held::Guard))
            }
        }
    }

    async fn lock_for(&self, limit: Duration) -> leasehold::Result<Option<Held>> {
        match self {
            Lock::Mutex(mutex) => mutex.lock_for(limit).await.map(|held| held.map(Held::Guard)),
            Lock::Write(rwlock) => rwlock.write_for(limit).await.map(|held| held.map(Held::Write)),
            Lock::Permit(semaphore) | Lock::LastPermit(semaphore, _) => {
                semaphore.acquire_for(limit).await.map(|held| held.map(Held::Guard))
            }
        }
    }

    fn lease(self, lease: Duration) -> Lock {
        match self {
            Lock::Mutex(mutex) => Lock::Mutex(mutex.lease(lease)),
            Lock::Write(rwlock) => Lock::Write(rwlock.lease(lease)),
            Lock::Permit(semaphore) => Lock::Permit(semaphore.lease(lease)),
            Lock::LastPermit(semaphore, taken) => Lock::LastPermit(semaphore.lease(lease), taken),
        }
    }

    /// How many hold it, and how many wait.
    async fn use_of(&self, client: &Client, name: &str) -> (usize, u32) {
        let (family, taken) = match self {
            Lock::Mutex(_) | Lock::Write(_) => (leasehold::Family::Lock, 0),
            Lock::Permit(_) => (leasehold::Family::Semaphore, 0),
            Lock::LastPermit(..) => (leasehold::Family::Semaphore, 1),
        };
        let view = client.look(family, name).await.expect("a view");
        (view.claims.len() - taken, view.waiting)
    }

    /// The engine knows nothing of it: neither held nor waited for.
    async fn is_free(&self, client: &Client, name: &str) -> bool {
        self.use_of(client, name).await == (0, 0)
    }
}

/// How a lock is made.
#[derive(Clone, Copy)]
pub(crate) struct Maker(Kind);

#[derive(Clone, Copy)]
enum Kind {
    Mutex,
    Write,
    Permit,
    LastPermit,
}

impl Kind {
    /// The ground, if its engine has such locks; if not, it must refuse them.
    async fn possible(self, ground: Ground) -> Option<Ground> {
        match self {
            Kind::Mutex | Kind::Write => Some(ground),
            Kind::Permit | Kind::LastPermit => crate::bench::counts(ground).await,
        }
    }
}

impl Maker {
    pub(crate) async fn make(self, client: &Client, name: &str) -> Lock {
        match self.0 {
            Kind::Mutex => Lock::Mutex(client.mutex(name).expect("a name")),
            Kind::Write => Lock::Write(client.rwlock(name).expect("a name")),
            Kind::Permit => Lock::Permit(client.semaphore(name, 1).expect("a name")),
            Kind::LastPermit => {
                let semaphore = client.semaphore(name, 5).expect("a name");
                let taken = semaphore.clone().lease(Duration::from_secs(3600)).try_acquire_many(4).await;
                Lock::LastPermit(semaphore, Arc::new(taken.expect("the engine answers")))
            }
        }
    }
}

macro_rules! for_each_kind {
    ([$($case:ident),* $(,)?]) => {
        vec![
            for_each_kind!(@group "mutex", Kind::Mutex, $($case),*),
            for_each_kind!(@group "write_as_mutex", Kind::Write, $($case),*),
            for_each_kind!(@group "permit_as_mutex", Kind::Permit, $($case),*),
            for_each_kind!(@group "last_permit_as_mutex", Kind::LastPermit, $($case),*),
        ]
    };
    (@group $name:expr, $kind:expr, $($case:ident),*) => {
        Group {
            name: $name,
            missing: None,
            cases: vec![$((stringify!($case), case(|ground| async move {
                if let Some(ground) = $kind.possible(ground).await {
                    $case(ground, Maker($kind)).await;
                }
            }))),*],
        }
    };
}

pub(crate) fn groups() -> Vec<Group> {
    for_each_kind!([
        excludes_others,
        is_independent_of_other_names,
        can_be_taken_again_after_a_release,
        is_not_reentrant,
        never_waits_with_no_time,
        waits_no_longer_than_the_limit,
        leaves_the_queue_when_the_wait_is_dropped,
        does_nothing_if_never_polled,
        gives_back_a_grant_whose_caller_has_gone,
        is_released_by_a_drop,
        is_not_freed_by_a_stale_release,
        lets_a_hundred_contenders_in_one_by_one,
        protects_a_read_modify_write,
        can_be_taken_right_after_a_release_many_times,
        tells_names_apart,
        tells_namespaces_apart,
        gives_rising_tokens,
        expires_without_renewal_and_says_so,
        outlives_its_lease_while_renewed,
        resolves_an_unknown_acquire,
        resolves_an_unknown_release,
        refuses_bad_leases,
    ])
}

async fn excludes_others(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (a, b) = (maker.make(&one, "x").await, maker.make(&two, "x").await);
    let held = a.lock().await.expect("free");
    assert!(b.try_lock().await.expect("an answer").is_none());
    assert!(a.try_lock().await.expect("an answer").is_none());
    held.release().await.expect("held until now");
    assert!(b.try_lock().await.expect("an answer").is_some());
}

async fn is_independent_of_other_names(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let lock = maker.make(&client, "x").await;
    let _x = lock.lock().await.expect("free");
    assert!(maker.make(&client, "y").await.try_lock().await.expect("an answer").is_some());
}

async fn can_be_taken_again_after_a_release(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let lock = maker.make(&client, "x").await;
    for _ in 0..3 {
        lock.try_lock().await.expect("an answer").expect("free").release().await.expect("held");
    }
}

async fn is_not_reentrant(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let lock = maker.make(&client, "x").await;
    let _held = lock.lock().await.expect("free");
    assert!(lock.lock_for(ms(50)).await.expect("an answer").is_none());
}

async fn never_waits_with_no_time(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let first = maker.make(&one, "x").await;
    let held = first.lock().await.expect("free");
    let lock = maker.make(&two, "x").await;
    let before = tokio::time::Instant::now();
    assert!(lock.lock_for(Duration::ZERO).await.expect("an answer").is_none());
    assert!(before.elapsed() < ms(500), "waited {:?}", before.elapsed());
    held.release().await.expect("held");
    assert!(lock.lock_for(Duration::ZERO).await.expect("an answer").is_some());
}

async fn waits_no_longer_than_the_limit(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let first = maker.make(&one, "x").await;
    let _held = first.lock().await.expect("free");
    let lock = maker.make(&two, "x").await;
    let before = tokio::time::Instant::now();
    assert!(lock.lock_for(ms(200)).await.expect("an answer").is_none());
    let waited = before.elapsed();
    assert!(waited >= ms(200) && waited < ms(3000), "waited {waited:?}");
    until("the waiter has left the queue", async || lock.use_of(&two, "x").await == (1, 0)).await;
}

async fn leaves_the_queue_when_the_wait_is_dropped(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let lock = maker.make(&one, "x").await;
    let held = lock.lock().await.expect("free");
    let waiter = maker.make(&two, "x").await;
    not_within(ms(50), "the waiter got in", waiter.lock()).await;
    held.release().await.expect("held");
    // On a busy machine its request may arrive only now, and is then given back.
    until("nothing is left", async || {
        lock.is_free(&one, "x").await && lock.try_lock().await.expect("an answer").is_some()
    })
    .await;
}

async fn does_nothing_if_never_polled(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let lock = maker.make(&client, "x").await;
    drop(lock.lock());
    assert!(lock.is_free(&client, "x").await);
}

async fn gives_back_a_grant_whose_caller_has_gone(mut ground: Ground, maker: Maker) {
    let other = ground.client().await;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let lock = maker.make(&client, "x").await;
    wire.set(Fault::HangAnswer);
    not_within(ms(50), "an answer came", lock.lock()).await;
    wire.set(Fault::None);
    until("the grant came back", async || lock.is_free(&other, "x").await).await;
}

async fn is_released_by_a_drop(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let first = maker.make(&one, "x").await;
    let held = first.lock().await.expect("free");
    let lock = maker.make(&two, "x").await;
    let waiting = tokio::spawn(async move { lock.lock().await.map(|held| held.token()) });
    drop(held);
    soon("the waiter", waiting).await.expect("no panic").expect("granted");
}

async fn is_not_freed_by_a_stale_release(mut ground: Ground, maker: Maker) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let lock = maker.make(&client, "x").await.lease(ms(300));
    let stale = lock.lock().await.expect("free");
    wire.set(Fault::Refuse);
    let newer = soon("the next holder", maker.make(&other, "x").await.lock()).await.expect("granted");
    assert_eq!(stale.guard().standing(), Standing::Lost);
    wire.set(Fault::None);
    let error = stale.release().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(newer.guard().standing(), Standing::Held);
    let third = ground.client().await;
    assert!(maker.make(&third, "x").await.try_lock().await.expect("an answer").is_none());
}

async fn lets_a_hundred_contenders_in_one_by_one(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    // Whoever comes first takes the other permits, and keeps them while it lives.
    let _kept = maker.make(&one, "x").await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for contender in 0..100 {
        let lock = maker.make(if contender % 2 == 0 { &one } else { &two }, "x").await;
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            let held = lock.lock().await.expect("granted");
            assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "two at once");
            tokio::task::yield_now().await;
            assert_eq!(inside.fetch_sub(1, Ordering::AcqRel), 1);
            held.release().await.expect("held");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no contender fails");
    }
}

async fn protects_a_read_modify_write(mut ground: Ground, maker: Maker) {
    const WORKERS: u64 = 8;
    const EACH: u64 = 25;
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let start = tokio::time::Instant::now();
    let keep = ground.client().await;
    let _kept = maker.make(&keep, "x").await;
    for worker in 0..WORKERS {
        let client = ground.client().await;
        let lock = maker.make(&client, "x").await;
        let counter = Arc::clone(&counter);
        tasks.spawn(async move {
            let now = || u64::try_from(start.elapsed().as_micros()).expect("a short test");
            let mut sections = Vec::new();
            for _ in 0..EACH {
                let asked = now();
                let held = lock.lock().await.expect("granted");
                let granted = now();
                let before = counter.load(Ordering::Relaxed);
                tokio::time::sleep(ms(1)).await;
                counter.store(before + 1, Ordering::Relaxed);
                let (released, token) = (now(), held.token().get());
                held.release().await.expect("held");
                sections.push(Section { worker, asked, granted, released, token, weight: 1 });
            }
            sections
        });
    }
    let mut sections = Vec::new();
    while let Some(done) = tasks.join_next().await {
        sections.extend(done.expect("no worker fails"));
    }
    assert_eq!(counter.load(Ordering::Relaxed), WORKERS * EACH);
    let summary = history::check(&sections, Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None })
        .expect("a good history");
    assert_eq!(summary.sections as u64, WORKERS * EACH);
}

async fn can_be_taken_right_after_a_release_many_times(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let locks = [maker.make(&one, "x").await, maker.make(&two, "x").await];
    for round in 0..100 {
        let held = locks[round % 2].try_lock().await.expect("an answer").expect("it was released");
        held.release().await.expect("held");
    }
}

async fn tells_names_apart(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let long = "n".repeat(1000);
    let longer = format!("{long}n");
    let names = [
        "",
        " ",
        "x",
        "X",
        "x ",
        " x",
        "x/",
        "x/y",
        "x\\y",
        "ä",
        "a\u{308}",
        "键",
        "{x}",
        "x*",
        "x\0y",
        "../x",
        ".",
        &long,
        &longer,
        "'; drop table names; --",
    ];
    let mut held = Vec::new();
    for name in names {
        let lock = maker.make(&client, name).await;
        held.push(
            lock.try_lock().await.expect("an answer").unwrap_or_else(|| panic!("`{name}` is another name")),
        );
        assert!(lock.try_lock().await.expect("an answer").is_none());
    }
    let listed = client.list(leasehold::Family::Lock, None, 100).await.expect("a list");
    let semaphores = client.list(leasehold::Family::Semaphore, None, 100).await.expect("a list");
    let mut texts: Vec<_> =
        listed.iter().chain(&semaphores).map(|(name, _)| name.as_str().to_owned()).collect();
    texts.sort_unstable();
    let mut expected = names.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(texts, expected);
    for held in held {
        held.release().await.expect("held");
    }
}

async fn tells_namespaces_apart(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    let billing = client.namespace("billing");
    let lock = maker.make(&client, "x").await;
    let _held = lock.lock().await.expect("free");
    let inner = maker.make(&billing, "x").await;
    let _inner = inner.try_lock().await.expect("an answer").expect("another name");
    assert!(maker.make(&client, "billing/x").await.try_lock().await.expect("an answer").is_none());
    assert!(maker.make(&billing.namespace("eu"), "x").await.try_lock().await.expect("an answer").is_some());
}

async fn gives_rising_tokens(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let locks = [maker.make(&one, "x").await, maker.make(&two, "x").await];
    let mut last = None;
    for round in 0..200 {
        let held = locks[round % 2].lock().await.expect("free");
        assert!(Some(held.token()) > last, "{:?} after {last:?}", held.token());
        last = Some(held.token());
        if round % 3 == 0 {
            drop(held);
        } else {
            held.release().await.expect("held");
        }
    }
}

async fn expires_without_renewal_and_says_so(mut ground: Ground, maker: Maker) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let lock = maker.make(&client, "x").await.lease(ms(400));
    let held = lock.lock().await.expect("free");
    let token = held.token();
    let lost = held.guard().lost();
    wire.set(Fault::Hang);
    let next = maker.make(&other, "x").await;
    let waiting = tokio::spawn(async move { next.lock().await.map(|held| held.token()) });
    soon("the loss", lost).await;
    assert_eq!(held.guard().standing(), Standing::Lost);
    assert!(held.guard().check().is_err() && held.guard().remaining().is_zero());
    let newer = soon("the next holder", waiting).await.expect("no panic").expect("granted");
    assert!(newer > token);
    // Lost already: a late listener hears at once.
    soon("the loss", held.guard().lost()).await;
}

async fn outlives_its_lease_while_renewed(mut ground: Ground, maker: Maker) {
    let (one, two) = (ground.client().await, ground.client().await);
    let first = maker.make(&one, "x").await.lease(ms(900));
    let held = first.lock().await.expect("free");
    let lock = maker.make(&two, "x").await;
    assert!(lock.lock_for(ms(2500)).await.expect("an answer").is_none(), "somebody else got in");
    assert_eq!(held.guard().standing(), Standing::Held);
    held.release().await.expect("still held");
}

async fn resolves_an_unknown_acquire(mut ground: Ground, maker: Maker) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let lock = maker.make(&client, "x").await;
    wire.set(Fault::LoseAnswer);
    let error = lock.lock().await.err().expect("the answer was lost");
    assert!(error.is_retryable(), "{error}");
    wire.set(Fault::None);
    // What was granted and never heard of is given back, and not after a whole lease.
    until("it is free again", async || lock.is_free(&other, "x").await).await;
}

async fn resolves_an_unknown_release(mut ground: Ground, maker: Maker) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let lock = maker.make(&client, "x").await;
    let held = lock.lock().await.expect("free");
    wire.set(Fault::LoseAnswer);
    let releasing = tokio::spawn(held.release());
    until("it is free", async || lock.is_free(&other, "x").await).await;
    let next = maker.make(&other, "x").await.lock().await.expect("free");
    wire.set(Fault::None);
    // Asked again, the engine has nothing of this owner's any more: it was given back, and not
    // lost. The newer holder is not touched.
    soon("the release", releasing).await.expect("no panic").expect("given back");
    assert_eq!(next.guard().standing(), Standing::Held);
    assert!(lock.try_lock().await.expect("an answer").is_none());
}

async fn refuses_bad_leases(mut ground: Ground, maker: Maker) {
    let client = ground.client().await;
    for lease in [Duration::ZERO, Duration::from_nanos(1), ms(9), Duration::from_secs(86_401), Duration::MAX]
    {
        let error = maker.make(&client, "x").await.lease(lease).lock().await.err().expect("a bad lease");
        assert!(
            matches!(error, Error::Invalid { .. }) && error.to_string().contains("out of range"),
            "{error}"
        );
        let options = ground.options().lease(lease);
        let error = leasehold::connect_with(ground.url(), options).await.expect_err("a bad lease");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    let error =
        client.mutex("x").expect("a name").lock_delay(Duration::MAX).lock().await.expect_err("absurd");
    assert!(error.to_string().contains("lock delay"), "{error}");
}
