//! Names that nobody else wants.

use std::time::Duration;

use etcd_client::LockOptions;
use tokio::runtime::Runtime;

use crate::kit::{self, Again, Goal, Result, Runner, race, verdict};
use crate::others::Other;
use crate::{ROUNDS, SLICE};

/// Runs all in turns, with so many tasks in one process.
pub(crate) fn run(address: &str, others: &[Other], tasks: usize) -> Result<()> {
    println!("names that nobody else wants, {tasks} tasks of one process, one etcd lease");
    let runtime = kit::two_threads()?;
    let client = runtime.block_on(leasehold::connect(&format!("etcd://{address}/free")))?;
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
    let mut runners = vec![ours];
    for other in others {
        let runtime = &runtime;
        runners.push(match &other.program {
            Some(program) => Runner::new(other.label, move |slice| outside(program, address, tasks, slice)),
            None => Runner::new(other.label, move |slice| lock_api(runtime, address, tasks, slice)),
        });
    }
    let race = race(ROUNDS, SLICE, runners)?;
    race.print();
    for (number, other) in others.iter().enumerate() {
        verdict(&format!("ours / {}", other.label), Goal::AtLeast(0.9), race.ratio(0, number + 1));
    }
    runtime.block_on(client.close())?;
    Ok(())
}

fn outside(program: &str, address: &str, tasks: usize, slice: Duration) -> Result<f64> {
    let millis = slice.as_millis().to_string();
    let mut peer = Again::start_program(program, &["free", address, &tasks.to_string(), &millis])?;
    peer.until_ready()?;
    peer.go()?;
    let lines = peer.answer()?;
    Ok(kit::numbers(lines.first().ok_or("the peer said nothing")?)?[0])
}

fn lock_api(runtime: &Runtime, address: &str, tasks: usize, slice: Duration) -> Result<f64> {
    let (client, lease) = runtime.block_on(async {
        let mut client = etcd_client::Client::connect([address], None).await?;
        let lease = client.lease_grant(30, None).await?.id();
        Result::Ok((client, lease))
    })?;
    let rate = {
        let client = client.clone();
        kit::rate_of_tasks(runtime, tasks, slice, move |task| {
            let mut client = client.clone();
            async move {
                let held = client
                    .lock(format!("api/free{task}"), Some(LockOptions::new().with_lease(lease)))
                    .await?;
                client.unlock(held.key()).await?;
                Ok(())
            }
        })
    };
    runtime.block_on(async { client.lease_client().revoke(lease).await })?;
    rate
}
