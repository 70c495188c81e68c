//! Names that nobody else wants.

use std::time::Duration;

use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::kit::{self, Goal, Result, Runner, race, verdict};
use crate::peers::{CRATE, CURATOR, KAZOO, Peer};
use crate::{ROUNDS, SLICE};

/// Runs all in turns, with so many tasks in one process.
pub(crate) fn run(address: &str, tasks: usize) -> Result<()> {
    println!("names that nobody else wants, {tasks} tasks of one process, one session");
    let runtime = kit::two_threads()?;
    let client = runtime.block_on(leasehold::connect(&format!("zookeeper://{address}/free")))?;
    let ours = Runner::new("ours", |slice| {
        let client = client.clone();
        kit::rate_of_tasks(&runtime, tasks, slice, move |task| {
            let client = client.clone();
            async move {
                let mutex = client.mutex(format!("n{task}"))?.lease(Duration::from_secs(30));
                Ok(mutex.lock().await?.release().await?)
            }
        })
    });
    let theirs = runtime.block_on(Client::connect(address))?;
    let crates = Runner::new(CRATE, |slice| {
        let client = theirs.clone();
        kit::rate_of_tasks(&runtime, tasks, slice, move |task| {
            let client = client.clone();
            async move {
                cycle(&client, &format!("/crate/n{task}")).await?;
                Ok(())
            }
        })
    });
    let mut curator = Peer::start(CURATOR, address, "/curator/n")?;
    let curators = Runner::new(CURATOR, |slice| {
        curator.tell(&format!("free {tasks} {}", slice.as_millis()))?;
        Ok(curator.cycles()? / slice.as_secs_f64())
    });
    let mut kazoo = match tasks {
        1 => Some(Peer::start(KAZOO, address, "/kazoo/n")?),
        _ => None,
    };
    let mut runners = vec![ours, crates, curators];
    if let Some(peer) = &mut kazoo {
        runners.push(Runner::new(KAZOO, |slice| {
            peer.tell(&format!("cycle {}", slice.as_millis()))?;
            Ok(peer.cycles()? / slice.as_secs_f64())
        }));
    }
    let labels: Vec<&str> = runners.iter().map(|runner| runner.label).collect();
    let race = race(ROUNDS, SLICE, runners)?;
    race.print();
    for (number, label) in labels.iter().enumerate().skip(1) {
        verdict(&format!("ours / {label}"), Goal::AtLeast(0.9), race.ratio(0, number));
    }
    runtime.block_on(client.close())?;
    Ok(())
}

/// Takes and gives back a lock of zookeeper-client.
pub(crate) async fn cycle(client: &Client, path: &str) -> Result<()> {
    let prefix = LockPrefix::new_curator(path, "lock-")?;
    let options = LockOptions::new(Acls::anyone_all())
        .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))?;
    let held = client.lock(prefix, b"", options).await?;
    // Dropping it would delete its node some time later.
    let node = held.lock_path().to_owned();
    let deleted = client.delete(&node, None).await;
    drop(held);
    Ok(deleted?)
}
