//! The connection of a client to the ensemble, and its session.
//!
//! A link connects again by itself while its session lives. When that has ended, or may have ended
//! without our hearing of it, a new one is made.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::ears::Ears;
use super::errors::{failure, unavailable};
use super::link::{Link, SILENT_END, Setup, State};
use super::messages::{ANY, Access, Mode, Op, Request, read_multi};
use super::paths::Paths;
use super::promises::ENGINE;
use super::session::Session;
use super::url::Place;
use super::version::warn_of_version;
use super::wire::Said;
use crate::claim::Seat;
use crate::clock::{Moment, SystemClock, sleep_until};
use crate::engine::sessions::store::Session as _;
use crate::engine::sessions::{Heard, now};
use crate::engine::supervise::{Attempt, CONNECT_LIMIT, Connector};
use crate::engine::url::Secret;
use crate::error::{Error, Result};
use crate::random;

/// A server that is silent for so long is given up for another one. A call waits five seconds by
/// default, and should find another server before that.
const LONGEST_SILENCE: Duration = Duration::from_secs(2);
/// The pause before servers are asked again that do not serve.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one proof that the session lives may take.
const PROOF_LIMIT: Duration = Duration::from_secs(3);

/// How the ensemble is reached.
pub(super) struct Ensemble {
    place: Place,
    server: String,
    paths: Paths,
    pub(super) ears: Arc<Ears>,
}

/// A connection, and the session that it belongs to.
pub(super) struct Member {
    pub(super) link: Arc<Link>,
    pub(super) session: Arc<Session>,
    report: Arc<Attempt>,
    tasks: Vec<AbortHandle>,
}

impl Ensemble {
    pub(super) fn new(place: Place, paths: Paths) -> Ensemble {
        let server = place.server();
        let ears: Arc<Ears> = Arc::default();
        if place.raw.is_none() {
            ears.stand(Request::AddWatch { path: paths.sessions(), below: true });
        }
        Ensemble { place, server, paths, ears }
    }

    /// The node that writes name which change nothing, and that only a majority can answer.
    pub(super) fn vouched(&self, seat: Seat) -> String {
        // Raw names have no nodes of sessions.
        if self.place.raw.is_some() { "/".to_owned() } else { self.paths.session(seat) }
    }

    pub(super) fn access(&self) -> Access {
        // Who has a name has its nodes to itself.
        if self.place.login.user.is_some() { Access::Creator } else { Access::Anyone }
    }

    fn setup(&self) -> Result<Setup> {
        let login = match (&self.place.login.user, &self.place.login.password) {
            (Some(user), Some(password)) => Some(format!("{user}:{}", password.reveal())),
            _ => None,
        };
        let ears = Arc::clone(&self.ears);
        Ok(Setup {
            hosts: self.place.hosts.clone(),
            timeout: self.place.session_timeout,
            silence: LONGEST_SILENCE.min(self.place.session_timeout * 2 / 5),
            login,
            #[cfg(feature = "zookeeper-tls")]
            tls: self.place.tls.as_ref().map(super::tls::connector).transpose()?,
            standing: self.ears.standing(),
            events: Box::new(move |event| ears.event(event)),
        })
    }

    /// Makes a session. Servers that are there and do not serve may be electing a leader: they are
    /// asked again for a while.
    async fn open(&self) -> Result<Link> {
        let give_up = Instant::now() + CONNECT_LIMIT.mul_f64(0.8);
        loop {
            let errors = match Link::open(self.setup()?).await {
                Ok(link) => return Ok(link),
                Err(errors) => errors,
            };
            let plain = errors.iter().find(|(_, said)| !matches!(said, Said::Lost(_) | Said::ReadOnly));
            if let Some((server, said)) = plain {
                return Err(failure(server, said).into_error(ENGINE));
            }
            let elects = |(_, said): &(String, Said)| match said {
                Said::Lost(why) => why.contains(SILENT_END),
                said => *said == Said::ReadOnly,
            };
            if !errors.iter().any(elects) || Instant::now() + PAUSE >= give_up {
                return Err(self.unreached(errors));
            }
            sleep(PAUSE).await;
        }
    }

    /// Why none of the servers is any good, one by one.
    fn unreached(&self, errors: Vec<(String, Said)>) -> Error {
        let mut errors: Vec<String> = errors
            .into_iter()
            .map(|(server, said)| match said {
                Said::Lost(why) if why.contains(SILENT_END) => {
                    let (other, scheme) = match self.place.tls {
                        Some(_) => ("no TLS", "zookeeper"),
                        None => ("TLS", "zookeepers"),
                    };
                    format!(
                        "`{server}` does not serve ({why}): less than a majority of the servers is up, or it \
                         wants {other} (`{scheme}://`)"
                    )
                }
                said => format!("can not reach `{server}`: {said}"),
            })
            .collect();
        errors.sort_unstable();
        unavailable(errors.join("; "))
    }

    /// Makes the node of a session, which proves that a majority is up. Reads over this connection
    /// see whatever was written before.
    async fn take_seat(&self, link: &Link, seat: Seat) -> Result<(), Said> {
        let (path, data, access) = (self.paths.session(seat), Vec::new(), self.access());
        let request = Request::Create { path, data, mode: Mode::Ephemeral, access };
        match link.send(request.clone()).await {
            Err(Said::NoNode) => {
                make_directory(link, &self.paths.sessions(), Mode::Persistent, access).await?;
                link.send(request).await.map(|_| ())
            }
            created => created.map(|_| ()),
        }
    }
}

/// Makes a directory, and those that it is in.
pub(super) async fn make_directory(link: &Link, path: &str, mode: Mode, access: Access) -> Result<(), Said> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    let mut last = None;
    for end in ends {
        last = None;
        let path = path[..end].to_owned();
        match link.send(Request::Create { path, data: Vec::new(), mode, access }).await {
            Ok(_) | Err(Said::NodeExists) => {}
            Err(said) => last = Some(said),
        }
    }
    // Those above may belong to others, and be there.
    last.map_or(Ok(()), Err)
}

impl Connector for Ensemble {
    type Session = Member;

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn server(&self) -> &str {
        &self.server
    }

    fn secret(&self) -> Option<&str> {
        self.place.login.password.as_ref().map(Secret::reveal)
    }

    async fn connect(&self, attempt: Attempt) -> Result<Member> {
        let seat = random::number()?.max(1);
        // Counted from before it is asked for.
        let asked = now();
        let link = Arc::new(self.open().await?);
        // Over TLS it is not asked.
        if self.place.tls.is_none()
            && let Some(host) = self.place.hosts.get(link.host)
        {
            warn_of_version((&host.name, host.port)).await;
        }
        let said = |said: Said| failure(&self.server, &said).into_error(ENGINE);
        let session = Arc::new(Session::new(seat, asked, link.timeout));
        let report = Arc::new(attempt);
        if self.place.raw.is_none() {
            self.take_seat(&link, seat).await.map_err(said)?;
            // Open before anybody relies on it.
            let ends = Request::AddWatch { path: self.paths.sessions(), below: true };
            link.send(ends).await.map_err(said)?;
        }
        let mut member = Member { link, session, report, tasks: Vec::new() };
        let proved = self.vouched(seat);
        member.tasks = vec![
            tokio::spawn(prove(member.parts(), proved, Arc::clone(&self.ears))).abort_handle(),
            tokio::spawn(follow_state(
                member.link.states(),
                Arc::clone(&member.session),
                Arc::clone(&self.ears),
                self.server.clone(),
                Arc::clone(&member.report),
            ))
            .abort_handle(),
        ];
        self.ears.connected();
        Ok(member)
    }

    async fn probe(&self, member: &Member) -> Result<(), String> {
        // The link pings by itself.
        if member.session.has_ended() { Err("the session has ended".to_owned()) } else { Ok(()) }
    }

    fn disconnected(&self, why: &str) {
        self.ears.disconnected(&self.server, why);
    }

    fn connected_again(&self, server: String) {
        self.ears.connected_again(server);
    }
}

impl Member {
    /// True while there is a connection to a server.
    pub(super) fn is_up(&self) -> bool {
        matches!(*self.link.states().borrow(), State::Up(_))
    }

    /// The number of the connection, if there is one.
    pub(super) fn connection(&self) -> Option<u64> {
        match *self.link.states().borrow() {
            State::Up(number) => Some(number),
            State::Down | State::Ended(_) => None,
        }
    }

    /// Waits until there is a connection to a server. The caller limits the wait.
    pub(super) async fn wait_until_up(&self) {
        // If the session has ended, requests are told.
        self.link.states().wait_for(|state| *state != State::Down).await.ok();
    }

    /// Ends the session on our side, and asks for another one.
    pub(super) fn give_up(&self, why: &str) {
        self.session.end();
        self.report.lost(why);
    }

    fn parts(&self) -> (Arc<Link>, Arc<Session>, Arc<Attempt>) {
        (Arc::clone(&self.link), Arc::clone(&self.session), Arc::clone(&self.report))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Follows the link: whether there is a connection, and whether the session lives.
async fn follow_state(
    mut states: watch::Receiver<State>,
    session: Arc<Session>,
    ears: Arc<Ears>,
    server: String,
    report: Arc<Attempt>,
) {
    let mut was_up = true;
    while states.changed().await.is_ok() {
        let state = states.borrow_and_update().clone();
        match state {
            State::Up(_) if was_up => {}
            State::Up(_) => {
                was_up = true;
                ears.connected_again(server.clone());
            }
            State::Down => {
                was_up = false;
                ears.disconnected(&server, "the connection was lost");
            }
            State::Ended(said) => {
                session.end();
                ears.tell(Heard::Ended(session.seat()));
                report.lost(&said.to_string());
                return;
            }
        }
    }
}

/// Proves again and again that the session lives. Ends it when it may have ended without our
/// hearing of it.
async fn prove(
    (link, session, report): (Arc<Link>, Arc<Session>, Arc<Attempt>),
    path: String,
    ears: Arc<Ears>,
) {
    let end = |why: &str| {
        session.end();
        ears.tell(Heard::Ended(session.seat()));
        report.lost(why);
    };
    let mut last: Option<Moment> = None;
    while !session.has_ended() {
        let changed = session.changed();
        let at = now();
        let good_until = session.good_until();
        if at >= good_until {
            return end("no majority of the servers has vouched for the session in time");
        }
        let every = session.prove_every();
        let next = last.map_or(at, |last| last + every);
        if next > at {
            tokio::select! {
                () = sleep_until(&SystemClock, next.min(good_until)) => {}
                () = changed => {}
            }
            continue;
        }
        last = Some(at);
        let limit = PROOF_LIMIT.min(good_until.since(at));
        // A write that changes nothing, and that only a majority can answer.
        let check = Op::Check(path.clone(), ANY);
        // What fails is tried again, until the session may have ended.
        let answer = timeout(limit, link.send(Request::Multi(vec![check]))).await;
        if let Ok(Ok(body)) = answer {
            match read_multi(&body) {
                Ok(Ok(_)) => session.answered(at),
                Ok(Err((_, Said::NoNode))) => return end("the node of the session was deleted"),
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}
