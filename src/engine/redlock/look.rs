//! Looking at names, and breaking them.

use std::collections::BTreeSet;

use super::quorum::{LIMIT, Quorum};
use super::reply;
use super::scripts::{BREAK, LOOK};
use crate::claim::{Claim, OwnerId};
use crate::engine::View;
use crate::error::Result;
use crate::name::{Family, Name};
use crate::redis::holder::owner_text;
use crate::redis::scan::{in_use, scan};
use crate::redis::script::{Invocation, Script};

/// A script about a name that no owner asks for.
fn about(quorum: &Quorum, name: &Name, script: &'static Script) -> Result<impl Fn() -> Invocation + use<>> {
    let keys = quorum.keys_of(name, OwnerId(0))?;
    Ok(move || script.on(&keys.all()).arg(owner_text(OwnerId(0))).arg(0))
}

/// What a majority knows of a name.
pub(super) async fn look(quorum: &Quorum, name: &Name) -> Result<View> {
    // There are none of the other families.
    if name.family() != Family::Lock {
        return Ok(View::default());
    }
    let (looks, _): (Vec<reply::Look>, _) = quorum.everywhere(about(quorum, name, &LOOK)?).await?;
    Ok(reply::view(quorum.nodes.len(), &looks))
}

/// Takes a name away from all who hold it, and says who they were.
pub(super) async fn break_claims(quorum: &Quorum, name: &Name) -> Result<Vec<Claim>> {
    if name.family() != Family::Lock {
        return Ok(Vec::new());
    }
    let script = about(quorum, name, &BREAK)?;
    let (broken, _): (Vec<reply::Broken>, _) = quorum.everywhere(script).await?;
    Ok(reply::broken(quorum.nodes.len(), &broken))
}

/// The names in use, in order, that start with `prefix`, after `after`, at most `limit` of them.
pub(super) async fn list(
    quorum: &Quorum,
    family: Family,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(Name, View)>> {
    if family != Family::Lock {
        return Ok(Vec::new());
    }
    let look = |name| async move { look(quorum, &name).await };
    in_use(names(quorum, prefix).await?, prefix, after, limit, look).await
}

/// The names that start with a prefix, at any server.
async fn names(quorum: &Quorum, prefix: &str) -> Result<BTreeSet<Name>> {
    quorum.check_process()?;
    let patterns = quorum.keys.patterns(Family::Lock, prefix);
    // The last finds holders; the others find the state of the other engine.
    let pattern = patterns.last().cloned().unwrap_or_default();
    let mut answers = quorum.broadcast(|node| {
        let pattern = pattern.clone();
        async move {
            match tokio::time::timeout(2 * LIMIT, scan(&node.link, &pattern)).await {
                Ok(keys) => keys,
                Err(_) => Err(node.silent()),
            }
        }
    });
    let (mut names, mut failures) = (BTreeSet::new(), Vec::new());
    while let Some((number, found)) = answers.recv().await {
        match found {
            Ok(keys) => names.extend(keys.iter().filter_map(|key| quorum.keys.name(Family::Lock, key))),
            Err(error) => failures.push((number, error)),
        }
    }
    if quorum.nodes.len() - failures.len() < quorum.majority() {
        return Err(quorum.no_majority(failures));
    }
    Ok(names)
}
