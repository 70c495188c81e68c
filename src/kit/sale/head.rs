//! The head of a shard: the terms of the sale, and where its units are.

use std::time::Duration;

use super::bucket::State;
use super::terms::Terms;
use crate::claim::Micros;
use crate::engine::{CellValue, Write};
use crate::kit::bytes::{Reader, Writer};

const TAG: u8 = 0x81;
const OPEN: u8 = 0;
const REBUILDING: u8 = 1;
const FORGOTTEN: u8 = 2;
/// Two numbers below this have a sum that Lua holds exactly.
pub(super) const LARGEST: u64 = 1 << 52;
/// Heads outlive all other cells of their sale by this, so that none of them is taken for a part of
/// the next sale.
const OUTLIVES: Duration = Duration::from_secs(60);

/// How a sale is laid out. Callers bring what they believe, and are told if it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) epoch: u32,
    pub(super) shards: u8,
    /// Of one shard.
    pub(super) buckets: u16,
}

impl Layout {
    /// The shard and the bucket of a reservation, which never change in an epoch: so whoever asks
    /// again finds what was written the first time.
    pub(super) fn place(self, number: u128) -> (u8, u16) {
        // Numbers may come from a source that is random in some of its bits only.
        let folded = (number >> 64) as u64 ^ number as u64;
        let mixed = (folded ^ folded >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = (mixed >> 56) % u64::from(self.shards.max(1));
        let bucket = (mixed >> 24 & 0xffff_ffff) % u64::from(self.buckets.max(1));
        (u8::try_from(shard).unwrap_or(0), u16::try_from(bucket).unwrap_or(0))
    }
}

/// Units by the state of their reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Units {
    pub(super) reserved: u32,
    pub(super) ordered: u32,
    pub(super) paid: u32,
    pub(super) expiring: u32,
    pub(super) dead: u32,
}

impl Units {
    pub(super) fn sum(&self) -> u64 {
        [self.reserved, self.ordered, self.paid, self.expiring, self.dead].into_iter().map(u64::from).sum()
    }

    fn of(&mut self, state: State) -> Option<&mut u32> {
        Some(match state {
            State::Reserved => &mut self.reserved,
            State::Ordered => &mut self.ordered,
            State::Paid => &mut self.paid,
            State::Expiring => &mut self.expiring,
            State::DeadPlacing | State::DeadExpiring => &mut self.dead,
            State::Released | State::Refused => return None,
        })
    }
}

/// What may happen in a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    /// Nothing is sold until the rebuilding of the sale is finished.
    Rebuilding,
    /// There is no sale any more. Its buckets and buyers stay until they end, and so does the head:
    /// it keeps the next sale from beginning with the same epoch.
    Forgotten,
}

/// `stock = available + units`, and `taken = units + returned`: always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) mode: Mode,
    pub(super) layout: Layout,
    pub(super) shard: u8,
    pub(super) opens: Micros,
    pub(super) closes: Micros,
    /// When there is no such sale any more.
    pub(super) ends: Micros,
    pub(super) pay_within: Micros,
    /// No reservation is due before this.
    pub(super) due: Micros,
    /// Units of one buyer.
    pub(super) limit: u32,
    pub(super) stock: u32,
    pub(super) returned: u64,
    pub(super) available: u32,
    pub(super) taken: u64,
    pub(super) units: Units,
    /// A bit for each bucket that has something for a worker.
    pub(super) pending: Vec<u8>,
}

impl Head {
    pub(super) fn new(terms: &Terms, shard: u8, stock: u32, now: Micros) -> Head {
        let layout = terms.layout();
        let opens = now.saturating_add(micros(terms.opens_in));
        let closes = opens.saturating_add(micros(terms.open_for));
        let pay_within = micros(terms.pay_within);
        Head {
            mode: Mode::Open,
            layout,
            shard,
            opens,
            closes,
            ends: closes.saturating_add(pay_within).saturating_add(micros(terms.kept)),
            pay_within,
            due: now.saturating_add(pay_within),
            limit: terms.limit,
            stock,
            returned: 0,
            available: stock,
            taken: 0,
            units: Units::default(),
            pending: vec![0; usize::from(layout.buckets).div_ceil(8)],
        }
    }

    /// What a reservation changes comes last, so that its twin copies the rest as it is.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Units { reserved, ordered, paid, expiring, dead } = self.units;
        Writer::new(TAG)
            .byte(match self.mode {
                Mode::Open => OPEN,
                Mode::Rebuilding => REBUILDING,
                Mode::Forgotten => FORGOTTEN,
            })
            .number(self.layout.epoch)
            .byte(self.shard)
            .byte(self.layout.shards)
            .bytes(&self.layout.buckets.to_be_bytes())
            .wide(self.opens)
            .wide(self.closes)
            .wide(self.ends)
            .wide(self.pay_within)
            .wide(self.due)
            .number(self.limit)
            .number(self.stock)
            .number(ordered)
            .number(paid)
            .number(expiring)
            .number(dead)
            .wide(self.returned)
            .number(self.available)
            .number(reserved)
            .wide(self.taken)
            .bytes(&self.pending)
            .done()
    }

    /// `None` if the bytes are not a head.
    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes, TAG)?;
        let mode = match reader.byte()? {
            OPEN => Mode::Open,
            FORGOTTEN => Mode::Forgotten,
            _ => Mode::Rebuilding,
        };
        let epoch = reader.number()?;
        let (shard, shards) = (reader.byte()?, reader.byte()?);
        let buckets = u16::from_be_bytes(reader.bytes(2)?.try_into().ok()?);
        let layout = Layout { epoch, shards, buckets };
        let (opens, closes, ends) = (reader.wide()?, reader.wide()?, reader.wide()?);
        let (pay_within, due) = (reader.wide()?, reader.wide()?);
        let (limit, stock) = (reader.number()?, reader.number()?);
        let (ordered, paid) = (reader.number()?, reader.number()?);
        let (expiring, dead) = (reader.number()?, reader.number()?);
        let returned = reader.wide()?;
        let (available, reserved, taken) = (reader.number()?, reader.number()?, reader.wide()?);
        let pending = reader.rest().to_vec();
        let in_range = [opens, closes, ends, pay_within, taken].into_iter().all(|number| number < LARGEST);
        if !in_range || shards == 0 || buckets == 0 || pending.len() != usize::from(buckets).div_ceil(8) {
            return None;
        }
        let units = Units { reserved, ordered, paid, expiring, dead };
        Some(Head {
            mode,
            layout,
            shard,
            opens,
            closes,
            ends,
            pay_within,
            due,
            limit,
            stock,
            returned,
            available,
            taken,
            units,
            pending,
        })
    }

    /// There is no such sale any more, although the head is there.
    pub(super) fn is_gone(&self, now: Micros) -> bool {
        self.mode == Mode::Forgotten || self.ends <= now
    }

    /// Writes a bucket or a buyer of this sale, which must not be gone.
    pub(super) fn put(&self, bytes: Vec<u8>, now: Micros) -> Write {
        Write::Put(CellValue { bytes, lives: self.lives(now) })
    }

    /// Writes this head.
    pub(super) fn put_head(&self, now: Micros) -> Write {
        Write::Put(CellValue { bytes: self.encode(), lives: self.lives(now) + OUTLIVES })
    }

    fn lives(&self, now: Micros) -> Duration {
        Duration::from_micros(self.ends.saturating_sub(now))
    }

    /// Units go from one state to another.
    pub(super) fn shift(&mut self, from: State, to: State, quantity: u32) {
        if let Some(units) = self.units.of(from) {
            *units = units.saturating_sub(quantity);
        }
        match self.units.of(to) {
            Some(units) => *units = units.saturating_add(quantity),
            None => {
                self.returned = self.returned.saturating_add(quantity.into());
                self.available = self.available.saturating_add(quantity);
            }
        }
    }

    pub(super) fn is_pending(&self, bucket: u16) -> bool {
        self.pending.get(usize::from(bucket / 8)).is_some_and(|byte| byte >> (bucket % 8) & 1 == 1)
    }

    pub(super) fn set_pending(&mut self, bucket: u16, pending: bool) {
        if let Some(byte) = self.pending.get_mut(usize::from(bucket / 8)) {
            let bit = 1 << (bucket % 8);
            *byte = if pending { *byte | bit } else { *byte & !bit };
        }
    }
}

pub(super) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
