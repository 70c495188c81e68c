//! A world: one name under the real rules, its clients, and the messages between them.
//!
//! Messages are delayed, lost and repeated at will; clients do whatever a client may do, in any
//! order, or nothing; time moves when it likes. A client *believes* that it holds from when the
//! reply arrives until it sends its release or its own deadline comes.

use leasehold::claim::{Micros, OwnerId, Seat, State};

use crate::few::Few;
use crate::line::Line;
use crate::setup::{AHEAD, Bug, START, Setup, Sight, Sights, TICK};

pub(crate) const MOST_CLIENTS: usize = 3;
pub(crate) const MOST_MESSAGES: usize = 5;

/// How many owners a client has. One that nobody remembers is as good as a new one.
const OWNERS: u8 = 4;

/// What must never happen, and did.
pub(crate) type Violation = &'static str;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Asking,
    /// Until released, whether believed or not.
    Holding,
    Dead,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    pub(crate) owner: u8,
    pub(crate) weight: u32,
    pub(crate) upgrading: bool,
    /// An operator broke the claim; nothing is promised to its holder.
    pub(crate) broken: bool,
    pub(crate) token: u64,
    pub(crate) last_token: u64,
    pub(crate) deadline: Micros,
    /// When it last stopped believing without a release.
    pub(crate) lapsed: Micros,
}

impl Client {
    pub(crate) fn believes(&self, now: Micros) -> bool {
        self.stage == Stage::Holding && now < self.deadline
    }

    /// Forgets all but what is needed to judge others.
    fn rest(&mut self) {
        *self = Client { lapsed: self.lapsed, ..Client::default() };
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Body {
    Ask {
        weight: u32,
    },
    #[default]
    Renew,
    Release {
        used: u64,
    },
    Upgrade,
    Downgrade,
    Granted {
        token: u64,
        tokens: u32,
    },
    Renewed(bool),
    Upgraded {
        token: u64,
    },
    NotUpgraded,
    No,
    Woken {
        token: u64,
    },
    Released,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) owner: u8,
    /// A lease after it was sent: what its answer is worth to the client.
    pub(crate) deadline: Micros,
    pub(crate) broken: bool,
    pub(crate) body: Body,
}

impl Message {
    pub(crate) fn is_request(&self) -> bool {
        matches!(
            self.body,
            Body::Ask { .. } | Body::Renew | Body::Release { .. } | Body::Upgrade | Body::Downgrade
        )
    }

    fn is_alteration(&self) -> bool {
        matches!(self.body, Body::Upgrade | Body::Downgrade)
    }
}

/// A step. Numbers are of clients, or of messages in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ask { client: u8, weight: u32 },
    AskAgain(u8),
    GiveUp(u8),
    Renew(u8),
    Release(u8),
    PassOn(u8),
    Upgrade(u8),
    Downgrade(u8),
    Die(u8),
    Deliver(u8),
    Repeat(u8),
    Lose(u8),
    Sweep,
    Break,
    Tick,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) state: State,
    pub(crate) line: Line,
    /// What the engine keeps for names whose records were thrown away.
    pub(crate) floor: u64,
    pub(crate) clients: Few<Client, MOST_CLIENTS>,
    pub(crate) messages: Few<Message, MOST_MESSAGES>,
    pub(crate) duplicates: u8,
    pub(crate) deaths: u8,
    pub(crate) breaks: u8,
    /// The highest token that was granted or used.
    pub(crate) highest: u64,
    /// The claim that waits to become the writer, and how long that is believed of it.
    pub(crate) upgrader: (u8, Micros),
    /// Who believed last; for sights only.
    pub(crate) last_holder: u8,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> World {
        let floor = if setup.ahead { AHEAD } else { 0 };
        World {
            now: START,
            state: State::new(floor),
            line: Line::new(setup.bug),
            floor,
            clients: setup.clients.iter().map(|_| Client::default()).collect(),
            messages: Few::default(),
            duplicates: setup.duplicates,
            deaths: setup.deaths,
            breaks: setup.breaks,
            highest: floor,
            upgrader: (0, 0),
            last_holder: u8::MAX,
        }
    }

    pub(crate) fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        actions.clear();
        let room = self.messages.len() < setup.messages;
        for (index, client) in (0..).zip(self.clients.iter()) {
            self.actions_of(index, client, setup, room, actions);
        }
        for (index, message) in (0..).zip(self.messages.iter()) {
            // Of two messages that are the same, one is enough.
            if self.messages[..usize::from(index)].contains(message) {
                continue;
            }
            actions.extend([Action::Deliver(index), Action::Lose(index)]);
            let repeatable =
                message.is_request() && (!message.is_alteration() || setup.is(Bug::LateDowngrade));
            if self.duplicates > 0 && room && repeatable {
                actions.push(Action::Repeat(index));
            }
        }
        if setup.sees_death && self.clients.iter().any(|client| client.stage == Stage::Dead) {
            actions.push(Action::Sweep);
        }
        if self.breaks > 0 {
            actions.push(Action::Break);
        }
        actions.push(Action::Tick);
    }

    fn actions_of(&self, index: u8, client: &Client, setup: &Setup, room: bool, actions: &mut Vec<Action>) {
        let role = setup.clients[usize::from(index)];
        let under_way =
            |test: &dyn Fn(&Message) -> bool| self.messages.iter().any(|m| m.client == index && test(m));
        match client.stage {
            Stage::Idle if room && self.free_owner(index, setup).is_some() => {
                actions.extend(role.weights.iter().map(|&weight| Action::Ask { client: index, weight }));
            }
            Stage::Asking if room => {
                if setup.impatient || !under_way(&|m| m.owner == client.owner) {
                    actions.push(Action::AskAgain(index));
                }
                actions.push(Action::GiveUp(index));
            }
            Stage::Holding => {
                if room {
                    actions.push(Action::Release(index));
                }
                if client.believes(self.now) {
                    let renewing = under_way(&|m| matches!(m.body, Body::Renew | Body::Renewed(_)));
                    if setup.renews && room && (setup.impatient || !renewing) {
                        actions.push(Action::Renew(index));
                    }
                    let unreserved = setup.is(Bug::TokenNotReserved) || setup.is(Bug::TokenUsedTwice);
                    if client.token < client.last_token || unreserved {
                        actions.push(Action::PassOn(index));
                    }
                    // The client waits for the outcome of one alteration before it sends the next.
                    let free = setup.is(Bug::LateDowngrade) || !under_way(&Message::is_alteration);
                    let answered = !under_way(&|m| {
                        matches!(m.body, Body::Upgrade | Body::Upgraded { .. } | Body::NotUpgraded)
                    });
                    if role.upgrades && room && free && answered {
                        let writes = client.weight == setup.capacity;
                        actions.push(if writes { Action::Downgrade(index) } else { Action::Upgrade(index) });
                    }
                }
            }
            Stage::Idle | Stage::Asking | Stage::Dead => {}
        }
        if self.deaths > 0 && client.stage != Stage::Dead && client.stage != Stage::Idle {
            actions.push(Action::Die(index));
        }
    }

    /// An owner that neither the engine nor any message knows of.
    fn free_owner(&self, index: u8, setup: &Setup) -> Option<u8> {
        let first = 1 + index * OWNERS;
        if setup.is(Bug::OwnerReused) {
            return Some(first);
        }
        (first..first + OWNERS).find(|&owner| {
            let id = owner_id(owner);
            self.messages.iter().all(|message| message.owner != owner)
                && self.state.claims(0).all(|claim| claim.owner != id)
                && self.line.iter().all(|waiter| waiter.owner != id)
        })
    }

    pub(crate) fn alive(&self, seat: Seat, setup: &Setup) -> bool {
        let client = self.clients.get(seat as usize - 1);
        !setup.sees_death || client.is_none_or(|client| client.stage != Stage::Dead)
    }

    pub(crate) fn apply(
        &mut self,
        action: Action,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        match action {
            Action::Ask { client, weight } => {
                let owner = self.free_owner(client, setup).expect("asked for before");
                let it = &mut self.clients[usize::from(client)];
                *it = Client { stage: Stage::Asking, owner, weight, lapsed: it.lapsed, ..Client::default() };
                self.send(client, Body::Ask { weight }, setup);
            }
            Action::AskAgain(client) => {
                let weight = self.clients[usize::from(client)].weight;
                self.send(client, Body::Ask { weight }, setup);
            }
            Action::GiveUp(client) => {
                self.send(client, Body::Release { used: 0 }, setup);
                self.clients[usize::from(client)].rest();
            }
            Action::Renew(client) => self.send(client, Body::Renew, setup),
            Action::Release(client) => self.release(client, setup),
            Action::PassOn(client) => return self.pass_on(client, setup, sights),
            Action::Upgrade(client) => {
                self.clients[usize::from(client)].upgrading = true;
                self.send(client, Body::Upgrade, setup);
            }
            Action::Downgrade(client) => {
                // No longer the writer from when it is sent, whatever becomes of it.
                self.clients[usize::from(client)].weight = 1;
                self.send(client, Body::Downgrade, setup);
            }
            Action::Die(client) => {
                let now = self.now;
                self.deaths -= 1;
                let it = &mut self.clients[usize::from(client)];
                let lapsed = if it.believes(now) && !it.broken { now } else { it.lapsed };
                *it = Client { stage: Stage::Dead, lapsed, ..Client::default() };
                // Nobody is there to hear an answer.
                while let Some(at) = self.messages.iter().position(|m| m.client == client && !m.is_request())
                {
                    self.messages.take(at);
                }
            }
            Action::Deliver(at) => {
                let message = self.messages.take(usize::from(at));
                if message.is_request() {
                    return self.serve(message, setup, sights);
                }
                return self.hear(message, setup, sights);
            }
            Action::Repeat(at) => {
                self.duplicates -= 1;
                sights.note(Sight::Repeated);
                let message = self.messages[usize::from(at)];
                return self.serve(message, setup, sights);
            }
            Action::Lose(at) => drop(self.messages.take(usize::from(at))),
            Action::Sweep => return self.sweep(setup, sights),
            Action::Break => return self.break_claims(setup, sights),
            Action::Tick => {
                self.now += TICK;
                for client in self.clients.iter_mut() {
                    if client.stage == Stage::Holding && client.deadline <= self.now && !client.broken {
                        client.lapsed = client.deadline;
                    }
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, client: u8, body: Body, setup: &Setup) {
        let it = &self.clients[usize::from(client)];
        let matters = !matches!(body, Body::Release { .. } | Body::Downgrade);
        let deadline = if matters { self.now + setup.lease() } else { 0 };
        self.messages.push(Message { client, owner: it.owner, deadline, broken: false, body });
    }

    fn release(&mut self, client: u8, setup: &Setup) {
        let it = self.clients[usize::from(client)];
        let first = it.last_token.saturating_sub(u64::from(setup.tokens) - 1);
        let used = if setup.is(Bug::UseNotTold) { first } else { it.token };
        self.send(client, Body::Release { used }, setup);
        let it = &mut self.clients[usize::from(client)];
        it.lapsed = 0;
        if !setup.is(Bug::BelievesWhileReleasing) {
            it.rest();
        }
    }

    /// Inside the client, the next in its own line goes on under the next token.
    fn pass_on(&mut self, client: u8, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        let it = &mut self.clients[usize::from(client)];
        it.token += u64::from(!setup.is(Bug::TokenUsedTwice));
        it.last_token = it.last_token.max(it.token);
        let token = it.token;
        if token <= self.highest && !it.broken {
            return Err("X2: a token was passed on that is not above every token before");
        }
        self.highest = self.highest.max(token);
        sights.note(Sight::PassedOn);
        Ok(())
    }

    /// A client hears an answer.
    fn hear(&mut self, message: Message, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        let now = self.now;
        let index = usize::from(message.client);
        let it = &mut self.clients[index];
        if it.owner != message.owner {
            return Ok(());
        }
        match (it.stage, message.body) {
            (Stage::Asking, Body::Granted { token, tokens }) => {
                let mut deadline = message.deadline;
                if setup.is(Bug::DeadlineFromReply) {
                    deadline = now + setup.lease();
                }
                if now >= deadline {
                    sights.note(Sight::LateReply);
                    if !setup.is(Bug::LateReplyAccepted) {
                        // A no, whatever it says; what was granted is given back.
                        self.send(message.client, Body::Release { used: 0 }, setup);
                        self.clients[index].rest();
                        return Ok(());
                    }
                    deadline = now + TICK;
                }
                if setup.is(Bug::NoDeadline) {
                    deadline = Micros::MAX / 2;
                }
                let last_token = token + u64::from(tokens) - 1;
                self.believe(message, token, last_token, deadline, setup, sights)
            }
            (Stage::Asking, Body::Woken { token }) => {
                self.believe(message, token, token, now + setup.lease(), setup, sights)
            }
            (Stage::Asking, Body::No) => {
                it.rest();
                Ok(())
            }
            (Stage::Holding, Body::Renewed(true)) => {
                let from_reply = setup.is(Bug::RenewalFromReply);
                let deadline = if from_reply { now + setup.lease() } else { message.deadline };
                // Lost is lost: the yes may be for a claim that was made since, by a request of
                // ours that was late.
                if !it.believes(now) && !setup.is(Bug::LateRenewalRevives) {
                    return Ok(());
                }
                it.deadline = it.deadline.max(deadline);
                sights.note(Sight::Renewed);
                self.check_beliefs(index, setup, sights)
            }
            (Stage::Holding, Body::Renewed(false)) => {
                sights.note(Sight::RenewedTooLate);
                let early = it.believes(now) && !it.broken;
                it.rest();
                if early { Err("X4: a claim was gone before its holder's deadline") } else { Ok(()) }
            }
            (Stage::Holding, Body::Upgraded { token }) if it.upgrading && it.believes(now) => {
                it.upgrading = false;
                it.weight = setup.capacity;
                (it.token, it.last_token) = (token, token);
                it.deadline = it.deadline.max(message.deadline);
                sights.note(Sight::Upgraded);
                self.check_beliefs(index, setup, sights)
            }
            (Stage::Holding, Body::NotUpgraded) => {
                it.upgrading = false;
                Ok(())
            }
            (Stage::Holding, Body::Released) => {
                it.rest();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn believe(
        &mut self,
        message: Message,
        token: u64,
        last_token: u64,
        deadline: Micros,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        let index = usize::from(message.client);
        let it = &mut self.clients[index];
        it.stage = Stage::Holding;
        it.broken = message.broken;
        (it.token, it.last_token, it.deadline) = (token, last_token, deadline);
        it.lapsed = 0;
        sights.note(Sight::Held);
        if it.weight > 1 && it.weight < setup.capacity {
            sights.note(Sight::Heavy);
        }
        if self.last_holder != u8::MAX && self.last_holder != message.client {
            sights.note(Sight::Succession);
        }
        self.last_holder = message.client;
        self.check_beliefs(index, setup, sights)
    }

    /// X1 and X8, when the client with this number starts to believe.
    fn check_beliefs(&self, index: usize, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        let now = self.now;
        let sound = |client: &&Client| client.believes(now) && !client.broken;
        let held: u64 = self.clients.iter().filter(sound).map(|client| u64::from(client.weight)).sum();
        let count = self.clients.iter().filter(sound).count();
        if count > 1 {
            sights.note(Sight::Shared);
        }
        for (role, _) in setup.clients.iter().zip(self.clients.iter()).filter(|(_, client)| sound(client)) {
            if held > u64::from(role.capacity) {
                return Err("X1: more is believed to be held than there is");
            }
        }
        let me = &self.clients[index];
        if setup.capacity == 1 && me.believes(now) && me.token < self.highest && !me.broken {
            return Err("X2: a holder's token is below one that was granted before");
        }
        let delay = setup.lock_delay * TICK;
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != index);
        for (_, other) in others {
            if other.lapsed > 0 && now < other.lapsed + delay && !me.broken {
                return Err("lock delay: a new holder too soon after one that did not release");
            }
        }
        Ok(())
    }
}

pub(crate) fn owner_id(owner: u8) -> OwnerId {
    OwnerId(u128::from(owner))
}
