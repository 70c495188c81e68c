//! What is tried: sequences of requests with time moving, each generated from one number.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use leasehold::claim::WHOLE;
use leasehold::name::Family;

/// A source of numbers that are the same for the same seed, everywhere (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }

    /// One of some things, each as often as the number beside it says.
    fn weigh<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, what) in from {
            if at < weight {
                return what;
            }
            at -= weight;
        }
        unreachable!("below the sum")
    }
}

/// Requests to one, two or three names, one after the other.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) seed: u64,
    pub(crate) names: Vec<Family>,
    pub(crate) steps: Vec<Step>,
    /// All that is held is given back at the end; else everybody is silent from then on.
    pub(crate) tidy: bool,
}

/// The passing of some time, then a request.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pass: Pass,
    pub(crate) action: Action,
    /// The name is looked at after it.
    pub(crate) look: bool,
}

/// How time passes, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pass {
    For(u64),
    /// To the next moment at which something ends by itself, or one before or after it.
    ToTheNextEnd(i64),
    /// The clock is set back.
    Back(u64),
}

/// Who makes a request. Chance alone would seldom find those for whom it matters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// Somebody who never asked for the name before, at a seat.
    Newcomer(usize),
    /// One of those who hold it, if there are any, else anybody.
    Holder(usize),
    /// One of those who wait, if there are any, else anybody.
    Waiter(usize),
    /// Anybody who ever asked.
    Anybody(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Ask(Terms),
    Renew(Vec<Renew>),
    Release { name: usize, who: Who, used: Which },
    Downgrade { name: usize, who: Who, weight: u32, token: Which },
    TryUpgrade { name: usize, who: Who },
    Upgrade { name: usize, who: Who },
    Value { name: usize, who: Who, value: u8 },
    Resize { name: usize, declared: u32, capacity: u32 },
    Break { name: usize, seat: usize },
    Look { name: usize, seat: usize, unseen: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) name: usize,
    pub(crate) who: Who,
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
    pub(crate) lease: u64,
    pub(crate) lock_delay: u64,
    pub(crate) tokens: u32,
    pub(crate) wait: bool,
    /// The asker has no patience, as far as it can tell the server's time.
    pub(crate) hurried: bool,
    pub(crate) label: u8,
    pub(crate) value: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Renew {
    pub(crate) name: usize,
    pub(crate) who: Who,
    pub(crate) lease: u64,
}

/// A token, seen from the block that the owner was granted last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Zero,
    Before,
    First,
    Second,
    Last,
    After,
}

impl Action {
    /// The names that it is about.
    pub(crate) fn names(&self) -> BTreeSet<usize> {
        match self {
            Action::Ask(Terms { name, .. })
            | Action::Release { name, .. }
            | Action::Downgrade { name, .. }
            | Action::TryUpgrade { name, .. }
            | Action::Upgrade { name, .. }
            | Action::Value { name, .. }
            | Action::Resize { name, .. }
            | Action::Break { name, .. }
            | Action::Look { name, .. } => BTreeSet::from([*name]),
            Action::Renew(renewals) => renewals.iter().map(|renewal| renewal.name).collect(),
        }
    }
}

/// What a sequence is mostly about. Chance alone seldom makes the same thing happen often enough.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Mixed,
    /// Mutexes that are taken, given back and waited for.
    Mutexes,
    /// Readers and writers, and the ways from one to the other.
    Sharing,
    /// One lock, and what happens to it over some time: see [`Maker::story`].
    Stories,
    /// Semaphores that grow and shrink.
    Resizing,
    /// One election, at length.
    Campaign,
    /// Hours pass.
    Slow,
}

const HOUR: u64 = 3_600_000;

impl Sequence {
    pub(crate) fn generate(seed: u64) -> Sequence {
        let mut dice = Dice::new(seed);
        let mood = dice.weigh(&[
            (5, Mood::Mixed),
            (4, Mood::Mutexes),
            (4, Mood::Sharing),
            (4, Mood::Stories),
            (2, Mood::Resizing),
            (1, Mood::Campaign),
            (2, Mood::Slow),
        ]);
        let names = match mood {
            Mood::Mixed | Mood::Slow => {
                let any = [(4, Family::Lock), (3, Family::Semaphore), (2, Family::Election)];
                (0..dice.between(2, 3)).map(|_| dice.weigh(&any)).collect()
            }
            Mood::Mutexes => vec![Family::Lock; 2],
            Mood::Sharing => vec![dice.weigh(&[(4, Family::Lock), (1, Family::Semaphore)])],
            Mood::Stories => vec![Family::Lock],
            Mood::Resizing => vec![Family::Semaphore; 2],
            Mood::Campaign => vec![Family::Election],
        };
        let length = if mood == Mood::Campaign { 120 } else { 60 };
        let mut maker = Maker { dice, mood, names: &names, plan: VecDeque::new() };
        let steps = (0..length).map(|_| maker.step()).collect();
        let tidy = maker.dice.percent(50);
        Sequence { seed, names, steps, tidy }
    }
}

struct Maker<'a> {
    dice: Dice,
    mood: Mood,
    names: &'a [Family],
    /// Steps that come before all others.
    plan: VecDeque<Step>,
}

impl Maker<'_> {
    fn step(&mut self) -> Step {
        if let Some(step) = self.plan.pop_front() {
            return step;
        }
        if self.mood == Mood::Stories && self.dice.percent(50) {
            self.story();
            return self.step();
        }
        let pass = self.pass();
        Step {
            pass,
            action: self.action(),
            // Looking writes down what time has changed, so not always.
            look: self.dice.percent(if matches!(self.mood, Mood::Mutexes | Mood::Stories) { 20 } else { 50 }),
        }
    }

    /// Some steps that belong together, which chance would seldom put together.
    fn story(&mut self) {
        let name = 0;
        let newcomer = Who::Newcomer(self.seat());
        let mutex = Terms { who: newcomer, weight: WHOLE, capacity: WHOLE, wait: true, ..self.terms(name) };
        let plain = Terms { lock_delay: 0, tokens: 1, ..mutex };
        let lease = self.dice.pick(&[1000, 2000, 4000]);
        let any = self.dice.between(0, 11_000);
        let holder = |lease| Action::Renew(vec![Renew { name, who: Who::Holder(0), lease }]);
        let waiter = Action::Ask(Terms { who: Who::Waiter(0), ..plain });
        let mut plan = |pass, action| {
            let pass = Pass::For(pass);
            self.plan.push_back(Step { pass, action, look: false });
        };
        match self.dice.below(3) {
            // All who were there are silent for long. The next one comes, and stays.
            0 => {
                plan(0, Action::Ask(Terms { lease, lock_delay: 2000, ..mutex }));
                plan(any / 8, Action::Ask(Terms { lease, ..mutex }));
                plan(12_000 + any, Action::Ask(Terms { lease, ..plain }));
                plan(lease / 2, holder(lease));
            }
            // Somebody renews for a long time, somebody waits for as long. Then the holder is
            // silent.
            1 => {
                plan(0, Action::Ask(Terms { lease, ..mutex }));
                plan(0, Action::Ask(plain));
                for _ in 0..12_000 / (lease - 100) {
                    plan(lease - 100, holder(lease));
                    plan(0, waiter.clone());
                }
                plan(lease + 1 + any / 10, Action::Ask(plain));
            }
            // Somebody who wants the lock closed after it renews, and is silent; so is everybody.
            _ => {
                plan(0, Action::Ask(Terms { lease, lock_delay: 20_000, ..mutex }));
                plan(lease / 2, holder(30_000));
                plan(39_000 + any, Action::Ask(plain));
            }
        }
    }

    fn pass(&mut self) -> Pass {
        let dice = &mut self.dice;
        let hours = if self.mood == Mood::Slow { 25 } else { 0 };
        let long = if self.mood == Mood::Mutexes { 18 } else { 6 };
        // Where many are to meet, time passes slowly.
        let none = if matches!(self.mood, Mood::Sharing | Mood::Resizing) { 120 } else { 40 };
        Pass::For(
            match dice.weigh(&[(none, 0), (18, 1), (12, 2), (8, 3), (long, 4), (15, 5), (hours, 6), (2, 7)]) {
                0 => 0,
                1 => dice.between(1, 60),
                2 => dice.between(60, 1500),
                3 => dice.between(1500, 6000),
                4 => dice.between(6000, 30_000),
                5 => return Pass::ToTheNextEnd(dice.pick(&[-1, 0, 0, 1])),
                7 => {
                    let far = dice.pick(&[10, 4000, 60_000, HOUR]);
                    return Pass::Back(dice.between(1, far));
                }
                _ => dice.between(1, 40) * HOUR / 2,
            },
        )
    }

    fn lease(&mut self) -> u64 {
        let long = if self.mood == Mood::Slow { 24 * HOUR } else { 30_000 };
        // Who is to meet others must stay for a while.
        let short = if matches!(self.mood, Mood::Sharing | Mood::Resizing) { long } else { 10 };
        self.dice.pick(&[short, short.max(300), 1000, 2000, 4000, 4000, 10_000, 10_000, long, long])
    }

    /// Somebody, of whom `holders` percent hold the name and `waiters` percent wait for it.
    fn who(&mut self, holders: u64, waiters: u64) -> Who {
        let number = usize::try_from(self.dice.below(60)).expect("a few");
        match self.dice.below(100) {
            chance if chance < holders => Who::Holder(number),
            chance if chance < holders + waiters => Who::Waiter(number),
            _ => Who::Anybody(number),
        }
    }

    fn seat(&mut self) -> usize {
        usize::from(self.dice.percent(50))
    }

    fn which(&mut self) -> Which {
        use Which::{After, Before, First, Last, Second, Zero};
        self.dice.weigh(&[(1, Zero), (1, Before), (5, First), (2, Second), (4, Last), (1, After)])
    }

    fn action(&mut self) -> Action {
        let name = usize::try_from(self.dice.below(self.names.len() as u64)).expect("a few");
        let family = self.names[name];
        let alters = match (self.mood, family) {
            (Mood::Sharing, _) => 8,
            (Mood::Mutexes, _) => 0,
            _ => 2,
        };
        // Only elections carry values, and only semaphores are resized: no lock of the library asks
        // for more.
        let values = if family == Family::Election { 10 } else { 0 };
        let resizes = match (self.mood, family) {
            (Mood::Resizing, _) => 10,
            (_, Family::Semaphore) => 3,
            _ => 0,
        };
        let kind = self.dice.weigh(&[
            (40, 0),
            (if self.mood == Mood::Mutexes { 18 } else { 9 }, 1),
            (if self.mood == Mood::Sharing { 10 } else { 18 }, 2),
            (alters, 3),
            (alters, 4),
            (alters, 5),
            (values, 6),
            (resizes, 7),
            (2, 8),
            (3, 9),
        ]);
        match kind {
            0 => Action::Ask(self.terms(name)),
            1 => Action::Renew(self.renewals()),
            2 => Action::Release { name, who: self.who(60, 20), used: self.which() },
            3 => {
                let weight = self.dice.weigh(&[(6, 1), (1, 2), (4, WHOLE - 1), (1, WHOLE)]);
                Action::Downgrade { name, who: self.who(90, 0), weight, token: self.which() }
            }
            4 => Action::TryUpgrade { name, who: self.who(90, 0) },
            5 => Action::Upgrade { name, who: self.who(90, 0) },
            6 => {
                let value = u8::try_from(self.dice.below(4)).expect("small");
                Action::Value { name, who: self.who(80, 0), value }
            }
            7 => Action::Resize { name, declared: self.capacity(), capacity: self.dice.pick(&[1, 2, 3, 5]) },
            8 => Action::Break { name, seat: self.seat() },
            _ => Action::Look { name, seat: self.seat(), unseen: self.dice.pick(&[0, 1, 3, u64::MAX]) },
        }
    }

    fn renewals(&mut self) -> Vec<Renew> {
        let many = self.dice.weigh(&[(3, 1), (1, 2), (1, 5)]);
        let renewal = |maker: &mut Self| Renew {
            name: usize::try_from(maker.dice.below(maker.names.len() as u64)).expect("a few"),
            who: maker.who(75, 5),
            lease: maker.lease(),
        };
        (0..many).map(|_| renewal(self)).collect()
    }

    /// What the users of a semaphore believe its capacity to be.
    fn capacity(&mut self) -> u32 {
        self.dice.weigh(&[(20, 3), (1, 2), (1, 5)])
    }

    fn terms(&mut self, name: usize) -> Terms {
        let (weight, capacity) = match self.names[name] {
            Family::Lock => {
                let readers = match self.mood {
                    Mood::Mutexes | Mood::Stories => 2,
                    Mood::Sharing => 88,
                    _ => 40,
                };
                let weight = if self.dice.percent(readers) { 1 } else { WHOLE };
                (weight, if self.dice.percent(2) { 7 } else { WHOLE })
            }
            Family::Semaphore => (self.dice.weigh(&[(6, 1), (4, 2), (3, 3), (1, 4)]), self.capacity()),
            _ => (WHOLE, if self.dice.percent(2) { 7 } else { WHOLE }),
        };
        let delays = if self.mood == Mood::Slow { 3 * HOUR } else { 20_000 };
        let election = self.names[name] == Family::Election;
        let newcomer = self.dice.percent(60);
        let who = if newcomer { Who::Newcomer(self.seat()) } else { self.who(20, 65) };
        // What most who use a mutex ask for.
        let plain = self.mood == Mood::Mutexes && self.dice.percent(50);
        let tokens = self.dice.weigh(&[(8, 1), (2, 2), (2, 65), (1, 2_000_000)]);
        let lock_delay = self.dice.weigh(&[(16, 0), (1, 500), (2, 2000), (2, delays)]);
        Terms {
            name,
            who,
            weight,
            capacity,
            lease: self.lease(),
            lock_delay: if plain { 0 } else { lock_delay },
            tokens: if plain { 1 } else { tokens },
            wait: self.dice.percent(65),
            hurried: self.dice.percent(5),
            label: u8::try_from(self.dice.below(4)).expect("small"),
            value: if election { u8::try_from(self.dice.below(4)).expect("small") } else { 0 },
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "names {:?}; at the end everybody {}",
            self.names,
            if self.tidy { "releases" } else { "is silent" }
        )?;
        for (number, step) in self.steps.iter().enumerate() {
            let Step { pass, action, look } = step;
            write!(f, "{number:4}: {pass:?}")?;
            write!(f, ", {action:?}")?;
            writeln!(f, "{}", if *look { ", looked at" } else { "" })?;
        }
        Ok(())
    }
}
