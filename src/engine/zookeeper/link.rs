//! One session with the ensemble, over one connection after the other.
//!
//! A task connects to any of the servers, and to another one when the connection breaks, until the
//! session has ended. Requests are answered in the order in which they were sent. What was sent and
//! not answered when the connection breaks may have been done or not; it is not sent again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::frames::{Frames, frame, read, write};
use super::messages::{Event, Head, Request};
use super::wire::{Reader, Said, Writer};
use crate::engine::url::Host;
use crate::random;

/// What a server does that has no majority, or speaks otherwise.
pub(super) const SILENT_END: &str = "it closes the connection without a word";
/// The pause after all servers have refused.
const PAUSE: Duration = Duration::from_millis(50);
/// How long it may take to say good-bye.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// How a session is made.
pub(super) struct Setup {
    pub(super) hosts: Vec<Host>,
    pub(super) timeout: Duration,
    /// A server that is silent for so long is given up for another one.
    pub(super) silence: Duration,
    /// USER:PASSWORD.
    pub(super) login: Option<String>,
    #[cfg(feature = "zookeeper-tls")]
    pub(super) tls: Option<tokio_rustls::TlsConnector>,
    /// The watches that every connection has.
    pub(super) standing: Arc<Mutex<Vec<Request>>>,
    /// What is done with what watches tell.
    pub(super) events: Box<dyn Fn(Event) + Send + Sync>,
}

/// Whether there is a connection, and a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is a connection: the how manieth of the session.
    Up(u64),
    Down,
    /// For good.
    Ended(Said),
}

/// A session. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Link {
    requests: mpsc::UnboundedSender<Sent>,
    state: watch::Receiver<State>,
    /// What the servers have agreed to.
    pub(super) timeout: Duration,
    /// The number that the servers know the session by.
    pub(super) id: i64,
    /// Which of the servers was the first.
    pub(super) host: usize,
}

/// A request on its way, and who waits for the answer.
struct Sent {
    request: Request,
    answer: oneshot::Sender<Result<Vec<u8>, Said>>,
}

/// A request that was sent: its number, and who waits for the answer.
type Waiting = (i32, Option<oneshot::Sender<Result<Vec<u8>, Said>>>);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Link {
    /// Connects, and makes a session. Why not, server by server, if that is not possible now.
    pub(super) async fn open(setup: Setup) -> Result<Link, Vec<(String, Said)>> {
        let mut session = Session::new(setup);
        let stream = session.connect().await?;
        let (requests, sent) = mpsc::unbounded_channel();
        let (state, seen) = watch::channel(State::Down);
        let count = session.setup.hosts.len().max(1);
        let host = (session.next_host + count - 1) % count;
        let link = Link { requests, state: seen, timeout: session.timeout, id: session.id, host };
        tokio::spawn(session.serve(stream, sent, state));
        Ok(link)
    }

    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Sends a request. It is on its way when this returns; the answer is waited for.
    pub(super) fn send(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Vec<u8>, Said>> + Send + 'static {
        let (answer, waits) = oneshot::channel();
        let sent = self.requests.send(Sent { request, answer });
        let state = self.state.clone();
        async move {
            let answer = match sent {
                Ok(()) => waits.await.unwrap_or_else(|_| Err(lost("the connection was lost"))),
                Err(_) => Err(Said::Expired),
            };
            let refused = answer.is_err() && *state.borrow() == State::Ended(Said::NeedsSasl);
            if refused { Err(Said::NeedsSasl) } else { answer }
        }
    }
}

fn lost(why: &str) -> Said {
    Said::Lost(why.to_owned())
}

/// What the task knows of the session.
struct Session {
    setup: Setup,
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
    /// The last change that was seen: no server that is behind it will do.
    last_change: i64,
    heard_at: Instant,
    next_host: usize,
}

type Connection = (tokio::io::ReadHalf<Box<dyn Stream>>, tokio::io::WriteHalf<Box<dyn Stream>>);

impl Session {
    fn new(setup: Setup) -> Session {
        let timeout = setup.timeout;
        let next_host = random::number().unwrap_or(0) as usize % setup.hosts.len().max(1);
        let password = vec![0; 16];
        Session { setup, id: 0, password, timeout, last_change: 0, heard_at: Instant::now(), next_host }
    }

    /// Tries each server once, another one first each time.
    async fn connect(&mut self) -> Result<Connection, Vec<(String, Said)>> {
        let count = self.setup.hosts.len();
        let mut errors = Vec::new();
        for _ in 0..count {
            let host = self.setup.hosts[self.next_host % count].clone();
            self.next_host = (self.next_host + 1) % count;
            let shaken = timeout(self.setup.silence, self.shake_hands(&host)).await;
            match shaken.unwrap_or_else(|_| Err(Said::Lost(format!("no answer in {:?}", self.setup.silence))))
            {
                Ok(connection) => return Ok(connection),
                Err(said @ (Said::Expired | Said::AuthFailed)) => return Err(vec![(host.to_string(), said)]),
                Err(said) => errors.push((host.to_string(), said)),
            }
        }
        Err(errors)
    }

    async fn shake_hands(&mut self, host: &Host) -> Result<Connection, Said> {
        let broken = |error: std::io::Error| Said::Lost(error.to_string());
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let stream: Box<dyn Stream> = self.encrypted(host, stream).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut hello = Writer::default();
        let timeout = i32::try_from(self.setup.timeout.as_millis()).unwrap_or(i32::MAX);
        hello.int(0).long(self.last_change).int(timeout).long(self.id).bytes(&self.password).flag(false);
        write(&mut writer, &hello.0).await.map_err(broken)?;
        let answer = read(&mut reader).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => lost(SILENT_END),
            _ => Said::Lost(error.to_string()),
        })?;
        let mut answer = Reader(&answer);
        let (_, timeout, id, password) = (answer.int()?, answer.int()?, answer.long()?, answer.bytes()?);
        if answer.flag().unwrap_or(false) {
            return Err(Said::ReadOnly);
        }
        // Some that are not ZooKeeper give another session in place of the one that is asked for.
        if timeout <= 0 || id == 0 || (self.id != 0 && id != self.id) {
            return Err(Said::Expired);
        }
        self.timeout = Duration::from_millis(timeout.unsigned_abs().into());
        (self.id, self.password, self.heard_at) = (id, password, Instant::now());
        if let Some(login) = &self.setup.login {
            let mut message = Writer::default();
            message.int(Head::AUTH).int(100).int(0).text("digest").bytes(login.as_bytes());
            write(&mut writer, &message.0).await.map_err(broken)?;
            let answer = read(&mut reader).await.map_err(broken)?;
            Head::read(&mut Reader(&answer))?.result()?;
        }
        Ok((reader, writer))
    }

    #[cfg(feature = "zookeeper-tls")]
    async fn encrypted(&self, host: &Host, stream: TcpStream) -> Result<Box<dyn Stream>, Said> {
        let Some(tls) = &self.setup.tls else { return Ok(Box::new(stream)) };
        let name = rustls::pki_types::ServerName::try_from(host.name.clone())
            .map_err(|_| lost("its name can not be in a certificate"))?;
        let stream = tls.connect(name, stream).await.map_err(|error| Said::Lost(format!("TLS: {error}")))?;
        Ok(Box::new(stream))
    }

    #[cfg(not(feature = "zookeeper-tls"))]
    #[allow(clippy::unused_async, clippy::unused_self, reason = "the same with encryption")]
    async fn encrypted(&self, _: &Host, stream: TcpStream) -> Result<Box<dyn Stream>, Said> {
        Ok(Box::new(stream))
    }

    /// Serves one connection after the other until the session has ended.
    async fn serve(
        mut self,
        mut connection: Connection,
        mut sent: mpsc::UnboundedReceiver<Sent>,
        state: watch::Sender<State>,
    ) {
        let mut count = 1;
        let why = loop {
            let watches = self.setup.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match self.talk(connection, &mut sent, &state, count, watches).await {
                Some(Said::Expired) | None => break Said::Expired,
                // Nor will it be another time.
                Some(Said::NeedsSasl) => break Said::NeedsSasl,
                Some(said) => {
                    state.send_replace(State::Down);
                    tracing::debug!(target: "leasehold", %said, "lost the connection to a ZooKeeper server");
                }
            }
            connection = loop {
                // What is sent now is not answered.
                while let Ok(Sent { answer, .. }) = sent.try_recv() {
                    answer.send(Err(lost("there is no connection"))).ok();
                }
                if sent.is_closed() {
                    state.send_replace(State::Ended(Said::Expired));
                    return;
                }
                match self.connect().await {
                    Ok(connection) => break connection,
                    Err(errors) if errors.iter().any(|(_, said)| *said == Said::Expired) => {
                        state.send_replace(State::Ended(Said::Expired));
                        return;
                    }
                    Err(_) => sleep(PAUSE).await,
                }
                // The servers have ended it by now, all the more if they were down meanwhile and
                // counted from their start: then they say so.
                if self.heard_at.elapsed() > self.timeout * 3 {
                    state.send_replace(State::Ended(lost("no server was reached for long")));
                    return;
                }
            };
            count += 1;
        };
        state.send_replace(State::Ended(why));
    }

    /// Serves one connection, and says why it is of no use any more; `None` if it was closed.
    async fn talk(
        &mut self,
        (reader, mut writer): Connection,
        sent: &mut mpsc::UnboundedReceiver<Sent>,
        state: &watch::Sender<State>,
        count: u64,
        watches: Vec<Request>,
    ) -> Option<Said> {
        let mut reader = BufReader::with_capacity(16 << 10, reader);
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut number = 0;
        let mut out = Vec::new();
        // Before anybody is told that there is a connection: the answers come in order.
        for watch in watches {
            number += 1;
            frame(&mut out, &watch.write(number));
            waiting.push_back((number, None));
        }
        let mut standing = waiting.len();
        if standing == 0 {
            state.send_replace(State::Up(count));
        }
        let ping_every = self.setup.silence / 3;
        let mut sent_at = Instant::now();
        let mut closing = None;
        let mut frames = Frames::default();
        loop {
            if !out.is_empty() {
                sent_at = Instant::now();
                if let Err(error) = timeout(self.setup.silence, writer.write_all(&out))
                    .await
                    .unwrap_or_else(|_| Err(std::io::Error::other("it takes nothing in")))
                {
                    return Some(Said::Lost(error.to_string()));
                }
                if timeout(self.setup.silence, writer.flush()).await.is_err() {
                    return Some(lost("it takes nothing in"));
                }
                out.clear();
            }
            let silent_from = self.heard_at + self.setup.silence;
            tokio::select! {
                message = frames.next(&mut reader) => {
                    let message = match message {
                        Ok(message) => message,
                        Err(error) => return Some(Said::Lost(error.to_string())),
                    };
                    self.heard_at = Instant::now();
                    match self.take(&message, &mut waiting) {
                        Ok(()) => {}
                        Err(said) => {
                            if said == Said::NeedsSasl {
                                // Before those who wait hear that they will not be answered.
                                state.send_replace(State::Ended(Said::NeedsSasl));
                            }
                            return Some(said);
                        }
                    }
                    if standing > 0 && waiting.front().is_none_or(|(_, answer)| answer.is_some()) {
                        standing = 0;
                        state.send_replace(State::Up(count));
                    }
                    if closing.is_some() && waiting.is_empty() {
                        return None;
                    }
                }
                request = sent.recv(), if closing.is_none() => match request {
                    Some(request) => {
                        let mut next = Some(request);
                        // All that is there goes out together.
                        while let Some(Sent { request, answer }) = next.take() {
                            number = if number == i32::MAX { 1 } else { number + 1 };
                            frame(&mut out, &request.write(number));
                            waiting.push_back((number, Some(answer)));
                            next = sent.try_recv().ok();
                        }
                    }
                    None => {
                        number = if number == i32::MAX { 1 } else { number + 1 };
                        frame(&mut out, &Request::Close.write(number));
                        waiting.push_back((number, None));
                        closing = Some(Instant::now() + CLOSE_LIMIT);
                    }
                },
                () = sleep_until(sent_at + ping_every) => {
                    let mut ping = Writer::default();
                    ping.int(Head::PING).int(11);
                    frame(&mut out, &ping.0);
                }
                () = sleep_until(silent_from) => return Some(lost("it is silent")),
                () = sleep_until(closing.unwrap_or(silent_from)), if closing.is_some() => return None,
            }
        }
    }

    /// Takes in a message of the server.
    fn take(&mut self, message: &[u8], waiting: &mut VecDeque<Waiting>) -> Result<(), Said> {
        let mut reader = Reader(message);
        let head = Head::read(&mut reader)?;
        match head.number {
            Head::PING | Head::AUTH => return head.result(),
            Head::EVENT => {
                if let Some(event) = Event::read(&mut reader)? {
                    (self.setup.events)(event);
                }
                return Ok(());
            }
            _ => {}
        }
        self.last_change = self.last_change.max(head.change);
        let Some((number, answer)) = waiting.pop_front() else {
            return Err(Said::Garbled("nobody has asked"));
        };
        if number != head.number {
            return Err(Said::Garbled("it answers another request"));
        }
        let result = head.result();
        let over = result.clone().err().filter(|said| matches!(said, Said::Expired | Said::NeedsSasl));
        if let Some(answer) = answer {
            // Whoever has asked may be gone.
            answer.send(result.map(|()| reader.0.to_vec())).ok();
        }
        over.map_or(Ok(()), Err)
    }
}
