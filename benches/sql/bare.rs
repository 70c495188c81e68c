//! What an application writes by hand: a table, one statement to take a lease and one to give it
//! back, with the token in the answer.

use std::sync::Arc;
use std::time::Instant;

use crate::kit::{Result, median};

pub(crate) mod mysql;
pub(crate) mod postgres;

/// The two statements, over connections that all tasks share. A task has a name of its own.
pub(crate) trait Bare: Send + Sync + 'static {
    fn take(&self, task: usize) -> impl Future<Output = Result<()>> + Send;
    fn give_back(&self, task: usize) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) async fn cycle<B: Bare>(bare: Arc<B>, task: usize) -> Result<()> {
    bare.take(task).await?;
    bare.give_back(task).await
}

/// How many names there are at most.
pub(crate) const NAMES: usize = 64;

/// How long it takes to take a lease, in seconds: the median of some.
pub(crate) async fn commit_time<B: Bare>(bare: &B) -> Result<f64> {
    let mut times = Vec::new();
    for task in (0..NAMES).cycle().take(200) {
        let started = Instant::now();
        bare.take(task).await?;
        times.push(started.elapsed().as_secs_f64());
        bare.give_back(task).await?;
    }
    Ok(median(times))
}

fn name(task: usize) -> Vec<u8> {
    format!("n{task}").into_bytes()
}
