//! One node of the service: it waits for occurrences of the task, and runs those that are its own.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use leasehold::kit::schedule::{Misfire, Occurrence, Schedule, Task};
use leasehold::{Clock as _, Options, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

use crate::Result;

/// How long after its last word a node counts as silent.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// How long the work takes.
const WORK: Duration = Duration::from_millis(150);

/// The task, as every node and the judge know it.
pub(crate) fn task(schedule: &Schedule) -> leasehold::Result<Task> {
    let task = schedule.cron("* * * * * *", "UTC")?;
    Ok(task.grace(Duration::from_secs(1)).misfire(Misfire::Skip).lease(LEASE).history(500))
}

pub(crate) async fn run(url: &str, log: &Path) -> Result<()> {
    let client = loop {
        let options = Options::new().call_limit(Duration::from_secs(1));
        match leasehold::connect_with(url, options).await {
            Ok(client) => break client,
            // The node was started while it is cut off.
            Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => return Err(error.into()),
        }
    };
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let mut stop = signal(SignalKind::terminate())?;
    let mut note = move |what: &str, occurrence: &Occurrence| {
        let scheduled = occurrence.scheduled().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!(
            "{what} {} {} {} {}\n",
            scheduled.as_secs(),
            occurrence.token(),
            SystemClock.now().as_micros(),
            occurrence.delay().as_millis(),
        );
        // One write, so that a line is there or not.
        log.write_all(line.as_bytes())
    };
    let work = |occurrence: Occurrence| {
        let started = note("start", &occurrence);
        async move {
            started?;
            tokio::time::sleep(WORK).await;
            Ok::<_, std::io::Error>(())
        }
    };
    let stopped = async {
        stop.recv().await;
    };
    task(&client.schedule("tick"))?.run_until(stopped, work).await?;
    client.close().await?;
    Ok(())
}
