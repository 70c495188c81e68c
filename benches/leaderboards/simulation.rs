//! A board of very many members over cells in this process: the real client, the real cells.
//!
//! What is simulated is the engine. It keeps the tree as it is written, byte for byte. The cells of
//! members are not kept, because they would need ten gigabytes: what the client writes is compared
//! with what it must be, and made again when it is read. It counts calls, cells and bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use leasehold::engine::{
    Cell, Cells, Engine, Hints, Renewal, Renewed, Reply, Swap, Swapped, View, Watching, Write,
};
use leasehold::kit::leaderboards::Leaderboard;
use leasehold::{Client, Family, Guarantees, Name, Options};
use tokio::runtime::Runtime;

use crate::kit::{self, Result};
use crate::truth;

/// The cells. Versions count the writes.
#[derive(Debug, Default)]
struct Store {
    version: u64,
    head: Option<(u64, Box<[u8]>)>,
    parts: HashMap<u64, (u64, Box<[u8]>)>,
    /// Members that were changed after the board was built.
    changed: HashMap<u64, (u64, Box<[u8]>)>,
    /// What the cells of members have, in bytes.
    member_bytes: u64,
    members_written: u64,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    cells: AtomicU64,
    bytes: AtomicU64,
    written: AtomicU64,
}

#[derive(Debug)]
struct Simulated {
    /// Answers for everything that is not a cell.
    rest: Box<dyn Engine>,
    members: u64,
    store: Arc<Mutex<Store>>,
    counts: Arc<Counts>,
}

/// Which cell a name is.
enum Which {
    Head,
    Part(u64),
    Member(u64),
}

fn which(name: &Name) -> Which {
    let rest = name.as_str().strip_prefix("leaderboards/{sim}").expect("a cell of the board");
    match rest.split_once('=') {
        Some((_, member)) => {
            Which::Member(member.strip_prefix("user-").and_then(|n| n.parse().ok()).expect("a member"))
        }
        None => match rest.rsplit_once('/') {
            Some((_, id)) => Which::Part(u64::from_str_radix(id, 16).expect("a number")),
            None => Which::Head,
        },
    }
}

impl Simulated {
    /// The cell of a member that was not changed: as `kit::leaderboards` writes it.
    fn member(&self, number: u64) -> Vec<u8> {
        let place = truth::place_of(number, self.members);
        let mut bytes = vec![0xa4];
        bytes.extend_from_slice(&(!truth::score(place, self.members)).to_be_bytes());
        let mut reached = truth::reached(place);
        while reached >= 0x80 {
            bytes.push(reached.to_le_bytes()[0] | 0x80);
            reached >>= 7;
        }
        bytes.push(reached.to_le_bytes()[0]);
        bytes
    }

    fn cell(&self, store: &Store, name: &Name) -> Cell {
        let found = match which(name) {
            Which::Head => store.head.as_ref().map(|(version, bytes)| (*version, bytes.to_vec())),
            Which::Part(id) => store.parts.get(&id).map(|(version, bytes)| (*version, bytes.to_vec())),
            Which::Member(number) => match store.changed.get(&number) {
                Some((version, bytes)) => Some((*version, bytes.to_vec())),
                None if store.members_written >= self.members => Some((1, self.member(number))),
                None => None,
            },
        };
        let (version, value) = found.map_or((0, None), |(version, bytes)| (version, Some(bytes)));
        Cell { version, changed_at: 0, value }
    }

    fn write(&self, store: &mut Store, name: &Name, write: Write) {
        let Write::Put(put) = write else {
            match (which(name), write) {
                (Which::Part(id), Write::Delete) => drop(store.parts.remove(&id)),
                (_, Write::Delete) => panic!("nothing else is deleted here"),
                _ => {}
            }
            return;
        };
        self.counts.written.fetch_add(put.bytes.len() as u64, Ordering::Relaxed);
        store.version += 1;
        let value = (store.version, put.bytes.into_boxed_slice());
        match which(name) {
            Which::Head => store.head = Some(value),
            Which::Part(id) => drop(store.parts.insert(id, value)),
            Which::Member(number) if store.members_written < self.members => {
                assert_eq!(*value.1, *self.member(number), "the cell of a member is another one");
                store.member_bytes += value.1.len() as u64;
                store.members_written += 1;
            }
            Which::Member(number) => drop(store.changed.insert(number, value)),
        }
    }

    fn now() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
    }

    fn look_at(&self, store: &Store, names: &[Name]) -> Cells {
        let cells: Vec<Cell> = names.iter().map(|name| self.cell(store, name)).collect();
        let bytes: usize = cells.iter().filter_map(|cell| cell.value.as_ref()).map(Vec::len).sum();
        self.counts.cells.fetch_add(cells.len() as u64, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Cells { now: Simulated::now(), cells }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Simulated {
    fn guarantees(&self) -> Guarantees {
        self.rest.guarantees()
    }

    fn listen(&self, hints: Hints) {
        self.rest.listen(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        self.rest.acquire(name, ask)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        self.rest.renew(renewals)
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        self.rest.release(name, owner, used)
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        self.rest.alter(name, owner, alteration)
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        self.rest.resize(name, declared, capacity)
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        self.rest.look(name, seen)
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        self.rest.list(family, prefix, after, limit)
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        self.rest.break_claims(name)
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        let found = self.look_at(&self.store(), names);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        let mut store = self.store();
        let stale = swaps.iter().any(|swap| self.cell(&store, &swap.name).version != swap.version);
        let swapped = if stale {
            let names: Vec<Name> = swaps.into_iter().map(|swap| swap.name).collect();
            Swapped::No(self.look_at(&store, &names))
        } else {
            swaps.into_iter().for_each(|swap| self.write(&mut store, &swap.name, swap.write));
            Swapped::Yes
        };
        Box::pin(std::future::ready(Ok(swapped)))
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        self.rest.list_cells(prefix, after, limit)
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        self.rest.watch(name, watching)
    }

    fn close(&self) -> Reply<'_, ()> {
        self.rest.close()
    }
}

/// Prints what the board is made of.
fn print(store: &Mutex<Store>, members: u64) {
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes: usize = store.parts.values().map(|(_, bytes)| bytes.len()).sum();
    let largest = store.parts.values().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    let leaves = store.parts.values().filter(|(_, bytes)| bytes.first() == Some(&0xa3)).count();
    println!(
        "  cells: {} of members, {leaves} leaves, {} nodes, a head",
        members,
        store.parts.len() - leaves
    );
    println!(
        "  values: {:.2} GB in the tree ({:.1} bytes a member), {:.2} GB of members ({:.1} each); the largest \
         cell has {largest} bytes",
        bytes as f64 / 1e9,
        bytes as f64 / members as f64,
        store.member_bytes as f64 / 1e9,
        store.member_bytes as f64 / members as f64,
    );
}

/// Runs calls, and prints what each took of the store on average.
fn count(
    label: &str,
    runtime: &Runtime,
    counts: &Counts,
    calls: u32,
    mut call: impl AsyncFnMut(u32) -> Result<()>,
) -> Result<()> {
    let all = [&counts.calls, &counts.cells, &counts.bytes, &counts.written];
    let before = all.map(|count| count.load(Ordering::Relaxed));
    let begun = Instant::now();
    runtime.block_on(async {
        for number in 0..calls {
            call(number).await?;
        }
        Result::Ok(())
    })?;
    let time = begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls);
    let each: Vec<f64> = all
        .iter()
        .zip(before)
        .map(|(count, before)| (count.load(Ordering::Relaxed) - before) as f64 / f64::from(calls))
        .collect();
    println!(
        "  {label:32} {:5.2} round trips, {:5.2} cells read, {:6.0} bytes read, {:6.0} written; {time:5.0} µs here",
        each[0], each[1], each[2], each[3]
    );
    Ok(())
}

/// Builds a board of so many members, and looks at what calls cost.
pub(crate) fn run(members: u64) -> Result<()> {
    if !(1000..=100_000_000).contains(&members) {
        return Err("between 1000 and 100000000 members".into());
    }
    let runtime = kit::one_thread()?;
    let counts = Arc::new(Counts::default());
    let store: Arc<Mutex<Store>> = Arc::default();
    let client = runtime.block_on(async {
        let rest = leasehold::engine::open("memory:", &Options::new()).await?;
        let (store, counts) = (Arc::clone(&store), Arc::clone(&counts));
        let engine = Simulated { rest, members, store, counts };
        Result::Ok(Client::new(Box::new(engine), Options::new())?)
    })?;
    let board = client.leaderboard("sim")?;
    let begun = Instant::now();
    let built =
        runtime.block_on(board.rebuild(async || Ok::<_, leasehold::Error>(truth::entries(members))))?;
    assert_eq!(built, members);
    println!(
        "{members} members, built in {:.0} s ({} calls)",
        begun.elapsed().as_secs_f64(),
        counts.calls.load(Ordering::Relaxed)
    );
    print(&store, members);

    let mut number = 7_u64;
    let mut next = move || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % members
    };
    let check = async |board: &Leaderboard, number: u64| -> Result<()> {
        let rank = board.rank(truth::member(number)).await?.ok_or("a member is missing")?;
        let place = truth::place_of(number, members);
        let expected = (place + 1, members, truth::score(place, members));
        if (rank.place, rank.of, rank.score) == expected {
            Ok(())
        } else {
            Err(format!("{rank:?} is not {expected:?}").into())
        }
    };
    println!("what a call costs, with every place compared with the truth");
    count("rank, first call of a process", &runtime, &counts, 200, async |_| {
        check(&client.leaderboard("sim")?, next()).await
    })?;
    count("rank, while it learns the tree", &runtime, &counts, 20_000, async |_| {
        check(&board, next()).await
    })?;
    count("rank, warm", &runtime, &counts, 20_000, async |_| check(&board, next()).await)?;
    let known = next();
    count("rank of a known member", &runtime, &counts, 1000, async |_| check(&board, known).await)?;
    count("top 100", &runtime, &counts, 1000, async |_| {
        let top = board.top(100).await?;
        let right = top.iter().zip(0..).all(|(ranked, place)| {
            ranked.place == place + 1 && ranked.member == truth::member_at(place, members)
        });
        if right && top.len() == 100 { Ok(()) } else { Err("the top is another one".into()) }
    })?;
    count("around, 10 before and after", &runtime, &counts, 5000, async |_| {
        let number = next();
        let first = truth::place_of(number, members).saturating_sub(10);
        let around = board.around(truth::member(number), 10).await?;
        let right = around.iter().zip(first..).all(|(ranked, place)| {
            ranked.place == place + 1 && ranked.member == truth::member_at(place, members)
        });
        if right && around.len() >= 11 { Ok(()) } else { Err("those around are others".into()) }
    })?;
    // Where they were, counted from 0, and which scores they have now.
    let mut moved: Vec<(u64, i64)> = Vec::new();
    count("set to a random score", &runtime, &counts, 1000, async |_| {
        let (number, other) = (next(), next());
        let place = truth::place_of(number, members);
        if moved.iter().any(|(old, _)| *old == place) {
            return Ok(());
        }
        let score = truth::score(truth::place_of(other, members), members);
        board.set(truth::member(number), score).await?;
        moved.push((place, score));
        Ok(())
    })?;
    // Behind all who had a score when it was set, without those who have left, with those who came.
    runtime.block_on(async {
        for (index, (place, score)) in moved.iter().enumerate() {
            let before = truth::at_least(*score, members);
            if truth::score(*place, members) == *score {
                continue;
            }
            let left = moved
                .iter()
                .filter(|(old, now)| *old < before && truth::score(*old, members) != *now)
                .count();
            let stays = |old: u64, now: i64| truth::score(old, members) == now;
            let came = moved.iter().enumerate().filter(|(other, (old, now))| {
                !stays(*old, *now) && (*now > *score || (*now == *score && *other < index))
            });
            let expected = before - left as u64 + came.count() as u64 + 1;
            let rank = board.rank(truth::member_at(*place, members)).await?.ok_or("a member is missing")?;
            if (rank.place, rank.score) != (expected, *score) {
                return Err(format!("{rank:?} after it was set, and should be at {expected}").into());
            }
        }
        Result::Ok(())
    })?;
    println!("all places are right, before {} were set and after", moved.len());
    Ok(())
}
