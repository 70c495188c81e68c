//! The few lines of the Redis protocol that the tests speak themselves.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A connection to a server, or to a proxy before it.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// A connection on which nothing is waited for longer than `limit`.
    pub(crate) fn open(port: u16, limit: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// The reply to a command.
    #[track_caller]
    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("no reply to {words:?}: {error}"))
    }

    /// The reply to a command, if it comes in time; after a failure the connection is of no more
    /// use.
    pub(crate) fn try_command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command and leaves the reply for [`receive`](Connection::receive).
    pub(crate) fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Waits until a reply is on its way in, and leaves it where it is.
    pub(crate) fn peek(&self) -> io::Result<()> {
        match self.stream.get_ref().peek(&mut [0])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n").filter(|line| !line.is_empty()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let strange = || io::Error::other(format!("no reply that is known here: {line}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
        let number = || rest.parse::<i64>().map_err(|_| strange());
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(Some(bytes))
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(length) => Reply::Array((0..length).map(|_| self.receive()).collect::<io::Result<_>>()?),
            },
            _ => return Err(strange()),
        })
    }
}

/// What a server answers. An array that is not there reads as a value that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

impl Reply {
    #[track_caller]
    pub(crate) fn ok(&self) {
        assert_eq!(*self, Reply::Simple("OK".to_owned()));
    }

    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        let Reply::Int(number) = self else { panic!("not a number: {self:?}") };
        *number
    }

    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Simple(text) => text.clone(),
            Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("not a text: {self:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        let Reply::Error(error) = self else { panic!("not an error: {self:?}") };
        error
    }

    #[track_caller]
    pub(crate) fn array(&self) -> &[Reply] {
        let Reply::Array(replies) = self else { panic!("not an array: {self:?}") };
        replies
    }

    /// The texts of an array.
    #[track_caller]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.array().iter().map(Reply::text).collect()
    }

    /// One of the fields of a reply that lists names and values.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let of = |pair: &[Reply]| (pair[0].text() == name).then(|| pair[1].text());
        self.array().chunks_exact(2).find_map(of).expect("the field")
    }

    pub(crate) fn is_nil(&self) -> bool {
        *self == Reply::Bulk(None)
    }
}
