//! The clients of this process, which can call each other although the server can not.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::claim::Seat;
use crate::engine::table::Notice;
use crate::engine::{Hint, Hints};
use crate::name::Name;

/// One client.
#[derive(Debug)]
struct Neighbour {
    hints: Hints,
    /// The tables that it uses.
    place: String,
    watched: HashSet<Name>,
}

static CLIENTS: Mutex<Option<HashMap<Seat, Neighbour>>> = Mutex::new(None);

fn clients() -> MutexGuard<'static, Option<HashMap<Seat, Neighbour>>> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a client known. `place` is the same for clients that use the same tables.
pub(super) fn join(seat: Seat, place: String, hints: Hints) {
    let neighbour = Neighbour { hints, place, watched: HashSet::new() };
    clients().get_or_insert_default().insert(seat, neighbour);
}

pub(super) fn leave(seat: Seat) {
    if let Some(clients) = &mut *clients() {
        clients.remove(&seat);
    }
}

pub(super) fn watch(seat: Seat, name: &Name, watched: bool) {
    if let Some(neighbour) = clients().as_mut().and_then(|clients| clients.get_mut(&seat)) {
        if watched {
            neighbour.watched.insert(name.clone());
        } else {
            neighbour.watched.remove(name);
        }
    }
}

/// Delivers hints to those who are in this process.
pub(super) fn tell(from: Seat, place: &str, notices: Vec<Notice>, changed: &[Name]) {
    let mut told: Vec<(Hints, Hint)> = Vec::new();
    if let Some(clients) = &*clients() {
        for Notice { seat, hint } in notices {
            told.extend(clients.get(&seat).map(|neighbour| (neighbour.hints.clone(), hint)));
        }
        for (seat, neighbour) in clients {
            if *seat != from && neighbour.place == place {
                let seen = changed.iter().filter(|name| neighbour.watched.contains(*name));
                told.extend(seen.map(|name| (neighbour.hints.clone(), Hint::Changed(name.clone()))));
            }
        }
    }
    // Outside of the lock: who is told may ask something.
    told.into_iter().for_each(|(hints, hint)| hints.give(hint));
}
