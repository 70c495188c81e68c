//! Channels that belong to a slot: what is said there stays with the member of a cluster that has the slot.
//!
//! They need a connection of their own. When a slot moves, the server ends the subscription by itself, and the driver takes that
//! message for the answer to the oldest request of the connection; all answers after it would go to the wrong requests. So
//! nothing else is asked over such a connection, and when it happens the connection is made anew.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use redis::{PushKind, RedisResult, Value};

use super::{Connected, Link, Shared};
use crate::clock::{Clock as _, Moment, SystemClock};

/// How long a channel is heard after somebody last waited there. Whoever waits says so more often.
const KEPT: Duration = Duration::from_secs(10);

/// How long the server may take. Whoever gets no answer is told by the ordinary channel.
const LISTEN_LIMIT: Duration = Duration::from_millis(300);

/// So many channels are kept in any case.
const FEW: usize = 128;

/// So many are left at once when there are more.
const MOST_LEFT: usize = 8;

/// The channels of a connection.
#[derive(Default)]
pub(crate) struct Shards {
    epoch: u64,
    /// When somebody last waited there.
    wanted: HashMap<String, Moment>,
}

impl Shards {
    /// Notes that somebody waits at a channel; false if it was not heard so far.
    fn want(&mut self, channel: &str, epoch: u64) -> bool {
        if self.epoch != epoch {
            *self = Shards { epoch, wanted: HashMap::new() };
        }
        self.wanted.insert(channel.to_owned(), SystemClock.now()).is_some()
    }

    /// Some at which nobody waits any more.
    fn leave(&mut self) -> Vec<String> {
        if self.wanted.len() <= FEW {
            return Vec::new();
        }
        let now = SystemClock.now();
        let idle = self.wanted.iter().filter(|(_, last)| now.since(**last) > KEPT);
        let idle: Vec<String> = idle.take(MOST_LEFT).map(|(channel, _)| channel.clone()).collect();
        idle.iter().for_each(|channel| {
            self.wanted.remove(channel);
        });
        idle
    }
}

impl Shared {
    fn shards(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has ended a subscription: because we asked for it, or because the slot is somewhere else now.
    pub(crate) fn unheard(&self, epoch: u64, data: &[Value]) {
        let Some(Value::BulkString(channel)) = data.first() else { return };
        let shards = self.shards();
        let wanted = shards.epoch == epoch && shards.wanted.contains_key(&*String::from_utf8_lossy(channel));
        drop(shards);
        if wanted {
            self.lost(epoch, "a slot has moved");
        }
    }
}

/// A channel that the server has not yet said that we hear. Dropped, it is forgotten.
struct Asked<'a> {
    shared: &'a Shared,
    channel: &'a str,
    confirmed: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.confirmed {
            self.shared.shards().wanted.remove(self.channel);
        }
    }
}

/// True if this is the word that a channel is heard from now on.
fn confirms(answer: &Value, channel: &str) -> bool {
    let Value::Push { kind: PushKind::SSubscribe, data } = answer else { return false };
    matches!(data.first(), Some(Value::BulkString(heard)) if heard == channel.as_bytes())
}

impl Link {
    /// Hears a sharded channel for a while; false if that is not possible now. An error if the member says so.
    pub(crate) async fn listen(&self, channel: &str) -> RedisResult<bool> {
        let Some(connected) = self.connected_now() else { return Ok(false) };
        let Connected { connection, epoch, .. } = &*connected;
        let idle = {
            let mut shards = self.shared.shards();
            if shards.want(channel, *epoch) {
                return Ok(true);
            }
            shards.leave()
        };
        // Noted before it is sent: if the slot moves meanwhile, that is noticed.
        let mut asked = Asked { shared: &self.shared, channel, confirmed: false };
        let ask = async |verb: &str, channel: &str| {
            redis::cmd(verb).arg(channel).query_async::<Value>(&mut connection.clone()).await
        };
        let subscribing = async {
            let heard = ask("SSUBSCRIBE", channel).await;
            for channel in &idle {
                ask("SUNSUBSCRIBE", channel).await?;
            }
            heard
        };
        let Ok(heard) = tokio::time::timeout(LISTEN_LIMIT, subscribing).await else { return Ok(false) };
        asked.confirmed = confirms(&heard?, channel);
        if !asked.confirmed {
            // Another's: the server has ended a subscription that nobody wanted any more just then.
            self.shared.lost(*epoch, "an answer to something else");
        }
        Ok(asked.confirmed)
    }
}
