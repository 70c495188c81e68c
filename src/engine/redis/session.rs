//! One client's session: its servers, how names become keys, and whether replicas must confirm.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;

use super::batch::Batcher;
use crate::claim::Seat;
use crate::error::Result;
use crate::redis::errors::REDIS;
use crate::redis::keys::Keys;
use crate::redis::link::{Answered, Connected};
use crate::redis::script::Invocation;
use crate::redis::topology::Topology;
use crate::redis::url::Copies;

/// How long replicas have to confirm.
const CONFIRM_LIMIT: Duration = Duration::from_millis(500);

/// What every call of one client needs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) topology: Topology,
    /// Only where all names are on one server and no replica must confirm.
    pub(super) batcher: Option<Batcher>,
    pub(super) keys: Keys,
    pub(super) copies: Copies,
    pub(super) seat: Seat,
    /// Others than leasehold are said to use these names too.
    pub(super) strangers: bool,
}

impl Session {
    /// Runs a script where a key is, and waits until enough replicas have what it changed or saw.
    pub(super) async fn run_confirmed<T: FromRedisValue>(
        &self,
        key: &str,
        script: impl Fn(&Connected) -> Invocation + Send + Sync,
    ) -> Result<T> {
        let mut answered = self.topology.run(key, script).await?;
        self.confirm(&mut answered).await?;
        Ok(answered.answer)
    }

    /// Waits until enough replicas have all that the server knew when it answered. If they do not
    /// confirm it, what was done may still last: the outcome is not known.
    pub(super) async fn confirm<T>(&self, answered: &mut Answered<T>) -> Result<()> {
        let connected = Arc::clone(&answered.connected);
        let Some(wanted) = self.copies.of(connected.replicas.number()) else {
            return Err(REDIS.unavailable(format!(
                "`wait=majority`: no replica of `{}` is known that could confirm it; add one, or leave `wait` out",
                connected.addr
            )));
        };
        if wanted == 0 {
            return Ok(());
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(CONFIRM_LIMIT.as_millis().to_string());
        // Over the connection of the answer: the server counts what that connection wrote.
        let heard = connected.while_up(pin!(wait.query_async::<u32>(&mut answered.connection))).await;
        let Some(heard) = heard else {
            return Err(REDIS.unavailable("lost the connection before replicas have confirmed"));
        };
        let heard = heard.map_err(|error| REDIS.failed(&connected.addr.to_string(), error))?;
        if heard >= wanted {
            return Ok(());
        }
        Err(REDIS.unavailable(format!(
            "only {heard} of the {wanted} replicas that are needed have confirmed in {CONFIRM_LIMIT:?}"
        )))
    }
}
