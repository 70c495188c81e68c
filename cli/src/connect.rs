//! The runtime, and the engine that was asked for.

use std::future::Future;

use leasehold::engine::Reach;
use leasehold::{Client, Options};

use crate::args::On;
use crate::exit::{Failure, UNAVAILABLE};

/// Used where neither an option nor the environment says otherwise.
const DEFAULT_URL: &str = "file:";

/// Runs a command. All of it happens on this thread: a runtime with threads would cost more than
/// the lock.
pub(crate) fn block_on(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One command and a few signals: room for the thousand events that are usual would only
        // have to be made.
        .max_io_events_per_tick(16)
        .build()
        .map_err(|error| Failure::new(UNAVAILABLE, format!("can not start: {error}")))?;
    let ended = runtime.block_on(work);
    // A thread may be waiting for a store that a stopped process keeps shut; nobody waits for the
    // thread.
    runtime.shutdown_background();
    ended
}

/// Connects to the engine that was asked for.
pub(crate) async fn connect(on: &On, options: Options) -> Result<Client, Failure> {
    let from_environment;
    let url = match &on.url {
        Some(url) => url.as_str(),
        None => {
            from_environment = environment()?;
            from_environment.as_deref().unwrap_or(DEFAULT_URL)
        }
    };
    let client = leasehold::connect_with(url, options).await?;
    let guarantees = client.guarantees();
    if guarantees.reach == Reach::Process {
        return Err(Failure::usage(format!(
            "`{}:` is seen by one process alone and would keep nobody else out; choose another engine",
            guarantees.engine
        )));
    }
    Ok(client)
}

/// The URL in the environment. A variable that is set to nothing is as good as none.
fn environment() -> Result<Option<String>, Failure> {
    let Some(url) = std::env::var_os("LEASEHOLD_ON").filter(|url| !url.is_empty()) else { return Ok(None) };
    let url = url.into_string();
    url.map(Some)
        .map_err(|_| Failure::usage("the variable LEASEHOLD_ON is not UTF-8; give the URL with --on"))
}
