//! Channels that belong to a slot: a message there stays with the member of a cluster that has the
//! slot.
//!
//! They need a connection of their own. When a slot moves, the server ends the subscription by
//! itself, and the driver takes that message for the answer to the oldest request of the
//! connection; all answers after it would go to the wrong requests. So nothing else is asked over
//! such a connection, and when it happens the connection is made anew.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::{Clock as _, Moment, SystemClock};

/// How long a channel is heard after somebody last waited there. Whoever waits says so more often.
const KEPT: Duration = Duration::from_secs(10);

/// So many channels are kept in any case.
const FEW: usize = 128;

/// So many are left at once when there are more.
const MOST_LEFT: usize = 8;

/// The channels of a connection.
#[derive(Default)]
pub(super) struct Shards {
    epoch: u64,
    /// When somebody last waited there.
    wanted: HashMap<String, Moment>,
}

impl Shards {
    /// Notes that somebody waits at a channel; false if it was not heard so far.
    pub(super) fn want(&mut self, channel: &str, epoch: u64) -> bool {
        if self.epoch != epoch {
            *self = Shards { epoch, wanted: HashMap::new() };
        }
        self.wanted.insert(channel.to_owned(), SystemClock.now()).is_some()
    }

    /// True if somebody waits at a channel of a connection.
    pub(super) fn is_wanted(&self, channel: &str, epoch: u64) -> bool {
        self.epoch == epoch && self.wanted.contains_key(channel)
    }

    pub(super) fn forget(&mut self, channel: &str) {
        self.wanted.remove(channel);
    }

    /// Some at which nobody waits any more.
    pub(super) fn leave(&mut self) -> Vec<String> {
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
