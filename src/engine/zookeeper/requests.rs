//! Requests to the ensemble: reads, and writes of several nodes at once.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Ensemble, Member, make_directory};
use super::errors::{failure, is_conflict, unavailable};
use super::messages::{ANY, Access, Get, Got, Mode, Op, Request, read_multi, read_reads};
use super::paths::Paths;
use super::wire::{Reader, Said, Stat};
use crate::engine::Connection;
use crate::engine::sessions::store::{Session as _, Value, Version};
use crate::engine::sessions::{Attempt, Failure, now};
use crate::engine::supervise::{Connected, Connector as _, Supervisor};
use crate::error::Error;
use tokio::time::timeout;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(2);
/// What servers take in at most, unless they are told otherwise (`jute.maxbuffer`). They close the
/// connection of whoever sends more.
const LARGEST: usize = 0xfffff - 1024;
/// How many nodes are read by one request.
const BATCH: usize = 100;

/// The ensemble, over one connection.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) supervisor: Supervisor<Ensemble>,
    pub(super) paths: Paths,
}

/// What came of them.
#[derive(Debug)]
pub(super) enum Done {
    /// All was done. The versions of what was written, in order.
    Yes(Vec<Option<Version>>),
    /// Nothing was done: this one could not be.
    No(usize, Said),
}

impl Done {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Done::Yes(_))
    }
}

impl Requests {
    /// Whether there is a connection now.
    pub(super) fn connection(&self) -> Connection {
        if self.supervisor.connected_now().is_some_and(|connected| connected.is_up()) {
            Connection::Up
        } else {
            Connection::Down(self.supervisor.connector().ears.connections())
        }
    }

    /// Why there is none.
    pub(super) fn trouble(&self) -> String {
        match self.supervisor.connected_now() {
            Some(connected) if !connected.is_up() => {
                format!("lost the connection to `{}`", self.supervisor.connector().server())
            }
            _ => self.supervisor.trouble(),
        }
    }

    /// A connection over which something can be sent now. The caller limits the wait.
    pub(super) async fn connected(&self) -> Attempt<Arc<Connected<Member>>> {
        let connected = self.supervisor.connected().await?;
        if !connected.is_up() {
            let up = std::pin::pin!(connected.wait_until_up());
            self.supervisor.answer(&connected, up).await?;
        }
        Ok(connected)
    }

    pub(super) fn access(&self) -> Access {
        self.supervisor.connector().access()
    }

    /// What an error means.
    pub(super) fn failed(&self, said: &Said) -> Failure {
        failure(self.supervisor.connector().server(), said)
    }

    /// The answer to a request, within the limit.
    pub(super) async fn within<T>(
        &self,
        connected: &Connected<Member>,
        request: impl Future<Output = Result<T, Said>> + Send,
    ) -> Attempt<Result<T, Said>> {
        let request = std::pin::pin!(request);
        match timeout(LIMIT, self.supervisor.answer(connected, request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                let server = self.supervisor.connector().server();
                Err(unavailable(format!("`{server}` gave no answer in {LIMIT:?}")).into())
            }
        }
    }

    /// Reads nodes, those of one batch at one moment.
    pub(super) async fn read(&self, gets: &[Get], how: Fresh) -> Attempt<Vec<Got>> {
        let connected = self.connected().await?;
        let mut got = Vec::with_capacity(gets.len());
        for (number, batch) in gets.chunks(BATCH).enumerate() {
            let how = if number == 0 { how } else { Fresh::Already };
            let sent = now();
            let request = self.read_batch(&connected, batch, how);
            match self.within(&connected, request).await? {
                Ok(answer) => got.extend(answer),
                Err(Said::NoNode) if how == Fresh::Vouched => {
                    connected.give_up("the node of the session was deleted");
                    return Err(Failure::SessionEnded);
                }
                Err(said) => return Err(self.failed(&said)),
            }
            if how == Fresh::Vouched {
                connected.session.answered(sent);
            }
        }
        Ok(got)
    }

    fn read_batch(
        &self,
        member: &Member,
        gets: &[Get],
        how: Fresh,
    ) -> impl Future<Output = Result<Vec<Got>, Said>> + Send + 'static {
        let link = &member.link;
        // Sent before anything is waited for: the server answers in order.
        let before = (how == Fresh::Vouched).then(|| {
            // `sync` is not enough: the leader ignores it, and may itself be behind a follower that
            // has answered a write already.
            let check = Op::Check(self.supervisor.connector().vouched(member.session.seat()), ANY);
            link.send(Request::Multi(vec![check]))
        });
        let read = link.send(Request::MultiRead(gets.to_vec()));
        async move {
            if let Some(answer) = before {
                read_multi(&answer.await?)?.map_err(|(_, said)| said)?;
            }
            read_reads(&read.await?)
        }
    }

    /// Does all of this or nothing.
    pub(super) async fn write(&self, ops: &[Op]) -> Attempt<Done> {
        Ok(self.write_and_read(ops, &[]).await?.0)
    }

    /// The same; what is read then, if nothing was done and something is to be read.
    pub(super) async fn write_and_read(&self, ops: &[Op], gets: &[Get]) -> Attempt<(Done, Option<Vec<Got>>)> {
        let connected = self.connected().await?;
        let sent = now();
        let size: usize = ops.iter().map(Op::size).sum();
        if size > LARGEST {
            let what = format!("what is to be written has {size} bytes; the servers take {LARGEST}");
            return Err(Failure::Failed(Error::invalid(what)));
        }
        let answer = connected.link.send(Request::Multi(ops.to_vec()));
        // The server answers in order.
        let reads = (!gets.is_empty()).then(|| connected.link.send(Request::MultiRead(gets.to_vec())));
        let request = async move { read_multi(&answer.await?) };
        let stats = match self.within(&connected, request).await? {
            Ok(Ok(stats)) => stats,
            Ok(Err((index, said))) if is_conflict(&said) => {
                let got = match reads {
                    Some(reads) => {
                        let request = async move { read_reads(&reads.await?) };
                        let got = self.within(&connected, request).await?;
                        Some(got.map_err(|said| self.failed(&said))?)
                    }
                    None => None,
                };
                return Ok((Done::No(index, said), got));
            }
            Ok(Err((_, said))) | Err(said) => return Err(self.failed(&said)),
        };
        let seat = self.paths.session(connected.session.seat());
        if ops.iter().any(|op| matches!(op, Op::Check(path, _) if *path == seat)) {
            connected.session.answered(sent);
        }
        let mut versions = Vec::with_capacity(stats.len());
        for (op, stat) in ops.iter().zip(stats) {
            versions.push(match (op, stat) {
                (_, Some(stat)) if stat.written > 0 => Some(version_of(&stat)),
                // Servers before 3.8.2 do not say. It may have been written again since.
                (Op::Create(path, ..), _) => {
                    let stat = self.stat(&connected, path).await?;
                    stat.map(|stat| Version { written: number(stat.created), count: 0 })
                }
                _ => None,
            });
        }
        Ok((Done::Yes(versions), None))
    }

    /// What is known of a node, if it is there.
    pub(super) async fn stat(&self, connected: &Connected<Member>, path: &str) -> Attempt<Option<Stat>> {
        let answer = connected.link.send(Request::Exists { path: path.to_owned(), watch: false });
        match self.within(connected, answer).await? {
            Ok(body) => Ok(Some(Reader(&body).stat().map_err(|said| self.failed(&said))?)),
            Err(Said::NoNode) => Ok(None),
            Err(said) => Err(self.failed(&said)),
        }
    }

    /// Makes a directory, and those that it is in.
    pub(super) async fn make_directory(&self, path: &str, mode: Mode) -> Attempt<()> {
        let connected = self.connected().await?;
        let request = make_directory(&connected.link, path, mode, self.access());
        self.within(&connected, request).await?.map_err(|said| self.failed(&said))
    }

    /// The time as the leader tells it, in milliseconds.
    pub(super) async fn leader_time(&self) -> Attempt<i64> {
        let connected = self.connected().await?;
        let path = format!("{}/t{:016x}", self.paths.prefix(), connected.session.seat());
        let (data, mode, access) = (Vec::new(), Mode::Ephemeral, self.access());
        let made = connected.link.send(Request::Create { path: path.clone(), data, mode, access });
        let body = self.within(&connected, made).await?.map_err(|said| self.failed(&said))?;
        let mut reader = Reader(&body);
        let stat = reader.text().and_then(|_| reader.stat()).map_err(|said| self.failed(&said))?;
        self.within(&connected, connected.link.send(Request::Delete { path, version: ANY })).await?.ok();
        Ok(stat.written_at)
    }

    /// Watches a node, over this connection and those after it.
    pub(super) async fn add_watch(&self, path: String) -> Attempt<()> {
        let watch = Request::AddWatch { path, below: false };
        let connected = self.connected().await?;
        self.supervisor.connector().ears.stand(watch.clone());
        let opened = self.within(&connected, connected.link.send(watch)).await?;
        opened.map(|_| ()).map_err(|said| self.failed(&said))
    }

    /// Watches a node no more.
    pub(super) fn remove_watch(&self, path: &str) {
        let path = path.to_owned();
        self.supervisor
            .connector()
            .ears
            .stand_no_more(&Request::AddWatch { path: path.clone(), below: false });
        if let Some(connected) = self.supervisor.connected_now() {
            drop(connected.link.send(Request::RemoveWatches { path }));
        }
    }

    /// Deletes a node that nobody has written since then.
    pub(super) async fn delete_if_idle(&self, path: &str, version: i32, since: i64) -> Attempt<()> {
        let connected = self.connected().await?;
        let stat = self.stat(&connected, path).await?;
        if stat.is_some_and(|stat| stat.version == version && stat.written_at < since) {
            let delete = connected.link.send(Request::Delete { path: path.to_owned(), version });
            // Somebody else may have been faster.
            self.within(&connected, delete).await?.ok();
        }
        Ok(())
    }
}

/// How new what is read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// As new as the last answer over this connection.
    Already,
    /// As new as anything that was answered to anybody: a majority vouches for it, and for our
    /// session.
    Vouched,
}

/// What was read, as the value of a name.
pub(super) fn into_value(got: Got) -> Value {
    match got {
        Got::Data(data, stat) => {
            let bytes = (!data.is_empty()).then_some(data);
            Value { version: version_of(&stat), bytes }
        }
        Got::Children(_) | Got::Nothing => Value::default(),
    }
}

fn number(zxid: i64) -> u64 {
    zxid.max(0).cast_unsigned()
}

fn version_of(stat: &Stat) -> Version {
    Version { written: number(stat.written), count: stat.version }
}
