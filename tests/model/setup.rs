//! What is explored: how many clients, what they want, what may go wrong, and which rule is broken
//! on purpose.

use leasehold::claim::Micros;

/// The step in which time moves. A hand-over must be confirmed within two of them, and a waiter
/// that says nothing is believed to live for a little more than three.
pub(crate) const TICK: Micros = 1_500_000;

/// Where the engine's clock stands at first: far above every number that is not a time or a token.
pub(crate) const START: Micros = 1 << 50;

/// Tokens that are far ahead of the clock, as after a block was reserved or the clock was set back.
pub(crate) const AHEAD: u64 = 1 << 60;

/// One client.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    /// What it may ask for.
    pub(crate) weights: &'static [u32],
    /// What it believes the capacity to be.
    pub(crate) capacity: u32,
    /// It joins the queue.
    pub(crate) waits: bool,
    /// It turns from reader to writer and back.
    pub(crate) upgrades: bool,
}

/// A small world, to be explored in full or to a depth.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) clients: &'static [Role],
    pub(crate) capacity: u32,
    /// In ticks.
    pub(crate) lease: u64,
    /// In ticks.
    pub(crate) lock_delay: u64,
    /// How many tokens are reserved with a grant, to be passed on inside the client.
    pub(crate) tokens: u32,
    /// How many messages can be under way at once.
    pub(crate) messages: usize,
    /// How many requests may arrive twice.
    pub(crate) duplicates: u8,
    /// How many clients may die.
    pub(crate) deaths: u8,
    /// How many times an operator may break the name.
    pub(crate) breaks: u8,
    /// The engine learns of a death.
    pub(crate) sees_death: bool,
    /// Clients ask and renew again before they were answered.
    pub(crate) impatient: bool,
    /// Clients renew.
    pub(crate) renews: bool,
    /// The record of an idle name is thrown away.
    pub(crate) retires: bool,
    /// Tokens start ahead of the clock.
    pub(crate) ahead: bool,
    /// From every state, if all goes well from there on, everybody gets what it waits for.
    pub(crate) serves_all: bool,
    /// The rule that is broken on purpose.
    pub(crate) bug: Option<Bug>,
    /// What must be seen on the way, or the exploration proves nothing.
    pub(crate) sights: &'static [Sight],
    /// Steps from the start, on each change and on demand.
    pub(crate) depth: [u32; 2],
}

impl Setup {
    pub(crate) fn lease(&self) -> Micros {
        self.lease * TICK
    }

    pub(crate) fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// Something worth having seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Held,
    /// One holder after another.
    Succession,
    /// A claim ended by time.
    Expiry,
    /// The next in the queue was granted by another's request.
    HandOver,
    /// A waiter that was handed the name said so.
    Confirmed,
    /// A waiter that no longer lived was passed over.
    PassedOver,
    Renewed,
    /// A renewal came too late.
    RenewedTooLate,
    /// A grant was heard of after its deadline.
    LateReply,
    /// A release found nothing of its owner's.
    StaleRelease,
    /// A place in the queue was given up.
    LeftQueue,
    /// Two at once.
    Shared,
    /// One took more than one.
    Heavy,
    Upgraded,
    /// A second upgrader was refused.
    UpgradeRefused,
    Downgraded,
    /// A token was passed on inside a client.
    PassedOn,
    /// Nobody got in although nobody held.
    Closed,
    Retired,
    Broken,
    /// What a dead seat held was taken away.
    Buried,
    CapacityRefused,
    Repeated,
}

/// The set of what was seen.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sights(u32);

impl Sights {
    pub(crate) fn note(&mut self, sight: Sight) {
        self.0 |= 1 << sight as u32;
    }

    pub(crate) fn has(self, sight: Sight) -> bool {
        self.0 & (1 << sight as u32) != 0
    }
}

/// Broken designs, each of which somebody has shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The deadline counts from the reply and not from the send.
    DeadlineFromReply,
    /// The same for renewals.
    RenewalFromReply,
    /// A grant that is heard of after its deadline is taken for a grant.
    LateReplyAccepted,
    /// A holder whose deadline has passed believes again when a renewal is answered with yes.
    LateRenewalRevives,
    /// A holder believes until it is told otherwise.
    NoDeadline,
    /// The client believes in its claim until its release is answered.
    BelievesWhileReleasing,
    /// `DEL` without a look at the owner.
    ReleaseOfAnyone,
    /// A renewal of what is gone makes it anew.
    RenewalRecreates,
    /// A renewal extends whoever holds.
    RenewalOfAnyone,
    /// A claim whose time is over is renewed if nobody has come since.
    RenewalOfExpired,
    /// The counter is deleted together with the record.
    CounterDeleted,
    /// A hand-over inside the client goes on under the same token.
    TokenUsedTwice,
    /// A hand-over inside the client counts the token up without having reserved it.
    TokenNotReserved,
    /// The release does not tell which of the reserved tokens were used.
    UseNotTold,
    /// Woken, a waiter believes that it holds.
    NoRecheck,
    /// A hand-over is a full lease, whether the new owner heard of it or not.
    HandOverUnconfirmed,
    /// Everybody is judged by the capacity that he brings.
    CapacityMixed,
    /// Waiters stay in the queue until they leave it.
    DeadWaiterKept,
    /// The name is handed to a process that is known to be gone.
    DeadSeatServed,
    /// Two readers wait for each other to go.
    TwoUpgraders,
    /// Last come, first served.
    Lifo,
    /// Asking again sends a waiter to the end of the queue.
    RequeuedOnPoll,
    /// Expiry is judged by the asker's wall clock.
    AskersClock,
    /// `SETNX`, then `EXPIRE`.
    ExpirySetLater,
    /// After an expiry the name is open at once.
    LockDelayForgotten,
    /// One owner for all attempts of a client.
    OwnerReused,
    /// A downgrade that was delayed is obeyed although the owner has become the writer again since.
    LateDowngrade,
}
