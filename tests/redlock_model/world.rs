//! A world: servers, clients that ask them, and messages that are late, lost and doubled.
//!
//! The servers follow `spec.rs`, and the clients decide by the `rules.rs` of the engine itself.
//! What is wrong on purpose is a [`Bug`].

use std::fmt;

use crate::rules::{self, Commit, Committed, Poll, Verdict, Vote, Whose};
use crate::spec::{Kept, Node, Number, Owner, Said, Voted};

pub(crate) const MOST_ASKERS: usize = 3;

/// A design that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// The token is the largest counter of a majority, and that is all.
    MaxOnly,
    /// The token is written back wherever the claim is there, whatever the counter.
    NoCounterCheck,
    /// The token is written back, unchecked, to those servers only whose vote was counted.
    CountedOnly,
    /// A token that is the counter is accepted from anybody.
    WithoutBy,
    /// A server that forgot votes at once.
    RejoinAtOnce,
    /// A server that forgot votes as soon as it has asked the others for their counters.
    RejoinWithCounter,
    /// A claim that was taken again counts in the renewal that took it.
    HealedCounts,
    /// A claim that was taken again counts in the renewal after that, whatever became of the one
    /// that took it.
    HealedCountsNext,
    /// A release deletes the counter.
    ReleaseForgetsCounter,
    /// Half of the servers, rounded down, are enough.
    HalfIsEnough,
    /// A token that comes with the request is accepted although the counter is there already.
    AcceptsEqual,
}

/// What can happen in a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) servers: usize,
    /// Who asks: true for a reader.
    pub(crate) readers: &'static [bool],
    /// Claims end at any moment: whatever clocks can do. Without it they end when their owner has
    /// stopped to believe in them.
    pub(crate) early: u8,
    /// How many votes are delivered twice.
    pub(crate) doubled: u8,
    /// How many servers forget everything.
    pub(crate) forgets: u8,
    /// How many times a holder renews.
    pub(crate) renewals: u8,
    /// No vote is given to somebody who has stopped to ask for it: requests carry a time after
    /// which they are refused.
    pub(crate) punctual: bool,
    /// How many times a client that knows nothing of the rules takes a server.
    pub(crate) strangers: u8,
    /// Tokens are asked for together with votes.
    pub(crate) guesses: bool,
    pub(crate) bug: Bug,
}

/// One server, and what is on its way between it and each who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Column {
    pub(crate) node: Node,
    /// It has forgotten, and these (a bit each) were under way then.
    waits_for: u8,
    forgot: bool,
    lines: [Line; MOST_ASKERS],
}

/// Between one server and one who asks. Zero is nothing; see the constants.
///
/// An answer is heard when it is given, or never: whoever hears it later only acts later, and what
/// it then says may be late all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Line {
    /// A vote is asked for.
    vote: bool,
    /// What was heard of it: [`SILENT`], [`TAKEN`], [`PROMISED`], or a counter and [`GRANTED`].
    voted: u8,
    /// A token on its way.
    commit: Number,
    said: u8,
    /// The number of a renewal on its way.
    renewal: Number,
    /// What was heard of it: [`SILENT`], [`GONE`], or the number of the claim and [`SINCE`].
    kept: u8,
    /// The number of the claim when a majority last said yes.
    known: Number,
    release: bool,
}

const SILENT: u8 = 1;
const TAKEN: u8 = 2;
const GRANTED: u8 = 3;
/// A vote, with the token that was asked for.
const PROMISED: u8 = u8::MAX;
const ACCEPTED: u8 = 2;
const NOT_MINE: u8 = 3;
const ABOVE: u8 = 4;
const GONE: u8 = 2;
const SINCE: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    Voting,
    Committing,
    Held,
    Over,
}

/// Somebody who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Asker {
    stage: Stage,
    token: Number,
    /// The token that it asks for with its votes; 0 is none.
    guess: Number,
    /// The largest token that was granted before it asked.
    above: Number,
    proposals: u8,
    /// The number of its last asking or renewal.
    stamp: Number,
    renewals: u8,
    renewing: bool,
    /// Somebody else was granted the name with a larger token, or without one, since it was
    /// granted; and had been when the renewal under way began.
    usurped: bool,
    usurped_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World<const N: usize> {
    pub(crate) columns: [Column; N],
    askers: [Asker; MOST_ASKERS],
    /// Tokens that were granted, a bit each.
    granted: u64,
    early: u8,
    doubled: u8,
    forgets: u8,
    strangers: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Ask {
        asker: usize,
        guess: Number,
    },
    Vote {
        asker: usize,
        server: usize,
        heard: bool,
        again: bool,
    },
    Commit {
        asker: usize,
        server: usize,
        heard: bool,
    },
    /// Nothing will be heard of a token.
    NoWord {
        asker: usize,
        server: usize,
    },
    Renew(usize),
    Renewal {
        asker: usize,
        server: usize,
        heard: bool,
    },
    Release {
        asker: usize,
        server: usize,
    },
    /// It lets go, gives up, or its deadline is over.
    End(usize),
    Expire {
        asker: usize,
        server: usize,
    },
    Forget(usize),
    Rejoin(usize),
    Stranger {
        server: usize,
        comes: bool,
    },
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |asker: &usize| ["A", "B", "C"][*asker];
        let end = |heard: &bool| if *heard { "" } else { ", and the answer is lost" };
        match self {
            Action::Ask { asker, guess: 0 } => write!(f, "{} asks all", who(asker)),
            Action::Ask { asker, guess } => write!(f, "{} asks all for {guess}", who(asker)),
            Action::Vote { asker, server, heard, again } => {
                let again = if *again { ", and will again" } else { "" };
                write!(f, "{server} gets {}'s request{again}{}", who(asker), end(heard))
            }
            Action::Commit { asker, server, heard } => {
                write!(f, "{server} gets {}'s token{}", who(asker), end(heard))
            }
            Action::NoWord { asker, server } => write!(f, "{} gives up on {server}", who(asker)),
            Action::Renew(asker) => write!(f, "{} renews", who(asker)),
            Action::Renewal { asker, server, heard } => {
                write!(f, "{server} gets {}'s renewal{}", who(asker), end(heard))
            }
            Action::Release { asker, server } => write!(f, "{server} gets {}'s release", who(asker)),
            Action::End(asker) => write!(f, "{} is over", who(asker)),
            Action::Expire { asker, server } => write!(f, "{}'s claim ends at {server}", who(asker)),
            Action::Forget(server) => write!(f, "{server} forgets"),
            Action::Rejoin(server) => write!(f, "{server} votes again"),
            Action::Stranger { server, comes } => {
                write!(f, "a stranger {} {server}", if *comes { "takes" } else { "leaves" })
            }
        }
    }
}

/// What must not be.
pub(crate) type Violation = &'static str;

impl<const N: usize> World<N> {
    pub(crate) fn new() -> World<N> {
        let server = Column { node: Node { member: true, ..Node::default() }, ..Column::default() };
        World {
            columns: [server; N],
            askers: [Asker::default(); MOST_ASKERS],
            granted: 0,
            early: 0,
            doubled: 0,
            forgets: 0,
            strangers: 0,
        }
    }

    fn owner(asker: usize) -> Owner {
        u8::try_from(asker + 1).expect("few")
    }

    pub(crate) fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        actions.clear();
        for (asker, &Asker { stage, renewals, renewing, .. }) in
            self.askers[..setup.readers.len()].iter().enumerate()
        {
            match stage {
                // One after the other, so that equal ones are not told apart.
                Stage::Idle if asker == 0 || self.askers[asker - 1].stage != Stage::Idle => {
                    // None, a token that is old, and one that is above all.
                    let highest = self.columns.iter().map(|column| column.node.top).max().unwrap_or(0);
                    actions.push(Action::Ask { asker, guess: 0 });
                    if setup.guesses {
                        actions.push(Action::Ask { asker, guess: 1 });
                    }
                    if setup.guesses && highest > 0 {
                        actions.push(Action::Ask { asker, guess: highest + 1 });
                    }
                }
                Stage::Idle | Stage::Over => {}
                Stage::Voting | Stage::Committing | Stage::Held => actions.push(Action::End(asker)),
            }
            // One that has not been answered is given up.
            if stage == Stage::Held && renewals < setup.renewals {
                actions.push(Action::Renew(asker));
            }
            let shares = setup.readers.iter().any(|reader| *reader);
            for (server, column) in self.columns.iter().enumerate() {
                let line = &column.lines[asker];
                if line.vote && (!setup.punctual || matches!(stage, Stage::Voting | Stage::Committing)) {
                    actions.push(Action::Vote { asker, server, heard: false, again: false });
                    if stage == Stage::Voting {
                        actions.push(Action::Vote { asker, server, heard: true, again: false });
                    }
                    if self.doubled < setup.doubled {
                        actions.push(Action::Vote {
                            asker,
                            server,
                            heard: stage == Stage::Voting,
                            again: true,
                        });
                    }
                }
                if line.commit > 0 {
                    actions.push(Action::Commit { asker, server, heard: false });
                    if stage == Stage::Committing {
                        actions.push(Action::Commit { asker, server, heard: true });
                    }
                }
                // Who has not heard from all can only give up, unless there is somebody to share
                // with.
                if shares && stage == Stage::Committing && line.said == 0 {
                    actions.push(Action::NoWord { asker, server });
                }
                if line.renewal > 0 {
                    actions.push(Action::Renewal { asker, server, heard: false });
                    if renewing {
                        actions.push(Action::Renewal { asker, server, heard: true });
                    }
                }
                if line.release {
                    actions.push(Action::Release { asker, server });
                }
                let owner = Self::owner(asker);
                let here = column.node.writer.owner == owner
                    || column.node.readers.iter().any(|claim| claim.owner == owner);
                // A release that comes does the same.
                let over = stage == Stage::Over && !line.release;
                if here && (over || (stage != Stage::Over && self.early < setup.early)) {
                    actions.push(Action::Expire { asker, server });
                }
            }
        }
        for (server, column) in self.columns.iter().enumerate() {
            if self.forgets < setup.forgets && !column.forgot {
                actions.push(Action::Forget(server));
            }
            if column.forgot && !column.node.member && self.may_rejoin(server, setup.bug) {
                actions.push(Action::Rejoin(server));
            }
            if column.node.stranger {
                actions.push(Action::Stranger { server, comes: false });
            } else if self.strangers < setup.strangers
                && column.node == (Node { stranger: false, ..column.node })
            {
                let free =
                    column.node.writer.owner == 0 && column.node.readers.iter().all(|claim| claim.owner == 0);
                if free {
                    actions.push(Action::Stranger { server, comes: true });
                }
            }
        }
    }

    fn may_rejoin(&self, server: usize, bug: Bug) -> bool {
        let alive = |asker: usize| {
            matches!(self.askers[asker].stage, Stage::Voting | Stage::Committing | Stage::Held)
        };
        let waited =
            (0..MOST_ASKERS).all(|asker| self.columns[server].waits_for & 1 << asker == 0 || !alive(asker));
        let members = self.columns.iter().filter(|column| column.node.member).count();
        let majority = members >= rules::majority(N);
        match bug {
            Bug::RejoinAtOnce => true,
            Bug::RejoinWithCounter => majority,
            _ => waited && majority,
        }
    }

    /// Does something. The error is what must not be.
    pub(crate) fn apply(&mut self, action: Action, setup: &Setup) -> Result<(), Violation> {
        match action {
            Action::Ask { asker, guess } => {
                let highest = 63 - (self.granted | 1).leading_zeros();
                let asks = &mut self.askers[asker];
                *asks = Asker { stage: Stage::Voting, stamp: 1, guess, ..Asker::default() };
                asks.above = u8::try_from(highest).expect("few");
                self.columns.iter_mut().for_each(|column| column.lines[asker].vote = true);
                Ok(())
            }
            Action::Vote { asker, server, heard, again } => {
                let (owner, guess) = (Self::owner(asker), self.askers[asker].guess);
                let column = &mut self.columns[server];
                let vote = |node: &mut Node| node.vote(owner, 1, setup.readers[asker], (guess, guess), 0);
                let mut careless = column.node;
                if careless.counter == guess {
                    (careless.counter, careless.top) = (0, 0);
                }
                let voted = if setup.bug == Bug::AcceptsEqual && vote(&mut careless) == Voted::Accepted {
                    column.node = careless;
                    Voted::Accepted
                } else {
                    vote(&mut column.node)
                };
                let line = &mut column.lines[asker];
                line.vote = again;
                self.doubled += u8::from(again);
                if !heard {
                    return Ok(());
                }
                line.voted = match voted {
                    Voted::Granted(counter) => GRANTED + counter,
                    Voted::Accepted => PROMISED,
                    Voted::Taken => TAKEN,
                    Voted::No => SILENT,
                };
                self.count_votes(asker, setup)
            }
            Action::Commit { asker, server, heard } => {
                let Column { node, lines, .. } = &mut self.columns[server];
                let line = &mut lines[asker];
                let token = std::mem::take(&mut line.commit);
                let said = said(node, Self::owner(asker), token, setup.bug);
                if !heard {
                    return Ok(());
                }
                line.said = match said {
                    Said::Accepted => ACCEPTED,
                    Said::Above(counter) => ABOVE + counter,
                    Said::NotMine => NOT_MINE,
                    Said::No => SILENT,
                };
                self.count_commits(asker, setup)
            }
            Action::NoWord { asker, server } => {
                self.columns[server].lines[asker].said = SILENT;
                self.count_commits(asker, setup)
            }
            Action::Renew(asker) => {
                let asks = &mut self.askers[asker];
                asks.renewals += 1;
                asks.stamp += 1;
                asks.renewing = true;
                asks.usurped_before = asks.usurped;
                let renewal = asks.stamp;
                for column in &mut self.columns {
                    let line = &mut column.lines[asker];
                    (line.renewal, line.kept) = (renewal, 0);
                }
                Ok(())
            }
            Action::Renewal { asker, server, heard } => {
                let token = self.askers[asker].token;
                let Column { node, lines, .. } = &mut self.columns[server];
                let line = &mut lines[asker];
                let renewal = std::mem::take(&mut line.renewal);
                let kept = node.renew(Self::owner(asker), (token, token), setup.readers[asker], renewal);
                if !heard {
                    return Ok(());
                }
                line.kept = match kept {
                    Kept::Since(stamp) => SINCE + stamp,
                    Kept::Gone => GONE,
                    Kept::No => SILENT,
                };
                self.count_kept(asker, setup)
            }
            Action::Release { asker, server } => {
                let stamp = self.askers[asker].stamp;
                let column = &mut self.columns[server];
                column.lines[asker].release = false;
                let found = column.node.release(Self::owner(asker), stamp + 1);
                if found && setup.bug == Bug::ReleaseForgetsCounter {
                    (column.node.counter, column.node.by, column.node.top) = (0, (0, 0), 0);
                }
                Ok(())
            }
            Action::End(asker) => {
                self.end(asker);
                Ok(())
            }
            Action::Expire { asker, server } => {
                self.early += u8::from(self.askers[asker].stage != Stage::Over);
                self.columns[server].node.expire(Self::owner(asker));
                Ok(())
            }
            Action::Forget(server) => {
                self.forgets += 1;
                let mut under_way = 0;
                for (asker, asks) in self.askers.iter().enumerate() {
                    under_way |= u8::from(!matches!(asks.stage, Stage::Idle | Stage::Over)) << asker;
                }
                let column = &mut self.columns[server];
                (column.node, column.forgot, column.waits_for) = (Node::default(), true, under_way);
                Ok(())
            }
            Action::Rejoin(server) => {
                let members = self.columns.iter().filter(|column| column.node.member);
                let floor = members.map(|column| column.node.top).max().unwrap_or(0);
                let floor = if setup.bug == Bug::RejoinAtOnce { 0 } else { floor };
                self.columns[server].node.admit(floor);
                Ok(())
            }
            Action::Stranger { server, comes } => {
                self.strangers += u8::from(comes);
                self.columns[server].node.stranger = comes;
                let held = self.columns.iter().filter(|column| column.node.stranger).count();
                if held >= rules::majority(N) {
                    self.askers.iter_mut().for_each(|asks| asks.usurped |= asks.stage == Stage::Held);
                }
                Ok(())
            }
        }
    }

    fn count_votes(&mut self, asker: usize, setup: &Setup) -> Result<(), Violation> {
        let guess = self.askers[asker].guess;
        let votes: [Option<Vote>; N] =
            std::array::from_fn(|server| match self.columns[server].lines[asker].voted {
                0 => None,
                SILENT => Some(Vote::Silent),
                TAKEN => Some(Vote::Taken { by: Whose::Stranger(0), left: 0 }),
                PROMISED => Some(Vote::Accepted { counter: u64::from(guess) }),
                counter => Some(Vote::Granted { counter: u64::from(counter - GRANTED) }),
            });
        let mut poll = rules::poll(&votes);
        if setup.bug == Bug::HalfIsEnough {
            let counters = votes.iter().flatten().filter_map(|vote| match vote {
                Vote::Granted { counter } => Some(*counter),
                _ => None,
            });
            if counters.clone().count() >= N / 2 {
                poll = Poll::Majority { token: counters.max().unwrap_or(0) };
            }
        }
        match poll {
            Poll::Open => {}
            Poll::Committed => {
                self.askers[asker].token = guess;
                return self.grant(asker, setup);
            }
            Poll::Majority { token } => {
                let asks = &mut self.askers[asker];
                asks.stage = Stage::Committing;
                asks.token = u8::try_from(token).expect("few");
                if setup.bug == Bug::MaxOnly {
                    return self.grant(asker, setup);
                }
                self.propose(asker, setup);
            }
            Poll::Held { .. } | Poll::Split | Poll::Impossible => self.end(asker),
        }
        Ok(())
    }

    fn propose(&mut self, asker: usize, setup: &Setup) {
        let token = self.askers[asker].token;
        self.askers[asker].proposals += 1;
        for column in &mut self.columns {
            let line = &mut column.lines[asker];
            let counted = line.voted >= GRANTED;
            line.voted = if counted && setup.bug == Bug::CountedOnly { GRANTED } else { 0 };
            if setup.bug == Bug::CountedOnly && !counted {
                line.said = SILENT;
                continue;
            }
            (line.commit, line.said) = (token, 0);
        }
    }

    fn count_commits(&mut self, asker: usize, setup: &Setup) -> Result<(), Violation> {
        let answers: [Option<Commit>; N] =
            std::array::from_fn(|server| match self.columns[server].lines[asker].said {
                0 => None,
                SILENT => Some(Commit::Silent),
                ACCEPTED => Some(Commit::Accepted),
                NOT_MINE => Some(Commit::NotMine),
                above => Some(Commit::Above { counter: u64::from(above - ABOVE) }),
            });
        let mut committed = rules::committed(&answers);
        let accepted = answers.iter().filter(|answer| **answer == Some(Commit::Accepted)).count();
        if setup.bug == Bug::HalfIsEnough && accepted >= N / 2 {
            committed = Committed::Yes;
        }
        match committed {
            Committed::Open => {}
            Committed::Yes => return self.grant(asker, setup),
            Committed::No => self.end(asker),
            Committed::Again { .. } if self.askers[asker].proposals == 2 => self.end(asker),
            Committed::Again { above } => {
                let asks = &mut self.askers[asker];
                asks.token = asks.token.max(u8::try_from(above).expect("few")) + 1;
                self.propose(asker, setup);
            }
        }
        Ok(())
    }

    fn grant(&mut self, asker: usize, setup: &Setup) -> Result<(), Violation> {
        let Asker { token, above, .. } = self.askers[asker];
        if self.granted & 1 << token != 0 {
            return Err("a token was given twice");
        }
        if token <= above {
            return Err("a token is not above one that was given before it was asked for");
        }
        self.granted |= 1 << token;
        let owner = Self::owner(asker);
        let has = |node: &Node| node.readers.iter().chain([&node.writer]).any(|claim| claim.owner == owner);
        let really = self.columns.iter().filter(|column| has(&column.node)).count() >= rules::majority(N);
        for (other, asks) in self.askers.iter_mut().enumerate() {
            if other != asker && asks.stage == Stage::Held && !(setup.readers[other] && setup.readers[asker])
            {
                // One that asked before and is late has the smaller token; whoever has the larger
                // one need not know. One that has lost claims before it was granted does not have
                // the name.
                asks.usurped |= asks.token < token && really;
                if setup.early == 0 {
                    return Err("two hold the name");
                }
            }
        }
        let asks = &mut self.askers[asker];
        asks.stage = Stage::Held;
        let stamp = asks.stamp;
        for line in self.columns.iter_mut().map(|column| &mut column.lines[asker]) {
            let Line { vote, commit, .. } = *line;
            *line = Line { vote, commit, known: stamp, ..Line::default() };
        }
        Ok(())
    }

    fn count_kept(&mut self, asker: usize, setup: &Setup) -> Result<(), Violation> {
        let renewal = self.askers[asker].stamp;
        let kept = |line: &Line| match line.kept {
            0 => None,
            SILENT => Some(rules::Kept::Silent),
            GONE => Some(rules::Kept::Gone),
            _ if setup.bug == Bug::HealedCounts => Some(rules::Kept::Still),
            since if setup.bug == Bug::HealedCountsNext && since - SINCE < renewal => {
                Some(rules::Kept::Still)
            }
            since if since - SINCE == line.known => Some(rules::Kept::Still),
            _ => Some(rules::Kept::Healed),
        };
        let answers: [Option<rules::Kept>; N] =
            std::array::from_fn(|server| kept(&self.columns[server].lines[asker]));
        let verdict = rules::renewed(&answers);
        let asks = &mut self.askers[asker];
        match verdict {
            Verdict::Open => {}
            Verdict::Yes => {
                asks.renewing = false;
                if asks.usurped_before {
                    return Err("a holder is told that it holds a name that somebody else has held since");
                }
                // Whoever came while the servers were answering came because a clock was wrong
                // after its server had answered.
                asks.usurped = false;
                for line in self.columns.iter_mut().map(|column| &mut column.lines[asker]) {
                    if line.kept >= SINCE {
                        line.known = line.kept - SINCE;
                    }
                    line.kept = 0;
                }
            }
            Verdict::Gone => self.end(asker),
            Verdict::Unknown => asks.renewing = false,
        }
        Ok(())
    }

    /// The owner has stopped to believe in it, and tells the servers.
    fn end(&mut self, asker: usize) {
        let asks = &mut self.askers[asker];
        (asks.stage, asks.renewing) = (Stage::Over, false);
        for column in &mut self.columns {
            let line = &mut column.lines[asker];
            // Answers do not matter any more. What is on its way to the servers does.
            let Line { vote, commit, renewal, .. } = *line;
            *line = Line { vote, commit, renewal, release: true, ..Line::default() };
        }
    }

    /// True if somebody holds the name: a world in which nobody ever does proves nothing.
    pub(crate) fn held(&self) -> usize {
        self.granted.count_ones() as usize
    }

    /// The same world with its servers in order: they are all alike.
    pub(crate) fn sorted(mut self) -> World<N> {
        self.columns.sort_unstable();
        self
    }
}

fn said(node: &mut Node, owner: Owner, token: Number, bug: Bug) -> Said {
    match bug {
        Bug::NoCounterCheck | Bug::CountedOnly => {
            let counter = std::mem::take(&mut node.counter);
            let said = node.commit(owner, token, token);
            node.counter = node.counter.max(counter);
            said
        }
        Bug::WithoutBy => {
            if node.counter == token {
                node.by = (owner, token);
            }
            node.commit(owner, token, token)
        }
        _ => node.commit(owner, token, token),
    }
}
