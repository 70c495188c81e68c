//! Cells on the server, and rules that run there.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, PoisonError, RwLock};

use super::scripts::SWAP;
use super::session::Session;
use crate::engine::cell::check_cells;
use crate::engine::{Cell, Cells, Swap, Swapped, Twin, Write};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::redis::micros;
use crate::redis::script::{Invocation, Script};
use crate::redis::slots::slot_of;
use crate::redis::topology::Topology;

/// The keys of the cells of one call. In a cluster they must be in one slot.
fn cell_keys<'a>(
    session: &Session,
    names: &(impl ExactSizeIterator<Item = &'a Name> + Clone),
) -> Result<Vec<String>> {
    check_cells(names.clone())?;
    let keys = names.clone().map(|name| session.keys.cell(name)).collect::<Result<Vec<_>>>()?;
    if let (Topology::Cluster(_), [first, others @ ..]) = (&session.topology, keys.as_slice()) {
        let slot = slot_of(first);
        let apart = names.clone().skip(1).zip(others).find(|(_, key)| slot_of(key) != slot);
        if let (Some(first), Some((name, _))) = (names.clone().next(), apart) {
            return Err(Error::invalid(format!(
                "the cells `{first}` and `{name}` are in different slots of the cluster and can not be \
                 decided together; give their names the same hash tag, as in `{{user7}}/minute` and \
                 `{{user7}}/day`"
            )));
        }
    }
    Ok(keys)
}

/// Reads cells.
pub(super) async fn read(session: &Session, names: &[Name]) -> Result<Cells> {
    let keys = cell_keys(session, &names.iter())?;
    // What was seen must not be gone after a fail-over: a latch that is open stays open.
    Ok(cells(session.run_confirmed(&keys[0], |_| SWAP.on(&keys).arg("read")).await?))
}

/// The cells that there are.
pub(super) async fn list(
    session: &Session,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Name>> {
    let mut names = BTreeSet::new();
    for pattern in session.keys.cell_patterns(prefix) {
        let keys = session.topology.scan(&pattern).await?;
        names.extend(keys.iter().filter_map(|key| session.keys.cell_name(key)));
    }
    let wanted = names
        .into_iter()
        .filter(|name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after));
    Ok(wanted.take(limit).collect())
}

/// Writes to cells if all of them are still at the versions that were read.
pub(super) async fn swap(session: &Session, swaps: &[Swap]) -> Result<Swapped> {
    let keys = cell_keys(session, &swaps.iter().map(|swap| &swap.name))?;
    let with_swap = |script: Invocation, Swap { version, write, .. }: &Swap| {
        let script = script.arg(*version);
        match write {
            Write::Keep => script.arg("keep").arg(0).arg(""),
            Write::Delete => script.arg("delete").arg(0).arg(""),
            Write::Put(value) => script.arg("put").arg(micros(value.lives)).arg(value.bytes.as_slice()),
        }
    };
    let script = |_: &_| swaps.iter().fold(SWAP.on(&keys).arg("swap"), with_swap);
    let found: Option<Found> = session.run_confirmed(&keys[0], script).await?;
    Ok(found.map_or(Swapped::Yes, |found| Swapped::No(cells(found))))
}

/// Lets the server run a rule, in one round trip.
pub(super) async fn apply(session: &Session, names: &[Name], twin: &Twin) -> Result<Vec<u8>> {
    let keys = cell_keys(session, &names.iter())?;
    let script = |_: &_| twin_script(twin).on(&keys).arg(&twin.arguments);
    // Not sent again by anybody whose outcome is not known: it would be applied twice.
    session.run_confirmed(&keys[0], script).await
}

/// What `swap.lua` answers: the time, then the version and the bytes of each cell.
type Found = (u64, Vec<(u64, Vec<u8>)>);

fn cells((now, found): Found) -> Cells {
    let cell = |(version, bytes): (u64, Vec<u8>)| Cell {
        version,
        changed_at: version,
        value: (version > 0).then_some(bytes),
    };
    Cells { now, cells: found.into_iter().map(cell).collect() }
}

/// The script around a twin. Made once and kept: twins are constants.
fn twin_script(twin: &Twin) -> &'static Script {
    static SEEN: LazyLock<RwLock<HashMap<(usize, usize), &'static Script>>> = LazyLock::new(RwLock::default);
    let Twin { script: body, shortcut, .. } = twin;
    // By its address: to hash the text each time would take longer than the rest of the call.
    let constant = (body.as_ptr().addr(), body.len());
    if let Some(script) = SEEN.read().unwrap_or_else(PoisonError::into_inner).get(&constant) {
        return script;
    }
    let mut seen = SEEN.write().unwrap_or_else(PoisonError::into_inner);
    seen.entry(constant).or_insert_with(|| {
        let quick = shortcut.map_or_else(String::new, |shortcut| {
            include_str!("one_cell.lua").replace("-- SHORTCUT", shortcut)
        });
        let (clock, cells) = (include_str!("../../redis/clock.lua"), include_str!("cells.lua"));
        let text = format!(
            "{clock}\n{quick}\n{cells}\nlocal function step(values, now, arguments, put, delete)\n{body}\nend\n\
             local answer = step(values, time, ARGV, put, delete)\nwrite()\nreturn answer\n"
        );
        Box::leak(Box::new(Script::new(text.leak())))
    })
}
