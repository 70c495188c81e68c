//! What a majority has decided: pure functions of what the servers have said so far.
//!
//! Nothing here does I/O or reads a clock. The engine takes its decisions here, and the model
//! (`tests/redlock_model`) explores the same code together with the rules of one server, which the
//! scripts restate.
//!
//! A token is *committed* when a majority has accepted it. A server accepts one from whoever has
//! the claim there, if its own counter has not gone past, and counts on from it. Two majorities
//! share a server, and there the second to commit either asked after the first commit, so that its
//! token is larger, or is refused. No clock is part of this argument; clocks matter for exclusion
//! only.
//!
//! Every server is asked for its *vote*: it takes the claim. With the request comes a token that is
//! probably above all counters. If a majority accepts it, that is all. Where the token is too low,
//! a server answers a counter that it has never answered before, and the largest of these is
//! proposed in a second step.

use std::time::Duration;

/// How many of `servers` are a majority.
pub const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// What a server says to a request for its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The claim is taken, and the counter is this.
    Granted { counter: u64 },
    /// The claim is taken, and the token that was asked for with it is accepted; the counter is
    /// this.
    Accepted { counter: u64 },
    /// Somebody else has it, for so many microseconds at the most.
    Taken { by: Whose, left: u64 },
    /// It does not answer, or may not vote.
    Silent,
}

/// Whose claim is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A writer.
    Owner(u128),
    /// Some readers.
    Readers,
    /// A client that is not leasehold; the same value has the same number.
    Stranger(u64),
    /// Nobody's yet: a writer waits, and this is a reader.
    Waiting,
}

/// What the votes so far come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It is not decided.
    Open,
    /// A majority has accepted the token that came with the request: the claim is held.
    Committed,
    /// A majority has granted; this is the token to commit.
    Majority { token: u64 },
    /// Somebody holds a majority, or enough of it. In so many microseconds a majority may be free.
    Held { left: u64, stranger: bool },
    /// Nobody is known to hold a majority: several ask at the same time, or somebody is just
    /// letting go.
    Split,
    /// So many servers are silent that nobody can have a majority.
    Impossible,
}

/// Counts votes; `None` for those that have not come.
pub fn poll(votes: &[Option<Vote>]) -> Poll {
    let needed = majority(votes.len());
    let (mut granted, mut accepted, mut open, mut silent, mut token) = (0, 0, 0, 0, 0);
    let mut taken: Vec<(u64, Whose)> = Vec::new();
    for vote in votes {
        match *vote {
            None => open += 1,
            Some(Vote::Granted { counter }) => {
                granted += 1;
                token = token.max(counter);
            }
            Some(Vote::Accepted { counter }) => {
                granted += 1;
                accepted += 1;
                // Its own counter has gone past by accepting.
                token = token.max(counter + 1);
            }
            Some(Vote::Taken { by, left }) => taken.push((left, by)),
            Some(Vote::Silent) => silent += 1,
        }
    }
    if accepted >= needed {
        return Poll::Committed;
    }
    if granted >= needed {
        return Poll::Majority { token };
    }
    if votes.len() - silent < needed {
        return Poll::Impossible;
    }
    if granted + open >= needed {
        return Poll::Open;
    }
    let most = taken.iter().map(|(_, by)| taken.iter().filter(|(_, other)| other == by).count()).max();
    let most = most.unwrap_or(0);
    if most < needed {
        // It can not be had; by whom it is held is worth a moment.
        return if open > 0 && most + open >= needed { Poll::Open } else { Poll::Split };
    }
    taken.sort_unstable_by_key(|(left, _)| *left);
    let missing = needed - granted;
    let left = taken.get(missing - 1).or(taken.last()).map_or(0, |(left, _)| *left);
    Poll::Held { left, stranger: taken.iter().any(|(_, by)| matches!(by, Whose::Stranger(_))) }
}

/// What a server says to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Commit {
    /// Its counter is the token now.
    Accepted,
    /// Its counter has gone past.
    Above { counter: u64 },
    /// The claim is not there (any more).
    NotMine,
    /// It does not answer, or may not vote.
    Silent,
}

/// What the answers to a token so far come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is not decided.
    Open,
    /// A majority has accepted: the claim is held.
    Yes,
    /// A reader beside us was faster; a token above its own may be accepted.
    Again { above: u64 },
    /// A majority is out of reach.
    No,
}

/// Counts what the servers said to a token.
pub fn committed(answers: &[Option<Commit>]) -> Committed {
    let needed = majority(answers.len());
    let count =
        |wanted: fn(&Commit) -> bool| answers.iter().flatten().filter(|answer| wanted(answer)).count();
    let accepted = count(|answer| *answer == Commit::Accepted);
    let above = count(|answer| matches!(answer, Commit::Above { .. }));
    let open = answers.iter().filter(|answer| answer.is_none()).count();
    if accepted >= needed {
        Committed::Yes
    } else if accepted + open >= needed {
        Committed::Open
    } else if accepted + open + above >= needed {
        let counters = answers.iter().flatten().map(|answer| match answer {
            Commit::Above { counter } => *counter,
            _ => 0,
        });
        Committed::Again { above: counters.max().unwrap_or(0) }
    } else {
        Committed::No
    }
}

/// What a server says to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The claim was there all the time, and lasts longer now.
    Still,
    /// It was not there, nobody else has had it, and it was taken again. Whether somebody else has
    /// held the name meanwhile this server can not know, so it does not count this time.
    Healed,
    /// It is not there.
    Gone,
    /// It does not answer, or may not vote.
    Silent,
}

/// What the answers to a renewal so far come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not decided.
    Open,
    /// A majority has kept the claim without a gap.
    Yes,
    /// No majority has.
    Gone,
    /// All have answered that will, and it is not decided.
    Unknown,
}

/// Counts what the servers said to a renewal.
pub fn renewed(answers: &[Option<Kept>]) -> Verdict {
    verdict(answers, Kept::Still, Kept::Silent)
}

/// What a server says to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// The claim was there, and is not any more.
    Claim,
    /// A place among those who wait.
    Place,
    /// Nothing was there.
    Nothing,
    /// It does not answer.
    Silent,
}

/// Counts what the servers said to a release: *yes* if a majority had the claim.
pub fn released(answers: &[Option<Left>]) -> Verdict {
    verdict(answers, Left::Claim, Left::Silent)
}

fn verdict<A: PartialEq>(answers: &[Option<A>], yes: A, silent: A) -> Verdict {
    let count = |wanted: Option<A>| answers.iter().filter(|answer| **answer == wanted).count();
    let (yes, silent, open) = (count(Some(yes)), count(Some(silent)), count(None));
    let needed = majority(answers.len());
    if yes >= needed {
        Verdict::Yes
    } else if yes + silent + open < needed {
        Verdict::Gone
    } else if open > 0 {
        Verdict::Open
    } else {
        Verdict::Unknown
    }
}

/// What is known of a server that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Names this run of the server.
    pub run: String,
    /// The run under which it was last admitted, if it remembers one.
    pub mark: Option<String>,
    /// Every write is on its disk before it is answered.
    pub forgets_nothing: bool,
    /// How long it runs.
    pub up: Duration,
    /// How long ago somebody first noticed that it has no mark.
    pub missed: Duration,
    /// The largest counter that it ever gave.
    pub top: u64,
    /// Its clock, in microseconds.
    pub now: u64,
}

/// Whether a server may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It votes.
    Member,
    /// It may be let in, with counters above this.
    Admit { floor: u64 },
    /// It has forgotten: some who asked it before may still believe in its answers for so long.
    Quarantined { left: Duration },
    /// It has forgotten, and too few others are there to tell it where its counters were.
    Alone,
    /// It does not answer.
    Silent,
}

/// Who may vote; `None` for servers that do not answer. `quarantine` is longer than any attempt or
/// lease that was alive when a server forgot.
pub fn standings(servers: &[Option<Seen>], quarantine: Duration) -> Vec<Standing> {
    let is_member = |seen: &Seen| seen.mark.as_ref() == Some(&seen.run);
    let all: Option<Vec<&Seen>> = servers.iter().map(Option::as_ref).collect();
    let above_all = |all: &[&Seen]| all.iter().map(|seen| seen.top.max(seen.now)).max().unwrap_or(0);
    // Nobody has ever voted, or all have forgotten, which comes to the same.
    let fresh = all.as_deref().filter(|all| all.iter().all(|seen| seen.mark.is_none()));
    let left =
        |seen: &Seen| quarantine.saturating_sub(if seen.mark.is_some() { seen.up } else { seen.missed });
    let members: Vec<&Seen> = servers.iter().flatten().filter(|seen| is_member(seen)).collect();
    let standing = |seen: &Option<Seen>| {
        let Some(seen) = seen else { return Standing::Silent };
        if is_member(seen) {
            return Standing::Member;
        }
        if seen.mark.is_some() && seen.forgets_nothing {
            return Standing::Admit { floor: 0 };
        }
        if let Some(all) = fresh {
            return Standing::Admit { floor: above_all(all) };
        }
        let left_here = left(seen);
        if !left_here.is_zero() {
            return Standing::Quarantined { left: left_here };
        }
        if members.len() >= majority(servers.len()) {
            let floor = members.iter().map(|member| member.top).max().unwrap_or(0);
            return Standing::Admit { floor };
        }
        // A majority has forgotten. What its counters were only the clocks can tell, and only if
        // everybody is asked.
        match all.as_deref() {
            Some(all) if all.iter().all(|seen| is_member(seen) || left(seen).is_zero()) => {
                Standing::Admit { floor: above_all(all) }
            }
            _ => Standing::Alone,
        }
    };
    servers.iter().map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn granted(counter: u64) -> Option<Vote> {
        Some(Vote::Granted { counter })
    }

    fn taken(owner: u128, left: u64) -> Option<Vote> {
        Some(Vote::Taken { by: Whose::Owner(owner), left })
    }

    #[test]
    fn votes_are_counted() {
        let silent = Some(Vote::Silent);
        assert_eq!(poll(&[granted(3), None, granted(7)]), Poll::Majority { token: 7 });
        assert_eq!(poll(&[granted(3), None, silent]), Poll::Open);
        assert_eq!(poll(&[silent, None, silent]), Poll::Impossible);
        let held = Poll::Held { left: 20, stranger: false };
        assert_eq!(poll(&[taken(1, 90), taken(1, 20), None]), Poll::Held { left: 90, stranger: false });
        assert_eq!(poll(&[taken(1, 90), taken(1, 20), granted(1)]), held);
        assert_eq!(poll(&[taken(1, 90), taken(2, 20), None]), Poll::Open);
        assert_eq!(poll(&[taken(1, 90), taken(2, 20), granted(1)]), Poll::Split);
        assert_eq!(poll(&[taken(1, 9), silent, granted(1)]), Poll::Split);
        assert_eq!(poll(&[granted(1), granted(1), silent, silent, silent]), Poll::Impossible);
        // Accepted by some is not yet committed.
        let accepted = |counter| Some(Vote::Accepted { counter });
        assert_eq!(poll(&[accepted(7), accepted(7), None]), Poll::Committed);
        assert_eq!(poll(&[accepted(7), granted(9), None]), Poll::Majority { token: 9 });
        assert_eq!(poll(&[accepted(7), granted(5), None]), Poll::Majority { token: 8 });
        assert_eq!(poll(&[accepted(7), taken(1, 9), None]), Poll::Open);
        // Half is no majority.
        assert_eq!(poll(&[granted(1), granted(1), silent, silent]), Poll::Impossible);
    }

    #[test]
    fn a_token_needs_a_majority() {
        let (yes, not_mine) = (Some(Commit::Accepted), Some(Commit::NotMine));
        let above = |counter| Some(Commit::Above { counter });
        assert_eq!(committed(&[yes, None, yes]), Committed::Yes);
        assert_eq!(committed(&[yes, None, above(4)]), Committed::Open);
        assert_eq!(committed(&[yes, above(9), above(4)]), Committed::Again { above: 9 });
        assert_eq!(committed(&[yes, not_mine, above(4)]), Committed::Again { above: 4 });
        assert_eq!(committed(&[not_mine, not_mine, yes]), Committed::No);
    }

    #[test]
    fn a_healed_server_does_not_count() {
        let [still, healed, gone, silent] = [Kept::Still, Kept::Healed, Kept::Gone, Kept::Silent].map(Some);
        assert_eq!(renewed(&[still, still, None]), Verdict::Yes);
        assert_eq!(renewed(&[still, healed, None]), Verdict::Open);
        assert_eq!(renewed(&[still, healed, healed]), Verdict::Gone);
        assert_eq!(renewed(&[still, gone, silent]), Verdict::Unknown);
    }

    fn seen(mark: Option<&str>) -> Seen {
        let mark = mark.map(str::to_owned);
        Seen { run: "r".into(), mark, forgets_nothing: false, up: SECOND, missed: SECOND, top: 5, now: 100 }
    }

    #[test]
    fn whoever_forgot_waits_and_is_told() {
        let member = Some(seen(Some("r")));
        let forgot = |missed| Some(Seen { missed, top: 0, ..seen(None) });
        let of = |servers: &[Option<Seen>]| standings(servers, 2 * SECOND);
        assert_eq!(
            of(&[member.clone(), member.clone(), forgot(SECOND)])[2],
            Standing::Quarantined { left: SECOND }
        );
        assert_eq!(
            of(&[member.clone(), member.clone(), forgot(2 * SECOND)])[2],
            Standing::Admit { floor: 5 }
        );
        // One other is no majority, and the third may know better.
        assert_eq!(of(&[member.clone(), None, forgot(2 * SECOND)])[2], Standing::Alone);
        // A majority has forgotten: the clocks must do.
        let all = [member.clone(), forgot(2 * SECOND), forgot(3 * SECOND)];
        assert_eq!(of(&all)[1..], [Standing::Admit { floor: 100 }; 2]);
        // Restarted with old data, or with all of it.
        let old = Seen { up: 2 * SECOND, ..seen(Some("before")) };
        assert_eq!(of(&[member.clone(), member.clone(), Some(old.clone())])[2], Standing::Admit { floor: 5 });
        let young = Seen { up: SECOND, missed: 9 * SECOND, ..old };
        assert_eq!(
            of(&[member.clone(), member.clone(), Some(young.clone())])[2],
            Standing::Quarantined { left: SECOND }
        );
        let whole = Seen { forgets_nothing: true, ..young };
        assert_eq!(of(&[member, None, Some(whole)])[2], Standing::Admit { floor: 0 });
        // The first of all.
        assert_eq!(
            of(&[Some(seen(None)), Some(seen(None)), Some(seen(None))]),
            [Standing::Admit { floor: 100 }; 3]
        );
    }
}
