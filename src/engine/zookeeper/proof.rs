//! Until when a session lives for sure.
//!
//! The leader ends a session that it has not heard of for the session's timeout. But it hears of it
//! through the server that the client is connected to, with a delay: a server tells the leader who
//! was active whenever the leader pings it, which is every half tick. A server that is cut off from
//! its leader goes on answering pings. So neither the answer to a ping nor one answered write says
//! how much of the timeout is left. Two writes do:
//!
//! * A write that was answered has reached the leader while the session lived.
//! * If it was sent more than half a tick after the answer to an earlier one, the leader has pinged
//!   the server in between, and has heard that the session was active when the earlier one was
//!   sent.
//!
//! So the session lives at least for its timeout from the *earlier* write. The servers do not say
//! how long a tick is; a timeout has at least two of them. A session that nobody uses is proved
//! too, less often: one write after a long silence would prove nothing to whoever comes then.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// What is known of a session's time.
#[derive(Debug)]
pub(super) struct Proof {
    timeout: Duration,
    /// The servers' clocks may be faster than ours.
    lives: Duration,
    good_until: Moment,
    /// Writes that were answered: when they were sent, and when the answer was there.
    answered: VecDeque<(Moment, Moment)>,
}

impl Proof {
    /// A session that was asked for at that moment: its timeout counts from when it was made.
    pub(super) fn new(asked: Moment, timeout: Duration) -> Proof {
        let lives = timeout - timeout / 100;
        Proof { timeout, lives, good_until: asked + lives, answered: VecDeque::new() }
    }

    /// Half a tick at most, and some time for messages on their way.
    fn apart(&self) -> Duration {
        self.timeout * 3 / 10
    }

    /// How often to write: while it is used, so that it is always good for half of its timeout.
    pub(super) fn write_every(&self, used: bool) -> Duration {
        if used { self.timeout / 10 } else { self.timeout / 5 }
    }

    /// Notes a write by the session that was answered.
    pub(super) fn answered(&mut self, sent: Moment, now: Moment) {
        let limit = sent - self.apart();
        while let Some((earlier, answered)) = self.answered.front().copied() {
            if answered > limit {
                break;
            }
            self.good_until = self.good_until.max(earlier + self.lives);
            self.answered.pop_front();
        }
        // A few are enough, at a distance.
        let is_apart = self.answered.back().is_none_or(|(last, _)| sent.since(*last) >= self.timeout / 40);
        if is_apart {
            self.answered.push_back((sent, now));
        }
    }

    /// The session lives at least until then, unless somebody closes it.
    pub(super) fn good_until(&self) -> Moment {
        self.good_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_micros(1_000_000_000 + millis * 1000)
    }

    #[test]
    fn a_write_proves_the_one_before_it() {
        let mut proof = Proof::new(at(0), Duration::from_secs(10));
        assert_eq!(proof.good_until(), at(9900));
        proof.answered(at(1000), at(1010));
        assert_eq!(proof.good_until(), at(9900), "one write says nothing of the timeout");
        proof.answered(at(2000), at(2010));
        assert_eq!(proof.good_until(), at(9900), "not even half a tick has passed");
        proof.answered(at(4100), at(4110));
        assert_eq!(proof.good_until(), at(10_900));
        proof.answered(at(5100), at(5110));
        assert_eq!(proof.good_until(), at(11_900));
    }

    #[test]
    fn one_write_after_a_long_silence_proves_nothing() {
        let mut proof = Proof::new(at(0), Duration::from_secs(10));
        proof.answered(at(100_000), at(100_010));
        assert_eq!(proof.good_until(), at(9900));
        proof.answered(at(104_000), at(104_010));
        assert_eq!(proof.good_until(), at(109_900));
    }

    /// Writes for a minute. How long it is good for, at least, when the next one is answered.
    fn shortest(used: bool) -> u64 {
        let mut proof = Proof::new(at(0), Duration::from_secs(10));
        let every = u64::try_from(proof.write_every(used).as_millis()).unwrap();
        let times = (0..60_000).step_by(usize::try_from(every).unwrap());
        let left = times.map(|now| {
            proof.answered(at(now), at(now + 50));
            assert!(proof.answered.len() < 8, "it does not grow");
            u64::try_from(proof.good_until().since(at(now + every)).as_millis()).unwrap()
        });
        left.min().unwrap()
    }

    #[test]
    fn a_session_is_good_for_half_of_its_timeout_while_it_is_used() {
        assert!(shortest(true) >= 4500, "{}", shortest(true));
    }

    #[test]
    fn whoever_begins_to_use_a_session_has_a_quarter_of_its_timeout() {
        assert!(shortest(false) >= 2500, "{}", shortest(false));
    }
}
