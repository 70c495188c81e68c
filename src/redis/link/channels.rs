//! The channels that a connection is subscribed to, and what is heard there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};

use super::sharded_channels::Shards;
use crate::engine::Hint;

/// What is heard from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message: channel and text.
    Message(String, Vec<u8>),
    /// The connection was made anew: messages may have been lost, and so may claims.
    Reconnected,
    /// Messages may have been lost, and no more.
    Missed,
    /// For people: how the connection to a server is.
    Connection(Hint),
}

/// The channels of a link. They outlive its connections.
pub(super) struct Channels {
    /// Those that every connection subscribes to.
    subscribed: Mutex<BTreeSet<String>>,
    shards: Mutex<Shards>,
    hear: Box<dyn Fn(Heard) + Send + Sync>,
}

impl Channels {
    pub(super) fn new(
        subscribed: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Channels {
        Channels { subscribed: Mutex::new(subscribed), shards: Mutex::default(), hear: Box::new(hear) }
    }

    pub(super) fn subscribed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hear(&self, heard: Heard) {
        (self.hear)(heard);
    }

    /// Reads what the server has sent over a connection without being asked. If that means that the
    /// connection is lost, says why.
    pub(super) fn pushed(&self, epoch: u64, push: &PushInfo) -> Option<&'static str> {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Disconnection, _) => return Some("the server closed it"),
            (
                PushKind::Message | PushKind::SMessage,
                [Value::BulkString(channel), Value::BulkString(text)],
            ) => {
                let channel = String::from_utf8_lossy(channel).into_owned();
                self.hear(Heard::Message(channel, text.clone()));
            }
            // The server has ended a subscription: we asked for it, or the slot has moved.
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..])
                if self.shards().is_wanted(&String::from_utf8_lossy(channel), epoch) =>
            {
                return Some("a slot has moved");
            }
            _ => {}
        }
        None
    }

    /// Notes that somebody waits at a sharded channel: `None` if it is heard already.
    pub(super) fn want<'a>(&'a self, channel: &'a str, epoch: u64) -> Option<Wanted<'a>> {
        let mut shards = self.shards();
        if shards.want(channel, epoch) {
            return None;
        }
        let idle = shards.leave();
        drop(shards);
        Some(Wanted { channels: self, channel, idle, confirmed: false })
    }

    fn shards(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sharded channel of which the server has not yet said that we hear it. Dropped, it is
/// forgotten.
pub(super) struct Wanted<'a> {
    channels: &'a Channels,
    channel: &'a str,
    /// Channels that can be left because nobody waits there any more.
    pub(super) idle: Vec<String>,
    pub(super) confirmed: bool,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if !self.confirmed {
            self.channels.shards().forget(self.channel);
        }
    }
}
