//! What the engines keep their claims in, with nothing on top of it.

use std::collections::HashMap;
use std::path::Path;

use heed::EnvFlags;

use crate::bare::BareStore;
use crate::kit::Result;

/// A table of rows.
pub(crate) enum Ground {
    Memory(HashMap<String, [u8; 120]>),
    File(BareStore),
}

impl Ground {
    pub(crate) fn label(engine: &str) -> &'static str {
        if engine == "file" { "the bare store" } else { "a bare HashMap" }
    }

    pub(crate) fn open(engine: &str, dir: &Path) -> Result<Ground> {
        Ok(match engine {
            "file" => Ground::File(BareStore::open(dir, EnvFlags::NO_SYNC)?),
            _ => Ground::Memory(HashMap::new()),
        })
    }

    pub(crate) fn fill(&mut self, names: impl Iterator<Item = String>) -> Result<()> {
        match self {
            Ground::Memory(table) => table.extend(names.map(|name| (name, [7; 120]))),
            Ground::File(store) => store.fill(names)?,
        }
        Ok(())
    }

    /// Adds a row and takes it out again.
    pub(crate) fn cycle(&mut self, name: &str) -> Result<()> {
        match self {
            Ground::Memory(table) => {
                table.insert(name.to_owned(), [7; 120]);
                table.remove(name);
            }
            Ground::File(store) => store.cycle(name.as_bytes())?,
        }
        Ok(())
    }
}
