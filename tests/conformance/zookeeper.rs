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

use leasehold::{Client, Family, Guard, Options, Result};
use tokio::task::JoinHandle;

use crate::bench::{Ground, until};
use crate::engines::zookeeper::{SingleServer, ThreeMembers};
use crate::servers::{Ensemble, ZooKeeper};
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
    &ground.bench_of::<SingleServer>().server
}

/// The members of a case that hurts them.
fn ensemble(ground: &Ground) -> &Ensemble {
    let members = ground.bench_of::<ThreeMembers>();
    members.ensemble.spoil();
    &members.ensemble
}

async fn connect(url: &str) -> Client {
    leasehold::connect_with(url, Options::new()).await.expect("the engine is there")
}

/// What is said to somebody who can not connect.
async fn refused(url: &str) -> String {
    match leasehold::connect(url).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => error.to_string(),
    }
}

async fn lock(client: &Client, name: &str, lease: Duration) -> Guard {
    client.mutex(name).expect("a name").lease(lease).lock().await.expect("granted")
}

/// Somebody who stands in the queue.
async fn wait(client: &Client, name: &str, lease: Duration) -> JoinHandle<Result<Guard>> {
    let mutex = client.mutex(name).expect("a name").lease(lease);
    let before = client.look(Family::Lock, name).await.expect("a view").waiting;
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || client.look(Family::Lock, name).await.expect("a view").waiting > before).await;
    waiting
}
