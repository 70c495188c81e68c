//! The source of the scenario: a version for each name, in files that all processes share.
//!
//! A record has a check, and is read again if it was caught half written.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::processes::{Result, now};

/// So many versions of a name it is remembered of when their invalidations returned.
const REMEMBERED: u64 = 64;
const CHECK: u64 = 0x5bd1_e995_97f4_a7c1;

/// What all processes see.
pub(crate) struct Source {
    versions: File,
    acknowledged: File,
    /// The same for each of the last versions of a name.
    history: File,
    loads: File,
}

impl Source {
    pub(crate) fn open(dir: &Path) -> Result<Source> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = |name: &str| options.open(dir.join(name));
        let loads = OpenOptions::new().append(true).create(true).open(dir.join("loads"))?;
        let (versions, acknowledged) = (file("versions")?, file("acknowledged")?);
        Ok(Source { versions, acknowledged, history: file("history")?, loads })
    }

    fn read(file: &File, place: u64) -> Result<(u64, u64)> {
        loop {
            let mut bytes = [0; 24];
            if file.read_at(&mut bytes, place * 24)? < 24 {
                return Ok((0, 0));
            }
            let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
            let (version, at, check) = (word(0)?, word(8)?, word(16)?);
            if (version, at, check) == (0, 0, 0) || check == version.rotate_left(7) ^ at ^ CHECK {
                return Ok((version, at));
            }
        }
    }

    fn write(file: &File, place: u64, version: u64) -> Result<()> {
        let at = now();
        let words = [version, at, version.rotate_left(7) ^ at ^ CHECK];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(file.write_all_at(&bytes, place * 24)?)
    }

    /// What the database has of a name.
    pub(crate) fn version(&self, name: u32) -> Result<u64> {
        Ok(Source::read(&self.versions, name.into())?.0)
    }

    /// Changes it. A name has one writer.
    pub(crate) fn change(&self, name: u32) -> Result<u64> {
        let version = self.version(name)? + 1;
        Source::write(&self.versions, name.into(), version)?;
        Ok(version)
    }

    /// The last version whose invalidation has returned.
    pub(crate) fn acknowledged(&self, name: u32) -> Result<u64> {
        Ok(Source::read(&self.acknowledged, name.into())?.0)
    }

    /// When the invalidation of a version had returned, if that is still known.
    pub(crate) fn acknowledged_at(&self, name: u32, version: u64) -> Option<u64> {
        let (found, at) = Source::read(&self.history, Source::place(name, version)).ok()?;
        (found == version).then_some(at)
    }

    fn place(name: u32, version: u64) -> u64 {
        u64::from(name) * REMEMBERED + version % REMEMBERED
    }

    pub(crate) fn acknowledge(&self, name: u32, version: u64) -> Result<()> {
        Source::write(&self.history, Source::place(name, version), version)?;
        Source::write(&self.acknowledged, name.into(), version)
    }

    /// Writes down that a name was loaded.
    pub(crate) fn note_load(&self, name: u32, began: u64) -> Result<()> {
        Ok((&self.loads).write_all(format!("{name} {began} {}\n", now()).as_bytes())?)
    }

    /// The loads of all processes: name, beginning and end.
    pub(crate) fn loads(dir: &Path) -> Result<Vec<(u32, u64, u64)>> {
        let mut loads = Vec::new();
        for line in std::fs::read_to_string(dir.join("loads"))?.lines() {
            let mut words = line.split(' ');
            let mut next = || words.next().ok_or("a line is cut short");
            loads.push((next()?.parse()?, next()?.parse()?, next()?.parse()?));
        }
        Ok(loads)
    }
}
