//! Creating, finding and ending sessions.

use std::sync::Arc;
use std::time::Duration;

use super::id::{Handle, Key, Place, SessionId};
use super::record::{NO_USER, Record};
use super::rule::{Answer, Ask, Lifetimes, Step};
use super::session::{ListedSession, Saved, Session, parse_handle};
use crate::claim::Micros;
use crate::client::Client;
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::name::{Family, Name};

/// The longest data of a session, in bytes.
pub const LONGEST_DATA: usize = 256 * 1024;
/// The most sessions that a user can have at a time.
pub const MOST_PER_USER: usize = 1000;
/// How long an unused session is kept by [`Sessions`] that do not say.
const DEFAULT_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a session is kept in all.
const DEFAULT_WHOLE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The sessions of an application. Made by [`Client::sessions`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let sessions = client.sessions("web")?;
/// let session = sessions.create("ada", b"two apples").await?;
/// let cookie = session.id().expose();
///
/// // The next request, on whichever node.
/// let session = sessions.load(&cookie.parse()?).await?.expect("it was not ended");
/// assert_eq!((session.user(), session.data()), (Some("ada"), &b"two apples"[..]));
///
/// // The password was changed.
/// assert_eq!(sessions.end_all("ada").await?, 1);
/// assert!(sessions.load(session.id()).await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sessions {
    pub(super) client: Client,
    pub(super) prefix: String,
    lifetimes: Lifetimes,
}

impl Client {
    /// The sessions of an application, which has a name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn sessions(&self, name: impl AsRef<str>) -> Result<Sessions> {
        self.inner.needs_cells("sessions are kept in")?;
        let mut prefix = String::from("sessions/");
        cells::part(name.as_ref(), &mut prefix);
        prefix.push('/');
        let lifetimes = Lifetimes { idle: DEFAULT_IDLE, whole: DEFAULT_WHOLE };
        let sessions = Sessions { client: self.clone(), prefix, lifetimes };
        sessions.session_cell(Key { place: Place(0), handle: Handle(0) })?;
        Ok(sessions)
    }
}

impl Sessions {
    /// How long a session is kept that nobody uses: a day by default. Whoever loads or saves it
    /// puts its end off, at most once in a tenth of this.
    #[must_use]
    pub fn lifetime(mut self, idle: Duration) -> Sessions {
        self.lifetimes.idle = idle;
        self
    }

    /// How long a session is kept in all, however much it is used: 30 days by default.
    #[must_use]
    pub fn longest(mut self, whole: Duration) -> Sessions {
        self.lifetimes.whole = whole;
        self
    }

    /// A new session of a user.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer. [`Error::Invalid`] if the data is
    /// longer than [`LONGEST_DATA`], or the user has [`MOST_PER_USER`] sessions.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what it may have created is ended in the background. If that call
    /// is lost too, [`Sessions::list`] shows a session that nobody can use, until its lifetime
    /// ends.
    pub async fn create(&self, user: impl AsRef<str>, data: impl AsRef<[u8]>) -> Result<Session> {
        self.create_session(Some(user.as_ref()), data.as_ref()).await
    }

    /// A new session of nobody in particular. It can be given to a user: [`Sessions::sign_in`].
    ///
    /// # Errors
    ///
    /// As [`Sessions::create`].
    ///
    /// # Cancel safety
    ///
    /// As [`Sessions::create`].
    pub async fn create_anonymous(&self, data: impl AsRef<[u8]>) -> Result<Session> {
        self.create_session(None, data.as_ref()).await
    }

    /// The session with this id, unless it is over or was ended. One round trip; another one or two
    /// if its end is put off.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: whether the session is valid is not
    /// known, so it must not be used.
    ///
    /// # Cancel safety
    ///
    /// The end of the session was put off or was not.
    pub async fn load(&self, id: &SessionId) -> Result<Option<Session>> {
        let found = self.load_key(id.key()).await?;
        Ok(found.map(|(record, now)| Session { id: id.clone(), record, now }))
    }

    /// Replaces the data of a session, unless somebody else has since it was loaded.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it was saved or was not.
    /// [`Error::Invalid`] if the data is longer than [`LONGEST_DATA`].
    ///
    /// # Cancel safety
    ///
    /// It was saved or was not. If it is saved again and was, that is [`Saved::Changed`].
    pub async fn save(&self, session: &Session, data: impl AsRef<[u8]>) -> Result<Saved> {
        let data = checked(data.as_ref())?;
        let ask = Ask::Save { version: session.record.version, data };
        let key = session.id.key();
        let names = [self.epoch_cell(key.place)?, self.session_cell(key)?];
        match self.ask(&names, ask).await? {
            Answer::Found { record, now, slide } => {
                self.count("saved");
                let saved = if slide { self.slide(key).await? } else { Some((record, now)) };
                let session = |(record, now)| Session { id: session.id.clone(), record, now };
                Ok(saved.map(session).map_or(Saved::Ended, Saved::Yes))
            }
            Answer::Changed { record, now } => {
                self.count("conflict");
                Ok(Saved::Changed(Session { id: session.id.clone(), record, now }))
            }
            Answer::None => {
                self.count("not_found");
                Ok(Saved::Ended)
            }
            _ => Err(self.foreign(&names)),
        }
    }

    /// Ends a session. True if it was valid until now.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it was ended or was not.
    ///
    /// # Cancel safety
    ///
    /// It was ended or was not. It can be done again.
    pub async fn end(&self, id: &SessionId) -> Result<bool> {
        self.end_key(id.key()).await
    }

    /// Gives a session with this data to a user, under a new id, and ends the old one: an id that
    /// was known before somebody signed in is worth nothing afterwards. `None` if the old one was
    /// over or ended already, also if another call has just signed it in: then nobody is signed in.
    ///
    /// Two steps; if the process dies between them, the old session goes on as it was.
    ///
    /// # Errors
    ///
    /// As [`Sessions::create`]. After [`Error::Unavailable`] the old session was ended or was not,
    /// and the new one is ended in the background.
    ///
    /// # Cancel safety
    ///
    /// The old session was ended or was not. The new one is ended in the background.
    pub async fn sign_in(&self, session: &Session, user: impl AsRef<str>) -> Result<Option<Session>> {
        let new = self.create(user, &session.record.data).await?;
        let mut unfinished = self.unfinished(new.id.key());
        // One end of the old session finds it valid, and that decides. Nobody knows the new id yet.
        if !self.end(&session.id).await? {
            unfinished.end().await?;
            return Ok(None);
        }
        unfinished.armed = false;
        Ok(Some(new))
    }

    /// The sessions of a user that are valid, oldest first.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn list(&self, user: impl AsRef<str>) -> Result<Vec<ListedSession>> {
        let names = self.user_cells(Place::of(user.as_ref()))?;
        match self.ask(&names, Ask::List).await? {
            Answer::Listed { index, now } => {
                Ok(index.0.iter().map(|entry| ListedSession::new(entry, now)).collect())
            }
            _ => Err(self.foreign(&names)),
        }
    }

    /// Ends one of the sessions that [`Sessions::list`] shows. True if it was valid until now.
    ///
    /// # Errors
    ///
    /// As [`Sessions::end`]; [`Error::Invalid`] if the handle is none.
    ///
    /// # Cancel safety
    ///
    /// As [`Sessions::end`].
    pub async fn end_listed(&self, user: impl AsRef<str>, handle: &str) -> Result<bool> {
        let handle = parse_handle(handle)
            .ok_or_else(|| Error::invalid("this is not the handle of a session; `list` gives them"))?;
        self.end_key(Key { place: Place::of(user.as_ref()), handle }).await
    }

    /// Ends all sessions of a user, and says how many there were.
    ///
    /// The first step makes all of them invalid, everywhere, at one moment. The rest deletes what
    /// is left of them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: all were ended or none.
    ///
    /// # Cancel safety
    ///
    /// All were ended or none. What is left of ended ones is deleted when this is called again,
    /// and otherwise at the end of their lifetimes.
    pub async fn end_all(&self, user: impl AsRef<str>) -> Result<u64> {
        Ok(self.end_all_with_data(user.as_ref()).await?.0)
    }

    /// The same, with what the ended ones had.
    pub(super) async fn end_all_with_data(&self, user: &str) -> Result<(u64, Vec<Vec<u8>>)> {
        let place = Place::of(user);
        let names = self.user_cells(place)?;
        let Answer::Ended { count, left } = self.ask(&names, Ask::EndAll).await? else {
            return Err(self.foreign(&names));
        };
        self.count("all_ended");
        Ok((count, self.sweep(place, left).await?))
    }

    /// Deletes what is left of sessions that were ended; what they had.
    async fn sweep(&self, place: Place, mut left: Vec<Handle>) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        loop {
            left.truncate(MOST_CELLS - 2);
            let mut names = self.user_cells(place)?.to_vec();
            for handle in &left {
                names.push(self.session_cell(Key { place, handle: *handle })?);
            }
            match self.ask(&names, Ask::Sweep { handles: left }).await? {
                Answer::Swept { data, left: rest } => {
                    all.extend(data);
                    left = rest;
                }
                _ => return Err(self.foreign(&names)),
            }
            if left.is_empty() {
                return Ok(all);
            }
        }
    }

    async fn create_session(&self, user: Option<&str>, data: &[u8]) -> Result<Session> {
        let data = checked(data)?;
        let id = SessionId::random(user)?;
        let epoch = crate::random::number()?.max(NO_USER + 1);
        let key = id.key();
        let names = self.all_cells(key)?;
        let user = user.map(str::to_owned);
        let ask = Ask::Create { handle: key.handle, user, data, epoch, most: MOST_PER_USER };
        let mut unfinished = self.unfinished(key);
        let mut answer = self.ask(&names, ask.clone()).await?;
        if answer == Answer::TooMany {
            // Some of them may be what is left of ended ones.
            self.sweep(key.place, Vec::new()).await?;
            answer = self.ask(&names, ask).await?;
        }
        unfinished.armed = false;
        match answer {
            Answer::Found { record, now, .. } => {
                self.count("created");
                Ok(Session { id, record, now })
            }
            Answer::TooMany => Err(Error::invalid(format!(
                "this user has {MOST_PER_USER} sessions; end some of them, or let them end earlier"
            ))),
            _ => Err(self.foreign(&names)),
        }
    }

    pub(super) async fn end_key(&self, key: Key) -> Result<bool> {
        let names = self.all_cells(key)?;
        match self.ask(&names, Ask::End { handle: key.handle }).await? {
            Answer::Ended { count, .. } => {
                self.count(if count > 0 { "ended" } else { "not_found" });
                Ok(count > 0)
            }
            _ => Err(self.foreign(&names)),
        }
    }

    /// A session that is used, and whose end is put off if that is due.
    pub(super) async fn load_key(&self, key: Key) -> Result<Option<(Record, Micros)>> {
        let names = [self.epoch_cell(key.place)?, self.session_cell(key)?];
        let found = match self.ask(&names, Ask::Load).await? {
            Answer::Found { slide: true, .. } => self.slide(key).await?,
            Answer::Found { record, now, .. } => Some((record, now)),
            Answer::None => None,
            _ => return Err(self.foreign(&names)),
        };
        self.count(if found.is_some() { "loaded" } else { "not_found" });
        Ok(found)
    }

    async fn slide(&self, key: Key) -> Result<Option<(Record, Micros)>> {
        let names = self.all_cells(key)?;
        match self.ask(&names, Ask::Slide { handle: key.handle }).await? {
            Answer::Found { record, now, .. } => {
                self.count("put_off");
                Ok(Some((record, now)))
            }
            Answer::None => Ok(None),
            _ => Err(self.foreign(&names)),
        }
    }

    async fn ask(&self, names: &[Name], ask: Ask) -> Result<Answer> {
        let rule = Arc::new(Step { ask, lifetimes: self.lifetimes });
        self.client.inner.update(names, &rule).await
    }

    /// How the cell of an epoch starts, and with it all cells of a user.
    fn place(&self, place: Place) -> String {
        cells::cell(&self.prefix, &format!("{{{:032x}}}", place.0))
    }

    fn epoch_cell(&self, place: Place) -> Result<Name> {
        self.client.name(Family::Cell, &self.place(place))
    }

    fn user_cells(&self, place: Place) -> Result<[Name; 2]> {
        let index = self.client.name(Family::Cell, &format!("{}/all", self.place(place)))?;
        Ok([self.epoch_cell(place)?, index])
    }

    fn session_cell(&self, key: Key) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/{:032x}", self.place(key.place), key.handle.0))
    }

    fn all_cells(&self, key: Key) -> Result<[Name; 3]> {
        let [epoch, index] = self.user_cells(key.place)?;
        Ok([epoch, index, self.session_cell(key)?])
    }

    fn count(&self, outcome: &'static str) {
        self.client.inner.events.meter().kit("leasehold_sessions_total", outcome);
    }

    pub(super) fn foreign(&self, names: &[Name]) -> Error {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!("one of the cells `{}` holds something that is no session", names.join("`, `")),
            source: None,
        }
    }

    fn unfinished(&self, key: Key) -> Unfinished<'_> {
        Unfinished { sessions: self, key, armed: true }
    }
}

fn checked(data: &[u8]) -> Result<Vec<u8>> {
    if data.len() > LONGEST_DATA {
        return Err(Error::invalid(format!(
            "the data of a session has {} bytes, more than the {LONGEST_DATA} that are kept",
            data.len()
        )));
    }
    Ok(data.to_vec())
}

/// A session that may have been created, and whose id nobody was told.
struct Unfinished<'a> {
    sessions: &'a Sessions,
    key: Key,
    armed: bool,
}

impl Unfinished<'_> {
    async fn end(&mut self) -> Result<()> {
        self.sessions.end_key(self.key).await?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (sessions, key) = (self.sessions.clone(), self.key);
        self.sessions.client.inner.background(async move {
            // If it is not heard, the session is over after its lifetime.
            sessions.end_key(key).await.ok();
        });
    }
}
