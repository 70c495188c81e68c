//! The rule of reservations: a pure step over the head of a shard, and the buyers and buckets of
//! those who ask.

use super::bucket::{self, Bucket, Found, Record, ReservationId, State, encode_buyer, units_of_buyer};
use super::head::{Head, Layout, Mode};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{Decision, MOST_CELLS, Rule, Twin, Write};

/// Takes units for those who ask, one after the other: writes the reservation and puts it before
/// the workers, or says why not.
///
/// All of them are in one shard. Its first cell is the head of that shard; [`Reserve::parts`] are
/// the others. It can be repeated with the same numbers without harm.
#[derive(Clone, Debug)]
pub struct Reserve {
    layout: Layout,
    requests: Vec<Request>,
    parts: Vec<Part>,
}

/// One who asks.
#[derive(Clone, Debug)]
struct Request {
    number: u128,
    quantity: u32,
    bucket: u16,
    /// Which of the cells are its own.
    buyer_cell: usize,
    bucket_cell: usize,
}

/// A cell of the step, beside the head of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What a buyer has.
    Buyer(String),
    /// The bucket of a shard with this number.
    Bucket(u16),
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
    /// Nobody asks yet, in a sale with this epoch and so many shards, of which each has so many
    /// buckets.
    pub fn new(epoch: u32, (shards, buckets): (u8, u16)) -> Reserve {
        Reserve::of(Layout { epoch, shards, buckets })
    }

    pub(super) fn of(layout: Layout) -> Reserve {
        Reserve { layout, requests: Vec::new(), parts: Vec::new() }
    }

    /// Somebody asks, behind the others. False if there is no room for the cells: then nothing has
    /// changed.
    pub fn add(&mut self, id: ReservationId, buyer: &str, quantity: u32) -> bool {
        let known = self.parts.len();
        let bucket = self.layout.place(id.0).1;
        let buyer_cell = self.cell(Part::Buyer(buyer.to_owned()));
        let bucket_cell = self.cell(Part::Bucket(bucket));
        let fits = self.parts.len() < MOST_CELLS;
        if fits {
            self.requests.push(Request { number: id.0, quantity, bucket, buyer_cell, bucket_cell });
        } else {
            self.parts.truncate(known);
        }
        fits
    }

    /// The shard of a reservation.
    pub fn shard_of(&self, id: ReservationId) -> u8 {
        self.layout.place(id.0).0
    }

    /// The number of a cell. The head is number 0.
    fn cell(&mut self, part: Part) -> usize {
        let known = self.parts.iter().position(|known| *known == part);
        let at = known.unwrap_or_else(|| {
            self.parts.push(part);
            self.parts.len() - 1
        });
        at + 1
    }

    /// The cells after the head.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn buyer(&self, request: &Request) -> &str {
        match self.parts.get(request.buyer_cell - 1) {
            Some(Part::Buyer(buyer)) => buyer,
            _ => "",
        }
    }

    fn decide(&self, values: &[Option<&[u8]>], now: Micros) -> (Vec<Write>, Vec<Reserved>) {
        let to_all = |answer: Reserved| (Vec::new(), vec![answer; self.requests.len()]);
        let Some(bytes) = values.first().copied().flatten() else { return to_all(Reserved::NoSale) };
        let Some(mut head) = Head::decode(bytes) else { return to_all(Reserved::Foreign) };
        if head.is_gone(now) {
            return to_all(Reserved::NoSale);
        }
        if head.layout != self.layout {
            return to_all(Reserved::Elsewhere(head.layout));
        }
        if head.mode == Mode::Rebuilding {
            return to_all(Reserved::Rebuilding);
        }
        let mut cells = Working { given: values, written: vec![None; values.len()] };
        let before = head.taken;
        let answers =
            self.requests.iter().map(|request| self.reserve(request, &mut head, &mut cells, now)).collect();
        if head.taken == before {
            return (Vec::new(), answers);
        }
        let parts = cells.written.into_iter().skip(1);
        let parts = parts.map(|bytes| bytes.map_or(Write::Keep, |bytes| head.put(bytes, now)));
        (std::iter::once(head.put_head(now)).chain(parts).collect(), answers)
    }

    fn reserve(&self, request: &Request, head: &mut Head, cells: &mut Working<'_>, now: Micros) -> Reserved {
        let Request { number, quantity, .. } = *request;
        let (epoch, left, name) = (head.layout.epoch, head.available, self.buyer(request));
        let mut bucket = cells.read(request.bucket_cell);
        if let Some(bytes) = bucket {
            match Bucket::epoch(bytes) {
                Some(found) if found < epoch => bucket = None,
                Some(found) if found == epoch => {}
                _ => return Reserved::Foreign,
            }
        }
        match bucket.map_or(Found::Nothing, |bytes| bucket::find(bytes, number)) {
            Found::Nothing => {}
            Found::Foreign => return Reserved::Foreign,
            Found::Record { buyer, quantity: had, .. } if buyer != name.as_bytes() || had != quantity => {
                return Reserved::Mismatch;
            }
            // Asked before: the sale may be over by now, and the answer is the same.
            Found::Record { state, deadline, .. } => {
                return Reserved::There { state, left, pay_within: deadline.saturating_sub(now) };
            }
        }
        if now < head.opens {
            return Reserved::NotOpen { opens_in: head.opens - now };
        }
        if now >= head.closes {
            return Reserved::Over;
        }
        let Some(units) = units_of_buyer(epoch, cells.read(request.buyer_cell)) else {
            return Reserved::Foreign;
        };
        if u64::from(units) + u64::from(quantity) > u64::from(head.limit) {
            return Reserved::LimitReached { left: head.limit.saturating_sub(units) };
        }
        if left < quantity {
            return Reserved::TooFew { left };
        }
        let record = Record {
            number,
            state: State::Reserved,
            attempts: 0,
            quantity,
            deadline: now + head.pay_within,
            buyer: name.to_owned(),
        };
        let mut bytes = bucket.map_or_else(|| Bucket { epoch, records: Vec::new() }.encode(), <[u8]>::to_vec);
        bytes.extend(record.encode());
        cells.write(request.bucket_cell, bytes);
        cells.write(request.buyer_cell, encode_buyer(epoch, units + quantity));
        head.available = left - quantity;
        head.units.reserved = head.units.reserved.saturating_add(quantity);
        head.taken += u64::from(quantity);
        head.set_pending(request.bucket, true);
        Reserved::There { state: State::Reserved, left: head.available, pay_within: head.pay_within }
    }
}

/// The cells as those leave them who came before.
struct Working<'a> {
    given: &'a [Option<&'a [u8]>],
    written: Vec<Option<Vec<u8>>>,
}

impl Working<'_> {
    fn read(&self, cell: usize) -> Option<&[u8]> {
        let written = self.written.get(cell).and_then(Option::as_deref);
        written.or_else(|| self.given.get(cell).copied().flatten())
    }

    fn write(&mut self, cell: usize, bytes: Vec<u8>) {
        if let Some(written) = self.written.get_mut(cell) {
            *written = Some(bytes);
        }
    }
}

impl Rule for Reserve {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let (writes, answers) = self.decide(values, now);
        Decision { writes, answer: answers.iter().flat_map(encode).collect() }
    }

    fn twin(&self) -> Option<Twin> {
        let Layout { epoch, shards, buckets } = self.layout;
        let text = |number: u32| number.to_string().into_bytes();
        // Cells have numbers from 1 in Lua.
        let cell = |number: usize| (number + 1).to_string().into_bytes();
        let mut arguments = vec![text(epoch), text(shards.into()), text(buckets.into())];
        for request in &self.requests {
            arguments.extend([
                request.number.to_be_bytes().to_vec(),
                self.buyer(request).as_bytes().to_vec(),
                text(request.quantity),
                text(request.bucket.into()),
                cell(request.buyer_cell),
                cell(request.bucket_cell),
            ]);
        }
        Some(Twin { script: include_str!("reserve.lua"), shortcut: None, arguments })
    }
}

/// Bytes of an answer to one who asks.
const ANSWER: usize = 14;

/// An answer: a word, a byte and two numbers.
fn encode(answer: &Reserved) -> [u8; ANSWER] {
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
    let mut bytes = [0; ANSWER];
    (bytes[0], bytes[1]) = (word, byte);
    bytes[2..6].copy_from_slice(&short.to_be_bytes());
    bytes[6..].copy_from_slice(&wide.to_be_bytes());
    bytes
}

fn decode(answer: &[u8]) -> Option<Reserved> {
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

impl TypedRule for Reserve {
    /// An answer to each, in the order in which they were added.
    type Answer = Vec<Reserved>;

    fn read(&self, answer: &[u8]) -> Option<Vec<Reserved>> {
        let answers = answer.chunks(ANSWER).map(decode).collect::<Option<Vec<_>>>()?;
        (answers.len() == self.requests.len()).then_some(answers)
    }
}
