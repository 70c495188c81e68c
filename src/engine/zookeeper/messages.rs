//! The requests to a ZooKeeper server that this engine makes, and their answers.

use super::wire::{Reader, Said, Stat, Writer};

/// What kind of node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Persistent = 0,
    /// It goes with its session.
    Ephemeral = 1,
    /// The same, with a number after its name.
    EphemeralSequential = 3,
    /// The servers delete it when it has no children any more.
    Container = 4,
}

/// Who may use nodes that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Anyone,
    /// Those who log in as the same user.
    Creator,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Create {
        path: String,
        data: Vec<u8>,
        mode: Mode,
        access: Access,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// With a watch that tells of its next change.
    Exists {
        path: String,
        watch: bool,
    },
    /// With a watch that tells when there are others.
    Children {
        path: String,
    },
    /// Tells of every change of a node, or of all nodes below it.
    AddWatch {
        path: String,
        below: bool,
    },
    /// Ends the watches on a node.
    RemoveWatches {
        path: String,
    },
    Multi(Vec<Op>),
    MultiRead(Vec<Get>),
    Close,
}

/// One of several things that are done together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Check(String, i32),
    Create(String, Vec<u8>, Mode, Access),
    Set(String, Vec<u8>, i32),
    Delete(String, i32),
}

impl Op {
    /// About how many bytes of a message it takes.
    pub(super) fn size(&self) -> usize {
        let (path, data) = match self {
            Op::Check(path, _) | Op::Delete(path, _) => (path, 0),
            Op::Create(path, data, ..) | Op::Set(path, data, _) => (path, data.len()),
        };
        path.len() + data + 64
    }
}

/// Any version.
pub(super) const ANY: i32 = -1;

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Get {
    Data(String),
    Children(String),
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Data(Vec<u8>, Stat),
    Children(Vec<String>),
    Nothing,
}

fn create(writer: &mut Writer, path: &str, data: &[u8], mode: Mode, access: Access) {
    const ALL: i32 = 31;
    let (scheme, id) = match access {
        Access::Anyone => ("world", "anyone"),
        Access::Creator => ("auth", ""),
    };
    writer.text(path).bytes(data).int(1).int(ALL).text(scheme).text(id).int(mode as i32);
}

impl Request {
    fn code(&self) -> i32 {
        match self {
            Request::Create { mode: Mode::Container, .. } => 19,
            Request::Create { .. } => 15,
            Request::Delete { .. } => 2,
            Request::Exists { .. } => 3,
            Request::Children { .. } => 8,
            Request::AddWatch { .. } => 106,
            Request::RemoveWatches { .. } => 18,
            Request::Multi(_) => 14,
            Request::MultiRead(_) => 22,
            Request::Close => -11,
        }
    }

    /// The message, under a number.
    pub(super) fn write(&self, number: i32) -> Vec<u8> {
        let mut writer = Writer::default();
        let w = &mut writer;
        w.int(number).int(self.code());
        match self {
            Request::Create { path, data, mode, access } => create(w, path, data, *mode, *access),
            Request::Delete { path, version } => drop(w.text(path).int(*version)),
            Request::Exists { path, watch } => drop(w.text(path).flag(*watch)),
            Request::Children { path } => drop(w.text(path).flag(true)),
            Request::AddWatch { path, below } => drop(w.text(path).int(i32::from(*below))),
            // Of any kind.
            Request::RemoveWatches { path } => drop(w.text(path).int(3)),
            Request::Multi(ops) => {
                for op in ops {
                    match op {
                        Op::Check(path, version) => drop(part(w, 13).text(path).int(*version)),
                        Op::Create(path, data, mode, access) => {
                            create(part(w, 15), path, data, *mode, *access);
                        }
                        Op::Set(path, data, version) => drop(part(w, 5).text(path).bytes(data).int(*version)),
                        Op::Delete(path, version) => drop(part(w, 2).text(path).int(*version)),
                    }
                }
                w.int(-1).flag(true).int(-1);
            }
            Request::MultiRead(gets) => {
                for get in gets {
                    match get {
                        Get::Data(path) => drop(part(w, 4).text(path).flag(false)),
                        Get::Children(path) => drop(part(w, 8).text(path).flag(false)),
                    }
                }
                w.int(-1).flag(true).int(-1);
            }
            Request::Close => {}
        }
        writer.0
    }
}

/// The start of one part of several.
fn part(writer: &mut Writer, code: i32) -> &mut Writer {
    writer.int(code).flag(false).int(-1)
}

/// The part of a request of several that could not be done, and why.
pub(super) type Failed = (usize, Said);

/// What came of each part of a request of several: what was written, or which one failed.
pub(super) fn read_multi(body: &[u8]) -> Result<Result<Vec<Option<Stat>>, Failed>, Said> {
    let mut reader = Reader(body);
    let mut done = Vec::new();
    loop {
        let (code, last, _) = (reader.int()?, reader.flag()?, reader.int()?);
        if last {
            return Ok(Ok(done));
        }
        match code {
            -1 => match reader.int()? {
                // Undone, because another one failed.
                0 => done.push(None),
                error => return Ok(Err((done.len(), Said::of(error)))),
            },
            // Servers that have a fault leave the node out.
            1 => {
                reader.text()?;
                done.push(None);
            }
            15 => {
                reader.text()?;
                done.push(Some(reader.stat()?));
            }
            5 => done.push(Some(reader.stat()?)),
            2 | 13 => done.push(None),
            _ => return Err(Said::Garbled("an unknown part")),
        }
    }
}

/// What was read by each part.
pub(super) fn read_reads(body: &[u8]) -> Result<Vec<Got>, Said> {
    let mut reader = Reader(body);
    let mut got = Vec::new();
    loop {
        let (code, last, _) = (reader.int()?, reader.flag()?, reader.int()?);
        if last {
            return Ok(got);
        }
        got.push(match code {
            -1 => match Said::of(reader.int()?) {
                Said::NoNode => Got::Nothing,
                error => return Err(error),
            },
            4 => Got::Data(reader.bytes()?, reader.stat()?),
            8 => Got::Children(reader.texts()?),
            _ => return Err(Said::Garbled("an unknown part")),
        });
    }
}

/// How a message from a server starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) number: i32,
    /// The last change that the server has seen.
    pub(super) change: i64,
    pub(super) error: i32,
}

impl Head {
    pub(super) const EVENT: i32 = -1;
    pub(super) const PING: i32 = -2;
    pub(super) const AUTH: i32 = -4;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Head, Said> {
        Ok(Head { number: reader.int()?, change: reader.long()?, error: reader.int()? })
    }

    pub(super) fn result(self) -> Result<(), Said> {
        if self.error == 0 { Ok(()) } else { Err(Said::of(self.error)) }
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) what: What,
    pub(super) path: String,
}

/// What has happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Created,
    Deleted,
    Written,
    Children,
}

impl Event {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Event>, Said> {
        let (what, _, path) = (reader.int()?, reader.int()?, reader.text()?);
        let what = match what {
            1 => What::Created,
            2 => What::Deleted,
            3 => What::Written,
            4 => What::Children,
            _ => return Ok(None),
        };
        Ok(Some(Event { what, path }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_the_servers_read_it() {
        let request = Request::Exists { path: "/a".to_owned(), watch: true };
        assert_eq!(request.write(7), [0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2, b'/', b'a', 1]);
        let request = Request::Multi(vec![Op::Check("/a".to_owned(), ANY)]);
        let [zero, minus] = [[0; 3], [255; 3]];
        let expected: Vec<u8> = [
            [&zero[..], &[1], &zero, &[14]].concat(),
            [&zero[..], &[13, 0], &minus, &[255]].concat(),
            [&zero[..], &[2, b'/', b'a'], &minus, &[255]].concat(),
            [&minus[..], &[255, 1], &minus, &[255]].concat(),
        ]
        .concat();
        assert_eq!(request.write(1), expected);
    }

    #[test]
    fn answers_to_several_parts_are_read() {
        let mut writer = Writer::default();
        writer.int(-1).flag(false).int(0).int(0);
        writer.int(-1).flag(false).int(-103).int(-103);
        writer.int(-1).flag(false).int(-2).int(-2);
        writer.int(-1).flag(true).int(-1);
        assert_eq!(read_multi(&writer.0), Ok(Err((1, Said::BadVersion))));
        let mut writer = Writer::default();
        writer.int(-1).flag(false).int(-101).int(-101);
        writer.int(8).flag(false).int(0).int(1).text("x");
        writer.int(-1).flag(true).int(-1);
        assert_eq!(read_reads(&writer.0), Ok(vec![Got::Nothing, Got::Children(vec!["x".to_owned()])]));
        assert!(read_reads(&writer.0[..writer.0.len() - 3]).is_err(), "cut off");
    }
}
