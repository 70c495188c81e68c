//! How the kit writes down what it keeps in a cell: a tag that names the kind and its version, then
//! numbers. Lua twins read and write the same.

use crate::claim::Micros;

/// Bytes of a time or an amount: enough for every number that Lua can hold exactly.
const WIDE: usize = 7;

/// Writes a state.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(tag: u8) -> Writer {
        Writer(vec![tag])
    }

    /// A time or an amount. Both are below 2^53.
    pub(crate) fn wide(mut self, number: u64) -> Writer {
        self.0.extend_from_slice(&number.to_be_bytes()[8 - WIDE..]);
        self
    }

    pub(crate) fn number(mut self, number: u32) -> Writer {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    #[cfg(any(feature = "cache", feature = "leaderboards", feature = "sale", feature = "sessions"))]
    pub(crate) fn byte(self, byte: u8) -> Writer {
        self.bytes(&[byte])
    }

    #[cfg(any(
        feature = "cache",
        feature = "leaderboards",
        feature = "sale",
        feature = "sessions",
        feature = "topics"
    ))]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A number that is often small.
    pub(crate) fn short(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a state.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// `None` if the bytes are not a state with this tag.
    pub(crate) fn new(bytes: &'a [u8], tag: u8) -> Option<Reader<'a>> {
        let (first, rest) = bytes.split_first()?;
        (*first == tag).then_some(Reader(rest))
    }

    pub(crate) fn wide(&mut self) -> Option<Micros> {
        let (number, rest) = self.0.split_first_chunk::<WIDE>()?;
        self.0 = rest;
        let mut whole = [0; 8];
        whole[8 - WIDE..].copy_from_slice(number);
        Some(u64::from_be_bytes(whole))
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    pub(crate) fn short(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    #[cfg(any(feature = "cache", feature = "leaderboards", feature = "sale", feature = "sessions"))]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte[0])
    }

    #[cfg(any(
        feature = "cache",
        feature = "leaderboards",
        feature = "sale",
        feature = "sessions",
        feature = "topics"
    ))]
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    #[cfg(any(feature = "cache", feature = "leaderboards", feature = "sale", feature = "sessions"))]
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Some` if all was read.
    pub(crate) fn end(self) -> Option<()> {
        self.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, 1, 127, 128, 300, 1 << 52, (1 << 53) - 1];
        let mut writer = Writer::new(7).wide((1 << 53) - 1).number(u32::MAX);
        numbers.iter().for_each(|number| writer.short(*number));
        let bytes = writer.done();
        let mut reader = Reader::new(&bytes, 7).expect("the tag");
        assert_eq!((reader.wide(), reader.number()), (Some((1 << 53) - 1), Some(u32::MAX)));
        for number in numbers {
            assert_eq!(reader.short(), Some(number));
        }
        assert_eq!(reader.end(), Some(()));
        // What is cut short or of another kind is seen.
        assert!(Reader::new(&bytes, 8).is_none() && Reader::new(&[], 7).is_none());
        assert!(Reader(&[0x80]).short().is_none() && Reader(&[0xff; 12]).short().is_none());
        assert!(Reader(&[0; 6]).wide().is_none() && Reader(&[0; 3]).number().is_none());
    }
}
