//! Curator's `InterProcessSemaphoreV2`: a line and permits.
//!
//! Whoever wants a permit stands in a line, which is a mutex (`N/locks`). The first one there makes
//! a node for its permit (`N/leases`), and holds when there are not more of them than permits;
//! until then it stays the first in the line. Everybody counts all nodes that were made before its
//! own, so there are never more holders than permits, whatever becomes of the line. How many
//! permits there are is stored nowhere: all must say the same.

use std::time::Duration;

use tokio::time::sleep;

use super::connection::Member;
use super::contenders::Wants;
use super::messages::{ANY, Get, Got, Op, Request};
use super::raw::{LINE, PERMITS, Raw};
use super::raw_ask::{ASK_AGAIN, Begun};
use super::raw_nodes::{Node, base, beside, check, create, directories, find};
use super::requests::{Done, Fresh};
use super::url::RawKind;
use super::wire::Reader;
use crate::claim::{Answer, Ask};
use crate::engine::sessions::{Attempt, Failure, now};
use crate::engine::supervise::Connected;
use crate::name::Name;

/// For how long somebody who does not want to wait stands in a line that should move, and how often
/// it looks.
const LINE_MOVES: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Raw {
    /// Asks for a permit, or asks again.
    pub(super) async fn acquire_permit(&self, name: &Name, directory: &str, ask: &Ask) -> Attempt<Answer> {
        let Begun { connected, started, mut own, is_new } = self.begin(name, Wants::All, ask).await?;
        let (line, permits) = (format!("{directory}/{LINE}"), format!("{directory}/{PERMITS}"));
        if own.token != 0
            && let Some((path, _)) = &own.node
        {
            // It asks again for what it has. Others may stand behind it by now.
            check(&self.requests, &connected, path).await?;
            return Ok(self.granted(ask, own, started));
        }
        let mut how = if is_new { Fresh::Already } else { Fresh::Vouched };
        let permit = match own.node.clone() {
            Some(permit) => permit,
            None => {
                let turn = match own.turn.clone() {
                    Some(turn) => turn,
                    None => self.make(&connected, (&line, "lock-"), &own, is_new, ask).await?,
                };
                own.turn = Some(turn.clone());
                self.note(ask.owner, own.clone());
                while let Some(before) = self.ahead(&connected, (&line, &turn), how).await? {
                    if !ask.wait {
                        // The line moves at once while there are permits.
                        let got =
                            self.requests.read(&[Get::Children(permits.clone())], Fresh::Already).await?;
                        let taken = match got.first() {
                            Some(Got::Children(children)) => children.len(),
                            _ => 0,
                        };
                        if taken < ask.capacity as usize && now() < started + LINE_MOVES {
                            sleep(LOOK_AGAIN).await;
                            how = Fresh::Already;
                            continue;
                        }
                        self.leave(ask.owner).await?;
                        return Ok(Answer::Busy(ASK_AGAIN));
                    }
                    if self.tell_when_gone(&connected, ask.owner, before).await? {
                        return Ok(self.queued(ask.owner, own, started));
                    }
                    how = Fresh::Already;
                }
                let permit = self.make_permit(&connected, &permits, &own.mark, is_new, ask).await?;
                own.node = Some(permit.clone());
                self.note(ask.owner, own.clone());
                how = Fresh::Already;
                permit
            }
        };
        loop {
            let others = beside(&self.requests, &connected, (&permits, &permit), how).await?;
            if others.len() <= ask.capacity as usize {
                break;
            }
            if !ask.wait {
                self.leave(ask.owner).await?;
                return Ok(Answer::Busy(ASK_AGAIN));
            }
            if let Some(turn) = &own.turn {
                // Somebody may have deleted it and let another one in, who would wait for us for
                // ever: then we queue again.
                self.ahead(&connected, (&line, turn), how).await?;
            }
            self.watch(ask.owner, &permits);
            let watched = connected.link.send(Request::Children { path: permits.clone() });
            let listed = self.requests.within(&connected, watched).await?;
            let listed = listed.and_then(|body| Reader(&body).texts());
            if listed.map_err(|said| self.requests.failed(&said))?.len() > ask.capacity as usize {
                return Ok(self.queued(ask.owner, own, started));
            }
            how = Fresh::Already;
        }
        self.leave_line(&connected, &permit.0, own.turn.take()).await?;
        Ok(self.granted(ask, own, started))
    }

    /// The node of a permit, which may have been made without our hearing of it.
    async fn make_permit(
        &self,
        connected: &Connected<Member>,
        permits: &str,
        mark: &str,
        is_new: bool,
        ask: &Ask,
    ) -> Attempt<Node> {
        if !is_new && let Some(permit) = find(&self.requests, connected, permits, mark).await? {
            return Ok(permit);
        }
        let name = format!("{mark}{}", base(RawKind::Semaphore, Wants::All));
        let place = (permits, directories(RawKind::Semaphore));
        create(&self.requests, connected, place, &name, ask.holder.label.as_bytes()).await
    }

    /// Lets the next one in the line, and asks a majority whether our permit is there.
    async fn leave_line(
        &self,
        connected: &Connected<Member>,
        permit: &str,
        turn: Option<Node>,
    ) -> Attempt<()> {
        let Some((turn, _)) = turn else { return check(&self.requests, connected, permit).await };
        let ops = [Op::Check(permit.to_owned(), ANY), Op::Delete(turn, ANY)];
        match self.requests.write(&ops).await? {
            Done::Yes(_) => Ok(()),
            Done::No(0, _) => Err(Failure::SessionEnded),
            // Somebody has deleted it.
            Done::No(..) => check(&self.requests, connected, permit).await,
        }
    }
}
