//! The node of a task: it looks what there is to do, and begins what it may begin.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::occurrence::{Asking, Occurrence, Run, Starting};
use super::plan::{Misfire, Policy, micros};
use super::record::note;
use super::rule::{Answer, Ask, Held, Setup};
use super::task::{LONGEST_HISTORY, Overlap, Task};
use crate::claim::Micros;
use crate::clock::{Moment, sleep_until};
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::token::Token;

/// At most this many late occurrences run one after the other.
const MOST_LATE: u32 = 500;
/// A node that has nothing to do looks this often whether that is still so.
const CHECK: Duration = Duration::from_secs(10);
/// A node that waits for the end of another one's run looks after a quarter of the lease, but not
/// more often or less often than this.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// And not less often than this if that run is told to stop.
const STOPPING: Duration = Duration::from_millis(100);
/// A node that lives long puts its task on the list of tasks again this often.
const LIST_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// Somebody was faster.
const RACED: Duration = Duration::from_millis(5);
/// The engine is away.
const AWAY: Duration = Duration::from_millis(200);

impl Task {
    /// Waits for the next occurrence that this node is to run.
    ///
    /// For those who run the work in a way of their own; [`Task::run`] is built on it.
    ///
    /// # Errors
    ///
    /// As [`Task::run`]. While the engine is away, it waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: an occurrence that was taken on the way is given
    /// to another node.
    pub async fn next(&self) -> Result<Run> {
        let asking = self.asking()?;
        let clock = &*self.schedule.client.inner.clock;
        loop {
            let pause = match self.look(&asking).await {
                Ok(Turn::Ours(run)) => return Ok(*run),
                Ok(Turn::In(pause)) => pause,
                Err(Error::Unavailable { .. }) => AWAY,
                Err(error) => return Err(error),
            };
            sleep_until(clock, clock.now() + pause).await;
        }
    }

    fn asking(&self) -> Result<Asking> {
        if let Misfire::All { at_most } = self.misfire
            && at_most > MOST_LATE
        {
            return Err(Error::invalid(format!(
                "{at_most} late occurrences are too many to run one after the other: up to {MOST_LATE}"
            )));
        }
        if self.history == 0 || self.history > LONGEST_HISTORY {
            return Err(Error::invalid(format!(
                "a history of {} is out of range: 1 to {LONGEST_HISTORY}",
                self.history
            )));
        }
        let client = &self.schedule.client;
        let offset = match micros(self.jitter) {
            0 => 0,
            most => hash(self.cell.as_str()) % most,
        };
        let policy = Policy { grace: micros(self.grace), misfire: self.misfire, offset };
        let setup = Setup {
            timing: self.timing.clone(),
            policy,
            if_lost: self.if_lost,
            replaces: self.overlap == Overlap::Replace,
            history: self.history,
            node: note(&client.inner.holder.to_string()),
        };
        Ok(Asking { client: client.clone(), cell: self.cell.clone(), setup: Arc::new(setup) })
    }

    /// Looks once, and begins what there is to begin.
    async fn look(&self, asking: &Asking) -> Result<Turn> {
        let clock = &*self.schedule.client.inner.clock;
        let list_at = self.list_at.load(Ordering::Acquire);
        let Answer::Look { due, runs, wait } = asking.ask(Ask::Look { joins: list_at == 0 }).await? else {
            return Ok(Turn::In(CHECK));
        };
        if clock.now().as_micros() >= list_at {
            self.schedule.enlist().await?;
            self.list_at.store((clock.now() + LIST_EVERY).as_micros(), Ordering::Release);
        }
        let busy = due.is_some() || !runs.is_empty();
        let slots: Vec<Option<Micros>> = match self.overlap {
            Overlap::Forbid | Overlap::Replace => busy.then_some(None).into_iter().collect(),
            // Those that run first: one of them may have been left by a node that died.
            Overlap::Allow => runs.into_iter().chain(due).map(Some).collect(),
        };
        let mut raced = false;
        for slot in slots {
            match self.begin(asking, slot).await? {
                Begun::Run(run) => return Ok(Turn::Ours(run)),
                Begun::Nothing => raced = true,
                Begun::Taken => {}
            }
        }
        let now = clock.now();
        let mut pause = spread(CHECK, now);
        if let Some(wait) = wait {
            pause = pause.min(Duration::from_micros(wait));
        }
        if busy {
            let longest = if self.overlap == Overlap::Replace { STOPPING } else { POLL.1 };
            pause = pause.min(spread((self.lease / 4).clamp(POLL.0, longest), now));
        }
        Ok(Turn::In(if raced { RACED } else { pause }))
    }

    /// Begins an occurrence, if its lock is free and there is something to run.
    async fn begin(&self, asking: &Asking, instant: Option<Micros>) -> Result<Begun> {
        let client = &self.schedule.client;
        let mut lock = String::from("schedule/");
        cells::part(&self.schedule.name, &mut lock);
        if let Some(instant) = instant {
            // No name of a task has this sign.
            lock.push('=');
            lock.push_str(&instant.to_string());
        }
        let Some(guard) = client.mutex(lock)?.lease(self.lease).try_lock().await? else {
            return Ok(Begun::Taken);
        };
        let held = Held { token: guard.token().get(), instant };
        let mut starting = Starting { asking: asking.clone(), held, guard: Some(guard), armed: true };
        let Some(guard) = &starting.guard else { return Ok(Begun::Nothing) };
        let answer = asking.repeat(&Ask::Begin(held), guard).await?;
        if !guard.is_held() {
            // We were paused on the way. It was not started, and another node may start it.
            return Ok(Begun::Nothing);
        }
        starting.armed = false;
        let Some(guard) = starting.guard.take() else { return Ok(Begun::Nothing) };
        let Answer::Run { instant, attempt, now } = answer else {
            // Held for nothing; if that is not heard, others wait for the end of the lease.
            guard.release().await.ok();
            return Ok(Begun::Nothing);
        };
        let occurrence = Occurrence {
            task: Arc::clone(&self.schedule.name),
            instant,
            token: Token::granted(held.token),
            attempt,
            behind: Duration::from_micros(now.saturating_sub(instant)),
        };
        Ok(Begun::Run(Box::new(Run { asking: asking.clone(), held, guard, occurrence })))
    }
}

/// What there is to do for this node.
enum Turn {
    Ours(Box<Run>),
    /// Nothing yet; look again after this.
    In(Duration),
}

/// What became of an attempt to begin.
enum Begun {
    Run(Box<Run>),
    /// There is nothing to run after all.
    Nothing,
    /// Somebody else has the lock.
    Taken,
}

/// Up to half as long again, so that nodes do not all look at the same moment.
fn spread(time: Duration, now: Moment) -> Duration {
    let half = micros(time / 2).max(1);
    let number = now.as_micros().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    time + Duration::from_micros(number % half)
}

/// FNV-1a: every version and every node must come to the same number.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
