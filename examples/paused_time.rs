//! Tests of code that uses locks, with paused time: leases and time-outs pass at once.
//!
//! `cargo test -p leasehold --example paused_time`
//!
//! Three things are needed: `start_paused` (or `tokio::time::pause`), the engine `memory:`, and a
//! clock that follows tokio's time. A client that is made without the clock says so.

use std::time::Duration;

use leasehold::{Client, Result};

/// The code that is tested: a report that is made by one process at a time, and skipped if another
/// one is still at it after five minutes.
async fn report(client: &Client, work: impl Future<Output = ()>) -> Result<bool> {
    let report = client.mutex("report")?;
    let Some(guard) = report.lock_for(Duration::from_secs(300)).await? else {
        return Ok(false);
    };
    guard.run(work).await?;
    guard.release().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = leasehold::connect("memory:").await?;
    let made = report(&client, async { println!("the report") }).await?;
    println!("made: {made}; the tests: cargo test -p leasehold --example paused_time");
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold::{Options, TokioClock};
    use tokio::time::{Instant, sleep};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Clients with the same label share their names, as two processes would.
    async fn client(label: &str) -> Client {
        let options = Options::new().clock(TokioClock::new());
        leasehold::connect_with(&format!("memory:{label}"), options).await.expect("memory is there")
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_skipped_if_another_one_takes_too_long() {
        let (first, second) = (client("skipped").await, client("skipped").await);
        let slow = tokio::spawn(async move { report(&first, sleep(HOUR)).await });
        tokio::task::yield_now().await;

        let asked = Instant::now();
        let made = report(&second, async { panic!("it must not begin") }).await;
        assert!(!made.expect("the engine answers"));
        assert_eq!(asked.elapsed().as_secs(), 300);

        // The lease of 30 seconds was renewed for the whole hour, in no time at all.
        assert!(slow.await.expect("no panic").expect("held to the end"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_stops_when_an_operator_takes_its_name() {
        let (first, operator) = (client("broken").await, client("broken").await);
        let slow = tokio::spawn(async move { report(&first, sleep(HOUR)).await });
        sleep(Duration::from_secs(60)).await;
        operator.break_claims(leasehold::Family::Lock, "report").await.expect("the engine answers");
        let error = slow.await.expect("no panic").expect_err("the work was stopped");
        assert!(matches!(error, leasehold::Error::Lost { .. }), "{error}");
    }
}
