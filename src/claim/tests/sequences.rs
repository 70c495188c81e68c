//! Generated sequences of requests, with time moving and seats dying: what holds after every one of
//! them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const OWNERS: u8 = 6;

#[derive(Clone, Debug)]
enum Request {
    Ask { number: u8, weight: u32, wait: bool },
    Renew { number: u8, seconds: u64 },
    Release { number: u8 },
    Downgrade { number: u8 },
    Upgrade { number: u8 },
    Resize { capacity: u32 },
    Die { number: u8 },
    Sweep,
    Break,
    Pass { millis: u64 },
}

fn request() -> impl Strategy<Value = Request> {
    let number = || 1..=OWNERS;
    prop_oneof![
        8 => (number(), 1..=4u32, any::<bool>())
            .prop_map(|(number, weight, wait)| Request::Ask { number, weight, wait: wait || weight > 1 }),
        2 => (number(), 1..=10u64).prop_map(|(number, seconds)| Request::Renew { number, seconds }),
        5 => number().prop_map(|number| Request::Release { number }),
        1 => number().prop_map(|number| Request::Downgrade { number }),
        1 => number().prop_map(|number| Request::Upgrade { number }),
        1 => (1..=4u32).prop_map(|capacity| Request::Resize { capacity }),
        1 => number().prop_map(|number| Request::Die { number }),
        1 => Just(Request::Sweep),
        1 => Just(Request::Break),
        4 => (0..4000u64).prop_map(|millis| Request::Pass { millis }),
    ]
}

/// What a name of capacity 4 is held to.
struct Checked {
    name: Name,
    /// The highest token granted so far.
    highest: u64,
    /// A cut may leave more held than there is, as long as no more is added.
    cut: bool,
}

impl Request {
    fn sender(&self) -> Option<Seat> {
        match *self {
            Request::Ask { number, .. }
            | Request::Renew { number, .. }
            | Request::Release { number }
            | Request::Downgrade { number }
            | Request::Upgrade { number } => Some(Seat::from(number)),
            _ => None,
        }
    }
}

impl Checked {
    fn ask(number: u8, weight: u32, wait: bool) -> Ask {
        let lock_delay = Duration::from_millis(if number == 1 { 1500 } else { 0 });
        Ask { wait, lock_delay, tokens: u32::from(number), ..of(number, weight, 4) }
    }

    /// Runs a request; whom it woke, and who asked.
    fn run(&mut self, request: &Request) -> (Vec<Wake>, Option<u8>) {
        let name = &mut self.name;
        match *request {
            Request::Ask { number, weight, wait } => {
                (name.ask(&Checked::ask(number, weight, wait)).wakes, Some(number))
            }
            Request::Renew { number, seconds } => {
                name.state.renew(owner(number), Duration::from_secs(seconds), name.now);
                (Vec::new(), Some(number))
            }
            Request::Release { number } => {
                let step = name.with(|state, queue, world| state.release(queue, owner(number), 0, world));
                (step.unwrap().wakes, Some(number))
            }
            Request::Downgrade { number } => (name.downgrade(number, 1).wakes, Some(number)),
            Request::Upgrade { number } => (name.alter(number, Alteration::Upgrade).wakes, Some(number)),
            Request::Resize { capacity } => {
                self.cut = true;
                let step = name.with(|state, queue, world| state.resize(queue, 4, capacity, world));
                (step.unwrap().wakes, None)
            }
            Request::Die { number } => {
                name.dead.push(Seat::from(number));
                (Vec::new(), None)
            }
            Request::Sweep => (name.with(State::sweep).unwrap().wakes, None),
            Request::Break => (name.with(State::break_claims).unwrap().wakes, None),
            Request::Pass { millis } => {
                name.now += millis * 1000;
                (Vec::new(), None)
            }
        }
    }

    fn check(&mut self, request: &Request) {
        // The dead send nothing.
        if request.sender().is_some_and(|seat| self.name.dead.contains(&seat)) {
            return;
        }
        let held = |name: &Name| -> Vec<_> { name.state.claims.iter().map(|c| (c.owner, c.token)).collect() };
        let used_before = self.name.state.used;
        let line: Vec<_> = self.name.queue.iter().cloned().collect();
        let before = held(&self.name);
        let (wakes, asker) = self.run(request);
        let Name { state, queue, now, dead } = &self.name;
        let now = *now;

        let sum: u64 = state.claims.iter().map(|claim| u64::from(claim.weight)).sum();
        assert_eq!(state.used, sum, "used is the sum of the weights");
        assert!(
            state.used <= u64::from(state.capacity) || (self.cut && state.used <= used_before),
            "more than there is only after a cut, and then no more is added"
        );
        assert_eq!(state.waiting as usize, queue.iter().count(), "the waiters are counted");
        assert!(state.claims.iter().all(|claim| claim.expires >= state.next_expiry), "next_expiry is sound");
        assert!(state.claims.is_sorted_by_key(|claim| claim.owner), "claims are sorted");

        let fresh: Vec<_> = held(&self.name).into_iter().filter(|claim| !before.contains(claim)).collect();
        for (_, token) in &fresh {
            assert!(*token > self.highest, "tokens rise");
        }
        let token_of = |owner| fresh.iter().find(|(other, _)| *other == owner).map(|(_, token)| *token);
        let served: Vec<_> = line.iter().filter_map(|waiter| token_of(waiter.owner)).collect();
        assert!(served.is_sorted_by(|a, b| a < b), "tokens follow the queue");
        self.highest = fresh.iter().map(|(_, token)| *token).max().unwrap_or(self.highest).max(self.highest);

        // First come, first served: who still waits came after everybody who was served.
        let still = |waiter: &Waiter| queue.iter().any(|other| other.owner == waiter.owner);
        let last_served = line.iter().rposition(|waiter| token_of(waiter.owner).is_some());
        let first_waiting = line.iter().position(still);
        if let (Some(served), Some(waiting)) = (last_served, first_waiting) {
            assert!(served < waiting, "nobody is served before one that came first");
        }
        let newcomer = asker.map(owner).filter(|asker| line.iter().all(|waiter| waiter.owner != *asker));
        if newcomer.is_some_and(|asker| token_of(asker).is_some() && before.iter().all(|(o, _)| *o != asker))
        {
            assert!(first_waiting.is_none(), "a newcomer stands at the end");
        }

        for wake in &wakes {
            let weight =
                line.iter().find(|waiter| waiter.owner == wake.owner).map_or(0, |waiter| waiter.weight);
            let holds = state.position(wake.owner).is_ok();
            assert!(
                holds || weight > state.capacity,
                "who is woken holds, or is to be told that it is too big"
            );
        }
        self.check_nobody_waits_for_nothing(request, &before, dead, now);
    }

    fn check_nobody_waits_for_nothing(
        &self,
        request: &Request,
        before: &[(OwnerId, u64)],
        dead: &[Seat],
        now: Micros,
    ) {
        let state = &self.name.state;
        // A renewal does not look at the queue, nor does a holder that asks again, nor the passing
        // of time.
        let looks = match *request {
            Request::Ask { number, .. } => before.iter().all(|(other, _)| *other != owner(number)),
            Request::Renew { .. } | Request::Die { .. } | Request::Pass { .. } => false,
            _ => true,
        };
        // An ask that is refused at once changed nothing.
        let refused = matches!(*request, Request::Ask { weight, .. } if weight > state.capacity);
        if !looks || refused {
            return;
        }
        if let Some(first) = self.name.queue.iter().next() {
            assert!(first.alive_until > now && !dead.contains(&first.seat), "the first in the queue lives");
            assert!(
                !state.admits(first.weight, now),
                "the first in the queue does not wait for what is free"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_after_every_request(requests in vec(request(), 1..60)) {
        let mut checked = Checked { name: Name::new(), highest: 0, cut: false };
        for request in &requests {
            checked.check(request);
        }
    }

    /// What an SQL engine does with a name that nobody uses: it asks at time 0 and adds the time.
    #[test]
    fn an_idle_name_is_as_good_as_none(requests in vec(request(), 1..30), wait in 0..10 * SECOND, weight in 1..=4u32) {
        let mut checked = Checked { name: Name::new(), highest: 0, cut: false };
        for request in &requests {
            checked.check(request);
            let Some(idle_from) = checked.name.state.idle_from() else { continue };
            let mut name = Name { state: checked.name.state.clone(), queue: MemoryQueue::default(), ..Name::new() };
            // Tokens that are ahead of the clock need the rule.
            name.now = idle_from.max(checked.name.now).max(name.state.last) + wait;
            let ask = Checked::ask(9, weight, true);
            let mut new = Name { state: State::new(0), now: 0, ..Name::new() };
            let (Answer::Granted(ruled), Answer::Granted(mut moved)) = (name.ask(&ask).answer, new.ask(&ask).answer)
            else {
                panic!("an idle name is free");
            };
            moved.token += name.now;
            new.state.shift(name.now);
            // A name that was used before may have given the very token that is the time.
            prop_assert!(moved.token == ruled.token || moved.token == ruled.token + 1);
            prop_assert_eq!(moved.tokens, ruled.tokens);
            let claims = |state: &State| -> Vec<Claim> {
                state.claims.iter().map(|claim| Claim { token: 0, ..claim.clone() }).collect()
            };
            prop_assert_eq!(claims(&new.state), claims(&name.state));
            prop_assert_eq!(new.state.idle_from(), name.state.idle_from());
            prop_assert_eq!(new.state.waiting, 0);
            prop_assert_eq!((new.state.capacity, new.state.used), (name.state.capacity, name.state.used));
        }
    }

    /// Times and tokens are on one number line: it does not matter where it starts.
    #[test]
    fn what_is_decided_earlier_and_moved_is_the_same(requests in vec(request(), 1..60), offset in 1..SECOND * 1000) {
        let mut early = Checked { name: Name::new(), highest: 0, cut: false };
        let mut late = Checked { name: Name::new(), highest: 0, cut: false };
        late.name.now += offset;
        late.name.state.skip_tokens(offset);
        for request in &requests {
            prop_assert_eq!(early.run(request), late.run(request));
            let mut moved = early.name.state.clone();
            moved.shift(offset);
            prop_assert_eq!(&moved, &late.name.state);
        }
    }

    #[test]
    fn everything_ends_by_itself(requests in vec(request(), 1..60)) {
        let mut checked = Checked { name: Name::new(), highest: 0, cut: false };
        requests.iter().for_each(|request| checked.check(request));
        let mut name = checked.name;
        // Everybody stops. A stranger that looks every half second gets in after a lease and a
        // confirmation.
        let capacity = name.state.capacity().max(1);
        let stranger = of(99, capacity, capacity);
        let limit = LEASE.max(PATIENCE) + CONFIRM + Duration::from_millis(1500);
        let stop = name.now + micros(limit);
        while !matches!(name.ask(&stranger).answer, Answer::Granted(_)) {
            name.now += SECOND / 2;
            prop_assert!(name.now <= stop, "not free in time");
        }
    }
}
