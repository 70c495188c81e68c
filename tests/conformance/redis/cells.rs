//! Rules over cells on servers that lose answers, set their clocks back, or have slots.

use std::slice;

use leasehold::engine::{Engine, Hints};
use leasehold::{Error, Options};
use tokio::time::timeout;

use super::*;
use crate::cells::{WAYS, add, name, values};
use crate::servers::{Cluster, Proxy};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            a_rule_whose_answer_got_lost_is_applied_once,
            a_clock_that_is_set_back_is_not_seen_by_a_rule,
            a_rule_leaves_nothing_behind_for_ever,
            cells_in_different_slots_are_refused,
            a_latch_counts_on_the_server_as_in_memory,
        ]
    )
    .cases
}

async fn engine(url: &str) -> Box<dyn Engine> {
    let engine = leasehold::engine::open(url, &Options::new()).await.expect("the server is there");
    engine.listen(Hints::new(|_| {}));
    engine
}

async fn a_rule_whose_answer_got_lost_is_applied_once(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let far = engine(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let near = ground.engine().await;
    let (x, rule) = (name("x"), add(1));
    let names = slice::from_ref(&x);
    // The server must know the script, or the answer that is lost says only that it does not.
    near.apply(&[name("y")], &rule).await.expect("applied");
    for expected in 1..=4 {
        proxy.stall_replies();
        {
            let mut applying = far.apply(names, &rule);
            assert!(timeout(ms(50), &mut applying).await.is_err(), "there is no answer");
            until("it is applied", async || values(&*near, names).await == [expected]).await;
            // The connection is lost with the answer, and made anew.
            proxy.reset();
            proxy.pass();
            let error = soon("an error", applying).await.expect_err("nobody knows");
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        }
        let after = soon("a connection", async {
            loop {
                match far.read(names).await {
                    Ok(found) => break found,
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        });
        after.await;
        assert_eq!(values(&*near, names).await, [expected], "it was not sent again");
    }
}

async fn a_clock_that_is_set_back_is_not_seen_by_a_rule(_: Ground) {
    let server = Redis::start_frozen();
    let engine = engine(&server.url()).await;
    let start = server.micros();
    for (number, way) in WAYS.into_iter().enumerate() {
        server.set_micros(start);
        let names = [format!("{{t{number}}}/a"), format!("{{t{number}}}/b")].map(|text| name(&text));
        let now = async |names: &[Name]| way.add(&*engine, names, &add(1)).await.now;
        assert_eq!(now(&names[..1]).await, start);
        server.set_micros(start - 60_000_000);
        // The time stands still for the first cell, and for what is decided together with it. It
        // moves by the least that there is, so that no version is given twice.
        let together = now(&names).await;
        assert!((start..=start + 1).contains(&together), "{together} after {start}");
        let alone = now(&names[1..]).await;
        assert!((together..=together + 1).contains(&alone), "{alone} after {together}");
        // Other cells go by the clock.
        assert_eq!(now(&[name(&format!("other {number}"))]).await, start - 60_000_000);
        server.set_micros(start + 5_000_000);
        assert_eq!(now(&names).await, start + 5_000_000);
    }
}

async fn a_rule_leaves_nothing_behind_for_ever(mut ground: Ground) {
    let engine = ground.engine().await;
    for way in WAYS {
        way.add(&*engine, &[name("{t}/a"), name("{t}/b")], &add(1)).await;
    }
    let mut connection = ground.server().connect();
    assert_eq!(connection.command(&["DBSIZE"]).int(), 2);
    assert!(keys_that_stay(&mut connection).is_empty());
}

async fn cells_in_different_slots_are_refused(_: Ground) {
    let cluster = Cluster::start();
    let near = engine(&cluster.url()).await;
    let apart = [name("a"), name("b")];
    for way in WAYS {
        let error = way.apply(&*near, &apart, &add(1)).await.expect_err("they are apart");
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("hash tag"), "{error}");
    }
    assert_eq!((values(&*near, &apart[..1]).await, values(&*near, &apart[1..]).await), (vec![0], vec![0]));
    // A hash tag in the names, or in the prefix, keeps them together.
    let tagged = [name("{t}/a"), name("{t}/b")];
    let prefixed = engine(&format!("{}?prefix={{app}}:", cluster.url())).await;
    for (number, way) in WAYS.into_iter().enumerate() {
        let count = number as u64 + 1;
        assert_eq!(way.add(&*near, &tagged, &add(1)).await.values, [count; 2]);
        assert_eq!(way.add(&*prefixed, &apart, &add(1)).await.values, [count; 2]);
    }
}

/// The twin of a rule against its pure step, which `memory` runs.
async fn a_latch_counts_on_the_server_as_in_memory(mut ground: Ground) {
    let (server, memory) = (ground.client().await, leasehold::connect("memory:").await.expect("a client"));
    let mut dice = 7u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..300 {
        let (name, count) = (format!("latch{}", roll(30)), [1, 2, 5, u32::MAX][roll(4) as usize]);
        let mut answers = Vec::new();
        for client in [&server, &memory] {
            let latch = client.latch(&name, count).expect("a name");
            let said = |answer: Result<u32, Error>| match answer {
                Ok(left) => left.to_string(),
                Err(error) => error.to_string(),
            };
            answers.push((said(latch.count_down().await), said(latch.left().await)));
        }
        assert_eq!(answers[0], answers[1], "{name} from {count}");
        let kind = if answers[0].0.contains("counts from") { "refused" } else { answers[0].0.as_str() };
        *seen.entry(kind.to_owned()).or_default() += 1;
    }
    for kind in ["refused", "0", "1", "4", "4294967294"] {
        assert!(seen.contains_key(kind), "{kind} is not in {seen:?}");
    }
}
