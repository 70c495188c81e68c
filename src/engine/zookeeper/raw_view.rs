//! Raw names as people see them: what nodes tell, and taking a name away.

use std::sync::Arc;
use std::time::Duration;

use super::contenders::{Wants, in_order, waits_for};
use super::messages::{ANY, Get, Got, Op};
use super::promises::ENGINE;
use super::raw::Raw;
use super::requests::Fresh;
use crate::claim::{Claim, Holder, OwnerId, WHOLE, Waiter};
use crate::engine::sessions::Failure;
use crate::engine::{HeldClaim, Hint, View, Waiting};
use crate::error::Result;
use crate::name::{Family, Name};

impl Raw {
    /// The contenders for a name, as far as their nodes tell; how many of them hold it.
    async fn read(&self, name: &Name) -> Result<(Vec<(Claim, String)>, usize)> {
        if name.family() != Family::Lock {
            return Ok((Vec::new(), 0));
        }
        let error = |failure: Failure| failure.into_error(ENGINE);
        let directory = self.directory(name)?;
        let got = self.requests.read(&[Get::Children(directory.clone())], Fresh::Vouched).await;
        let Some(Got::Children(children)) = got.map_err(error)?.into_iter().next() else {
            return Ok((Vec::new(), 0));
        };
        let all = in_order(&children);
        let holds = |number: &usize| waits_for(&all[*number], &all).is_none();
        let holders = (0..all.len()).take_while(holds).count();
        let paths: Vec<String> = all.iter().map(|one| format!("{directory}/{}", one.node)).collect();
        let gets: Vec<Get> = paths.iter().map(|path| Get::Data(path.clone())).collect();
        let got = self.requests.read(&gets, Fresh::Already).await.map_err(error)?;
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
        Ok((claims.collect(), holders))
    }

    /// Who contends for a name.
    pub(super) async fn look(&self, name: &Name) -> Result<View> {
        let (claims, holders) = self.read(name).await?;
        let mut view = View { capacity: if claims.is_empty() { 0 } else { WHOLE }, ..View::default() };
        for (number, (claim, _)) in claims.into_iter().enumerate() {
            if number < holders {
                view.claims.push(HeldClaim { claim, held_for: Duration::ZERO, ends_in: Duration::ZERO });
            } else {
                view.waiting += 1;
                view.waiters.push(Waiting { waiter: waiter_of(claim), waited: Duration::ZERO });
            }
        }
        Ok(view)
    }

    /// Takes a name away from those who hold it.
    pub(super) async fn break_claims(&self, name: &Name) -> Result<Vec<Claim>> {
        let (claims, holders) = self.read(name).await?;
        let mut broken = Vec::new();
        for (claim, path) in claims.into_iter().take(holders) {
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
