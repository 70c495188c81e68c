//! The nodes of raw names: making them, finding them, asking whether they are there.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Member;
use super::contenders::Wants;
use super::messages::{ANY, Get, Got, Mode, Op, Request, read_multi};
use super::requests::{Fresh, Requests};
use super::url::RawKind;
use super::wire::{Reader, Said};
use crate::engine::sessions::{Attempt, Failure, now};
use crate::engine::supervise::Connected;
use crate::error::Result;
use crate::random;

/// How often a node is looked for that may have been made late, and the pause between.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_secs(4);

/// A node of ours: its path, and the change that made it.
pub(super) type Node = (String, u64);

/// How the names of all nodes of a contender start, as others write them. No two have the same.
pub(super) fn mark(kind: RawKind) -> Result<String> {
    let (a, b) = (random::number()?, random::number()?);
    let uuid = format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | ((b >> 48) & 0x3fff),
        b & 0xffff_ffff_ffff
    );
    Ok(match kind {
        RawKind::Kazoo => uuid.replace('-', ""),
        _ => format!("_c_{uuid}-"),
    })
}

/// What follows the mark in the name of a node, before its number.
pub(super) fn base(kind: RawKind, wants: Wants) -> &'static str {
    match (kind, wants) {
        (RawKind::Mutex, _) => "lock-",
        (RawKind::ReadWrite, Wants::Read) => "__READ__",
        (RawKind::ReadWrite, Wants::All) => "__WRIT__",
        (RawKind::Semaphore, _) => "lease-",
        (RawKind::Latch, _) => "latch-",
        (RawKind::Kazoo, _) => "__lock__",
    }
}

/// What kind of directories nodes are made in.
pub(super) fn directories(kind: RawKind) -> Mode {
    match kind {
        // It remembers that a directory is there, and fails when it is not.
        RawKind::Kazoo => Mode::Persistent,
        _ => Mode::Container,
    }
}

/// Makes a node that has a number after its name, and the directories that it is in.
pub(super) async fn create(
    requests: &Requests,
    connected: &Connected<Member>,
    (directory, kind): (&str, Mode),
    name: &str,
    data: &[u8],
) -> Attempt<Node> {
    let path = format!("{directory}/{name}");
    loop {
        let (data, access) = (data.to_vec(), requests.access());
        let mode = Mode::EphemeralSequential;
        let made = connected.link.send(Request::Create { path: path.clone(), data, mode, access });
        match requests.within(connected, made).await? {
            Ok(body) => {
                let mut reader = Reader(&body);
                let read = reader.text().and_then(|path| Ok((path, reader.stat()?)));
                let (path, stat) = read.map_err(|said| requests.failed(&said))?;
                return Ok((path, stat.created.cast_unsigned()));
            }
            // The servers delete a container when it is empty.
            Err(Said::NoNode) => requests.make_directory(directory, kind).await?,
            Err(said) => return Err(requests.failed(&said)),
        }
    }
}

/// Looks for a node that may have been made without our hearing of it.
pub(super) async fn find(
    requests: &Requests,
    connected: &Connected<Member>,
    directory: &str,
    mark: &str,
) -> Attempt<Option<Node>> {
    let got = requests.read(&[Get::Children(directory.to_owned())], Fresh::Vouched).await?;
    let Some(Got::Children(children)) = got.into_iter().next() else { return Ok(None) };
    let Some(node) = children.iter().find(|node| node.starts_with(mark)) else { return Ok(None) };
    let path = format!("{directory}/{node}");
    let stat = requests.stat(connected, &path).await?;
    Ok(stat.map(|stat| (path, stat.created.cast_unsigned())))
}

/// What is in a directory, if a node of ours is there and still the one that was made.
pub(super) async fn beside(
    requests: &Requests,
    connected: &Connected<Member>,
    (directory, (path, change)): (&str, &Node),
    how: Fresh,
) -> Attempt<Vec<String>> {
    let gets = [Get::Data(path.clone()), Get::Children(directory.to_owned())];
    let mut got = requests.read(&gets, how).await?.into_iter();
    match (got.next(), got.next()) {
        (Some(Got::Data(_, stat)), Some(Got::Children(children)))
            if stat.session == connected.link.id && stat.created.cast_unsigned() == *change =>
        {
            Ok(children)
        }
        _ => Err(Failure::SessionEnded),
    }
}

/// Asks a majority whether a node of ours is there.
pub(super) async fn check(requests: &Requests, connected: &Connected<Member>, path: &str) -> Attempt<()> {
    let sent = now();
    let answer = connected.link.send(Request::Multi(vec![Op::Check(path.to_owned(), ANY)]));
    let body = requests.within(connected, answer).await?;
    match body.and_then(|body| read_multi(&body)) {
        Ok(Ok(_)) => {
            connected.session.answered(sent);
            Ok(())
        }
        Ok(Err((_, Said::NoNode))) => Err(Failure::SessionEnded),
        Ok(Err((_, said))) | Err(said) => Err(requests.failed(&said)),
    }
}

/// Deletes nodes that may be made by a request that is still on its way.
pub(super) fn look_later(requests: &Arc<Requests>, directory: String, mark: String) {
    let requests = Arc::downgrade(requests);
    tokio::spawn(async move {
        for _ in 0..LOOKS {
            tokio::time::sleep(LOOK_AGAIN).await;
            let Some(requests) = requests.upgrade() else { return };
            let got = requests.read(&[Get::Children(directory.clone())], Fresh::Vouched).await;
            let Some(Got::Children(children)) = got.ok().and_then(|mut got| got.pop()) else { continue };
            for node in children.iter().filter(|node| node.starts_with(&mark)) {
                requests.write(&[Op::Delete(format!("{directory}/{node}"), ANY)]).await.ok();
            }
        }
    });
}
