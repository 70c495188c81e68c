//! What only an etcd cluster does to its clients.

mod access;
mod cut_off;
mod history;
mod members;
mod raw;
mod state;
#[cfg(feature = "etcd-tls")]
mod tls;

use leasehold::{Client, Family};

use crate::bench::{Ground, until};
use crate::members::{members, wait, within};
use crate::servers::{Etcd, EtcdCluster};
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
        group("state", state::cases()),
        #[cfg(feature = "etcd-tls")]
        group("tls", tls::cases()),
    ]);
    groups
}

/// Cases of a cluster.
pub(crate) fn cluster_groups() -> Vec<Group> {
    let group = |name, cases| Group { name, missing: None, cases };
    vec![
        group("members", members::cases()),
        group("history", history::cases_of_three()),
        group("cut_off", cut_off::cases()),
    ]
}

/// The server of a case.
fn server(ground: &Ground) -> &Etcd {
    &ground.bench_of::<Under<Etcd>>().store
}
