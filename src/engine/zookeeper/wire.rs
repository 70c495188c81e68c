//! How ZooKeeper's messages are written and read, and what its errors mean.
//!
//! A message is a length and then its fields: numbers in network order, texts and bytes with their
//! length before them.

/// Why a request was refused, or was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Said {
    #[error("there is no such node")]
    NoNode,
    #[error("the node is there already")]
    NodeExists,
    #[error("the node has another version")]
    BadVersion,
    #[error("the node has children")]
    NotEmpty,
    #[error("a node of a session can not have children")]
    NoChildren,
    #[error("not authorized")]
    NoAuth,
    #[error("authentication failed")]
    AuthFailed,
    #[error("it wants SASL")]
    NeedsSasl,
    #[error("the access list is not valid")]
    InvalidAcl,
    #[error("the session has ended")]
    Expired,
    #[error("this server can only be read")]
    ReadOnly,
    #[error("the quota of the path is exceeded")]
    Quota,
    #[error("the server has too much to do")]
    Throttled,
    #[error("the server does not know this request")]
    Unimplemented,
    #[error("{0}")]
    Lost(String),
    #[error("an answer can not be read: {0}")]
    Garbled(&'static str),
    #[error("error {0}")]
    Other(i32),
}

impl Said {
    pub(super) fn of(code: i32) -> Said {
        match code {
            -101 => Said::NoNode,
            -110 => Said::NodeExists,
            -103 => Said::BadVersion,
            -111 => Said::NotEmpty,
            -108 => Said::NoChildren,
            -102 => Said::NoAuth,
            -115 => Said::AuthFailed,
            -124 => Said::NeedsSasl,
            -114 => Said::InvalidAcl,
            // Its session goes on at another server: this connection is of no use.
            -112 | -118 => Said::Expired,
            -119 => Said::ReadOnly,
            -125 => Said::Quota,
            -127 => Said::Throttled,
            -6 => Said::Unimplemented,
            code => Said::Other(code),
        }
    }
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// The changes that made it, and that wrote it last.
    pub(super) created: i64,
    pub(super) written: i64,
    /// When it was written last, in milliseconds by the leader's clock.
    pub(super) written_at: i64,
    pub(super) version: i32,
    /// The session that it belongs to; 0 if it belongs to none.
    pub(super) session: i64,
}

/// Writes messages.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn int(&mut self, number: i32) -> &mut Writer {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, number: i64) -> &mut Writer {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Writer {
        self.0.push(flag.into());
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Writer {
        self.bytes(text.as_bytes())
    }
}

/// Reads messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Said> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Said::Garbled("it is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Said> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Said::Garbled("it is too short"))
    }

    pub(super) fn int(&mut self) -> Result<i32, Said> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Said> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Said> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Said> {
        // -1 stands for none.
        let length = usize::try_from(self.int()?).unwrap_or(0);
        self.take(length).map(<[u8]>::to_vec)
    }

    pub(super) fn text(&mut self) -> Result<String, Said> {
        String::from_utf8(self.bytes()?).map_err(|_| Said::Garbled("a text is not UTF-8"))
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Said> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text()).collect()
    }

    pub(super) fn stat(&mut self) -> Result<Stat, Said> {
        let (created, written, _, written_at) = (self.long()?, self.long()?, self.long()?, self.long()?);
        let (version, _, _, session) = (self.int()?, self.int()?, self.int()?, self.long()?);
        let _ = (self.int()?, self.int()?, self.long()?);
        Ok(Stat { created, written, written_at, version, session })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_a_lie_is_an_error() {
        assert!(Reader(&[0x7f, 255, 255, 255, 1]).bytes().is_err());
        assert_eq!(Reader(&[255, 255, 255, 255]).bytes(), Ok(Vec::new()), "there is none");
    }
}
