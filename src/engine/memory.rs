//! Claims kept in this process: the reference.
//!
//! A table behind a mutex, run by the rules in [`crate::claim`]. Waiters are woken directly. It has all that the
//! server engines have, for tests, for programs of one process, and as the measure for the others.
//!
//! Nothing outlives the process, and no other process can see it.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::claim::{
    Alteration, Answer, Ask, Claim, MemoryQueue, OwnerId, Released, Seat, State, Step, Wake, World,
};
use crate::clock::Clock;
use crate::engine::{
    AfterDeath, Cell, CellValue, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Swapped,
    View, Watching, refusal, view,
};
use crate::error::Result;
use crate::name::{Family, Name};

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: "memory",
    reach: Reach::Process,
    exclusion: "always",
    tokens: "for the life of the process",
    wakes: "directly",
    after_death: AfterDeath::AtOnce,
    fair: true,
    counts: true,
    upgrades: true,
    elects: true,
    cells: true,
    delays: true,
};

/// One client's place at a table of claims.
#[derive(Debug)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
    seat: Seat,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    /// What to add to the clock so that tokens rise from one run of the program to the next.
    base: u64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    names: HashMap<Name, Entry>,
    cells: HashMap<Name, StoredCell>,
    /// At this number of cells those that have expired are thrown out.
    cells_swept_at: usize,
    /// No forgotten name has given a token above this.
    floor: u64,
    seats: BTreeMap<Seat, Option<Hints>>,
    last_seat: Seat,
    watchers: HashMap<Name, BTreeSet<Seat>>,
}

#[derive(Debug)]
struct Entry {
    state: State,
    queue: MemoryQueue,
}

#[derive(Debug)]
struct StoredCell {
    version: u64,
    expires: u64,
    bytes: Vec<u8>,
}

/// Hints to give once the table is unlocked.
type Post = Vec<(Hints, Hint)>;

impl Memory {
    /// A seat at a table of its own, or at the table that others of this process call `label` too.
    pub(crate) fn open(label: &str, clock: Arc<dyn Clock>) -> Memory {
        static TABLES: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);
        if label.is_empty() {
            return Memory::sit(Arc::new(Shared::new(clock)));
        }
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, table| table.strong_count() > 0);
        let shared = tables.get(label).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Shared::new(clock));
            tables.insert(label.to_owned(), Arc::downgrade(&shared));
            shared
        });
        Memory::sit(shared)
    }

    fn sit(shared: Arc<Shared>) -> Memory {
        let mut table = shared.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.last_seat += 1;
        let seat = table.last_seat;
        table.seats.insert(seat, None);
        drop(table);
        Memory { shared, seat }
    }

    /// Runs one request on a name and passes on what follows from it.
    fn on_name<T>(
        &self,
        name: &Name,
        request: impl FnOnce(&mut State, &mut MemoryQueue, World<'_>) -> Step<T>,
    ) -> T {
        self.shared.run(|now, table, post| {
            let Table { names, seats, watchers, floor, .. } = table;
            let alive = |seat| seats.contains_key(&seat);
            let mut entry = match names.entry(name.clone()) {
                MapEntry::Occupied(entry) => entry,
                MapEntry::Vacant(vacant) => {
                    vacant.insert_entry(Entry { state: State::new(*floor), queue: MemoryQueue::default() })
                }
            };
            let Entry { state, queue } = entry.get_mut();
            let changes = state.change_count();
            let step = request(state, queue, World { now, alive: &alive });
            let changed = state.change_count() != changes;
            if let Some(last) = state.retire(now) {
                if last >= now {
                    *floor = (*floor).max(last);
                }
                entry.remove();
            }
            wake(seats, step.wakes, post);
            if changed {
                tell(seats, watchers, name, post);
            }
            step.answer
        })
    }
}

fn wake(seats: &BTreeMap<Seat, Option<Hints>>, wakes: Vec<Wake>, post: &mut Post) {
    for Wake { owner, seat } in wakes {
        if let Some(Some(hints)) = seats.get(&seat) {
            post.push((hints.clone(), Hint::Wake(owner)));
        }
    }
}

fn tell(
    seats: &BTreeMap<Seat, Option<Hints>>,
    watchers: &HashMap<Name, BTreeSet<Seat>>,
    name: &Name,
    post: &mut Post,
) {
    for seat in watchers.get(name).into_iter().flatten() {
        if let Some(Some(hints)) = seats.get(seat) {
            post.push((hints.clone(), Hint::Changed(name.clone())));
        }
    }
}

impl Shared {
    fn new(clock: Arc<dyn Clock>) -> Shared {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let wall = u64::try_from(wall.as_micros()).unwrap_or(0);
        Shared { base: wall.saturating_sub(clock.now().as_micros()), clock, table: Mutex::default() }
    }

    fn run<T>(&self, work: impl FnOnce(u64, &mut Table, &mut Post) -> T) -> T {
        let mut post = Post::new();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.base + self.clock.now().as_micros();
        let answer = work(now, &mut table, &mut post);
        drop(table);
        for (hints, hint) in post {
            hints.give(hint);
        }
        answer
    }
}

impl Drop for Memory {
    /// What is still held by a client that went away without a word is free at once.
    fn drop(&mut self) {
        self.shared.run(|now, table, post| {
            let Table { names, seats, watchers, floor, .. } = table;
            seats.remove(&self.seat);
            for watching in watchers.values_mut() {
                watching.remove(&self.seat);
            }
            let alive = |seat| seats.contains_key(&seat);
            names.retain(|name, Entry { state, queue }| {
                let changes = state.change_count();
                let Ok(step) = state.sweep(queue, World { now, alive: &alive });
                wake(seats, step.wakes, post);
                if state.change_count() != changes {
                    tell(seats, watchers, name, post);
                }
                let last = state.retire(now);
                *floor = (*floor).max(last.unwrap_or(0));
                last.is_none()
            });
        });
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T>) -> Reply<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Engine for Memory {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    fn listen(&self, hints: Hints) {
        self.shared.run(|_, table, _| table.seats.insert(self.seat, Some(hints)));
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        ready(Ok(self.on_name(name, |state, queue, world| {
            let Ok(step) = state.ask(queue, ask, self.seat, world);
            step
        })))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        ready(Ok(self.shared.run(|now, table, _| {
            let verdict = |renewal: &Renewal| {
                let entry = table.names.get_mut(&renewal.name);
                match entry.is_some_and(|entry| entry.state.renew(renewal.owner, renewal.lease, now)) {
                    true => Renewed::Yes,
                    false => Renewed::Gone,
                }
            };
            renewals.iter().map(verdict).collect()
        })))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        ready(Ok(self.on_name(name, |state, queue, world| {
            let Ok(step) = state.release(queue, owner, used, world);
            step
        })))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        ready(Ok(self.on_name(name, |state, queue, world| {
            let Ok(step) = state.alter(queue, owner, alteration, world);
            step
        })))
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        let resized = self.on_name(name, |state, queue, world| {
            let Ok(step) = state.resize(queue, declared, capacity, world);
            step
        });
        ready(resized.map_err(|refused| refusal(name, refused)))
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        ready(Ok(self.on_name(name, |state, queue, world| {
            let Ok(step) = state.sweep(queue, world);
            Step { answer: view(state, queue.iter(), seen, world.now), wakes: step.wakes }
        })))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        ready(Ok(self.shared.run(|now, table, _| {
            let wanted = |name: &&Name| {
                name.family() == family
                    && name.as_str().starts_with(prefix)
                    && after.is_none_or(|after| name.as_str() > after)
            };
            let mut names: Vec<&Name> = table.names.keys().filter(wanted).collect();
            names.sort_unstable();
            let shown = names.into_iter().filter_map(|name| {
                let state = &table.names[name].state;
                let view = view(state, [].iter(), u64::MAX, now);
                let used = !view.claims.is_empty() || view.waiting > 0;
                used.then(|| (name.clone(), view))
            });
            shown.take(limit).collect()
        })))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        let broken = self.on_name(name, |state, queue, world| {
            let Ok(step) = state.break_claims(queue, world);
            step
        });
        self.shared.run(|_, table, post| {
            for claim in &broken {
                if let Some(Some(hints)) = table.seats.get(&claim.seat) {
                    post.push((hints.clone(), Hint::Broken(claim.owner)));
                }
            }
        });
        ready(Ok(broken))
    }

    fn read<'a>(&'a self, name: &'a Name) -> Reply<'a, Cell> {
        ready(Ok(self.shared.run(|now, table, _| current(table.cells.get(name), now))))
    }

    fn swap<'a>(&'a self, name: &'a Name, version: u64, value: Option<CellValue>) -> Reply<'a, Swapped> {
        ready(Ok(self.shared.run(|now, table, post| {
            let cell = current(table.cells.get(name), now);
            if cell.version != version {
                return Swapped::No(cell);
            }
            if table.cells.len() >= table.cells_swept_at {
                table.cells.retain(|_, cell| cell.expires > now);
                table.cells_swept_at = table.cells.len() * 2 + 64;
            }
            let next = (table.floor.max(version) + 1).max(now);
            match value {
                Some(CellValue { bytes, lives }) => {
                    let expires = now.saturating_add(u64::try_from(lives.as_micros()).unwrap_or(u64::MAX));
                    table.cells.insert(name.clone(), StoredCell { version: next, expires, bytes });
                }
                None => {
                    table.cells.remove(name);
                    table.floor = table.floor.max(version);
                }
            }
            tell(&table.seats, &table.watchers, name, post);
            Swapped::Yes(next)
        })))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        self.shared.run(|_, table, _| match watching {
            Watching::On => {
                table.watchers.entry(name.clone()).or_default().insert(self.seat);
            }
            Watching::Off => {
                if let Some(watchers) = table.watchers.get_mut(name) {
                    watchers.remove(&self.seat);
                    if watchers.is_empty() {
                        table.watchers.remove(name);
                    }
                }
            }
        });
        ready(Ok(()))
    }

    fn close(&self) -> Reply<'_, ()> {
        ready(Ok(()))
    }
}

fn current(cell: Option<&StoredCell>, now: u64) -> Cell {
    match cell.filter(|cell| cell.expires > now) {
        Some(cell) => Cell { version: cell.version, value: Some(cell.bytes.clone()), now },
        None => Cell { version: 0, value: None, now },
    }
}
