//! The rules of one server about one name, which the scripts restate.
//!
//! Not part of the library: the model runs them, with the decisions in `rules.rs`. Time is left
//! out. That a claim ends is something that happens to a server, at any moment; `now` is what the
//! server's clock says when a counter starts anew, and may be anything.
//!
//! Numbers are small, so that worlds are.

/// Somebody who asks; 0 is nobody.
pub(crate) type Owner = u8;
/// A counter, a token, or the number of an asking.
pub(crate) type Number = u8;

/// The most that can ask in one world.
pub(crate) const OWNERS: usize = 4;
/// The most that can share.
pub(crate) const READERS: usize = 3;

/// A claim at this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    /// Which asking, or which renewal, it answers.
    pub(crate) stamp: Number,
    /// 0 until one is committed.
    pub(crate) token: Number,
}

/// One server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// It may vote.
    pub(crate) member: bool,
    /// Somebody holds the name here who knows nothing of these rules.
    pub(crate) stranger: bool,
    /// 0 if it is gone.
    pub(crate) counter: Number,
    /// Who raised it, to what.
    pub(crate) by: (Owner, Number),
    /// The largest counter ever given here, for all names.
    pub(crate) top: Number,
    /// Counters are above this: what the others had given when this server was let in.
    pub(crate) floor: Number,
    pub(crate) writer: Claim,
    pub(crate) readers: [Claim; READERS],
    /// Releases that came before what they undo.
    pub(crate) gone: [Number; OWNERS],
}

/// What a server says to a request for its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voted {
    Granted(Number),
    /// The token that came with the request is committed, too.
    Accepted,
    Taken,
    /// It may not vote, or the request is undone already.
    No,
}

/// What a server says to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Accepted,
    Above(Number),
    NotMine,
    /// It may not vote.
    No,
}

/// What a server says to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It has the claim, which answers this asking or renewal. Another number than before means
    /// that there was a gap.
    Since(Number),
    Gone,
    /// It may not vote.
    No,
}

impl Node {
    fn mine(&mut self, owner: Owner) -> Option<&mut Claim> {
        let readers = self.readers.iter_mut();
        std::iter::once(&mut self.writer).chain(readers).find(|claim| claim.owner == owner)
    }

    fn is_free(&self, shared: bool) -> bool {
        let nobody = |claim: &Claim| claim.owner == 0;
        !self.stranger && nobody(&self.writer) && (shared || self.readers.iter().all(nobody))
    }

    fn set_counter(&mut self, number: Number, by: Owner) {
        self.counter = number;
        self.by = (by, number);
        self.top = self.top.max(number);
    }

    fn take(&mut self, claim: Claim, shared: bool) {
        if !shared {
            self.writer = claim;
        } else if let Some(room) = self.readers.iter_mut().find(|reader| reader.owner == 0) {
            *room = claim;
        }
    }

    /// `vote.lua`. A token may come with it; 0 is none.
    pub(crate) fn vote(
        &mut self,
        owner: Owner,
        stamp: Number,
        shared: bool,
        (first, last): (Number, Number),
        now: Number,
    ) -> Voted {
        if !self.member || self.gone[usize::from(owner)] >= stamp {
            return Voted::No;
        }
        let free = self.is_free(shared);
        // Counters that are gone go on above all that this server ever gave.
        let counter = if self.counter == 0 { self.top } else { self.counter }.max(self.floor);
        let token = if first > counter { first } else { 0 };
        match self.mine(owner) {
            // Said twice: it has been answered, and used.
            Some(claim) if claim.stamp > stamp || (claim.stamp == stamp && claim.token > 0) => {
                return Voted::No;
            }
            Some(claim) => (claim.stamp, claim.token) = (stamp, token),
            None if !free => return Voted::Taken,
            None => self.take(Claim { owner, stamp, token }, shared),
        }
        if token > 0 {
            self.set_counter(last, owner);
            return Voted::Accepted;
        }
        let counter = if self.counter == 0 { counter.max(now.saturating_sub(1)) } else { counter } + 1;
        self.set_counter(counter, owner);
        Voted::Granted(counter)
    }

    /// `commit.lua`.
    pub(crate) fn commit(&mut self, owner: Owner, first: Number, last: Number) -> Said {
        if !self.member {
            return Said::No;
        }
        let (counter, by) = (self.counter, self.by);
        let Some(claim) = self.mine(owner) else { return Said::NotMine };
        if claim.token == first {
            return Said::Accepted;
        }
        // That the counter *is* the token is not enough: a reader beside this one may have been
        // told the same number.
        if counter >= first && !(counter == first && by == (owner, first)) {
            return Said::Above(counter);
        }
        claim.token = first;
        self.set_counter(last, owner);
        Said::Accepted
    }

    /// `renew.lua`, in the renewal `stamp`.
    pub(crate) fn renew(
        &mut self,
        owner: Owner,
        (first, last): (Number, Number),
        shared: bool,
        stamp: Number,
    ) -> Kept {
        if !self.member {
            return Kept::No;
        }
        let (counter, by, free) = (self.counter, self.by, self.is_free(shared));
        if let Some(claim) = self.mine(owner) {
            let stamp = claim.stamp;
            // It has not heard of the token. If its own counter is above, that is its own vote, and
            // does no harm.
            if claim.token != first && (counter < first || (counter, by) == (first, (owner, first))) {
                claim.token = first;
                self.set_counter(last, owner);
            }
            return Kept::Since(stamp);
        }
        // Whoever else has had it here has raised the counter.
        let never_since = counter < first || by == (owner, counter);
        if !free || !never_since || self.gone[usize::from(owner)] >= stamp {
            return Kept::Gone;
        }
        self.take(Claim { owner, stamp, token: first }, shared);
        self.set_counter(last.max(counter), owner);
        Kept::Since(stamp)
    }

    /// `release.lua`. True if the claim was there.
    pub(crate) fn release(&mut self, owner: Owner, stamp: Number) -> bool {
        let (counter, by) = (self.counter, self.by);
        let found = self.mine(owner).filter(|claim| claim.stamp <= stamp).map(std::mem::take);
        // A server that has not heard of the token could take it again in a late renewal.
        if found.is_some_and(|claim| claim.token > 0) && by == (owner, counter) {
            self.by = (0, 0);
        } else {
            let gone = &mut self.gone[usize::from(owner)];
            *gone = stamp.max(*gone);
        }
        found.is_some()
    }

    /// The time of a claim is over.
    pub(crate) fn expire(&mut self, owner: Owner) {
        if let Some(claim) = self.mine(owner) {
            *claim = Claim::default();
        }
    }

    /// `admit.lua`.
    pub(crate) fn admit(&mut self, floor: Number) {
        self.member = true;
        self.floor = self.floor.max(floor);
        self.top = self.top.max(floor);
    }
}
