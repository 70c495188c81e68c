//! What only a ZooKeeper ensemble does to its clients.

mod access;
mod cut_off;
mod history;
mod members;
mod pauses;
mod raw;
mod state;
#[cfg(feature = "zookeeper-tls")]
mod tls;

use std::time::Duration;

use leasehold::{Client, Family, Guard, Options};

use crate::bench::{Ground, until};
use crate::members::{members, wait, within};
use crate::servers::{Ensemble, ZooKeeper};
use crate::setup::Under;
use crate::steps::{connect, lock, refused};
use crate::{Case, Group, cases};

/// Cases of one server.
pub(crate) fn groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    let mut groups = raw::groups();
    groups.extend([
        group("access", access::cases()),
        group("history", history::cases_of_one()),
        group("pauses", pauses::cases()),
        group("state", state::cases()),
        #[cfg(feature = "zookeeper-tls")]
        group("tls", tls::cases()),
    ]);
    groups
}

/// Cases of an ensemble.
pub(crate) fn ensemble_groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    vec![
        group("members", members::cases()),
        group("history", history::cases_of_three()),
        group("cut_off", cut_off::cases()),
    ]
}

/// The server of a case.
fn server(ground: &Ground) -> &ZooKeeper {
    &ground.bench_of::<Under<ZooKeeper>>().store
}

/// The node that the nodes of a case are below.
fn path(ground: &Ground) -> &str {
    let (_, rest) = ground.url().split_once("://").expect("a URL");
    let end = rest.find('?').unwrap_or(rest.len());
    &rest[rest.find('/').expect("a path")..end]
}
