//! One connection to the server, and the task that works on it.
//!
//! The driver answers one request at a time, and a request that is dropped half-way leaves the
//! connection in between. So a task has the connection, and callers send it packets of statements.
//! It does them in the order in which they were sent, also those whose callers have gone.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Conn, Error as Driver};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::errors::{cause, is_fatal};
use super::packet::{Answer, Packet, run};
use super::promises::ENGINE;
use super::requirements;
use super::url::Place;
use crate::engine::sql::{Attempt as SqlAttempt, Failure};
use crate::engine::supervise::{Attempt, Connector as ConnectorTrait, Supervisor};
use crate::engine::{Hint, Hints};
use crate::error::Result;

struct Job {
    packet: Packet,
    reply: oneshot::Sender<Reply>,
}

/// What became of a packet.
enum Reply {
    /// It was sent.
    Sent(Result<Vec<Answer>, Driver>),
    /// The connection was lost before it was sent.
    Unsent(Packet),
}

/// A connection that has been idle for longer is tried before a request goes over it: the driver
/// does not notice that the server has closed it.
const FRESH: Duration = Duration::from_secs(1);

/// A connection that is up.
pub(super) struct Session {
    jobs: mpsc::UnboundedSender<Job>,
    task: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        // It may wait for an answer that does not come. The connection ends with the task.
        self.task.abort();
    }
}

/// How connections are made.
pub(super) struct Connector {
    pub(super) place: Arc<Place>,
    pub(super) hints: Arc<std::sync::OnceLock<Hints>>,
    pub(super) for_batches: bool,
}

impl ConnectorTrait for Connector {
    type Session = Session;

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn server(&self) -> &str {
        &self.place.blame.server
    }

    fn secret(&self) -> Option<&str> {
        self.place.password.as_ref().map(crate::engine::url::Secret::reveal)
    }

    async fn connect(&self, attempt: Attempt) -> Result<Session> {
        let blame = &self.place.blame;
        let mut connection =
            Conn::new(self.place.options.clone()).await.map_err(|error| blame.unreachable(error))?;
        requirements::prepare(&mut connection, blame, self.for_batches).await?;
        let (jobs, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(work(connection, queue, attempt)).abort_handle();
        Ok(Session { jobs, task })
    }

    async fn probe(&self, session: &Session) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let job = Job { packet: Packet::plain("do 1".to_owned()), reply };
        session.jobs.send(job).map_err(|_| "it has ended".to_owned())?;
        match answer.await {
            Ok(Reply::Sent(Ok(_))) => Ok(()),
            Ok(Reply::Sent(Err(error))) => Err(cause(&error)),
            Ok(Reply::Unsent(_)) | Err(_) => Err("it has ended".to_owned()),
        }
    }

    fn disconnected(&self, why: &str) {
        if let Some(hints) = self.hints.get() {
            let server = self.place.blame.server.clone();
            hints.give(Hint::Disconnected { server, why: why.to_owned() });
        }
    }

    fn connected_again(&self, server: String) {
        if let Some(hints) = self.hints.get() {
            hints.give(Hint::Reconnected { server });
            hints.give(Hint::WakeAll);
            // A replica may have become the primary that lacks what was written last.
            hints.give(Hint::Verify);
        }
    }
}

/// Does the jobs, until the session is dropped or the connection is lost.
async fn work(mut connection: Conn, mut queue: mpsc::UnboundedReceiver<Job>, attempt: Attempt) {
    let mut used = Instant::now();
    let why = loop {
        let Some(Job { packet, reply }) = queue.recv().await else { return };
        if used.elapsed() > FRESH
            && let Err(error) = run(&mut connection, "do 1").await
            && is_fatal(&error)
        {
            queue.close();
            reply.send(Reply::Unsent(packet)).ok();
            break cause(&error);
        }
        let mut answer = run(&mut connection, &packet.text).await;
        used = Instant::now();
        if let Err(error) = &answer
            && packet.transaction
            && !is_fatal(error)
        {
            // The rest of the packet was not done, so the transaction may still be open.
            if let Err(error) = run(&mut connection, "rollback").await {
                answer = Err(error);
            }
        }
        let lost = answer.as_ref().err().filter(|error| is_fatal(error)).map(cause);
        if lost.is_some() {
            queue.close();
        }
        // The caller may have gone.
        reply.send(Reply::Sent(answer)).ok();
        if let Some(why) = lost {
            break why;
        }
    };
    // Before the loss is reported: who waits for an answer would be told of that.
    while let Ok(Job { packet, reply }) = queue.try_recv() {
        reply.send(Reply::Unsent(packet)).ok();
    }
    attempt.lost(&why);
}

/// Sends a packet over a connection that is kept alive. The driver's own error for what the server
/// said.
pub(super) async fn send(
    supervisor: &Supervisor<Connector>,
    mut packet: Packet,
) -> SqlAttempt<Result<Vec<Answer>, Driver>> {
    loop {
        let connected = supervisor.connected().await?;
        let (reply, answer) = oneshot::channel();
        packet = match connected.jobs.send(Job { packet, reply }) {
            Ok(()) => match supervisor.answer(&connected, pin!(answer)).await? {
                Ok(Reply::Sent(answer)) => return Ok(answer),
                Ok(Reply::Unsent(packet)) => packet,
                Err(_) => return Err(Failure::Failed(supervisor.given_up())),
            },
            Err(unsent) => unsent.0.packet,
        };
        // The loss is about to be reported; then there is another connection, or a wait for one.
        sleep(Duration::from_millis(1)).await;
    }
}
