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

/// Four groups of random digits, as others write them.
pub(super) fn uuid() -> Result<String> {
    let (a, b) = (random::number()?, random::number()?);
    Ok(format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | ((b >> 48) & 0x3fff),
        b & 0xffff_ffff_ffff
    ))
}

/// Makes the node of a contender, and the directories that it is in.
pub(super) async fn create(
    requests: &Requests,
    connected: &Connected<Member>,
    directory: &str,
    (kind, wants, id): (RawKind, Wants, &str),
    data: &[u8],
) -> Attempt<(String, u64)> {
    let base = match (kind, wants) {
        (RawKind::Mutex, _) => "lock-",
        (RawKind::ReadWrite, Wants::Read) => "__READ__",
        (RawKind::ReadWrite, Wants::All) => "__WRIT__",
    };
    let path = format!("{directory}/_c_{id}-{base}");
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
            // The servers delete a directory of this kind when it is empty.
            Err(Said::NoNode) => requests.make_directory(directory, Mode::Container).await?,
            Err(said) => return Err(requests.failed(&said)),
        }
    }
}

/// Looks for a node that may have been made without our hearing of it.
pub(super) async fn find(
    requests: &Requests,
    connected: &Connected<Member>,
    directory: &str,
    id: &str,
) -> Attempt<Option<(String, u64)>> {
    let got = requests.read(&[Get::Children(directory.to_owned())], Fresh::Vouched).await?;
    let Some(Got::Children(children)) = got.into_iter().next() else { return Ok(None) };
    let prefix = format!("_c_{id}-");
    let Some(node) = children.iter().find(|node| node.starts_with(&prefix)) else { return Ok(None) };
    let path = format!("{directory}/{node}");
    let stat = requests.stat(connected, &path).await?;
    Ok(stat.map(|stat| (path, stat.created.cast_unsigned())))
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

/// Deletes a node that may be made by a request that is still on its way.
pub(super) fn look_later(requests: &Arc<Requests>, directory: String, id: &str) {
    let requests = Arc::downgrade(requests);
    let prefix = format!("_c_{id}-");
    tokio::spawn(async move {
        for _ in 0..LOOKS {
            tokio::time::sleep(LOOK_AGAIN).await;
            let Some(requests) = requests.upgrade() else { return };
            let got = requests.read(&[Get::Children(directory.clone())], Fresh::Vouched).await;
            let Some(Got::Children(children)) = got.ok().and_then(|mut got| got.pop()) else { continue };
            for node in children.iter().filter(|node| node.starts_with(&prefix)) {
                requests.write(&[Op::Delete(format!("{directory}/{node}"), ANY)]).await.ok();
            }
        }
    });
}
