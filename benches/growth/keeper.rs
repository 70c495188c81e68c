//! What it costs to keep many leases.

use std::time::Duration;

use leasehold::Options;

use crate::kit::{self, Goal, Result};
use crate::{Place, Plan};

const LEASE: Duration = Duration::from_secs(3);
const PERIODS: u32 = 2;
/// The lease that the goal is stated for.
const GOAL_LEASE: Duration = Duration::from_secs(30);

pub(crate) fn run(plan: Plan, place: &Place) -> Result<()> {
    println!("\n{}, {} leases of {LEASE:?} on one client", place.engine, kit::thousands(plan.leases as f64));
    kit::one_thread()?.block_on(async {
        let client = leasehold::connect_with(&place.url("keeper"), Options::new().lease(LEASE)).await?;
        let mut held = Vec::new();
        for index in 0..plan.leases {
            held.push(client.mutex(format!("stock/{index}"))?.lock().await?);
        }
        let before = kit::process_time();
        tokio::time::sleep(LEASE * PERIODS).await;
        let used = kit::process_time() - before;
        let lost = held.iter().filter(|guard| guard.check().is_err()).count();
        if lost > 0 {
            return Err(format!("{lost} leases were lost").into());
        }
        let share = used.as_secs_f64() / (LEASE * PERIODS).as_secs_f64();
        let at_goal = share * LEASE.as_secs_f64() / GOAL_LEASE.as_secs_f64();
        println!("  {:.1?} of processor time a period, {:.1} % of a core", used / PERIODS, share * 100.0);
        kit::verdict("% of a core, at leases of 30 s", Goal::AtMost(2.0), at_goal * 100.0);
        std::mem::forget(held);
        Ok(())
    })
}
