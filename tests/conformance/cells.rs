//! Cells, and rules over them. Each case runs a rule as the engine does and by reading and
//! swapping.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::engine::{
    CellValue, Cells, Decision, Engine, Hint, Hints, MOST_CELLS, Rule, Swap, Swapped, Twin, Watching, Write,
    apply_by_swap,
};
use leasehold::{Error, Family, Name, Result};
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, soon, until};
use crate::wire::{Fault, Wire, wire};
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "cells",
        cells,
        [
            concurrent_updates_each_count_once,
            several_cells_are_written_all_or_none,
            a_swap_of_several_is_all_or_none,
            a_twin_decides_as_its_rule_does,
            a_value_expires,
            time_does_not_go_back,
            an_answer_that_got_lost_is_not_applied_twice,
            a_dropped_update_has_happened_or_not,
            a_decision_without_writes_changes_nothing,
            a_change_is_told_to_those_who_watch,
            any_name_and_any_bytes_will_do,
            long_values_are_written_together,
            too_many_cells_and_one_cell_twice_are_refused,
            a_cell_of_something_else_is_no_latch,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse them.
async fn cells(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let engine = ground.engine().await;
    let names = [name("x")];
    crate::bench::refuses(engine.read(&names).await);
    let write = Write::Put(CellValue { bytes: vec![1], lives: ms(1000) });
    crate::bench::refuses(engine.swap(vec![Swap { name: name("x"), version: 0, write }]).await);
    crate::bench::refuses(engine.apply(&names, &add(1)).await);
    None
}

/// How a rule is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// As the engine does it.
    Engine,
    /// By reading and swapping, which every engine must be able to do.
    Swap,
}

pub(crate) const WAYS: [Way; 2] = [Way::Engine, Way::Swap];

impl Way {
    pub(crate) async fn apply(
        self,
        engine: &dyn Engine,
        names: &[Name],
        rule: &Arc<dyn Rule>,
    ) -> Result<Vec<u8>> {
        match self {
            Way::Engine => engine.apply(names, rule).await,
            Way::Swap => apply_by_swap(engine, names, rule).await,
        }
    }

    pub(crate) async fn add(self, engine: &dyn Engine, names: &[Name], rule: &Arc<dyn Rule>) -> Added {
        let answer = soon("an answer", self.apply(engine, names, rule)).await.expect("applied");
        Added::decode(&answer)
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(Family::Cell, text).expect("a name")
}

/// Cells that every engine can decide together.
fn together<const N: usize>(texts: [&str; N]) -> [Name; N] {
    texts.map(|text| name(&format!("{{t}}/{text}")))
}

/// Adds a number to each cell, unless one of them would get too large: then to none.
#[derive(Debug)]
struct Add {
    amount: u64,
    most: u64,
    lives: Duration,
}

pub(crate) fn add(amount: u64) -> Arc<dyn Rule> {
    Arc::new(Add { amount, most: u64::MAX, lives: ms(60_000) })
}

fn decode(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("eight bytes")))
}

impl Rule for Add {
    fn step(&self, values: &[Option<&[u8]>], now: u64) -> Decision {
        let before = values.iter().map(|value| decode(*value));
        let after: Vec<u64> = before.clone().map(|value| value + self.amount).collect();
        let fits = after.iter().all(|value| *value <= self.most);
        let shown = if fits { after.clone() } else { before.collect() };
        let mut answer = vec![u8::from(fits)];
        answer.extend(now.to_be_bytes());
        shown.iter().for_each(|value| answer.extend(value.to_be_bytes()));
        let put =
            |value: u64| Write::Put(CellValue { bytes: value.to_be_bytes().to_vec(), lives: self.lives });
        let writes = if fits { after.into_iter().map(put).collect() } else { Vec::new() };
        Decision { writes, answer }
    }

    fn twin(&self) -> Option<Twin> {
        let script = r"
            local amount, most, lives = tonumber(arguments[1]), tonumber(arguments[2]), arguments[3]
            local before, after, fits = {}, {}, true
            for cell, value in ipairs(values) do
              before[cell] = value or string.rep('\0', 8)
              local sum = struct.unpack('>I8', before[cell]) + amount
              after[cell] = struct.pack('>I8', sum)
              fits = fits and sum <= most
            end
            if fits then
              for cell, value in ipairs(after) do put(cell, value, lives) end
            end
            local shown = table.concat(fits and after or before)
            return (fits and '\1' or '\0') .. struct.pack('>I8', now) .. shown
        ";
        let lives = u64::try_from(self.lives.as_micros()).expect("some years");
        let arguments = [self.amount, self.most, lives].map(|number| number.to_string().into_bytes());
        Some(Twin { script, shortcut: None, arguments: arguments.into() })
    }
}

/// What [`Add`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    fits: bool,
    pub(crate) now: u64,
    pub(crate) values: Vec<u64>,
}

impl Added {
    fn decode(answer: &[u8]) -> Added {
        let (fits, rest) = answer.split_first().expect("an answer");
        let numbers: Vec<u64> = rest.as_chunks::<8>().0.iter().map(|n| u64::from_be_bytes(*n)).collect();
        Added { fits: *fits == 1, now: numbers[0], values: numbers[1..].to_vec() }
    }
}

/// Moves some of one cell to the other, if it is there. It has no twin: not every rule has one.
#[derive(Debug)]
struct Move(u64);

impl Rule for Move {
    fn step(&self, values: &[Option<&[u8]>], _: u64) -> Decision {
        let (from, to) = (decode(values[0]), decode(values[1]));
        let put =
            |value: u64| Write::Put(CellValue { bytes: value.to_be_bytes().to_vec(), lives: ms(60_000) });
        match from.checked_sub(self.0) {
            Some(left) => Decision { writes: vec![put(left), put(to + self.0)], answer: b"moved".to_vec() },
            None => Decision { writes: Vec::new(), answer: b"refused".to_vec() },
        }
    }
}

pub(crate) async fn values(engine: &dyn Engine, names: &[Name]) -> Vec<u64> {
    let found = soon("cells", engine.read(names)).await.expect("cells");
    found.cells.iter().map(|cell| decode(cell.value.as_deref())).collect()
}

async fn concurrent_updates_each_count_once(mut ground: Ground) {
    const TASKS: u64 = 6;
    const TIMES: u64 = 10;
    let engines: Vec<Arc<dyn Engine>> =
        vec![ground.engine().await.into(), ground.engine().await.into(), ground.engine().await.into()];
    for way in WAYS {
        let names = [name(&format!("counter {way:?}"))];
        let mut tasks = JoinSet::new();
        for engine in engines.iter().flat_map(|engine| (0..TASKS).map(move |_| Arc::clone(engine))) {
            let names = names.clone();
            tasks.spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..TIMES {
                    seen.push(way.add(&*engine, &names, &add(1)).await.values[0]);
                }
                seen
            });
        }
        // Of 18 that swap at the same time one wins: that is a few thousand tries.
        let all = tokio::time::timeout(Duration::from_secs(60), tasks.join_all());
        let mut seen: Vec<u64> = all.await.expect("all of them in time").concat();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..=3 * TASKS * TIMES), "{way:?}");
    }
}

async fn several_cells_are_written_all_or_none(mut ground: Ground) {
    let (one, two): (Arc<dyn Engine>, Box<dyn Engine>) =
        (ground.engine().await.into(), ground.engine().await);
    for way in WAYS {
        let texts = [format!("a {way:?}"), format!("b {way:?}")];
        let names = together([texts[0].as_str(), texts[1].as_str()]);
        way.add(&*one, &names, &add(500)).await;
        // One of them would get too large.
        way.add(&*one, &names[1..], &add(1)).await;
        let limited: Arc<dyn Rule> = Arc::new(Add { amount: 1, most: 501, lives: ms(60_000) });
        let refused = way.add(&*one, &names, &limited).await;
        assert_eq!((refused.fits, refused.values), (false, vec![500, 501]));
        assert_eq!(values(&*two, &names).await, [500, 501]);

        // Whoever reads sees no half of it, whichever way it goes.
        let mut tasks = JoinSet::new();
        for direction in 0..4usize {
            let (one, mut names) = (Arc::clone(&one), names.clone());
            names.rotate_left(direction % 2);
            tasks.spawn(async move {
                let rule: Arc<dyn Rule> = Arc::new(Move(7));
                for _ in 0..25 {
                    soon("a move", way.apply(&*one, &names, &rule)).await.expect("applied");
                }
            });
        }
        while !tasks.is_empty() {
            assert_eq!(values(&*two, &names).await.iter().sum::<u64>(), 1001, "{way:?}");
            while tasks.try_join_next().transpose().expect("no panic").is_some() {}
            tokio::task::yield_now().await;
        }
        assert_eq!(values(&*two, &names).await.iter().sum::<u64>(), 1001, "{way:?}");
    }
}

async fn a_swap_of_several_is_all_or_none(mut ground: Ground) {
    let engine = ground.engine().await;
    let names = together(["a", "b", "c"]);
    let put = |byte: u8| Write::Put(CellValue { bytes: vec![byte], lives: ms(60_000) });
    let swap = async |found: &Cells, writes: [Write; 3]| {
        let swaps = names.iter().zip(&found.cells).zip(writes);
        let swaps =
            swaps.map(|((name, cell), write)| Swap { name: name.clone(), version: cell.version, write });
        engine.swap(swaps.collect()).await.expect("an answer")
    };
    let seen = |cells: &Cells| -> Vec<Option<u8>> {
        cells.cells.iter().map(|cell| cell.value.as_ref().map(|value| value[0])).collect()
    };
    let empty = engine.read(&names).await.expect("cells");
    assert!(empty.cells.iter().all(|cell| *cell == leasehold::engine::Cell::default()));
    assert_eq!(swap(&empty, [put(1), put(1), Write::Keep]).await, Swapped::Yes);
    let first = engine.read(&names).await.expect("cells");
    assert_eq!(seen(&first), [Some(1), Some(1), None]);

    // Somebody else is faster: at a cell that would be written, and at one that is only looked at.
    assert_eq!(swap(&first, [Write::Keep, put(2), Write::Keep]).await, Swapped::Yes);
    let second = engine.read(&names).await.expect("cells");
    for writes in
        [[put(9), put(9), put(9)], [put(9), Write::Keep, put(9)], [Write::Delete, Write::Keep, put(9)]]
    {
        let Swapped::No(found) = swap(&first, writes).await else { panic!("it is not as it was") };
        assert_eq!(found.cells, second.cells);
        assert!(found.now >= second.now);
    }
    assert_eq!(seen(&engine.read(&names).await.expect("cells")), [Some(1), Some(2), None]);
    // The version of what was deleted never comes back.
    assert_eq!(swap(&second, [Write::Delete, Write::Delete, put(3)]).await, Swapped::Yes);
    let third = engine.read(&names).await.expect("cells");
    assert_eq!(seen(&third), [None, None, Some(3)]);
    assert_eq!(swap(&third, [put(4), Write::Keep, Write::Keep]).await, Swapped::Yes);
    let fourth = engine.read(&names).await.expect("cells");
    assert!(first.cells[0].version != fourth.cells[0].version);
}

async fn a_twin_decides_as_its_rule_does(mut ground: Ground) {
    let engine = ground.engine().await;
    let names = |way: Way| together(["a", "b", "c"]).map(|cell| name(&format!("{cell}{way:?}")));
    let mut dice = 1u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    for _ in 0..150 {
        let (from, count) = (roll(3) as usize, 1 + roll(3) as usize);
        let to = (from + count).min(3);
        let rule: Arc<dyn Rule> = Arc::new(Add { amount: roll(10), most: roll(200), lives: ms(60_000) });
        let mut answers = Vec::new();
        for way in WAYS {
            let names = names(way);
            let added = way.add(&*engine, &names[from..to], &rule).await;
            answers.push((added.fits, added.values, values(&*engine, &names).await));
        }
        assert_eq!(answers[0], answers[1], "{rule:?}");
    }
}

async fn a_value_expires(mut ground: Ground) {
    let engine = ground.engine().await;
    for way in WAYS {
        let names = together(["short", "long"]).map(|cell| name(&format!("{cell}{way:?}")));
        let brief: Arc<dyn Rule> = Arc::new(Add { amount: 5, most: u64::MAX, lives: ms(80) });
        way.add(&*engine, &names[..1], &brief).await;
        way.add(&*engine, &names[1..], &add(5)).await;
        let read = async || engine.read(&names).await.expect("cells").cells;
        let before = read().await;
        assert_eq!(decode(before[1].value.as_deref()), 5);
        until("it has expired", async || read().await[0].value.is_none()).await;
        assert_eq!((read().await[0].version, read().await[1].clone()), (0, before[1].clone()));
        // Who remembers what has expired is not believed.
        let write = Write::Put(CellValue { bytes: vec![0; 8], lives: ms(1000) });
        let stale = Swap { name: names[0].clone(), version: before[0].version.max(1), write };
        assert!(matches!(engine.swap(vec![stale]).await, Ok(Swapped::No(_))));
        // A rule starts anew, and each of its writes has its own time to live.
        assert_eq!(way.add(&*engine, &names, &add(1)).await.values, [1, 6]);
    }
}

async fn time_does_not_go_back(mut ground: Ground) {
    let (one, two) = (ground.engine().await, ground.engine().await);
    let names = together(["a", "b"]);
    let mut last = 0;
    for round in 0..40 {
        let engine = if round % 3 == 0 { &*one } else { &*two };
        let way = WAYS[round % 2];
        let part = if round % 5 == 0 { &names[..1] } else { &names[..] };
        // Some only look.
        let most = if round % 4 == 0 { 0 } else { u64::MAX };
        let rule: Arc<dyn Rule> = Arc::new(Add { amount: 1, most, lives: ms(60_000) });
        let now = way.add(engine, part, &rule).await.now;
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    // It is a time in microseconds.
    tokio::time::sleep(ms(100)).await;
    let now = Way::Engine.add(&*one, &names, &add(1)).await.now;
    assert!((100_000..10_000_000).contains(&(now - last)), "{} µs", now - last);
    let found = one.read(&names).await.expect("cells");
    assert!(found.now >= now && found.cells.iter().all(|cell| cell.changed_at >= now));
}

/// A rule that does something to the wire between the read and the write.
#[derive(Debug)]
struct Meanwhile(Arc<Wire>, Fault);

impl Rule for Meanwhile {
    fn step(&self, values: &[Option<&[u8]>], now: u64) -> Decision {
        self.0.set(self.1);
        Add { amount: 1, most: u64::MAX, lives: ms(60_000) }.step(values, now)
    }
}

async fn an_answer_that_got_lost_is_not_applied_twice(mut ground: Ground) {
    let plain = ground.engine().await;
    let (engine, cable) = wire(ground.engine().await);
    let unknown = |answer: Result<Vec<u8>>| {
        let error = answer.expect_err("the answer is lost");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    };
    let names = [name("x")];
    cable.set(Fault::LoseAnswer);
    unknown(engine.apply(&names, &add(1)).await);
    assert_eq!(values(&*plain, &names).await, [1]);
    // By reading and swapping: the answer to the swap is lost, or the swap.
    for (fault, value) in [(Fault::LoseAnswer, 2), (Fault::Refuse, 2)] {
        cable.set(Fault::None);
        let rule: Arc<dyn Rule> = Arc::new(Meanwhile(Arc::clone(&cable), fault));
        unknown(apply_by_swap(&*engine, &names, &rule).await);
        assert_eq!(values(&*plain, &names).await, [value], "{fault:?}");
    }
}

async fn a_dropped_update_has_happened_or_not(mut ground: Ground) {
    let (engine, cable) = wire(ground.engine().await);
    cable.set(Fault::Stutter);
    let mut done = 0;
    for way in WAYS {
        for polls in 0..12 {
            let names = together(["a", "b"]);
            let before = values(&*engine, &names).await;
            let rule = add(1);
            let mut update = Box::pin(way.apply(&*engine, &names, &rule));
            for _ in 0..polls {
                let again = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(update.as_mut().poll(context).is_ready())
                });
                if again.await {
                    done += 1;
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
            drop(update);
            // What was sent may arrive late, but then all of it.
            let after = values(&*engine, &names).await;
            assert!(after[0] == after[1] && after[0] - before[0] <= 1, "{before:?} {after:?}");
        }
    }
    assert!(done > 0, "some had time enough");
    // A late one would be seen in between.
    let names = together(["a", "b"]);
    let before = values(&*engine, &names).await[0];
    let added = Way::Engine.add(&*engine, &names, &add(1)).await;
    assert!(added.values[0] == added.values[1] && added.values[0] > before);
}

/// An engine whose hints of changes are counted.
async fn listening(ground: &mut Ground) -> (Box<dyn Engine>, Arc<Mutex<Vec<Name>>>) {
    let options = ground.options();
    let engine = leasehold::engine::open(ground.url(), &options).await.expect("the engine is there");
    let told: Arc<Mutex<Vec<Name>>> = Arc::default();
    let sink = Arc::clone(&told);
    engine.listen(Hints::new(move |hint| {
        if let Hint::Changed(name) = hint {
            sink.lock().expect("no panic").push(name);
        }
    }));
    (engine, told)
}

async fn a_decision_without_writes_changes_nothing(mut ground: Ground) {
    let engine = ground.engine().await;
    let (watching, told) = listening(&mut ground).await;
    let names = together(["a", "b"]);
    Way::Engine.add(&*engine, &names, &add(3)).await;
    watching.watch(&names[0], Watching::On).await.expect("watched");
    let before = engine.read(&names).await.expect("cells");
    let limited: Arc<dyn Rule> = Arc::new(Add { amount: 1, most: 3, lives: ms(1) });
    for way in WAYS {
        assert!(!way.add(&*engine, &names, &limited).await.fits);
    }
    assert_eq!(engine.read(&names).await.expect("cells").cells, before.cells);
    // A hint may come twice, or because a connection was made anew: it is never of another cell.
    Way::Engine.add(&*engine, &names, &add(1)).await;
    until("the change is told", async || !told.lock().expect("no panic").is_empty()).await;
    assert!(told.lock().expect("no panic").iter().all(|name| *name == names[0]));
}

async fn a_change_is_told_to_those_who_watch(mut ground: Ground) {
    let engine = ground.engine().await;
    let (watching, told) = listening(&mut ground).await;
    let names = together(["a", "b", "c"]);
    for name in &names[..2] {
        watching.watch(name, Watching::On).await.expect("watched");
    }
    for way in WAYS {
        told.lock().expect("no panic").clear();
        way.add(&*engine, &names, &add(1)).await;
        let expected: BTreeSet<Name> = names[..2].iter().cloned().collect();
        let heard = async || told.lock().expect("no panic").iter().cloned().collect::<BTreeSet<_>>();
        until("both are told", async || heard().await == expected).await;
    }
    for name in &names[..2] {
        watching.watch(name, Watching::Off).await.expect("not watched");
    }
}

async fn any_name_and_any_bytes_will_do(mut ground: Ground) {
    let engine = ground.engine().await;
    let long = "n".repeat(3000);
    let texts = ["", " ", "a b", "é{x}", "{x}é", "{", "}{", "{}", "x%7B", "50%", "a\nb\0c", long.as_str()];
    let all: Vec<u8> = (0..=255).collect();
    let values = [Vec::new(), b"7 x".to_vec(), all.repeat(200), vec![0]];
    let put = |bytes: &[u8]| Write::Put(CellValue { bytes: bytes.to_vec(), lives: ms(60_000) });
    for (number, text) in texts.iter().enumerate() {
        let bytes = [&values[number % values.len()], text.as_bytes()].concat();
        let swap = Swap { name: name(text), version: 0, write: put(&bytes) };
        assert_eq!(engine.swap(vec![swap]).await.expect("an answer"), Swapped::Yes, "{text:?}");
    }
    for (number, text) in texts.iter().enumerate() {
        let bytes = [&values[number % values.len()], text.as_bytes()].concat();
        let found = engine.read(&[name(text)]).await.expect("a cell");
        assert_eq!(found.cells[0].value.as_deref(), Some(bytes.as_slice()), "{text:?}");
    }
}

async fn long_values_are_written_together(mut ground: Ground) {
    let engine = ground.engine().await;
    let names = ["{t}a", "{t}b", "{t}c"].map(name);
    for length in [65_535, 65_536, 70_000, 262_144] {
        let found = engine.read(&names).await.expect("cells");
        let cells = names.iter().zip(&found.cells).zip([9, length, length - 7]);
        let swaps = cells.map(|((name, cell), length)| {
            let write = Write::Put(CellValue { bytes: vec![7; length], lives: ms(60_000) });
            Swap { name: name.clone(), version: cell.version, write }
        });
        assert_eq!(engine.swap(swaps.collect()).await.expect("an answer"), Swapped::Yes);
        let found = engine.read(&names).await.expect("cells");
        let lengths = found.cells.iter().map(|cell| cell.value.as_ref().map_or(0, Vec::len));
        assert_eq!(lengths.collect::<Vec<_>>(), [9, length, length - 7]);
    }
}

async fn too_many_cells_and_one_cell_twice_are_refused(mut ground: Ground) {
    /// Deletes so many cells, and counts its steps.
    #[derive(Debug)]
    struct Counted(usize, Arc<AtomicUsize>);
    impl Rule for Counted {
        fn step(&self, _: &[Option<&[u8]>], _: u64) -> Decision {
            self.1.fetch_add(1, Ordering::AcqRel);
            Decision { writes: vec![Write::Delete; self.0], answer: Vec::new() }
        }
    }
    let engine = ground.engine().await;
    let many: Vec<Name> = (0..=MOST_CELLS).map(|number| name(&format!("{{t}}/{number}"))).collect();
    let twice = [name("x"), name("x")];
    let steps = Arc::new(AtomicUsize::new(0));
    let rule: Arc<dyn Rule> = Arc::new(Counted(1, Arc::clone(&steps)));
    for names in [&many[..], &twice[..], &[]] {
        let swap = |name: &Name| Swap { name: name.clone(), version: 0, write: Write::Delete };
        let errors = [
            engine.read(names).await.expect_err("refused"),
            engine.swap(names.iter().map(swap).collect()).await.expect_err("refused"),
            engine.apply(names, &rule).await.expect_err("refused"),
            apply_by_swap(&*engine, names, &rule).await.expect_err("refused"),
        ];
        for error in errors {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
    assert_eq!(steps.load(Ordering::Acquire), 0, "no rule was run");
    let most = &many[..MOST_CELLS];
    for way in WAYS {
        assert_eq!(way.add(&*engine, most, &add(1)).await.values.len(), MOST_CELLS);
    }
    assert_eq!(values(&*engine, most).await, [2; MOST_CELLS]);
    // A rule that writes to what it was not given.
    let rule: Arc<dyn Rule> = Arc::new(Counted(2, steps));
    for way in WAYS {
        let error = way.apply(&*engine, &[name("y")], &rule).await.expect_err("refused");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}

async fn a_cell_of_something_else_is_no_latch(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let put = Write::Put(CellValue { bytes: b"something".to_vec(), lives: ms(60_000) });
    let swap = Swap { name: name("x"), version: 0, write: put };
    assert_eq!(engine.swap(vec![swap]).await.expect("an answer"), Swapped::Yes);
    let latch = client.latch("x", 3).expect("a name");
    for error in [latch.count_down().await.expect_err("no latch"), latch.left().await.expect_err("no latch")]
    {
        assert!(matches!(error, Error::Engine { .. }), "{error}");
    }
}
