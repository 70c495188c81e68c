//! Raw names as people see them: what nodes tell, and taking a name away.

use std::sync::Arc;
use std::time::Duration;

use super::contenders::{Contender, Wants, in_order, waits_for};
use super::messages::{ANY, Get, Got, Op};
use super::promises::ENGINE;
use super::raw::{LINE, PERMITS, Raw};
use super::requests::Fresh;
use super::url::RawKind;
use crate::claim::{Claim, Holder, OwnerId, WHOLE, Waiter};
use crate::engine::sessions::Attempt;
use crate::engine::{HeldClaim, Hint, View, Waiting};
use crate::error::Result;
use crate::name::Name;

/// Who contends for a name, as far as their nodes tell.
#[derive(Default)]
struct Seen {
    /// With the path of the node that is the claim.
    holders: Vec<(Claim, String)>,
    waiters: Vec<Claim>,
    capacity: u32,
}

impl Raw {
    async fn read(&self, name: &Name) -> Result<Seen> {
        if !self.shares(name.family()) {
            return Ok(Seen::default());
        }
        let directory = self.directory(name)?;
        let seen = match self.kind {
            RawKind::Semaphore => self.read_permits(name, &directory).await,
            _ => self.read_queue(&directory).await,
        };
        seen.map_err(|failure| failure.into_error(ENGINE))
    }

    async fn read_queue(&self, directory: &str) -> Attempt<Seen> {
        let [all] = self.contenders([directory]).await?;
        let holds = |number: &usize| waits_for(&all[*number], &all).is_none();
        let holders = (0..all.len()).take_while(holds).count();
        let mut claims = self.claims(directory, &all).await?;
        // One may have gone between the two reads.
        let waiters = claims.split_off(holders.min(claims.len()));
        let capacity = if claims.is_empty() { 0 } else { WHOLE };
        Ok(Seen { holders: claims, waiters: waiters.into_iter().map(|(claim, _)| claim).collect(), capacity })
    }

    async fn read_permits(&self, name: &Name, directory: &str) -> Attempt<Seen> {
        let (line, permits) = (format!("{directory}/{LINE}"), format!("{directory}/{PERMITS}"));
        let [waiting, holding] = self.contenders([&line, &permits]).await?;
        let waiters = self.claims(&line, &waiting).await?;
        let mut holders = self.claims(&permits, &holding).await?;
        // The first one in the line may have a node already, and not hold yet.
        if let Some((first, _)) = waiters.first() {
            holders.retain(|(claim, _)| claim.seat != first.seat || claim.token < first.token);
        }
        for (claim, _) in &mut holders {
            claim.weight = 1;
        }
        let waiters = waiters.into_iter().map(|(claim, _)| Claim { weight: 1, ..claim }).collect();
        // Nobody stores it.
        let capacity = self.capacity_of(name).unwrap_or(0);
        Ok(Seen { holders, waiters, capacity })
    }

    /// The contenders in some directories, in order.
    async fn contenders<const N: usize>(&self, directories: [&str; N]) -> Attempt<[Vec<Contender>; N]> {
        let gets = directories.map(|directory| Get::Children(directory.to_owned()));
        let mut got = self.requests.read(&gets, Fresh::Vouched).await?.into_iter();
        Ok(std::array::from_fn(|_| match got.next() {
            Some(Got::Children(children)) => in_order(&children),
            _ => Vec::new(),
        }))
    }

    /// What the nodes of contenders tell.
    async fn claims(&self, directory: &str, all: &[Contender]) -> Attempt<Vec<(Claim, String)>> {
        let paths: Vec<String> = all.iter().map(|one| format!("{directory}/{}", one.node)).collect();
        let gets: Vec<Get> = paths.iter().map(|path| Get::Data(path.clone())).collect();
        let got = self.requests.read(&gets, Fresh::Already).await?;
        let claims = all.iter().zip(paths).zip(got).filter_map(|((one, path), got)| {
            let Got::Data(data, stat) = got else { return None };
            let token = stat.created.cast_unsigned();
            let claim = Claim {
                owner: self.owner_of(&path).unwrap_or(OwnerId(u128::from(token))),
                seat: stat.session.cast_unsigned(),
                weight: if one.wants == Wants::Read { 1 } else { WHOLE },
                token,
                tokens: 1,
                lease: 0,
                expires: 0,
                lock_delay: 0,
                since: 0,
                confirmed: true,
                // The node is all that is known of strangers.
                holder: Arc::new(Holder { label: one.node.clone(), ..Holder::default() }),
                value: data.into(),
            };
            Some((claim, path))
        });
        Ok(claims.collect())
    }

    /// Who contends for a name.
    pub(super) async fn look(&self, name: &Name) -> Result<View> {
        let Seen { holders, waiters, capacity } = self.read(name).await?;
        let mut view = View { capacity, ..View::default() };
        for (claim, _) in holders {
            view.claims.push(HeldClaim { claim, held_for: Duration::ZERO, ends_in: Duration::ZERO });
        }
        for claim in waiters {
            view.waiting += 1;
            view.waiters.push(Waiting { waiter: waiter_of(claim), waited: Duration::ZERO });
        }
        Ok(view)
    }

    /// Takes a name away from those who hold it.
    pub(super) async fn break_claims(&self, name: &Name) -> Result<Vec<Claim>> {
        let mut broken = Vec::new();
        for (claim, path) in self.read(name).await?.holders {
            let deleted = self.requests.write(&[Op::Delete(path, ANY)]).await;
            if deleted.map_err(|failure| failure.into_error(ENGINE))?.is_done() {
                self.hint(Hint::Broken(claim.owner));
                broken.push(claim);
            }
        }
        Ok(broken)
    }
}

fn waiter_of(claim: Claim) -> Waiter {
    Waiter {
        owner: claim.owner,
        seat: claim.seat,
        weight: claim.weight,
        tokens: claim.tokens,
        lease: 0,
        lock_delay: 0,
        since: 0,
        alive_until: 0,
        holder: claim.holder,
        value: claim.value,
    }
}
