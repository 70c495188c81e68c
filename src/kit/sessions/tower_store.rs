//! A store for the sessions of the crate `tower-sessions`.
//!
//! Those have ids of their own, in which there is no room for a user. So what they keep is in a
//! cell by the hash of that id. If it says who the user is, a session of that user's is created
//! beside it, and the one is valid while the other is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{Error as StoreError, Result as StoreResult};

use super::id::{Handle, Key, Place, hash};
use super::record::number;
use super::store::Sessions;
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::error::{Error, Result};
use crate::kit::bytes::{Reader, Writer};
use crate::kit::cells;
use crate::name::{Family, Name};

const STORED: u8 = 0x84;
/// So often a record is read again because somebody else was faster.
const TRIES: usize = 20;

/// A [`SessionStore`] for `tower-sessions`, on any engine that has cells.
///
/// A session that was deleted does not come back when a request that was running at that moment
/// saves it. Of two requests that save one session the last wins, as in other stores: the
/// middleware does not say what it has loaded.
///
/// # Examples
///
/// ```
/// use leasehold::kit::sessions::TowerStore;
/// use tower_sessions::SessionManagerLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// // Whoever signs somebody in does `session.insert("user", "ada")`, after `session.cycle_id()`.
/// let store = TowerStore::new(client.sessions("web")?).user_in("user");
/// let layer = SessionManagerLayer::new(store.clone());
/// // The password was changed:
/// store.end_all("ada").await?;
/// # drop(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TowerStore {
    sessions: Sessions,
    user_in: Option<String>,
}

impl fmt::Debug for TowerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerStore").field("user_in", &self.user_in).finish_non_exhaustive()
    }
}

/// What a cell holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    /// The session of a user that this one is valid with.
    of_user: Option<Key>,
    /// The record, as JSON.
    json: Vec<u8>,
}

impl Stored {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(STORED).byte(u8::from(self.of_user.is_some()));
        if let Some(Key { place, handle }) = self.of_user {
            writer = writer.bytes(&place.0.to_be_bytes()).bytes(&handle.0.to_be_bytes());
        }
        writer.bytes(&self.json).done()
    }

    fn decode(bytes: &[u8]) -> Option<Stored> {
        let mut reader = Reader::new(bytes, STORED)?;
        let of_user = match reader.byte()? {
            0 => None,
            _ => Some(Key { place: Place(number(&mut reader)?), handle: Handle(number(&mut reader)?) }),
        };
        Some(Stored { of_user, json: reader.rest().to_vec() })
    }
}

/// Replaces what a cell holds if that is what is expected.
#[derive(Debug)]
struct Replace {
    /// `None`: nothing.
    expected: Option<Vec<u8>>,
    new: Option<CellValue>,
}

impl Rule for Replace {
    fn step(&self, values: &[Option<&[u8]>], _now: Micros) -> Decision {
        let found = values.first().copied().flatten();
        if found != self.expected.as_deref() {
            return Decision { writes: Vec::new(), answer: vec![0] };
        }
        let write = self.new.clone().map_or(Write::Delete, Write::Put);
        Decision { writes: vec![write], answer: vec![1] }
    }
}

impl TypedRule for Replace {
    type Answer = bool;

    fn read(&self, answer: &[u8]) -> Option<bool> {
        answer.first().map(|word| *word == 1)
    }
}

impl TowerStore {
    /// A store that keeps what `tower-sessions` gives it beside these sessions.
    ///
    /// Lifetimes are those of the middleware (`with_expiry`); what was said of `sessions` about
    /// them does not count, except how long they are kept in all, for sessions of users.
    pub fn new(sessions: Sessions) -> TowerStore {
        TowerStore { sessions, user_in: None }
    }

    /// The entry of a session that says who its user is, a string: sessions that have it can be
    /// listed and ended together.
    #[must_use]
    pub fn user_in(mut self, entry: impl Into<String>) -> TowerStore {
        self.user_in = Some(entry.into());
        self
    }

    /// The sessions by user: for [`Sessions::list`].
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Ends all sessions of a user, as [`Sessions::end_all`], and deletes what was stored of them.
    ///
    /// # Errors
    ///
    /// As [`Sessions::end_all`].
    ///
    /// # Cancel safety
    ///
    /// As [`Sessions::end_all`]: all were ended or none.
    pub async fn end_all(&self, user: impl AsRef<str>) -> Result<u64> {
        let (count, keys) = self.sessions.end_all_with_data(user.as_ref()).await?;
        for key in keys {
            let name = self.cell(&String::from_utf8_lossy(&key))?;
            for _ in 0..TRIES {
                let Some(found) = self.read(&name).await? else { break };
                if self.replace(&name, Some(found), None).await? {
                    break;
                }
            }
        }
        Ok(count)
    }

    fn cell(&self, key: &str) -> Result<Name> {
        let cell = cells::cell(&self.sessions.prefix, &format!("{{{key}}}/tower"));
        self.sessions.client.name(Family::Cell, &cell)
    }

    async fn read(&self, name: &Name) -> Result<Option<Vec<u8>>> {
        let found = self.sessions.client.inner.read_cells(std::slice::from_ref(name)).await?;
        Ok(found.cells.into_iter().next().and_then(|cell| cell.value))
    }

    async fn replace(&self, name: &Name, expected: Option<Vec<u8>>, new: Option<CellValue>) -> Result<bool> {
        let rule = Arc::new(Replace { expected, new });
        self.sessions.client.inner.update(std::slice::from_ref(name), &rule).await
    }

    fn stored(&self, name: &Name, bytes: &[u8]) -> Result<Stored> {
        Stored::decode(bytes).ok_or_else(|| self.sessions.foreign(std::slice::from_ref(name)))
    }

    fn user<'a>(&self, record: &'a Record) -> Option<&'a str> {
        record.data.get(self.user_in.as_ref()?)?.as_str()
    }

    /// The sessions of users that live as long as a record.
    fn living(&self, lives: Duration) -> Sessions {
        self.sessions.clone().lifetime(lives)
    }

    /// The value of a record's cell: `None` if it is over.
    async fn value(&self, key: &str, record: &Record, of_user: Option<Key>) -> Result<Option<Written>> {
        let lives = lives(record);
        if lives.is_zero() {
            return Ok(None);
        }
        let sessions = self.living(lives);
        let user = self.user(record);
        let kept = match of_user {
            // Loading it puts its end off.
            Some(of_user) => {
                let found = sessions.load_key(of_user).await?;
                found.filter(|(found, _)| found.user.as_deref() == user).map(|_| of_user)
            }
            None => None,
        };
        let created = match (user, kept) {
            (Some(user), None) => Some(self.unbound(sessions.create(user, key).await?.id().key())),
            _ => None,
        };
        let json = serde_json::to_vec(record)
            .map_err(|error| Error::invalid(format!("the session can not be written as JSON: {error}")))?;
        let of_user = created.as_ref().map(|created| created.key).or(kept);
        let bytes = Stored { of_user, json }.encode();
        if bytes.len() > super::LONGEST_DATA {
            return Err(Error::invalid(format!(
                "the session has {} bytes, more than the {} that are kept",
                bytes.len(),
                super::LONGEST_DATA
            )));
        }
        Ok(Some(Written { value: CellValue { bytes, lives }, created }))
    }

    async fn create_record(&self, record: &mut Record) -> Result<()> {
        for _ in 0..TRIES {
            let key = key(record.id);
            let name = self.cell(&key)?;
            let Some(written) = self.value(&key, record, None).await? else { return Ok(()) };
            let replaced = self.replace(&name, None, Some(written.value)).await?;
            if let Some(created) = written.created {
                // Until here nobody knows the id of the record, whatever became of it.
                created.settle(replaced).await?;
            }
            if replaced {
                return Ok(());
            }
            // The id is taken.
            record.id = Id::default();
        }
        Err(self.contended())
    }

    async fn save_record(&self, record: &Record) -> Result<()> {
        let key = key(record.id);
        let name = self.cell(&key)?;
        for _ in 0..TRIES {
            // It was deleted, and does not come back.
            let Some(found) = self.read(&name).await? else { return Ok(()) };
            let before = self.stored(&name, &found)?;
            if let Some(of_user) = before.of_user
                && self.living(lives(record)).load_key(of_user).await?.is_none()
            {
                // All sessions of its user were ended.
                self.replace(&name, Some(found), None).await?;
                return Ok(());
            }
            let written = self.value(&key, record, before.of_user).await?;
            let (value, created) =
                written.map_or((None, None), |written| (Some(written.value), written.created));
            let over = value.is_none();
            // The record names one of them in the end, and the other one is ended.
            let created = created.map(|created| created.unless_named_in(&name));
            let leaves = created.is_some() || over || self.user(record).is_none();
            let old = before.of_user.filter(|_| leaves).map(|key| self.unbound(key).unless_named_in(&name));
            let replaced = self.replace(&name, Some(found), value).await?;
            if let Some(created) = created {
                created.settle(replaced).await?;
            }
            if let Some(old) = old {
                old.settle(!replaced).await?;
            }
            if replaced {
                return Ok(());
            }
        }
        Err(self.contended())
    }

    async fn load_record(&self, id: &Id) -> Result<Option<Record>> {
        let name = self.cell(&key(*id))?;
        let Some(found) = self.read(&name).await? else { return Ok(None) };
        let stored = self.stored(&name, &found)?;
        let record: Record = serde_json::from_slice(&stored.json)
            .map_err(|_| self.sessions.foreign(std::slice::from_ref(&name)))?;
        let lives = lives(&record);
        if lives.is_zero() {
            return Ok(None);
        }
        if let Some(of_user) = stored.of_user
            && self.living(lives).load_key(of_user).await?.is_none()
        {
            self.replace(&name, Some(found), None).await?;
            return Ok(None);
        }
        Ok(Some(record))
    }

    async fn delete_record(&self, id: &Id) -> Result<()> {
        let name = self.cell(&key(*id))?;
        for _ in 0..TRIES {
            let Some(found) = self.read(&name).await? else { return Ok(()) };
            let stored = self.stored(&name, &found)?;
            let of_user = stored.of_user.map(|key| self.unbound(key).unless_named_in(&name));
            let deleted = self.replace(&name, Some(found), None).await?;
            if let Some(of_user) = of_user {
                of_user.settle(!deleted).await?;
            }
            if deleted {
                return Ok(());
            }
        }
        Err(self.contended())
    }

    fn unbound(&self, of_user: Key) -> Unbound {
        Unbound { store: self.clone(), key: of_user, named_in: None, armed: true }
    }

    /// Whether a record is valid with this session of a user.
    async fn names(&self, name: &Name, of_user: Key) -> Result<bool> {
        let found = self.read(name).await?;
        Ok(found
            .and_then(|found| Stored::decode(&found))
            .is_some_and(|stored| stored.of_user == Some(of_user)))
    }

    fn contended(&self) -> Error {
        Error::Unavailable {
            engine: self.sessions.client.guarantees().engine,
            what: format!("the session was changed by others {TRIES} times meanwhile; ask again"),
            source: None,
        }
    }
}

/// What is to be written for a record, and the session of a user that was created for it.
struct Written {
    value: CellValue,
    created: Option<Unbound>,
}

/// A session of a user that no record may name, so that nobody can use it. Dropped, it is ended in
/// the background.
struct Unbound {
    store: TowerStore,
    key: Key,
    /// The record that may name it all the same.
    named_in: Option<Name>,
    armed: bool,
}

impl Unbound {
    /// Dropped, it is ended only if this record does not name it.
    fn unless_named_in(mut self, name: &Name) -> Unbound {
        self.named_in = Some(name.clone());
        self
    }

    /// It is known by now whether a record names it. If none does it is ended.
    async fn settle(mut self, is_named: bool) -> Result<()> {
        if !is_named {
            self.named_in = None;
            self.store.sessions.end_key(self.key).await?;
        }
        self.armed = false;
        Ok(())
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (store, key, record) = (self.store.clone(), self.key, self.named_in.take());
        self.store.sessions.client.inner.background(async move {
            // A call that was dropped, or had no answer, may have been carried out.
            if let Some(record) = record
                && store.names(&record, key).await.unwrap_or(false)
            {
                return;
            }
            // If it is not heard, the session is over after its lifetime.
            store.sessions.end_key(key).await.ok();
        });
    }
}

/// What the store has instead of the id.
fn key(id: Id) -> String {
    format!("{:032x}", hash(b"tower", &id.0.to_be_bytes()))
}

/// How long a record is kept, by this process's clock, which has also chosen its end.
fn lives(record: &Record) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = record.expiry_date.unix_timestamp_nanos().saturating_sub(now.as_nanos().cast_signed());
    Duration::from_nanos(u64::try_from(left.max(0)).unwrap_or(u64::MAX))
}

fn told<T>(result: Result<T>) -> StoreResult<T> {
    result.map_err(|error| StoreError::Backend(error.to_string()))
}

#[async_trait]
impl SessionStore for TowerStore {
    async fn create(&self, record: &mut Record) -> StoreResult<()> {
        told(self.create_record(record).await)
    }

    async fn save(&self, record: &Record) -> StoreResult<()> {
        told(self.save_record(record).await)
    }

    async fn load(&self, id: &Id) -> StoreResult<Option<Record>> {
        told(self.load_record(id).await)
    }

    async fn delete(&self, id: &Id) -> StoreResult<()> {
        told(self.delete_record(id).await)
    }
}
