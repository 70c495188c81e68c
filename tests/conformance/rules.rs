//! An SQL engine beside the rules: the same requests on it and on `memory:`, which runs the rules
//! themselves, must give the same answers and leave the same state.
//!
//! What a statement does without the rules (taking a name that nobody uses or whose lease is over,
//! and giving it back) is mixed with what needs them, on few names, so that each finds what the
//! other wrote. One owner has short leases, and its claims are over before the next step.

use std::time::Duration;

use leasehold::claim::{Alteration, Answer, Ask, OwnerId};
use leasehold::engine::{Engine, Hints, Renewal, View};
use leasehold::{Family, Name, Options};

use crate::bench::{Ground, ms};
use crate::{Case, cases};

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    cases!("rules", [the_engine_does_what_the_rules_say]).cases
}

const STEPS: usize = 5000;
/// After so many steps there are other names.
const STEPS_ON_NAMES: usize = 500;
const NAMES: u64 = 3;
/// The last one has short leases.
const OWNERS: u64 = 5;
const LONG_LEASE: Duration = ms(600_000);
const SHORT_LEASE: Duration = ms(20);
/// How long a name stays closed after a short lease.
const DELAYS: [Duration; 8] = [ms(0), ms(0), ms(0), ms(10), ms(10), ms(10), ms(10), LONG_LEASE];
/// After that a short lease is over on all engines, and a short delay.
const OVER: Duration = ms(40);
const CAPACITY: u32 = 3;

/// Numbers that are the same in every run of a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// An answer without what depends on the time.
fn kind(answer: &Answer) -> String {
    match answer {
        Answer::Granted(grant) => format!("granted {}", grant.tokens),
        Answer::Queued(_) => "queued".to_owned(),
        Answer::Busy(_) => "busy".to_owned(),
        Answer::Refused(refused) => format!("{refused:?}"),
    }
}

/// What is seen of a name, without what depends on the time.
fn seen(view: &View) -> String {
    let claim = |held: &leasehold::engine::HeldClaim| {
        let claim = &held.claim;
        (claim.owner, claim.weight, claim.tokens, claim.confirmed, claim.value.to_vec())
    };
    let claims: Vec<_> = view.claims.iter().map(claim).collect();
    let waiters: Vec<_> =
        view.waiters.iter().map(|waiting| (waiting.waiter.owner, waiting.waiter.weight)).collect();
    format!("{} {claims:?} {waiters:?} {}", view.capacity, view.change_count)
}

async fn the_engine_does_what_the_rules_say(ground: Ground) {
    follows_the_rules(ground.url(), STEPS).await;
}

pub(crate) async fn follows_the_rules(url: &str, steps: usize) {
    let seed = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(18);
    let options = Options::new();
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    for url in [url, "memory:"] {
        let engine = leasehold::engine::open(url, &options).await.expect("the engine is there");
        engine.listen(Hints::new(|_| {}));
        engines.push(engine);
    }
    let mut numbers = Numbers(seed);
    let mut highest = [0; NAMES as usize];
    let mut given: [std::collections::BTreeSet<u64>; NAMES as usize] = Default::default();
    let (mut granted, mut short) = (0, 0);
    for step in 0..steps {
        if step % STEPS_ON_NAMES == 0 {
            highest = Default::default();
            given = Default::default();
        }
        let number = numbers.below(NAMES);
        let family = if number == 2 { Family::Election } else { Family::Semaphore };
        let name = Name::new(family, format!("n{number} {}", step / STEPS_ON_NAMES)).expect("a name");
        let owner = OwnerId(u128::from(numbers.below(OWNERS) + 1));
        let is_short = owner == OwnerId(u128::from(OWNERS));
        let lease = if is_short { SHORT_LEASE } else { LONG_LEASE };
        // A look clears away what is over. What nobody has looked at is met by the next request.
        let is_blind = is_short && numbers.below(2) == 0;
        let (what, weight) = (numbers.below(20), 1 + numbers.below(u64::from(CAPACITY)) as u32);
        let ask = Ask {
            owner,
            weight: if number == 0 { CAPACITY } else { weight },
            capacity: CAPACITY,
            lease,
            lock_delay: if is_short { DELAYS[numbers.below(8) as usize] } else { ms(0) },
            tokens: 1 + numbers.below(3) as u32,
            wait: numbers.below(3) > 0 && !is_short,
            logged: family == Family::Election,
            value: vec![step as u8].into(),
            ..crate::bench::ask(owner.0)
        };
        // It must not wait, so that it has no grant that it did not ask for just now.
        let what = if is_short && what >= 17 { 16 } else { what };
        let mut answers = Vec::new();
        for (place, engine) in engines.iter().enumerate() {
            let answer = match what {
                0..=8 => {
                    let answer = engine.acquire(&name, &ask).await.expect("an answer");
                    if let (Answer::Granted(grant), 0, false) = (&answer, place, is_short) {
                        granted += 1;
                        let known = engine.look(&name, 0).await.expect("a view");
                        let claims = known.claims.iter().map(|held| held.claim.token);
                        let mut claims = claims;
                        assert!(claims.any(|token| token == grant.token), "the token that was told");
                    }
                    kind(&answer)
                }
                9..=15 => format!("{:?}", engine.release(&name, owner, 0).await.expect("an answer")),
                16 => {
                    let renewal = Renewal { name: name.clone(), owner, lease };
                    format!("{:?}", engine.renew(&[renewal]).await.expect("an answer"))
                }
                17 => {
                    let alteration = match numbers.0 % 3 {
                        0 => Alteration::TryUpgrade,
                        1 => Alteration::Value(vec![7].into()),
                        _ => Alteration::Upgrade,
                    };
                    kind(&engine.alter(&name, owner, alteration).await.expect("an answer"))
                }
                18 => {
                    let capacity = 1 + (numbers.0 % u64::from(CAPACITY + 1)) as u32;
                    format!("{:?}", engine.resize(&name, CAPACITY, capacity).await.is_ok())
                }
                _ => {
                    let broken = engine.break_claims(&name).await.expect("an answer");
                    format!("{:?}", broken.iter().map(|claim| claim.owner).collect::<Vec<_>>())
                }
            };
            answers.push(answer);
        }
        let doing = format!("step {step} of seed {seed}: {what} by {owner:?} on {name}");
        assert_eq!(answers[0], answers[1], "{doing}");
        if is_short && (answers[0].starts_with("granted") || answers[0].contains("Yes")) {
            short += 1;
            tokio::time::sleep(OVER).await;
        }
        if is_blind {
            continue;
        }
        let mut views = Vec::new();
        for (place, engine) in engines.iter().enumerate() {
            let view = engine.look(&name, 0).await.expect("a view");
            if place == 0 {
                let before = highest[number as usize];
                for held in &view.claims {
                    let token = held.claim.token;
                    assert!(token > before || given[number as usize].contains(&token), "tokens rise");
                    given[number as usize].insert(token);
                    highest[number as usize] = highest[number as usize].max(token);
                }
            }
            views.push(seen(&view));
        }
        assert_eq!(views[0], views[1], "{doing}");
    }
    assert!(short > steps / 200, "only {short} leases were short");
    assert!(granted > steps / 20, "only {granted} were granted");
}
