//! The Lua twin of an entry of a cache against its rule, step by step: answers, what is written,
//! and for how long, byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::engine::{Rule as _, Write};
use leasehold::kit::cache::{Ask, Step};
use libtest_mimic::Failed;

use crate::servers::Redis;
use crate::twins::{Dice, Scripts, Way, run, told};

const STEPS: u64 = 30_000;
/// Steps of one entry.
const SEQUENCE: u64 = 100;

/// The first bytes of answers, all of which must come at least once.
const WORDS: [&str; 11] = [
    "foreign",
    "fresh",
    "stale",
    "refresh",
    "load",
    "wait",
    "pause",
    "missing",
    "done",
    "not yours",
    "older",
];

fn duration(dice: &mut Dice) -> Duration {
    Duration::from_micros(match dice.roll(5) {
        0 => 0,
        1 => dice.roll(100),
        2 => 1000 + dice.roll(1_000_000),
        3 => dice.roll(100_000_000_000),
        // Longer than any entry lives.
        _ => u64::MAX >> dice.roll(20),
    })
}

fn version(dice: &mut Dice) -> u64 {
    if dice.roll(2) == 0 { 0 } else { dice.roll(8) }
}

fn ask(dice: &mut Dice) -> Ask {
    // Bytes of 0 and 255 are in owners too.
    let owner = u128::from(dice.roll(4)) * (u128::MAX / 3);
    match dice.roll(12) {
        0..5 => Ask::Look {
            owner,
            lease: duration(dice),
            may_load: dice.roll(4) > 0,
            at_least: if dice.roll(4) == 0 { dice.roll(8) } else { 0 },
            early: match dice.roll(3) {
                0 => 0,
                1 => dice.roll(20_000) as u32,
                _ => u32::MAX,
            },
        },
        5..8 => Ask::Store {
            owner,
            value: (dice.roll(4) > 0).then(|| (0..dice.roll(20)).map(|_| dice.roll(256) as u8).collect()),
            version: version(dice),
            fresh: duration(dice),
            stale: duration(dice),
            cost: if dice.roll(3) == 0 { u32::MAX } else { dice.roll(1_000_000) as u32 },
            pause: duration(dice),
        },
        8 => Ask::Extend { owner, lease: duration(dice) },
        9 => Ask::Release { owner, pause: duration(dice) },
        _ => Ask::Invalidate { version: version(dice), kept: duration(dice) },
    }
}

pub(crate) fn the_twin_follows_the_rule() -> Result<(), Failed> {
    let server = Redis::start();
    let mut raw = server.connect();
    let mut scripts = Scripts::new();
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dice = Dice(1);
    for _ in 0..STEPS / SEQUENCE {
        let mut value: Option<Vec<u8>> = None;
        let mut now = 1_700_000_000_000_000 + dice.roll(1_000_000_000);
        for _ in 0..SEQUENCE {
            now += match dice.roll(10) {
                0 => dice.roll(100_000_000_000),
                1..4 => dice.roll(1_000_000),
                _ => dice.roll(100),
            };
            if dice.roll(40) == 0 {
                value = Some(dice.garbage(value.as_deref()));
            }
            let rule = Step(ask(&mut dice));
            let given = [value.as_deref()];
            let decision = rule.step(&given, now);
            let expected = told(&decision, 1);
            for way in [Way::Script, Way::ShortcutFirst] {
                let (by, answered) = run(&mut raw, &mut scripts, &rule, &given, now, way);
                if answered != expected {
                    return Err(format!(
                        "{rule:?} at {now} on {given:?}\n\nthe rule:\n{expected}\n\nthe {by}:\n{answered}"
                    )
                    .into());
                }
                if by == "shortcut" {
                    *tally.entry("by the shortcut").or_default() += 1;
                }
            }
            *tally.entry(WORDS[usize::from(decision.answer[0])]).or_default() += 1;
            match decision.writes.into_iter().next() {
                None | Some(Write::Keep) => {}
                Some(Write::Delete) => {
                    *tally.entry("deleted").or_default() += 1;
                    value = None;
                }
                Some(Write::Put(put)) => value = Some(put.bytes),
            }
            if decision.answer[0] == 0 {
                // Somebody else's. It would stay so.
                value = None;
            }
        }
    }
    eprintln!("{STEPS} steps of the twin of an entry: {tally:?}");
    let seen = WORDS.iter().chain(&["by the shortcut", "deleted"]);
    let unseen: Vec<_> = seen.filter(|what| !tally.contains_key(*what)).collect();
    assert!(unseen.is_empty(), "never happened: {unseen:?}");
    Ok(())
}
