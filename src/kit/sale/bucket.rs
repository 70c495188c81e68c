//! Reservations, and the buckets that they are kept in.
//!
//! A bucket is what a worker reads, too: the step that takes units also puts the reservation before
//! the workers.

use std::fmt;
use std::str::FromStr;

use super::head::LARGEST;
use crate::claim::Micros;
use crate::error::{Error, Result};
use crate::kit::bytes::{Reader, Writer};

const BUCKET: u8 = 0x83;
const BUYER: u8 = 0x82;
/// Bytes of a bucket before its first reservation.
const START: usize = 5;
/// Bytes of a reservation without the name of its buyer.
const FIXED: usize = 30;
/// So many reservations that have ended without a sale are remembered in a bucket, for those who
/// ask again.
const REMEMBERED: usize = 32;

/// The number of a reservation. Whoever asks again after an answer was lost brings the same.
///
/// Written and read as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u128);

impl ReservationId {
    /// A random one.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the operating system has no random numbers.
    pub fn random() -> Result<ReservationId> {
        let (high, low) = (crate::random::number()?, crate::random::number()?);
        Ok(ReservationId(u128::from(high) << 64 | u128::from(low)))
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ReservationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<ReservationId> {
        match u128::from_str_radix(text, 16) {
            Ok(number) if text.len() == 32 && !text.starts_with('+') => Ok(ReservationId(number)),
            _ => Err(Error::invalid(format!(
                "`{}` is not the number of a reservation, which has 32 hexadecimal digits",
                text.chars().take(40).collect::<String>()
            ))),
        }
    }
}

/// What has become of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Reserved,
    Ordered,
    Paid,
    /// It will not be sold to this buyer. The units come back when that is in the database.
    Expiring,
    Released,
    Refused,
    DeadPlacing,
    DeadExpiring,
}

impl State {
    const ALL: [State; 8] = [
        State::Reserved,
        State::Ordered,
        State::Paid,
        State::Expiring,
        State::Released,
        State::Refused,
        State::DeadPlacing,
        State::DeadExpiring,
    ];

    pub(super) fn byte(self) -> u8 {
        self as u8
    }

    pub(super) fn from_byte(byte: u8) -> Option<State> {
        State::ALL.get(usize::from(byte)).copied()
    }

    /// The units are not the buyer's any more.
    pub(super) fn has_ended(self) -> bool {
        matches!(self, State::Released | State::Refused)
    }

    /// A worker has something to do.
    pub(super) fn is_pending(self) -> bool {
        matches!(self, State::Reserved | State::Expiring)
    }
}

/// A reservation, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) number: u128,
    pub(super) state: State,
    /// How often a worker has failed since its state has changed.
    pub(super) attempts: u8,
    pub(super) quantity: u32,
    pub(super) deadline: Micros,
    pub(super) buyer: String,
}

impl Record {
    fn write(&self, writer: Writer) -> Writer {
        writer
            .bytes(&self.number.to_be_bytes())
            .byte(self.state.byte())
            .byte(self.attempts)
            .number(self.quantity)
            .wide(self.deadline)
            .byte(u8::try_from(self.buyer.len()).unwrap_or(u8::MAX))
            .bytes(self.buyer.as_bytes())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Record> {
        let number = u128::from_be_bytes(reader.bytes(16)?.try_into().ok()?);
        let state = State::from_byte(reader.byte()?)?;
        let (attempts, quantity, deadline) = (reader.byte()?, reader.number()?, reader.wide()?);
        let length = reader.byte()?;
        let buyer = String::from_utf8(reader.bytes(length.into())?.to_vec()).ok()?;
        Some(Record { number, state, attempts, quantity, deadline, buyer })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Without the tag.
        self.write(Writer::new(0)).done().split_off(1)
    }
}

/// The reservations whose numbers belong together, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) epoch: u32,
    pub(super) records: Vec<Record>,
}

impl Bucket {
    pub(super) fn encode(&self) -> Vec<u8> {
        let writer = Writer::new(BUCKET).number(self.epoch);
        self.records.iter().fold(writer, |writer, record| record.write(writer)).done()
    }

    /// `None` if the bytes are not a bucket.
    pub(super) fn decode(bytes: &[u8]) -> Option<Bucket> {
        let mut reader = Reader::new(bytes, BUCKET)?;
        let epoch = reader.number()?;
        let mut records = Vec::new();
        while !reader.is_empty() {
            records.push(Record::read(&mut reader)?);
        }
        Some(Bucket { epoch, records })
    }

    /// The bucket of an epoch in a cell: an empty one if there is none, or one of an earlier epoch.
    /// `None` if it is something else.
    pub(super) fn of(epoch: u32, cell: Option<&[u8]>) -> Option<Bucket> {
        let empty = Bucket { epoch, records: Vec::new() };
        let Some(bytes) = cell else { return Some(empty) };
        match Bucket::epoch(bytes)? {
            found if found < epoch => Some(empty),
            found if found == epoch => Bucket::decode(bytes),
            _ => None,
        }
    }

    /// The epoch of a bucket, of which nothing else is looked at.
    pub(super) fn epoch(bytes: &[u8]) -> Option<u32> {
        Reader::new(bytes, BUCKET)?.number()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.records.iter().any(|record| record.state.is_pending())
    }

    /// Forgets the oldest of those that have ended without a sale.
    pub(super) fn forget_ended(&mut self) {
        let ended = self.records.iter().filter(|record| record.state.has_ended()).count();
        let mut too_many = ended.saturating_sub(REMEMBERED);
        self.records.retain(|record| {
            let forget = too_many > 0 && record.state.has_ended();
            too_many -= usize::from(forget);
            !forget
        });
    }
}

/// What a search for a reservation in the bytes of a bucket has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    Record {
        state: State,
        quantity: u32,
        deadline: Micros,
        buyer: &'a [u8],
    },
    /// The bytes are not a bucket.
    Foreign,
}

/// Looks for a reservation without reading the others, unless their bytes contain its number: the
/// usual answer is that it is not there. The twin does the same.
pub(super) fn find(bytes: &[u8], number: u128) -> Found<'_> {
    let digits = number.to_be_bytes();
    let Some(mut rest) = bytes.get(START..) else { return Found::Foreign };
    if !rest.windows(digits.len()).any(|window| window == digits) {
        return Found::Nothing;
    }
    while !rest.is_empty() {
        let Some(length) = rest.get(FIXED - 1) else { return Found::Foreign };
        let Some((record, after)) = rest.split_at_checked(FIXED + usize::from(*length)) else {
            return Found::Foreign;
        };
        if record.starts_with(&digits) {
            return found(record).unwrap_or(Found::Foreign);
        }
        rest = after;
    }
    Found::Nothing
}

fn found(record: &[u8]) -> Option<Found<'_>> {
    let state = State::from_byte(*record.get(16)?)?;
    let (quantity, rest) = record.get(18..)?.split_first_chunk::<4>()?;
    let mut deadline = [0; 8];
    deadline[1..].copy_from_slice(rest.get(..7)?);
    let (quantity, deadline) = (u32::from_be_bytes(*quantity), u64::from_be_bytes(deadline));
    let buyer = record.get(FIXED..)?;
    (deadline < LARGEST).then_some(Found::Record { state, quantity, deadline, buyer })
}

/// How many units a buyer has.
pub(super) fn encode_buyer(epoch: u32, units: u32) -> Vec<u8> {
    Writer::new(BUYER).number(epoch).number(units).done()
}

/// The units of a buyer in an epoch; `None` if the cell holds something else.
pub(super) fn units_of_buyer(epoch: u32, cell: Option<&[u8]>) -> Option<u32> {
    let Some(bytes) = cell else { return Some(0) };
    let mut reader = Reader::new(bytes, BUYER)?;
    let (found, units) = (reader.number()?, reader.number()?);
    reader.end()?;
    match found {
        found if found < epoch => Some(0),
        found if found == epoch => Some(units),
        _ => None,
    }
}
