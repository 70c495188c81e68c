//! A second connection, over which whoever is alone asks without the driver.
//!
//! The driver serves many callers at once: a request goes through a channel to the task that has the connection, and the answer
//! comes back through another. Somebody who does one thing after the other has nothing from that, and pays for it with
//! every request. Here the caller itself writes to the socket and reads from it. Such a lane is opened for those who ask often, and
//! closed when they do not any more.
//!
//! What goes here and what goes over the other connection can overtake each other. That is harmless while everybody waits
//! for an answer before asking the next thing. Who leaves without its answer does not: what it does next undoes what it has asked,
//! and must come after it. So a task waits for that answer, and until it is there no connection is handed out at all.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use redis::aio::AsyncStream;
use redis::{ConnectionAddr, ConnectionInfo, Parser, Pipeline, RedisResult, Value};
use tokio::io::ReadBuf;
use tokio::net::{TcpStream, UnixStream};

use super::{CONNECT_LIMIT, Connected, Link, PING_LIMIT, Shared};
use crate::engine::redis::fleet::{Ending, Request};
use crate::engine::redis::scripts::is_unknown_script;
use crate::error::Result;

/// So many requests between two looks are worth a connection.
const WORTH_IT: u32 = 64;

/// The way past the driver, of one connection.
pub(super) struct Lane {
    state: Mutex<State>,
    /// Somebody has left without its answer.
    owed: AtomicBool,
}

struct State {
    way: Way,
    /// Since the last look.
    requests: u32,
}

enum Way {
    /// Not to be had.
    Barred,
    Closed,
    Opening,
    Free(Wire),
    InUse,
}

/// What somebody who is alone finds.
enum Found {
    Way(Wire),
    /// None yet, but it would be worth it.
    WorthOpening,
    Nothing,
}

impl Lane {
    /// For a server at this address.
    pub(super) fn new(addr: &ConnectionAddr) -> Lane {
        let way = match addr {
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) => Way::Closed,
            // The driver encrypts.
            _ => Way::Barred,
        };
        Lane { state: Mutex::new(State { way, requests: 0 }), owed: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Found {
        let state = &mut *self.state();
        state.requests = state.requests.saturating_add(1);
        match std::mem::replace(&mut state.way, Way::InUse) {
            Way::Free(wire) => Found::Way(wire),
            Way::Closed if state.requests >= WORTH_IT => {
                state.way = Way::Opening;
                Found::WorthOpening
            }
            way => {
                state.way = way;
                Found::Nothing
            }
        }
    }

    fn leave(&self, way: Way) {
        self.state().way = way;
    }

    /// True if an answer is to come for which its caller does not wait any more.
    pub(super) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire)
    }

    /// Closes the lane if it was hardly used since the last look. One that is idle for long could break unnoticed.
    pub(super) fn look(&self) {
        let mut state = self.state();
        if state.requests < WORTH_IT && matches!(state.way, Way::Free(_)) {
            state.way = Way::Closed;
        }
        state.requests = 0;
    }
}

/// A connection of our own.
struct Wire {
    stream: Pin<Box<dyn AsyncStream + Send + Sync>>,
    parser: Parser,
}

impl Wire {
    /// Connects, and gives the connection's number at the server. `None` if it is not the server that it should be, or does not
    /// say who it is.
    async fn open(info: &ConnectionInfo, run_id: &str) -> RedisResult<Option<(Wire, i64)>> {
        let stream: Pin<Box<dyn AsyncStream + Send + Sync>> = match info.addr() {
            ConnectionAddr::Unix(path) => Box::pin(UnixStream::connect(path).await?),
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::pin(stream)
            }
            _ => return Ok(None),
        };
        let mut hello = Pipeline::new();
        let settings = info.redis_settings();
        if let Some(password) = settings.password() {
            hello.cmd("AUTH").arg(settings.username()).arg(password);
        }
        if settings.db() != 0 {
            hello.cmd("SELECT").arg(settings.db());
        }
        hello.cmd("INFO").arg("server");
        hello.cmd("CLIENT").arg("ID");
        let wire = Wire { stream, parser: Parser::new() };
        let mut errand = Errand::new(wire, hello.get_packed_pipeline(), hello.len());
        poll_fn(|cx| errand.poll(cx)).await?;
        let answers = Value::Array(std::mem::take(&mut errand.answers)).extract_error()?;
        let Some([.., info, Value::Int(id)]) = answers.as_sequence() else { return Ok(None) };
        let info: String = redis::from_redis_value_ref(info)?;
        let is_the_same = info.lines().any(|line| line.strip_prefix("run_id:") == Some(run_id));
        Ok((is_the_same && !run_id.is_empty()).then_some((errand.wire, *id)))
    }
}

/// A request on its way, and the answers that have come.
struct Errand {
    wire: Wire,
    request: Vec<u8>,
    sent: usize,
    answers: Vec<Value>,
    expected: usize,
    /// The parser has bytes that are not answers yet.
    parsing: bool,
}

/// Bytes that have come. More may come.
struct Arrived<'a> {
    bytes: &'a [u8],
    used_up: bool,
}

impl Arrived<'_> {
    /// The next answer if it is one of those that a lock that was taken, asked for or given back has, without a parser that can
    /// do everything.
    fn plain(&mut self) -> Option<Value> {
        let line = self.bytes.split(|byte| *byte == b'\r').next()?;
        let rest = self.bytes[line.len()..].strip_prefix(b"\r\n")?;
        let answer = match line {
            b"+OK" => Value::Okay,
            b"+PONG" => Value::SimpleString("PONG".into()),
            b"$-1" => Value::Nil,
            [b':', number @ ..] => Value::Int(std::str::from_utf8(number).ok()?.parse().ok()?),
            _ => return None,
        };
        self.bytes = rest;
        Some(answer)
    }
}

impl Read for Arrived<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.used_up = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.bytes.read(to)
    }
}

impl Errand {
    fn new(wire: Wire, request: Vec<u8>, expected: usize) -> Errand {
        let answers = Vec::with_capacity(expected);
        Errand { wire, request, sent: 0, answers, expected, parsing: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        let stream = &mut self.wire.stream;
        while self.sent < self.request.len() {
            match ready!(stream.as_mut().poll_write(cx, &self.request[self.sent..]))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                sent => self.sent += sent,
            }
        }
        let mut buffer = [0; 128];
        while self.answers.len() < self.expected {
            let mut read = ReadBuf::new(&mut buffer);
            ready!(self.wire.stream.as_mut().poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
            }
            self.arrived(read.filled())?;
        }
        Poll::Ready(Ok(()))
    }

    fn arrived(&mut self, bytes: &[u8]) -> RedisResult<()> {
        let mut arrived = Arrived { bytes, used_up: false };
        while self.answers.len() < self.expected && !arrived.used_up {
            if !self.parsing
                && let Some(answer) = arrived.plain()
            {
                self.answers.push(answer);
                continue;
            }
            // From here on it has the rest: it keeps the beginning of an answer until it has the end.
            self.parsing = true;
            match self.wire.parser.parse_value(&mut arrived) {
                Ok(answer) => self.answers.push(answer),
                Err(_) if arrived.used_up => {}
                Err(error) => return Err(error),
            }
        }
        if arrived.bytes.is_empty() {
            return Ok(());
        }
        // Who takes it for the answer to the next request is lost.
        Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that nobody asked for").into())
    }
}

/// An errand that its caller runs. Dropped before its end, it goes on in the background.
struct Running<'a> {
    shared: &'a Arc<Shared>,
    connected: &'a Arc<Connected>,
    errand: Option<Errand>,
}

impl Future for Running<'_> {
    type Output = RedisResult<Vec<Value>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(errand) = &mut self.errand else { return Poll::Pending };
        let done = ready!(errand.poll(cx));
        let Some(Errand { wire, answers, .. }) = self.errand.take() else { return Poll::Pending };
        Poll::Ready(match done {
            Ok(()) => {
                self.connected.lane.leave(Way::Free(wire));
                Ok(answers)
            }
            Err(error) => {
                self.shared.lost(self.connected.epoch, &error.to_string());
                Err(error)
            }
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        match self.errand.take() {
            Some(errand) if errand.sent == 0 => self.connected.lane.leave(Way::Free(errand.wire)),
            Some(errand) => self.shared.finish(self.connected, errand),
            None => {}
        }
    }
}

impl Shared {
    /// Finishes what its caller does not wait for any more.
    fn finish(self: &Arc<Shared>, connected: &Arc<Connected>, mut errand: Errand) {
        connected.lane.owed.store(true, Ordering::Release);
        let (shared, connected) = (Arc::clone(self), Arc::clone(connected));
        self.runtime.spawn(async move {
            match tokio::time::timeout(PING_LIMIT, poll_fn(|cx| errand.poll(cx))).await {
                Ok(Ok(())) => {
                    connected.lane.leave(Way::Free(errand.wire));
                    connected.lane.owed.store(false, Ordering::Release);
                    // Those who wait for it look again.
                    shared.status.send_modify(|_| {});
                }
                Ok(Err(error)) => shared.lost(connected.epoch, &error.to_string()),
                Err(_) => shared.lost(connected.epoch, "no answer in time"),
            }
        });
    }

    fn open_lane(self: &Arc<Shared>, connected: &Arc<Connected>) {
        let (shared, connected) = (Arc::clone(self), Arc::clone(connected));
        self.runtime.spawn(async move {
            let opening = Wire::open(&connected.info, &connected.facts.run_id);
            let opened = tokio::time::timeout(CONNECT_LIMIT, opening).await;
            let way = match opened {
                Ok(Ok(Some((wire, id)))) if shared.note_lane(connected.epoch, id) => Way::Free(wire),
                _ => {
                    // Not why: some servers repeat what they were told, the password too. It works without.
                    tracing::debug!(target: "leasehold", "no second connection");
                    Way::Barred
                }
            };
            connected.lane.leave(way);
        });
    }
}

impl Link {
    /// Sends a request of somebody who is alone.
    pub(in super::super) async fn send_alone(
        &self,
        connected: &Arc<Connected>,
        request: Request<'_>,
    ) -> Result<Value> {
        // What it undoes may still be on its way over the other connection.
        if let Request::Release(_, Ending::Unheard) = request {
            return self.send_with_others(connected, request).await;
        }
        match connected.lane.enter() {
            Found::Way(wire) => {
                let (packed, expected) = request.packed();
                let errand = Some(Errand::new(wire, packed, expected));
                let mut running = Running { shared: &self.shared, connected, errand };
                let answers = self.call(connected, Pin::new(&mut running)).await?;
                let answer = request.read(answers);
                if !answer.as_ref().is_err_and(is_unknown_script) {
                    return self.answer(connected, answer);
                }
            }
            Found::WorthOpening => self.shared.open_lane(connected),
            Found::Nothing => {}
        }
        self.send_with_others(connected, request).await
    }

    /// Sends a request over the connection that is everybody's.
    pub(in super::super) async fn send_with_others(
        &self,
        connected: &Connected,
        request: Request<'_>,
    ) -> Result<Value> {
        // In a box of its own: it is large, and who is alone seldom needs it.
        let mut connection = connected.connection.clone();
        self.call(connected, Box::pin(request.send(&mut connection)).as_mut()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    /// What the answers come to if they arrive in pieces of a size, and the connection ends after them.
    async fn heard(said: &'static [u8], size: usize, expected: usize) -> RedisResult<Vec<Value>> {
        let (ours, mut theirs) = tokio::io::duplex(said.len().max(1));
        let talking = tokio::spawn(async move {
            for piece in said.chunks(size) {
                theirs.write_all(piece).await.expect("it is heard");
                tokio::task::yield_now().await;
            }
        });
        let wire = Wire { stream: Box::pin(ours), parser: Parser::new() };
        let mut errand = Errand::new(wire, Vec::new(), expected);
        let done = poll_fn(|cx| errand.poll(cx)).await;
        talking.await.expect("no panic");
        done.map(|()| errand.answers)
    }

    #[tokio::test]
    async fn answers_are_the_same_however_they_arrive() {
        const PLAIN: &[u8] = b"+OK\r\n:1700000000000001\r\n$-1\r\n+PONG\r\n:-5\r\n";
        const OTHER: &[u8] = b"+OK\r\n+QUEUED\r\n*2\r\n$-1\r\n:7\r\n-ERR no\r\n$5\r\na\r\nbc\r\n:3\r\n";
        let queued = Value::SimpleString("QUEUED".into());
        for size in 1..=OTHER.len() {
            let plain = heard(PLAIN, size, 5).await.expect("answers");
            let (number, pong) = (Value::Int(1_700_000_000_000_001), Value::SimpleString("PONG".into()));
            assert_eq!(plain, [Value::Okay, number, Value::Nil, pong, Value::Int(-5)], "{size}");
            let other = heard(OTHER, size, 6).await.expect("answers");
            let pair = Value::Array(vec![Value::Nil, Value::Int(7)]);
            assert_eq!(other[..3], [Value::Okay, queued.clone(), pair], "{size}");
            assert!(matches!(other[3], Value::ServerError(_)), "{size}");
            assert_eq!(other[4..], [Value::BulkString(b"a\r\nbc".into()), Value::Int(3)], "{size}");
        }
    }

    #[tokio::test]
    async fn more_than_was_asked_for_is_an_error() {
        heard(b":1\r\n:2\r\n", 8, 1).await.expect_err("one too many");
    }

    #[tokio::test]
    async fn an_answer_that_ends_half_way_or_makes_no_sense_is_none() {
        for said in
            [b"" as &[u8], b":1", b":17\r", b"$5\r\nab", b"*2\r\n:1\r\n", b":x\r\n", b"<html>\r\n", b"\r\n"]
        {
            for size in [1, said.len().max(1)] {
                heard(said, size, 1).await.expect_err(&String::from_utf8_lossy(said));
            }
        }
    }
}
