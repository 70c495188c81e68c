//! The slots of a cluster, and which member has them.

use std::collections::BTreeSet;

use redis::Value;

use super::keys::tag;

const SLOTS: u16 = 16384;

/// Which member has which slots, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct SlotMap(Vec<SlotRange>);

/// Some slots and the member that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    member: String,
}

impl SlotMap {
    /// Reads the answer of a member (`CLUSTER SLOTS`); `None` if it says nothing.
    pub(crate) fn read(slots: &Value, asked: &str) -> Option<SlotMap> {
        let own_host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
        let Value::Array(rows) = slots else { return None };
        let ranges: Vec<SlotRange> = rows.iter().filter_map(|row| range(row, own_host)).collect();
        (!ranges.is_empty()).then_some(SlotMap(ranges))
    }

    pub(crate) fn member_of(&self, slot: u16) -> Option<&str> {
        let range = self.0.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        Some(&range.member)
    }

    /// Every member that has slots.
    pub(crate) fn members(&self) -> BTreeSet<String> {
        self.0.iter().map(|range| range.member.clone()).collect()
    }

    /// Notes that one slot is somewhere else.
    pub(crate) fn moved(&mut self, slot: u16, to: &str) {
        // The first range that fits is believed.
        self.0.insert(0, SlotRange { first: slot, last: slot, member: to.to_owned() });
    }
}

/// One row of `CLUSTER SLOTS`: first, last, primary, replicas.
fn range(row: &Value, own_host: &str) -> Option<SlotRange> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = row.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    // A member that does not know its own address says nothing, or `?`.
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8_lossy(host).into_owned()
        }
        _ => own_host.to_owned(),
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some(SlotRange { first, last, member: format!("{host}:{port}") })
}

/// The slot of a key: of what is between its first braces, or of all of it.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = tag(key).unwrap_or(key);
    crc16(tag.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which the specification of the cluster prescribes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("{lock:a}:lock:state"), slot_of("lock:a"));
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }

    #[test]
    fn rows_are_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let row = |host| {
            let primary = Value::Array(vec![text(host), Value::Int(7000), text("id")]);
            Value::Array(vec![Value::Int(0), Value::Int(5460), primary])
        };
        let expected = |host: &str| SlotRange { first: 0, last: 5460, member: format!("{host}:7000") };
        assert_eq!(range(&row("10.0.0.1"), "me"), Some(expected("10.0.0.1")));
        assert_eq!(range(&row(""), "me"), Some(expected("me")));
    }
}
