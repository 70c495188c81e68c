//! The Lua twins of rules over cells against the rules, step by step: answers, what is written, and
//! for how long, byte for byte.
//!
//! A twin is given values and a time as the rule is, so no clock is needed, and values can be such
//! as no server ever had.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use leasehold::engine::{Decision, Rule, Write};
use leasehold::kit::rate::{Algorithm, Decide, Limit, Receipt, Request};
use libtest_mimic::Failed;

use crate::servers::{Connection, Redis};

const STEPS: u64 = 20_000;
/// Steps with the same limits and values.
const SEQUENCE: u64 = 50;

/// What must happen at least once, or the steps prove nothing.
const SEEN: [&str; 10] = [
    "allowed",
    "denied",
    "impossible",
    "foreign",
    "taken",
    "given back",
    "deleted",
    "several",
    "set back",
    "by the shortcut",
];

pub(crate) fn the_twins_follow_the_rules() -> Result<(), Failed> {
    let server = Redis::start();
    let mut raw = server.connect();
    let mut scripts = Scripts::new();
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dice = Dice(1);
    for _ in 0..STEPS / SEQUENCE {
        let mut limits = algorithms(&mut dice);
        let mut values: Vec<Option<Vec<u8>>> = vec![None; limits.len()];
        let mut now = 1_700_000_000_000_000 + dice.roll(1_000_000_000);
        let mut receipts = vec![Receipt::default()];
        for _ in 0..SEQUENCE {
            match dice.roll(20) {
                0 => now -= dice.roll(10_000_000),
                1..3 => now += dice.roll(100_000_000_000),
                3..8 => now += dice.roll(1_000_000),
                _ => now += dice.roll(1000),
            }
            if dice.roll(25) == 0 {
                // The limits are changed.
                limits = algorithms(&mut dice);
                values.resize(limits.len(), None);
            }
            if dice.roll(40) == 0 {
                let number = dice.roll(values.len() as u64) as usize;
                values[number] = Some(dice.garbage(values[number].as_deref()));
            }
            let request = request(&mut dice, &receipts);
            let rule = Decide::new(limits.iter().map(|limit| (*limit, request)).collect());
            let given: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let decision = rule.step(&given, now);
            let expected = told(&decision, values.len());
            for way in [Way::Script, Way::ShortcutFirst] {
                let (by, found) = run(&mut raw, &mut scripts, &rule, &given, now, way);
                if found != expected {
                    return Err(format!(
                        "{rule:?} at {now} on {given:?}\n\nthe rule:\n{expected}\n\nthe {by}:\n{found}"
                    )
                    .into());
                }
                if by == "shortcut" {
                    *tally.entry("by the shortcut").or_default() += 1;
                }
            }
            note(&mut tally, &decision, request, now, &receipts);
            if values.len() > 1 {
                *tally.entry("several").or_default() += 1;
            }
            for (value, write) in values.iter_mut().zip(&decision.writes) {
                match write {
                    Write::Keep => {}
                    Write::Delete => *value = None,
                    Write::Put(put) => *value = Some(put.bytes.clone()),
                }
            }
            if let Request::Take { .. } = request {
                receipts.push(Receipt { at: now, delay: 0, cost: dice.small() });
            }
            if decision.answer == [0] {
                // Somebody else's. It would stay so.
                values.fill(None);
            }
        }
    }
    eprintln!("{STEPS} steps of twins: {tally:?}");
    let unseen: Vec<_> = SEEN.iter().filter(|what| !tally.contains_key(*what)).collect();
    assert!(unseen.is_empty(), "never happened: {unseen:?}");
    Ok(())
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.roll(12)).expect("small")
    }

    /// Bytes that are no state, or look like one.
    pub(crate) fn garbage(&mut self, value: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = value.map(<[u8]>::to_vec).unwrap_or_default();
        match self.roll(4) {
            0 => bytes.truncate(self.roll(12) as usize),
            1 => bytes.push(7),
            // Often still a state, with other numbers.
            _ if !bytes.is_empty() => {
                let at = self.roll(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.roll(8);
            }
            _ => bytes = b"something".to_vec(),
        }
        bytes
    }
}

fn algorithms(dice: &mut Dice) -> Vec<Algorithm> {
    let count = if dice.roll(3) == 0 { 1 + dice.roll(3) } else { 1 };
    let mut limits = Vec::new();
    while limits.len() < count as usize {
        let amount = match dice.roll(3) {
            0 => 1 + dice.roll(10),
            1 => 1 + dice.roll(2000),
            _ => 1_000_003,
        };
        let amount = u32::try_from(amount).expect("small");
        let period = match dice.roll(4) {
            0 => 1 + dice.roll(100),
            1 => 1_000_000,
            2 => 1 + dice.roll(2_000_000_000),
            _ => 86_400_000_000,
        };
        let period = Duration::from_micros(period);
        let burst = match dice.roll(3) {
            0 => amount,
            1 => 1 + dice.small(),
            _ => u32::try_from(1 + dice.roll(100_000_000)).expect("small"),
        };
        let limit = if dice.roll(3) == 0 {
            Limit::fixed_window(amount.min(20), period)
        } else {
            Limit::token_bucket(amount, period).burst(burst)
        };
        limits.extend(limit.algorithm().ok());
    }
    limits
}

fn request(dice: &mut Dice, receipts: &[Receipt]) -> Request {
    match dice.roll(12) {
        0..4 => Request::Take { least: dice.small(), most: dice.small() * 3 },
        4..7 => {
            let cost = dice.small();
            Request::Take { least: cost, most: cost }
        }
        7 => Request::Take { least: 1 << dice.roll(31), most: 0 },
        8 => Request::Peek(dice.small() * dice.small()),
        9..11 => Request::Refund(receipts[receipts.len() - 1 - dice.roll(receipts.len() as u64) as usize]),
        _ => Request::Reset,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

/// A decision as the script tells it.
pub(crate) fn told(decision: &Decision, count: usize) -> String {
    let mut lines = vec![hex(&decision.answer)];
    for cell in 0..count {
        lines.push(match decision.writes.get(cell) {
            None | Some(Write::Keep) => "keep".to_owned(),
            Some(Write::Delete) => "delete".to_owned(),
            Some(Write::Put(put)) => format!("put {} {}", hex(&put.bytes), put.lives.as_micros()),
        });
    }
    lines.join("\n")
}

/// How a twin is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Script,
    /// The script decides only what the shortcut leaves to it.
    ShortcutFirst,
}

/// Those that the server knows.
pub(crate) type Scripts = BTreeMap<(&'static str, Way), String>;

/// Which of the two has decided, and what.
pub(crate) fn run(
    raw: &mut Connection,
    scripts: &mut Scripts,
    rule: &dyn Rule,
    values: &[Option<&[u8]>],
    now: u64,
    way: Way,
) -> (String, String) {
    let twin = rule.twin().expect("it has a twin");
    let script = scripts.entry((twin.script, way)).or_insert_with(|| {
        let shortcut = if way == Way::Script { "" } else { twin.shortcut.unwrap_or_default() };
        let text =
            include_str!("twin.lua").replace("-- SHORTCUT", shortcut).replace("-- SCRIPT", twin.script);
        raw.command(&["SCRIPT", "LOAD", &text]).text()
    });
    let mut words = vec!["EVALSHA".to_owned(), script.clone(), "0".to_owned()];
    words.extend([now.to_string(), values.len().to_string()]);
    words.extend(values.iter().map(|value| value.map_or("-".to_owned(), hex)));
    words.extend(twin.arguments.iter().map(|argument| hex(argument)));
    let told = raw.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).text();
    let (by, told) = told.split_once('\n').expect("who, and what");
    (by.to_owned(), told.to_owned())
}

fn note(
    tally: &mut BTreeMap<&'static str, u64>,
    decision: &Decision,
    request: Request,
    now: u64,
    receipts: &[Receipt],
) {
    let word = match decision.answer[0] {
        0 => "foreign",
        1 => "allowed",
        2 => "denied",
        _ => "impossible",
    };
    let mut seen = vec![word];
    for write in &decision.writes {
        match (request, write) {
            (Request::Take { .. }, Write::Put(_)) => seen.push("taken"),
            (Request::Refund(_), Write::Put(_)) => seen.push("given back"),
            (_, Write::Delete) => seen.push("deleted"),
            _ => {}
        }
    }
    if receipts.last().is_some_and(|receipt| receipt.at > now) {
        seen.push("set back");
    }
    seen.into_iter().for_each(|what| *tally.entry(what).or_default() += 1);
}
