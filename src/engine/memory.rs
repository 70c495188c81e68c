//! Claims kept in this process: the reference.
//!
//! A table behind a mutex, run by the rules in [`crate::claim`]. Waiters are woken directly. It has
//! all that the server engines have, for tests, for programs of one process, and as the measure for
//! the others.
//!
//! Nothing outlives the process, and no other process can see it.

use std::borrow::Cow;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::claim::{
    Alteration, Answer, Ask, Claim, MemoryQueue, Micros, OwnerId, Released, Seat, State, World,
};
use crate::clock::Clock;
use crate::engine::cell::check_cells;
use crate::engine::table::cell::{CellChange, Loaded, StoredCell};
use crate::engine::table::{
    self, Acquire, Alter, Break, Keep, Look, Notice, Release, Request, Resize, Sweep, view,
};
use crate::engine::{
    AfterDeath, Cells, Decision, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Rule, Swap,
    Swapped, View, Watching, refusal,
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
    shares: true,
    fences: true,
};

/// One client of a table of claims.
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
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    names: HashMap<Name, Entry>,
    cells: HashMap<Name, StoredCell>,
    /// At this number of cells those that have expired are thrown out.
    cells_swept_at: usize,
    /// No forgotten name has given a token above this.
    floor: u64,
    clients: Clients,
}

#[derive(Debug)]
struct Entry {
    state: State,
    queue: MemoryQueue,
}

/// Who is there, and what they want to hear of.
#[derive(Debug, Default)]
struct Clients {
    hints: BTreeMap<Seat, Option<Hints>>,
    last_seat: Seat,
    watchers: HashMap<Name, BTreeSet<Seat>>,
}

/// Hints to give once the table is unlocked.
type Outbox = Vec<(Hints, Hint)>;

impl Clients {
    fn alive(&self, seat: Seat) -> bool {
        self.hints.contains_key(&seat)
    }

    fn notify(&self, notices: Vec<Notice>, outbox: &mut Outbox) {
        for Notice { seat, hint } in notices {
            if let Some(Some(hints)) = self.hints.get(&seat) {
                outbox.push((hints.clone(), hint));
            }
        }
    }

    fn notify_watchers(&self, name: &Name, outbox: &mut Outbox) {
        for seat in self.watchers.get(name).into_iter().flatten() {
            if let Some(Some(hints)) = self.hints.get(seat) {
                outbox.push((hints.clone(), Hint::Changed(name.clone())));
            }
        }
    }
}

impl Contents {
    /// Changes a cell, and notifies those who watch it.
    fn change_cell(&mut self, name: &Name, change: CellChange, now: Micros, outbox: &mut Outbox) {
        match change {
            CellChange::Put(cell) => match self.cells.get_mut(name) {
                Some(stored) => *stored = cell,
                None => {
                    if self.cells.len() >= self.cells_swept_at {
                        self.cells.retain(|_, cell| cell.expires > now);
                        self.cells_swept_at = self.cells.len() * 2 + 64;
                    }
                    self.cells.insert(name.clone(), cell);
                }
            },
            CellChange::Delete { floor } => {
                self.cells.remove(name);
                self.floor = self.floor.max(floor);
            }
        }
        self.clients.notify_watchers(name, outbox);
    }
}

impl Entry {
    /// Runs a request; `Keep` says whether the entry is still needed.
    fn run<R: Request>(
        &mut self,
        name: &Name,
        request: &R,
        now: Micros,
        clients: &Clients,
        outbox: &mut Outbox,
    ) -> (R::Answer, Keep) {
        let alive = |seat| clients.alive(seat);
        let world = World::at(now, &alive);
        let Ok(outcome) = table::run(&mut self.state, &mut self.queue, world, request);
        clients.notify(outcome.notices, outbox);
        if outcome.changed {
            clients.notify_watchers(name, outbox);
        }
        (outcome.answer, outcome.keep)
    }
}

impl Memory {
    /// A client of a table of its own, or of the table that others of this process call `label`
    /// too.
    pub(crate) fn open(label: &str, clock: Arc<dyn Clock>) -> Memory {
        static TABLES: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);
        if label.is_empty() {
            return Memory::join(Arc::new(Shared::new(clock)));
        }
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, table| table.strong_count() > 0);
        let shared = tables.get(label).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Shared::new(clock));
            tables.insert(label.to_owned(), Arc::downgrade(&shared));
            shared
        });
        Memory::join(shared)
    }

    fn join(shared: Arc<Shared>) -> Memory {
        let seat = shared.run(|_, contents, _| {
            let clients = &mut contents.clients;
            clients.last_seat += 1;
            clients.hints.insert(clients.last_seat, None);
            clients.last_seat
        });
        Memory { shared, seat }
    }

    /// Runs one request on a name.
    fn on_name<R: Request>(&self, name: &Name, request: &R) -> R::Answer {
        self.shared.run(|now, contents, outbox| {
            let Contents { names, clients, floor, .. } = contents;
            let mut entry = match names.entry(name.clone()) {
                MapEntry::Occupied(entry) => entry,
                MapEntry::Vacant(vacant) => {
                    vacant.insert_entry(Entry { state: State::new(*floor), queue: MemoryQueue::default() })
                }
            };
            let (answer, keep) = entry.get_mut().run(name, request, now, clients, outbox);
            if forgotten(keep, floor) {
                entry.remove();
            }
            answer
        })
    }
}

/// True if a record can be thrown away; the floor is then above its tokens.
fn forgotten(keep: Keep, floor: &mut u64) -> bool {
    let Keep::Forget { floor: raised } = keep else { return false };
    *floor = (*floor).max(raised.unwrap_or(0));
    true
}

impl Shared {
    fn new(clock: Arc<dyn Clock>) -> Shared {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let wall = u64::try_from(wall.as_micros()).unwrap_or(0);
        Shared { base: wall.saturating_sub(clock.now().as_micros()), clock, contents: Mutex::default() }
    }

    /// Works on the table, and gives the hints that follow from it.
    fn run<T>(&self, work: impl FnOnce(Micros, &mut Contents, &mut Outbox) -> T) -> T {
        let mut outbox = Outbox::new();
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.base + self.clock.now().as_micros();
        let answer = work(now, &mut contents, &mut outbox);
        drop(contents);
        for (hints, hint) in outbox {
            hints.give(hint);
        }
        answer
    }
}

impl Drop for Memory {
    /// What is still held by a client that went away without a word is free at once.
    fn drop(&mut self) {
        self.shared.run(|now, contents, outbox| {
            let Contents { names, clients, floor, .. } = contents;
            clients.hints.remove(&self.seat);
            for watching in clients.watchers.values_mut() {
                watching.remove(&self.seat);
            }
            names.retain(|name, entry| {
                let ((), keep) = entry.run(name, &Sweep, now, clients, outbox);
                !forgotten(keep, floor)
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
        self.shared.run(|_, contents, _| contents.clients.hints.insert(self.seat, Some(hints)));
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        ready(Ok(self.on_name(name, &Acquire { ask: Cow::Borrowed(ask), seat: self.seat })))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        ready(Ok(self.shared.run(|now, contents, _| {
            let verdict = |renewal: &Renewal| {
                let entry = contents.names.get_mut(&renewal.name);
                match entry.is_some_and(|entry| entry.state.renew(renewal.owner, renewal.lease, now)) {
                    true => Renewed::Yes,
                    false => Renewed::Gone,
                }
            };
            renewals.iter().map(verdict).collect()
        })))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        ready(Ok(self.on_name(name, &Release { owner, used })))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        ready(Ok(self.on_name(name, &Alter { owner, alteration })))
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        let resized = self.on_name(name, &Resize { declared, capacity });
        ready(resized.map_err(|refused| refusal(name, refused)))
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        ready(Ok(self.on_name(name, &Look { seen })))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        ready(Ok(self.shared.run(|now, contents, _| {
            let wanted = |name: &&Name| {
                name.family() == family
                    && name.as_str().starts_with(prefix)
                    && after.is_none_or(|after| name.as_str() > after)
            };
            let mut names: Vec<&Name> = contents.names.keys().filter(wanted).collect();
            names.sort_unstable();
            let shown = names.into_iter().filter_map(|name| {
                let state = &contents.names[name].state;
                let view = view(state, Vec::new(), u64::MAX, now);
                let used = !view.claims.is_empty() || view.waiting > 0;
                used.then(|| (name.clone(), view))
            });
            shown.take(limit).collect()
        })))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        ready(Ok(self.on_name(name, &Break)))
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        ready(check_cells(names.iter()).map(|()| {
            self.shared.run(|now, contents, _| {
                Loaded::new(names.iter().map(|name| contents.cells.get(name)), now).cells()
            })
        }))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        ready(check_cells(swaps.iter().map(|swap| &swap.name)).map(|()| {
            self.shared.run(|now, contents, outbox| {
                let loaded = Loaded::new(swaps.iter().map(|swap| contents.cells.get(&swap.name)), now);
                if !loaded.are_at(&swaps) {
                    return Swapped::No(loaded.cells());
                }
                let stamps = loaded.stamps(contents.floor);
                for (number, Swap { name, write, .. }) in swaps.into_iter().enumerate() {
                    if let Some(change) = stamps.change(number, write) {
                        contents.change_cell(&name, change, now, outbox);
                    }
                }
                Swapped::Yes
            })
        }))
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        ready(check_cells(names.iter()).and_then(|()| {
            self.shared.run(|now, contents, outbox| {
                let loaded = Loaded::new(names.iter().map(|name| contents.cells.get(name)), now);
                let Decision { writes, answer } = loaded.decide(&**rule)?;
                if !writes.is_empty() {
                    let stamps = loaded.stamps(contents.floor);
                    for (number, (name, write)) in names.iter().zip(writes).enumerate() {
                        if let Some(change) = stamps.change(number, write) {
                            contents.change_cell(name, change, now, outbox);
                        }
                    }
                }
                Ok(answer)
            })
        }))
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        ready(Ok(self.shared.run(|now, contents, _| {
            let live = contents.cells.iter().filter(|(_, cell)| cell.expires > now);
            let names = live.map(|(name, _)| name).filter(|name| {
                name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            });
            let mut names: Vec<Name> = names.cloned().collect();
            names.sort_unstable();
            names.truncate(limit);
            names
        })))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        self.shared.run(|_, contents, _| match watching {
            Watching::On => {
                contents.clients.watchers.entry(name.clone()).or_default().insert(self.seat);
            }
            Watching::Off => {
                if let Some(watchers) = contents.clients.watchers.get_mut(name) {
                    watchers.remove(&self.seat);
                    if watchers.is_empty() {
                        contents.clients.watchers.remove(name);
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
