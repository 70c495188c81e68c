//! The rule of a reservation: a pure step over the head of a shard, a buyer and a bucket.

use super::bucket::{self, Bucket, Found, Record, ReservationId, State, encode_buyer, units_of_buyer};
use super::head::{Head, Layout};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{Decision, Rule, Twin, Write};

/// Takes units for a buyer, writes the reservation and puts it before the workers; or says why not.
///
/// Its cells are the head of the reservation's shard, the buyer, and the reservation's bucket. It
/// can be repeated with the same number without harm.
#[derive(Clone, Debug)]
pub struct Reserve {
    pub(super) layout: Layout,
    pub(super) number: u128,
    pub(super) buyer: String,
    pub(super) quantity: u32,
}

/// What a reservation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// A cell holds something else.
    Foreign,
    /// It is there, now or from before.
    There {
        state: State,
        left: u32,
        pay_within: Micros,
    },
    NotOpen {
        opens_in: Micros,
    },
    Over,
    LimitReached {
        left: u32,
    },
    /// So few are left in this shard.
    TooFew {
        left: u32,
    },
    NoSale,
    Rebuilding,
    /// The sale is laid out in another way by now.
    Elsewhere(Layout),
    /// The number was used for another buyer or quantity.
    Mismatch,
}

impl Reserve {
    /// A reservation in a sale with this epoch and so many shards, of which each has so many
    /// buckets.
    pub fn new(
        epoch: u32,
        (shards, buckets): (u8, u16),
        id: ReservationId,
        buyer: impl Into<String>,
        quantity: u32,
    ) -> Reserve {
        Reserve { layout: Layout { epoch, shards, buckets }, number: id.0, buyer: buyer.into(), quantity }
    }

    /// The numbers of its shard and of its bucket there.
    pub fn place(&self) -> (u8, u16) {
        self.layout.place(self.number)
    }

    fn decide(&self, values: &[Option<&[u8]>], now: Micros) -> (Vec<Write>, Reserved) {
        let no = |answer| (Vec::new(), answer);
        let cell = |number: usize| values.get(number).copied().flatten();
        let Some(bytes) = cell(0) else { return no(Reserved::NoSale) };
        let Some(mut head) = Head::decode(bytes) else { return no(Reserved::Foreign) };
        if head.layout != self.layout {
            return no(Reserved::Elsewhere(head.layout));
        }
        if head.rebuilding {
            return no(Reserved::Rebuilding);
        }
        let epoch = head.layout.epoch;
        let mut bucket = cell(2);
        if let Some(bytes) = bucket {
            match Bucket::epoch(bytes) {
                Some(found) if found < epoch => bucket = None,
                Some(found) if found == epoch => {}
                _ => return no(Reserved::Foreign),
            }
        }
        let left = head.available;
        match bucket.map_or(Found::Nothing, |bytes| bucket::find(bytes, self.number)) {
            Found::Nothing => {}
            Found::Foreign => return no(Reserved::Foreign),
            Found::Record { buyer, quantity, .. }
                if buyer != self.buyer.as_bytes() || quantity != self.quantity =>
            {
                return no(Reserved::Mismatch);
            }
            // Asked before: the sale may be over by now, and the answer is the same.
            Found::Record { state, deadline, .. } => {
                let pay_within = deadline.saturating_sub(now);
                return no(Reserved::There { state, left, pay_within });
            }
        }
        if now < head.opens {
            return no(Reserved::NotOpen { opens_in: head.opens - now });
        }
        if now >= head.closes {
            return no(Reserved::Over);
        }
        let Some(units) = units_of_buyer(epoch, cell(1)) else { return no(Reserved::Foreign) };
        if u64::from(units) + u64::from(self.quantity) > u64::from(head.limit) {
            return no(Reserved::LimitReached { left: head.limit.saturating_sub(units) });
        }
        if left < self.quantity {
            return no(Reserved::TooFew { left });
        }
        head.available = left - self.quantity;
        head.units.reserved = head.units.reserved.saturating_add(self.quantity);
        head.taken += u64::from(self.quantity);
        head.set_pending(self.layout.place(self.number).1, true);
        let record = Record {
            number: self.number,
            state: State::Reserved,
            attempts: 0,
            quantity: self.quantity,
            deadline: now + head.pay_within,
            buyer: self.buyer.clone(),
        };
        let mut bytes = bucket.map_or_else(|| Bucket { epoch, records: Vec::new() }.encode(), <[u8]>::to_vec);
        bytes.extend(record.encode());
        let writes = vec![
            head.put(head.encode(), now),
            head.put(encode_buyer(epoch, units + self.quantity), now),
            head.put(bytes, now),
        ];
        let (left, pay_within) = (head.available, head.pay_within);
        (writes, Reserved::There { state: State::Reserved, left, pay_within })
    }
}

impl Rule for Reserve {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let (writes, answer) = self.decide(values, now);
        Decision { writes, answer: encode(&answer) }
    }

    fn twin(&self) -> Option<Twin> {
        let Layout { epoch, shards, buckets } = self.layout;
        let text = |number: u32| number.to_string().into_bytes();
        let arguments = vec![
            self.number.to_be_bytes().to_vec(),
            self.buyer.clone().into_bytes(),
            text(self.quantity),
            text(self.layout.place(self.number).1.into()),
            text(epoch),
            text(shards.into()),
            text(buckets.into()),
        ];
        Some(Twin { script: include_str!("reserve.lua"), shortcut: None, arguments })
    }
}

/// An answer: a word, a byte and two numbers.
fn encode(answer: &Reserved) -> Vec<u8> {
    let (word, byte, short, wide): (u8, u8, u32, u64) = match *answer {
        Reserved::Foreign => (0, 0, 0, 0),
        Reserved::There { state, left, pay_within } => (1, state.byte(), left, pay_within),
        Reserved::NotOpen { opens_in } => (2, 0, 0, opens_in),
        Reserved::Over => (3, 0, 0, 0),
        Reserved::LimitReached { left } => (4, 0, left, 0),
        Reserved::TooFew { left } => (5, 0, left, 0),
        Reserved::NoSale => (6, 0, 0, 0),
        Reserved::Rebuilding => (7, 0, 0, 0),
        Reserved::Elsewhere(Layout { epoch, shards, buckets }) => (8, shards, epoch, buckets.into()),
        Reserved::Mismatch => (9, 0, 0, 0),
    };
    [[word, byte].as_slice(), &short.to_be_bytes(), &wide.to_be_bytes()].concat()
}

impl TypedRule for Reserve {
    type Answer = Reserved;

    fn read(&self, answer: &[u8]) -> Option<Reserved> {
        let [word, byte, numbers @ ..] = answer else { return None };
        let (short, wide) = numbers.split_first_chunk::<4>()?;
        let (short, wide) = (u32::from_be_bytes(*short), u64::from_be_bytes(wide.try_into().ok()?));
        Some(match *word {
            0 => Reserved::Foreign,
            1 => Reserved::There { state: State::from_byte(*byte)?, left: short, pay_within: wide },
            2 => Reserved::NotOpen { opens_in: wide },
            3 => Reserved::Over,
            4 => Reserved::LimitReached { left: short },
            5 => Reserved::TooFew { left: short },
            6 => Reserved::NoSale,
            7 => Reserved::Rebuilding,
            8 => {
                let (epoch, shards, buckets) = (short, *byte, u16::try_from(wide).ok()?);
                Reserved::Elsewhere(Layout { epoch, shards, buckets })
            }
            9 => Reserved::Mismatch,
            _ => return None,
        })
    }
}
