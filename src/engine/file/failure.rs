//! What goes wrong with a store, in the words of the crate: the one place where the driver's errors
//! are read.

use std::io;
use std::path::Path;

use super::rows::RowError;
use crate::error::Error;
use crate::name::Name;

/// What the store said.
pub(super) fn failed(error: impl Into<RowError>) -> Error {
    let error = match error.into() {
        RowError::Store(error) => error,
        error @ RowError::Encoding(_) => return damaged("a row can not be read", Some(error.into())),
    };
    match error {
        heed::Error::Io(error) => io_failed("write to", Path::new("the store"), error),
        heed::Error::Mdb(heed::MdbError::MapFull) => Error::Unavailable {
            engine: "file",
            what: "the store is full; release names, or use another directory".into(),
            source: None,
        },
        heed::Error::Mdb(heed::MdbError::ReadersFull) => Error::Unavailable {
            engine: "file",
            what: "too many processes read the store at the same time; try again".into(),
            source: None,
        },
        error => damaged(&error.to_string(), Some(error.into())),
    }
}

/// A row that can not be understood.
pub(super) fn unreadable(name: &Name, error: impl Into<RowError>) -> Error {
    damaged(&format!("the row of `{name}` can not be read"), Some(error.into().into()))
}

/// Something that we did not write.
pub(super) fn damaged(what: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Engine {
        engine: "file",
        what: format!("the store is damaged: {what}; stop all users and remove its directory"),
        source,
    }
}

/// What the system said, and what to do about it.
pub(super) fn io_failed(verb: &str, path: &Path, error: io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room on the disk",
        io::ErrorKind::ReadOnlyFilesystem => "; choose a directory that can be written",
        io::ErrorKind::PermissionDenied => {
            "; it belongs to another user: choose another directory, or share it with `?share=group`"
        }
        _ => "",
    };
    Error::Unavailable {
        engine: "file",
        what: format!("can not {verb} `{}`: {error}{advice}", path.display()),
        source: Some(error.into()),
    }
}
