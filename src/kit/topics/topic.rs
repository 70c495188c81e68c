//! Publishing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::log::{Cursor, Head, SEGMENT, segment_of};
use super::rule::{Publish, Published};
use super::subscribe::{From, Subscriber};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::name::{Family, Name};

/// The longest message, in bytes.
pub const LONGEST_MESSAGE: usize = 16 * 1024;
/// How long messages of a [`Topic`] are kept that does not say.
const DEFAULT_KEPT: Duration = Duration::from_secs(60 * 60);
/// How many messages are kept at the least.
const DEFAULT_MOST: u64 = 10_000;

/// A topic. Made by [`Client::topic`].
///
/// # Examples
///
/// ```
/// use leasehold::kit::topics::{Delivery, From};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let prices = client.topic("prices")?;
/// let mut subscriber = prices.subscribe(From::Now).await?;
/// prices.publish(b"apples 3").await?;
/// match subscriber.next().await? {
///     Delivery::Message(message) => assert_eq!(message.data, b"apples 3"),
///     Delivery::Gap { missed, .. } => println!("{missed:?} messages are not kept any more"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Topic {
    pub(super) client: Client,
    /// How the names of its cells start.
    head: String,
    kept: Duration,
    most: u64,
    /// The number of the next message, as far as is known.
    known: Arc<AtomicU64>,
}

impl Client {
    /// A topic. It exists from the first message on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn topic(&self, name: impl AsRef<str>) -> Result<Topic> {
        self.inner.needs_cells("messages are kept in")?;
        let topic = Topic {
            client: self.clone(),
            head: cells::cell("topics/", name.as_ref()),
            kept: DEFAULT_KEPT,
            most: DEFAULT_MOST,
            known: Arc::default(),
        };
        topic.segment_cell(u64::MAX)?;
        Ok(topic)
    }
}

impl Topic {
    /// How long messages are kept after they were published by this: an hour by default, 20 years
    /// at the most. Some are kept for longer: up to 16 are forgotten together, and none before
    /// those that were published earlier, by whomever and to be kept for whatever time.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Topic {
        self.kept = time;
        self
    }

    /// How many messages are kept at the least, unless they are older than
    /// [`Topic::keep_for`]: 10,000 by default. Up to 31 more may be kept.
    ///
    /// All publishers of a topic must give the same number. If they do not, the one with the
    /// smallest forgets messages that others wanted to be kept.
    #[must_use]
    pub fn keep(mut self, messages: u64) -> Topic {
        self.most = messages;
        self
    }

    /// Publishes a message, and says where the topic is after it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it was published or was not, and
    /// whoever publishes it again may publish it twice. [`Error::Invalid`] if it is longer than
    /// [`LONGEST_MESSAGE`].
    ///
    /// # Cancel safety
    ///
    /// It was published or was not.
    pub async fn publish(&self, message: impl AsRef<[u8]>) -> Result<Cursor> {
        let message = message.as_ref();
        if message.len() > LONGEST_MESSAGE {
            return Err(Error::invalid(format!(
                "the message has {} bytes, more than the {LONGEST_MESSAGE} that a topic takes; publish where \
                 it can be found",
                message.len()
            )));
        }
        let epoch = crate::random::number()?.max(1);
        loop {
            // That of the last message, so that the next one is in it or begins the one after it.
            let segment = segment_of(self.known.load(Ordering::Relaxed).max(1) - 1);
            let mut names =
                vec![self.head_cell()?, self.segment_cell(segment)?, self.segment_cell(segment + 1)?];
            if let Some(forgotten) = segment.checked_sub(self.most.div_ceil(SEGMENT)) {
                names.extend((forgotten < segment).then(|| self.segment_cell(forgotten)).transpose()?);
            }
            let (message, kept) = (message.to_vec(), self.kept);
            let rule = Arc::new(Publish { segment, epoch, message, kept });
            match self.client.inner.update(&names, &rule).await? {
                Published::Yes(cursor) => {
                    self.known.store(cursor.next, Ordering::Relaxed);
                    self.count("published");
                    return Ok(cursor);
                }
                Published::Elsewhere(next) => self.known.store(next, Ordering::Relaxed),
                Published::Foreign => return Err(self.foreign()),
            }
        }
    }

    /// Subscribes: see [`Subscriber::next`].
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn subscribe(&self, from: From) -> Result<Subscriber> {
        Subscriber::start(self.clone(), from).await
    }

    pub(super) fn head_cell(&self) -> Result<Name> {
        self.client.name(Family::Cell, &self.head)
    }

    pub(super) fn segment_cell(&self, segment: u64) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/{segment}", self.head))
    }

    /// Where the topic stands; `None` if nothing was published.
    pub(super) fn head(&self, value: Option<&Vec<u8>>) -> Result<Option<Head>> {
        value.map(|value| Head::decode(value).ok_or_else(|| self.foreign())).transpose()
    }

    pub(super) fn count(&self, outcome: &'static str) {
        self.client.inner.events.meter().kit("leasehold_topics_total", outcome);
    }

    pub(super) fn foreign(&self) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!("a cell of the topic `{}` holds something else", self.head),
            source: None,
        }
    }
}
