//! What an engine stands on, with nothing on top of it.

#![allow(dead_code, reason = "each program uses a part")]

use std::fs::File;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use rustix::fs::{FlockOperation, flock};

use crate::kit::Result;

/// The store of `file:`, LMDB: a cycle is two writes, one that puts a row and one that deletes it.
pub(crate) struct BareStore {
    env: Env<WithoutTls>,
    table: Database<'static, Bytes, Bytes>,
    row: Vec<u8>,
}

impl BareStore {
    /// About what a claim takes.
    const ROW: usize = 120;

    pub(crate) fn open(dir: &Path, flags: EnvFlags) -> Result<BareStore> {
        std::fs::create_dir_all(dir)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(1 << 30).max_readers(64);
        // SAFETY: the directory was made for this run, and nobody writes to its files in any other
        // way.
        #[expect(unsafe_code, reason = "a memory-mapped store can not be opened otherwise")]
        let env = unsafe { options.flags(flags).open(dir)? };
        let txn = env.write_txn()?;
        let table = env
            .create_databases_and_commit(txn, |opener, txn| {
                opener.create_database::<Bytes, Bytes>(txn, None).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit();
        Ok(BareStore { env, table, row: vec![7; BareStore::ROW] })
    }

    /// Puts many rows at once.
    pub(crate) fn fill(&self, keys: impl Iterator<Item = String>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for key in keys {
            self.table.put(&mut txn, key.as_bytes(), &self.row)?;
        }
        Ok(txn.commit()?)
    }

    pub(crate) fn cycle(&self, key: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.table.put(&mut txn, key, &self.row)?;
        txn.commit()?;
        let mut txn = self.env.write_txn()?;
        self.table.delete(&mut txn, key)?;
        txn.commit()?;
        Ok(())
    }
}

/// A file that is locked and unlocked: exclusion, and nothing else.
pub(crate) struct BareFlock(File);

impl BareFlock {
    pub(crate) fn open(path: &Path) -> Result<BareFlock> {
        Ok(BareFlock(File::create(path)?))
    }

    pub(crate) fn cycle(&self) -> Result<()> {
        flock(&self.0, FlockOperation::LockExclusive)?;
        flock(&self.0, FlockOperation::Unlock)?;
        Ok(())
    }
}
