//! The scripts of one server against the rules that they restate, step by step: answers, and what
//! is left at the server.

#[path = "../../redlock_model/spec.rs"]
#[allow(dead_code, reason = "the model uses all of it")]
mod spec;

use spec::{Kept, Node, Number, Owner, Said, Voted};

use super::quorum_cases;
use crate::Case;
use crate::servers::{Connection, Redis, Reply};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(servers, [the_scripts_do_what_the_rules_say])
}

macro_rules! script {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../src/engine/redlock/", $file))),+)
    };
}

const VOTE: &str = script!("vote_head.lua", "../../redis/clock.lua", "head.lua", "one.lua", "vote.lua");
const COMMIT: &str = script!("../../redis/clock.lua", "head.lua", "one.lua", "commit.lua");
const RELEASE: &str = script!(
    "release_head.lua",
    "../../redis/full_memory.lua",
    "../../redis/clock.lua",
    "head.lua",
    "one.lua",
    "release.lua"
);
const RENEW: &str = script!("../../redis/read.lua", "../../redis/clock.lua", "head.lua", "renew.lua");

const OWNERS: u8 = 3;
const LEASE: &str = "60000000";

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn small(&mut self, sides: u64) -> u8 {
        u8::try_from(self.roll(sides)).expect("few")
    }
}

/// A name at a server, and what the rules make of it.
struct Pair<'a> {
    server: &'a mut Connection,
    name: String,
    node: Node,
    readers: [bool; OWNERS as usize + 1],
}

fn text(owner: Owner) -> String {
    format!("{owner:032x}")
}

impl Pair<'_> {
    fn key(&self, what: &str) -> String {
        format!("{{{}}}:{what}", self.name)
    }

    fn weight(&self, owner: Owner) -> &'static str {
        if self.readers[usize::from(owner)] { "shared" } else { "all" }
    }

    fn call(&mut self, script: &str, owner: Owner, rest: &[&str]) -> Reply {
        let sides = ["holder", "token", "state", "ends", "queue", &format!("gone:{}", text(owner))];
        let mut keys: Vec<String> = sides.iter().map(|side| self.key(side)).collect();
        keys.extend(["member".to_owned(), self.key("top"), self.key("floor")]);
        let owner = text(owner);
        let mut words = vec!["EVAL", script, "9"];
        words.extend(keys.iter().map(String::as_str));
        words.push(&owner);
        words.extend(rest);
        self.server.command(&words)
    }

    fn vote(&mut self, owner: Owner, stamp: Number, (first, last): (Number, Number)) {
        let weight = self.weight(owner);
        let (stamp_text, first_text) = (stamp.to_string(), first.to_string());
        let tokens = (last + 1 - first).to_string();
        let asked = [&stamp_text, weight, LEASE, &tokens, "0", "run", "9007199254740992"];
        let rest = [&asked[..], &["7 1 host a label", &first_text]].concat();
        let answer = self.call(VOTE, owner, &rest).texts();
        let voted = self.node.vote(owner, stamp, weight == "shared", (first, last), 0);
        let expected = match voted {
            Voted::Granted(counter) => format!("granted {counter}"),
            Voted::Accepted => format!("accepted {last}"),
            Voted::Taken => "taken".to_owned(),
            Voted::No => "gone".to_owned(),
        };
        let answer = if answer[0] == "taken" { answer[0].clone() } else { answer.join(" ") };
        assert_eq!(answer, expected, "the vote of {owner}");
    }

    fn commit(&mut self, owner: Owner, first: Number, last: Number) {
        let rest = ["0", &first.to_string(), &last.to_string(), "run"];
        let answer = self.call(COMMIT, owner, &rest).texts().join(" ");
        let expected = match self.node.commit(owner, first, last) {
            Said::Accepted => "accepted".to_owned(),
            Said::Above(counter) => format!("above {counter}"),
            Said::NotMine => "not mine".to_owned(),
            Said::No => "quarantine".to_owned(),
        };
        assert_eq!(answer, expected, "the token of {owner}");
    }

    fn renew(&mut self, owner: Owner, first: Number, last: Number, stamp: Number) {
        let sides = ["holder", "token", "state", "ends", &format!("gone:{}", text(owner))];
        let mut keys = vec!["member".to_owned(), self.key("top")];
        keys.extend(sides.iter().map(|side| self.key(side)));
        let (first_text, last_text, stamp_text) = (first.to_string(), last.to_string(), stamp.to_string());
        let (owner_text, weight) = (text(owner), self.weight(owner));
        let mut words = vec!["EVAL", RENEW, "7"];
        words.extend(keys.iter().map(String::as_str));
        words.extend([
            "run",
            &stamp_text,
            &owner_text,
            &first_text,
            &last_text,
            weight,
            LEASE,
            "7 1 host a label",
        ]);
        let answer = self.server.command(&words).array()[0].int();
        let expected = match self.node.renew(owner, (first, last), weight == "shared", stamp) {
            Kept::Since(stamp) => i64::from(stamp),
            Kept::Gone => 0,
            Kept::No => -1,
        };
        assert_eq!(answer, expected, "the renewal of {owner}");
    }

    fn release(&mut self, owner: Owner, stamp: Number, how: &str) {
        let answer = self.call(RELEASE, owner, &[&stamp.to_string(), how]).int();
        assert_eq!(answer, i64::from(self.node.release(owner, stamp)), "the release of {owner}");
    }

    /// What the passing of time does.
    fn expire(&mut self, owner: Owner) {
        let (holder, ends) = (self.key("holder"), self.key("ends"));
        if self.node.writer.owner == owner {
            self.server.command(&["DEL", &holder]).int();
        } else if self.node.readers.iter().any(|claim| claim.owner == owner) {
            self.server.command(&["ZADD", &ends, "XX", "1", &text(owner)]).int();
            // The mark lives as long as the last of them.
            if self.node.readers.iter().filter(|claim| claim.owner > 0).count() == 1 {
                self.server.command(&["DEL", &holder]).int();
            }
        }
        self.node.expire(owner);
    }

    fn stranger(&mut self) {
        let holder = self.key("holder");
        if self.node.stranger {
            self.server.command(&["DEL", &holder]).int();
            self.node.stranger = false;
        } else {
            let set = self.server.command(&["SET", &holder, "a stranger", "NX", "PX", "60000"]);
            let free = self.node.writer.owner == 0 && self.node.readers.iter().all(|claim| claim.owner == 0);
            assert_eq!(!set.is_nil(), free, "a stranger");
            self.node.stranger = free;
        }
    }

    /// Compares what is left.
    fn compare(&mut self) {
        let top = self.key("top");
        let top = self.server.command(&["GET", &top]);
        assert_eq!(
            if top.is_nil() { "0".to_owned() } else { top.text() },
            self.node.top.to_string(),
            "the top"
        );
        let token = self.key("token");
        let (owner, _) = self.node.by;
        let by = if owner == 0 { "-".to_owned() } else { text(owner) };
        let counter = self.server.command(&["GET", &token]).text();
        assert_eq!(counter, format!("{} {by}", self.node.counter), "the counter, and who raised it");
        let state = self.key("state");
        let holder = self.key("holder");
        let held = self.server.command(&["GET", &holder]);
        let held = if held.is_nil() { String::new() } else { held.text() };
        let claim = |claim: &str| {
            let words: Vec<&str> = claim.split(' ').collect();
            (u8::from_str_radix(words[0], 16).expect("an owner"), words[2].parse::<u8>().expect("a token"))
        };
        let mut readers = Vec::new();
        if held == "redlock/1 shared" {
            let ends = self.key("ends");
            for owner in self.server.command(&["ZRANGEBYSCORE", &ends, "(1", "+inf"]).texts() {
                let text = self.server.command(&["HGET", &state, &format!("C{owner}")]).text();
                readers.push(claim(&text));
            }
        }
        readers.sort_unstable();
        let mut expected: Vec<(u8, u8)> = self
            .node
            .readers
            .iter()
            .filter(|claim| claim.owner > 0)
            .map(|claim| (claim.owner, claim.token))
            .collect();
        expected.sort_unstable();
        assert_eq!(readers, expected, "who reads");
        let writer = held.strip_prefix("redlock/1 ").filter(|rest| *rest != "shared").map_or((0, 0), claim);
        assert_eq!(writer, (self.node.writer.owner, self.node.writer.token), "who writes");
        assert_eq!(held == "a stranger", self.node.stranger, "a stranger");
    }
}

async fn the_scripts_do_what_the_rules_say(servers: usize) {
    const SEQUENCES: u32 = 250;
    const STEPS: u32 = 40;
    let redis = Redis::start();
    let mut connection = redis.connect();
    connection.command(&["SET", "member", "run"]).ok();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + servers as u64);
    for sequence in 0..SEQUENCES {
        let name = format!("n{sequence}");
        let mut readers = [false; OWNERS as usize + 1];
        readers.iter_mut().for_each(|reader| *reader = dice.roll(2) == 0);
        // A counter that is there: one that is not starts at the clock.
        connection.command(&["SET", &format!("{{{name}}}:token"), "1 -"]).ok();
        let node = Node { member: true, counter: 1, ..Node::default() };
        let mut pair = Pair { server: &mut connection, name, node, readers };
        let mut stamp = 1;
        for _ in 0..STEPS {
            let owner = 1 + dice.small(u64::from(OWNERS));
            // Around the counter, where it matters; and now and then an old number.
            let first = (pair.node.counter + dice.small(3)).saturating_sub(1).max(1);
            let last = first + dice.small(2);
            let mine = pair.node.readers.iter().chain([&pair.node.writer]).find(|claim| claim.owner == owner);
            let token = mine.map_or(0, |claim| claim.token);
            stamp += dice.small(2);
            let number = stamp - dice.small(2).min(stamp - 1);
            match dice.roll(12) {
                0..=1 => pair.vote(owner, number, (0, 0)),
                2..=3 => pair.vote(owner, number, (first, last)),
                4..=6 => pair.commit(owner, first, last),
                7 if token > 0 => pair.renew(owner, token, token, number),
                7 | 8 => pair.renew(owner, first, last, number),
                9 => pair.release(owner, number, if dice.roll(2) == 0 { "all" } else { "claim" }),
                10 => pair.expire(owner),
                _ => pair.stranger(),
            }
            pair.compare();
        }
    }
    println!("{} steps compared", SEQUENCES * STEPS);
}
