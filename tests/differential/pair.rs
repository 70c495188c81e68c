//! A sequence, run on the server and on `claim.rs` at once.
//!
//! The rules are told what the server can not see or does otherwise, and no more:
//!
//! * Nobody is known to have died.
//! * A lock of which nothing is known is taken by a short script. Its token is one more than the
//!   server's counter if that is good (see [`counted`]), and at least the server's time if not; the
//!   counter goes up whether the lock was free or not.
//! * The server forgets by itself, when the keys of a name end. It must not be before the rules
//!   allow it.
//!
//! A key of Redis is there for the whole millisecond in which it ends. At that one moment a lock of
//! which only the holder's key is left can still be renewed, released and seen, where the rules say
//! that it is over. Nobody else can have it then, so neither is wrong; the sequences step over the
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::claim::{
    Alteration, Answer, Ask, Claim, Grant, Holder, MemoryQueue, OwnerId, PATIENCE, Pause, Refused, Released,
    Seat, State, Step as Stepped, WHOLE, Waiter, Wake, World,
};
use leasehold::engine::{Hint, Renewal, Renewed, View};
use leasehold::name::{Family, Name};

use crate::bench::{Bench, SEATS};
use crate::book::{Book, Checked, DAY, HOUR, Known, MS, Person, micros, same, world};
use crate::sequence::{Action, Pass, Renew, Sequence, Step, Terms, Who};
use crate::servers::FrozenRedis;

/// How often each thing happened.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// What differed, and at which step; past the last if it was at the end.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) step: usize,
    pub(crate) what: String,
}

/// Runs a sequence on both.
pub(crate) async fn run(bench: &mut Bench, sequence: &Sequence, tally: &mut Tally) -> Result<(), Difference> {
    let mut pair = Pair::new(bench, sequence, tally);
    let names: Vec<Name> = pair.books.iter().map(|book| book.name.clone()).collect();
    let reset = pair.bench.reset(&names).await;
    reset.map_err(|what| Difference { step: 0, what })?;
    for (number, step) in sequence.steps.iter().enumerate() {
        pair.step(step).await.map_err(|what| Difference { step: number, what })?;
    }
    let end = pair.end(sequence.tidy).await;
    end.map_err(|what| Difference { step: sequence.steps.len(), what })
}

struct Pair<'a> {
    bench: &'a mut Bench,
    tally: &'a mut Tally,
    seed: u64,
    books: Vec<Book>,
    /// What the server calls each seat, once it was seen.
    seats: [Option<Seat>; SEATS],
    /// Which asking put an owner in the queue, or found it there.
    rounds: BTreeMap<OwnerId, u32>,
    /// Who had to wait for what when it last asked. A client that had to does not try whether the
    /// name is free.
    crowded: BTreeSet<(usize, usize)>,
    /// Until when anything was ever to last.
    latest: u64,
}

fn value_of(value: u8) -> Arc<[u8]> {
    let values: [&[u8]; 4] = [b"", b"first", b"\xff\x00 not text", &[b'x'; 40]];
    values[usize::from(value) % 4].into()
}

fn holder_of(person: usize, label: u8) -> Arc<Holder> {
    let label = ["", "one", "two words ", "drei Wörter hier"][usize::from(label) % 4];
    let pid = u32::try_from(person + 1).expect("small");
    Arc::new(Holder { host: format!("host-{person}.example"), pid, label: label.into() })
}

impl<'a> Pair<'a> {
    fn new(bench: &'a mut Bench, sequence: &Sequence, tally: &'a mut Tally) -> Pair<'a> {
        let seed = sequence.seed;
        let book = |(number, family): (usize, &Family)| Book::new(number, *family);
        let books = sequence.names.iter().enumerate().map(book).collect();
        Pair {
            bench,
            tally,
            seed,
            books,
            seats: [None; SEATS],
            rounds: BTreeMap::new(),
            crowded: BTreeSet::new(),
            latest: 0,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn now(&self) -> u64 {
        self.bench.now()
    }

    async fn step(&mut self, step: &Step) -> Checked {
        if let Pass::Back(_) = step.pass {
            // What is over by now, and was not looked at since, may be forgotten on one side and
            // come back on the other.
            for name in 0..self.books.len() {
                self.inspect()?;
                self.avoid_the_moment(&BTreeSet::from([name]))?;
                self.look(name, 0, u64::MAX).await?;
            }
        }
        self.pass(step.pass);
        self.inspect()?;
        if matches!(step.action, Action::Renew(_) | Action::Release { .. } | Action::Look { .. }) {
            self.avoid_the_moment(&step.action.names())?;
        }
        self.act(&step.action).await?;
        if step.look {
            for name in step.action.names() {
                self.inspect()?;
                self.avoid_the_moment(&BTreeSet::from([name]))?;
                self.look(name, self.books[name].people.len() % SEATS, u64::MAX - 1).await?;
            }
        }
        Ok(())
    }

    /// Moves the server's clock.
    fn pass(&mut self, pass: Pass) {
        let now = self.now();
        let then = match pass {
            Pass::For(millis) => now + millis * MS,
            Pass::ToTheNextEnd(off) => {
                let next = self.books.iter().filter_map(|book| book.known.as_ref()?.next_end(now)).min();
                next.map_or(now, |next| next.saturating_add_signed(off * 1000).max(now))
            }
            // Not to a time before the clients were connected: counters from before that are
            // another story.
            Pass::Back(millis) => {
                self.count("the clock was set back");
                let then = (now - millis * MS).max(FrozenRedis::START);
                self.books.iter_mut().flat_map(|book| &mut book.known).for_each(|known| known.set_back(then));
                then
            }
        };
        self.latest = self.latest.max(now);
        // A counter that is written again lives for a day by the clock of then.
        self.books.iter_mut().for_each(|book| book.counted_since = book.counted_since.min(then));
        self.bench.set_now(then);
    }

    /// Goes on by a millisecond where a lock of which only the holder's key is left ends right now.
    fn avoid_the_moment(&mut self, names: &BTreeSet<usize>) -> Checked {
        let ends_now = |&name: &usize| {
            let book = &self.books[name];
            book.locks() && book.found().holder_left == 0 && !book.found().state
        };
        if names.iter().any(ends_now) {
            self.count("stepped over the moment");
            self.bench.set_now(self.now() + MS);
            self.inspect()?;
        }
        Ok(())
    }

    /// Looks at the keys, and forgets what the server has forgotten.
    fn inspect(&mut self) -> Checked {
        let now = self.now();
        let keys: Vec<[String; 6]> = self.books.iter().map(|book| book.keys.clone()).collect();
        let found = self.bench.inspect(&keys)?;
        for (book, found) in self.books.iter_mut().zip(found) {
            match found.counter {
                // Its state has ended without a word, and with it what was given since it began.
                Some(counter) if found.below && !found.state => book.counter = book.counter.min(counter),
                Some(counter) => same("the counters of tokens", &counter, &book.counter)?,
                None if book.counter == 0 || book.counted_since + DAY <= now => book.counted_since = 0,
                None => return Err("the counter of tokens is gone too early".into()),
            }
            // Without the holder's key a lock is anybody's.
            if book.locks()
                && !found.holder
                && let Some(known) = &book.known
            {
                known.is_free(now)?;
            }
            if !found.holder
                && !found.state
                && let Some(known) = book.known.take()
            {
                known.may_be_forgotten(now)?;
            }
            book.found = Some(found);
        }
        Ok(())
    }

    async fn act(&mut self, action: &Action) -> Checked {
        match *action {
            Action::Ask(ref terms) => self.ask(terms).await,
            Action::Renew(ref renewals) => self.renew(renewals).await,
            Action::Release { name, who, used } => {
                let Some(number) = self.books[name].find(who) else { return Ok(()) };
                let used = self.books[name].people[number].token(used);
                self.release(name, number, used).await
            }
            Action::Downgrade { name, who, weight, token } => {
                let Some(number) = self.books[name].find(who) else { return Ok(()) };
                let token = self.books[name].people[number].token(token);
                self.alter(name, who, Alteration::Downgrade { weight, token }).await
            }
            Action::TryUpgrade { name, who } => self.alter(name, who, Alteration::TryUpgrade).await,
            Action::Upgrade { name, who } => self.alter(name, who, Alteration::Upgrade).await,
            Action::Value { name, who, value } => {
                self.alter(name, who, Alteration::Value(value_of(value))).await
            }
            Action::Resize { name, declared, capacity } => self.resize(name, declared, capacity).await,
            Action::Break { name, seat } => self.break_claims(name, seat).await,
            Action::Look { name, seat, unseen } => self.look(name, seat, unseen).await,
        }
    }

    /// Runs a request by the rules; the answer, what is to be heard of it, and the state after it.
    fn by_the_rules<T>(
        &mut self,
        name: usize,
        request: impl FnOnce(&mut State, &mut MemoryQueue, World<'_>) -> Stepped<T>,
    ) -> (T, Expected, Known) {
        let now = self.now();
        let book = &mut self.books[name];
        let floor = book.found().counter.unwrap_or(0);
        let mut known = book.known.take().unwrap_or_else(|| Known::new(floor, now));
        let before = known.state.change_count();
        let Stepped { answer, wakes } = request(&mut known.state, &mut known.queue, world(now));
        let mut expected = Expected::default();
        for wake in wakes {
            let hint = self.wake(&known, &wake);
            self.count(if matches!(hint, Hint::Wake(_)) { "woken to ask" } else { "woken with a grant" });
            expected.hints[usize::try_from(wake.seat).expect("a seat")].push(hint);
        }
        if known.state.change_count() != before {
            known.changed_at = now;
            self.count("leaders changed");
            expected.hints[0].push(Hint::Changed(self.books[name].name.clone()));
        }
        (answer, expected, known)
    }

    fn wake(&self, known: &Known, wake: &Wake) -> Hint {
        let claim = known.state.claims(0).find(|claim| claim.owner == wake.owner && !claim.confirmed);
        match claim {
            Some(&Claim { owner, token, tokens, .. }) => {
                let round = self.rounds.get(&owner).copied().unwrap_or(0);
                Hint::Granted { owner, grant: Grant { token, tokens }, round }
            }
            // A reader that became the writer, or a waiter that is to be told that it wants too
            // much.
            None => Hint::Wake(wake.owner),
        }
    }

    /// Keeps what is known of a name, or forgets it as the embedded engines do.
    fn keep(&mut self, name: usize, known: Known) {
        let now = self.now();
        let ends = known.state.claims(0).map(|claim| claim.expires + claim.lock_delay);
        self.latest = ends.fold(self.latest, u64::max);
        let book = &mut self.books[name];
        let last = known.state.last_token();
        // Tokens that were not used are given back only where the counter is remembered.
        if last > book.counter && book.counted_since == 0 {
            book.counted_since = now;
        }
        book.counter = last;
        book.known = known.state.retire(now).is_none().then_some(known);
    }

    /// Compares what was heard with what should have been.
    async fn hear(&mut self, expected: Expected) -> Checked {
        let heard = self.bench.heard().await?;
        // Who is woken first comes first; the rest has no order.
        let is_wake = |hint: &Hint| matches!(hint, Hint::Wake(_) | Hint::Granted { .. });
        for (seat, (heard, expected)) in heard.into_iter().zip(expected.hints).enumerate() {
            let (heard_wakes, mut heard): (Vec<Hint>, Vec<Hint>) = heard.into_iter().partition(is_wake);
            let (wakes, mut expected): (Vec<Hint>, Vec<Hint>) = expected.into_iter().partition(is_wake);
            same(&format!("those who are woken at seat {seat}"), &heard_wakes, &wakes)?;
            let in_order = |hint: &Hint| format!("{hint:?}");
            heard.sort_by_key(in_order);
            expected.sort_by_key(in_order);
            same(&format!("what is heard at seat {seat}"), &heard, &expected)?;
        }
        Ok(())
    }

    async fn ask(&mut self, terms: &Terms) -> Checked {
        let name = terms.name;
        let seed = self.seed;
        let book = &mut self.books[name];
        let number = match (terms.who, book.find(terms.who)) {
            (Who::Holder(_) | Who::Waiter(_) | Who::Anybody(_), Some(number)) => number,
            (Who::Newcomer(seat) | Who::Holder(seat) | Who::Waiter(seat) | Who::Anybody(seat), _) => {
                let number = book.people.len();
                book.people.push(Person::new(seed, name, number, seat % SEATS));
                number
            }
        };
        let owner = book.people[number].owner;
        self.lay(name, owner).await?;
        let now = self.now();
        let book = &mut self.books[name];
        let person = &mut book.people[number];
        person.round += 1;
        let seat = person.seat;
        // Whoever is in a hurry is late if the server's clock was moved, and then the rules decide.
        // Where it is not clear whether that is so, nobody is.
        let hurried = terms.hurried && now > FrozenRedis::START + 600_000 * MS;
        let ask = Ask {
            owner: person.owner,
            weight: terms.weight,
            capacity: terms.capacity,
            lease: Duration::from_millis(terms.lease),
            lock_delay: Duration::from_millis(terms.lock_delay),
            tokens: terms.tokens,
            wait: terms.wait,
            answer_within: Duration::from_secs(if hurried { 1 } else { 4_000_000_000 }),
            round: person.round,
            holder: holder_of(number, terms.label),
            value: value_of(terms.value),
            logged: book.name.family() == Family::Election,
        };
        self.latest = self.latest.max(now + (terms.lease + terms.lock_delay) * MS + micros(PATIENCE));
        let tried = book.locks()
            && (ask.weight, ask.capacity, ask.tokens, ask.round) == (WHOLE, WHOLE, 1, 1)
            && ask.lock_delay.is_zero()
            && !hurried
            && !self.crowded.contains(&(seat, name));
        let found = book.found();
        // Where a state has ended without a word the counter still says that there is one.
        let free = tried && !found.holder && !found.state && !found.below;
        let counts = tried && !found.state && !found.below;
        if free {
            self.forget_what_ended(name);
        }
        let counted = counted(self.books[name].found().counter, now);
        let place = (seat, name);
        let seat_number = seat as Seat;
        let waited: Vec<OwnerId> = match &self.books[name].known {
            Some(known) => known.queue.iter().map(|waiter| waiter.owner).collect(),
            None => Vec::new(),
        };
        let (rules, expected, known) = self.by_the_rules(name, |state, queue, world| {
            // It takes the next number even if that is behind the server's time, as it was when
            // that number was now.
            let then = if free { counted.min(now) } else { now };
            if counts && !free {
                state.skip_tokens(counted);
            }
            let until_renewed = Duration::from_secs(u64::from(u32::MAX));
            let lease = if free { until_renewed } else { ask.lease };
            let asked = Ask { lease, ..ask.clone() };
            let Ok(step) = state.ask(queue, &asked, seat_number, World::at(then, world.alive));
            if free {
                state.renew(ask.owner, ask.lease, now);
            }
            step
        });
        let book = &self.books[name];
        let server = self.bench.call(self.bench.engine(seat).acquire(&book.name, &ask)).await?;
        self.same_answer(&server, &rules, &known)?;
        if let Answer::Granted(grant) = rules {
            if free {
                self.count("taken by the short script");
                self.books[name].guessed.insert(grant.token);
            }
            self.books[name].people[number].grant = grant;
        }
        if let Answer::Queued(_) = rules {
            // Whoever joins the queue the short way does not look whether those before it still
            // live.
            let known_still = |owner: &OwnerId| {
                known.queue.iter().any(|waiter| waiter.owner == *owner)
                    || known.state.claims(0).any(|claim| claim.owner == *owner)
            };
            self.books[name].ghosts.extend(waited.into_iter().filter(|owner| !known_still(owner)));
            self.rounds.insert(ask.owner, ask.round);
            self.crowded.insert(place);
        } else {
            self.crowded.remove(&place);
        }
        self.keep(name, known);
        self.hear(expected).await
    }

    /// A lock without a holder's key is free, and whoever takes it starts anew.
    fn forget_what_ended(&mut self, name: usize) {
        let book = &mut self.books[name];
        if let Some(known) = book.known.take() {
            book.ghosts.extend(known.queue.iter().map(|waiter| waiter.owner));
        }
    }

    /// A waiter that had died keeps its place until somebody looks at the queue; if it comes back
    /// before, it has it again. By the rules, whoever took the lock meanwhile has looked.
    async fn lay(&mut self, name: usize, owner: OwnerId) -> Checked {
        if self.books[name].ghosts.contains(&owner) {
            self.count("ghosts laid");
            self.avoid_the_moment(&BTreeSet::from([name]))?;
            self.look(name, 0, u64::MAX).await?;
            self.books[name].ghosts.clear();
            self.inspect()?;
        }
        Ok(())
    }

    fn same_answer(&mut self, server: &Answer, rules: &Answer, known: &Known) -> Checked {
        self.count(match rules {
            Answer::Granted(_) => "granted",
            Answer::Queued(_) => "queued",
            Answer::Busy(_) => "busy",
            Answer::Refused(Refused::Capacity { .. }) => "refused for the capacity",
            Answer::Refused(Refused::Weight { .. }) => "refused for the weight",
            Answer::Refused(Refused::Upgrading) => "refused for an upgrade",
            Answer::Refused(Refused::NotHeld) => "refused as not held",
        });
        // The rules may know of an end that was put off since; the server never does.
        let exact = |pause: &Pause| {
            let exact = known.pause(self.now());
            if pause.at_most > exact {
                return Err(format!("a pause of {:?}, but something ends in {exact:?}", pause.at_most));
            }
            Ok(Pause { at_most: exact })
        };
        let rules = match rules {
            Answer::Queued(pause) => Answer::Queued(exact(pause)?),
            Answer::Busy(pause) => Answer::Busy(exact(pause)?),
            other => other.clone(),
        };
        same("the answers", server, &rules)
    }

    async fn renew(&mut self, renewals: &[Renew]) -> Checked {
        let now = self.now();
        let mut by_seat: [Vec<Renewal>; SEATS] = Default::default();
        let mut verdicts: [Vec<Renewed>; SEATS] = Default::default();
        let mut unswept = BTreeSet::new();
        for &Renew { name, who, lease } in renewals {
            let book = &mut self.books[name];
            let Some(number) = book.find(who) else { continue };
            // With the longest delay that any claim has.
            self.latest = self.latest.max(now + lease * MS + 3 * HOUR);
            let Person { owner, seat, .. } = book.people[number];
            let renewal = Renewal { name: book.name.clone(), owner, lease: Duration::from_millis(lease) };
            let renewed = book.known.as_mut().is_some_and(|known| {
                if known.state.claims(0).any(|claim| claim.expires <= now) {
                    unswept.insert(name);
                }
                known.state.renew(renewal.owner, renewal.lease, now)
            });
            by_seat[seat].push(renewal);
            verdicts[seat].push(if renewed { Renewed::Yes } else { Renewed::Gone });
            self.count(if renewed { "renewed" } else { "gone" });
        }
        for (seat, (renewals, rules)) in by_seat.iter().zip(&verdicts).enumerate() {
            if !renewals.is_empty() {
                let server = self.bench.call(self.bench.engine(seat).renew(renewals)).await?;
                same("the verdicts", &server, rules)?;
            }
        }
        self.hear(Expected::default()).await?;
        // By the rules a renewal takes away what is over, on the server it does not. Nobody can
        // tell until the name is asked for by one who holds it, and whether the queue is then
        // looked at does not matter.
        for name in unswept {
            self.inspect()?;
            self.look(name, 0, u64::MAX).await?;
        }
        Ok(())
    }

    async fn release(&mut self, name: usize, number: usize, used: u64) -> Checked {
        let Person { owner, seat, .. } = self.books[name].people[number];
        self.lay(name, owner).await?;
        let (rules, expected, known) = self.by_the_rules(name, |state, queue, world| {
            let Ok(step) = state.release(queue, owner, used, world);
            step
        });
        self.count(match rules {
            Released::Claim => "a claim released",
            Released::Place => "a place released",
            Released::Nothing => "nothing released",
        });
        let book = &self.books[name];
        let server = self.bench.call(self.bench.engine(seat).release(&book.name, owner, used)).await?;
        same("what was released", &server, &rules)?;
        self.keep(name, known);
        self.hear(expected).await
    }

    async fn alter(&mut self, name: usize, who: Who, alteration: Alteration) -> Checked {
        let Some(number) = self.books[name].find(who) else { return Ok(()) };
        let Person { owner, seat, .. } = self.books[name].people[number];
        let (rules, expected, known) = self.by_the_rules(name, |state, queue, world| {
            let Ok(step) = state.alter(queue, owner, alteration.clone(), world);
            step
        });
        self.count(match alteration {
            Alteration::Downgrade { .. } => "asked to downgrade",
            Alteration::TryUpgrade => "tried to upgrade",
            Alteration::Upgrade => "asked to upgrade",
            Alteration::Value(_) => "asked to change the value",
        });
        let book = &self.books[name];
        let server = self.bench.call(self.bench.engine(seat).alter(&book.name, owner, alteration)).await?;
        self.same_answer(&server, &rules, &known)?;
        if let Answer::Granted(grant) = rules {
            self.books[name].people[number].grant = grant;
        }
        self.keep(name, known);
        self.hear(expected).await
    }

    async fn resize(&mut self, name: usize, declared: u32, capacity: u32) -> Checked {
        let (rules, expected, known) = self.by_the_rules(name, |state, queue, world| {
            let Ok(step) = state.resize(queue, declared, capacity, world);
            step
        });
        self.count(if rules.is_ok() { "resized" } else { "not resized" });
        let book = &self.books[name];
        let server = self.bench.call(self.bench.engine(0).resize(&book.name, declared, capacity)).await;
        match (server, rules) {
            (Ok(()), Ok(())) => self.books[name].resized = true,
            (Err(text), Err(Refused::Capacity { has, asked }))
                if text.contains(&format!("in use with capacity {has}, not {asked}")) => {}
            (server, rules) => return Err(format!("resize: server {server:?}, rules {rules:?}")),
        }
        self.keep(name, known);
        self.hear(expected).await
    }

    async fn break_claims(&mut self, name: usize, seat: usize) -> Checked {
        let (rules, mut expected, known) = self.by_the_rules(name, |state, queue, world| {
            let Ok(step) = state.break_claims(queue, world);
            step
        });
        for claim in &rules {
            self.count("broken");
            expected.hints[usize::try_from(claim.seat).expect("a seat")].push(Hint::Broken(claim.owner));
        }
        let book = &self.books[name];
        let server = self.bench.call(self.bench.engine(seat).break_claims(&book.name)).await?;
        self.same_claims(name, &server, &rules)?;
        self.keep(name, known);
        self.hear(expected).await
    }

    /// Looks at a name on both sides. `unseen` is how many of the last changes of leadership are
    /// news.
    async fn look(&mut self, name: usize, seat: usize, unseen: u64) -> Checked {
        let now = self.now();
        let ((), expected, known) = self.by_the_rules(name, |state, queue, world| {
            let Ok(step) = state.sweep(queue, world);
            step
        });
        let seen = known.state.change_count().saturating_sub(unseen);
        let book = &self.books[name];
        let view = self.bench.call(self.bench.engine(seat).look(&book.name, seen)).await?;
        self.same_view(name, &view, &known, seen, now)?;
        self.keep(name, known);
        self.hear(expected).await
    }

    fn same_view(&mut self, name: usize, view: &View, known: &Known, seen: u64, now: u64) -> Checked {
        let Known { state, queue, .. } = known;
        let claims: Vec<Claim> = view.claims.iter().map(|held| held.claim.clone()).collect();
        let by_the_rules: Vec<Claim> = state.claims(now).cloned().collect();
        self.same_claims(name, &claims, &by_the_rules)?;
        for held in &view.claims {
            same("what is left of leases", &micros(held.ends_in), &(held.claim.expires - now))?;
        }
        let mut waiters: Vec<Waiter> = view.waiters.iter().map(|waiting| waiting.waiter.clone()).collect();
        let by_the_rules: Vec<Waiter> = queue.iter().cloned().collect();
        for (waiter, rules) in waiters.iter_mut().zip(&by_the_rules) {
            waiter.seat = self.seat(waiter.seat, rules.seat)?;
        }
        same("the waiters", &waiters, &by_the_rules)?;
        same("the numbers of waiters", &view.waiting, &state.waiting())?;
        same("the times closed", &micros(view.closed_for), &state.closed_until().saturating_sub(now))?;
        same("the changes of leadership", &view.changes, &state.changes(seen))?;
        same("the numbers of changes", &view.change_count, &state.change_count())?;
        // A name that nobody uses may be known no more.
        if view.capacity != 0 || state.retire(now).is_none() {
            same("the capacities", &view.capacity, &state.capacity())?;
        }
        Ok(())
    }

    fn same_claims(&mut self, name: usize, server: &[Claim], rules: &[Claim]) -> Checked {
        let mut server = server.to_vec();
        for (claim, rules) in server.iter_mut().zip(rules) {
            claim.seat = self.seat(claim.seat, rules.seat)?;
            if self.books[name].guessed.contains(&rules.token) {
                claim.since = rules.since;
            }
        }
        same("the claims", &server.as_slice(), &rules)
    }

    /// Our number of the seat that the server says, which must always be the same.
    fn seat(&mut self, server: Seat, rules: Seat) -> Checked<Seat> {
        let known = self.seats[usize::try_from(rules).expect("a seat")].get_or_insert(server);
        same("the seats", &server, known)?;
        Ok(rules)
    }

    /// Everybody leaves, with or without a word: nothing is kept for ever.
    async fn end(&mut self, tidy: bool) -> Checked {
        for name in 0..if tidy { self.books.len() } else { 0 } {
            for number in 0..self.books[name].people.len() {
                self.inspect()?;
                self.avoid_the_moment(&BTreeSet::from([name]))?;
                self.release(name, number, 0).await?;
            }
        }
        self.inspect()?;
        self.no_key_for_ever()?;
        let last = self.latest.max(self.now());
        self.bench.set_now(last + DAY + HOUR + MS);
        let resized: BTreeSet<String> =
            self.books.iter().filter(|book| book.resized).flat_map(|book| book.keys.clone()).collect();
        let left: Vec<_> = self.bench.keys().into_iter().filter(|(key, _)| !resized.contains(key)).collect();
        same("what is left after a day", &left, &Vec::new())?;
        self.no_key_for_ever()?;
        self.bench.set_now(last + 30 * DAY + HOUR + MS);
        same("what is left after a month", &self.bench.keys(), &Vec::new())
    }

    fn no_key_for_ever(&mut self) -> Checked {
        let for_ever: Vec<_> = self.bench.keys().into_iter().filter(|(_, left)| *left == -1).collect();
        same("what is kept for ever", &for_ever, &Vec::new())
    }
}

/// The number that the short script counts: one more than the counter if that is good, and at least
/// the server's time if there is none, or it is half a day old, or above the time.
fn counted(counter: Option<u64>, now: u64) -> u64 {
    match counter.map(|counter| counter + 1) {
        Some(number) if (now - DAY / 2..=now).contains(&number) => number,
        number => number.unwrap_or(0).max(now),
    }
}

/// What is to be heard, by seat.
#[derive(Default)]
struct Expected {
    hints: [Vec<Hint>; SEATS],
}
