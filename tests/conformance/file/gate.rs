//! Who waits while somebody writes to the store.

use std::fs::OpenOptions;
use std::sync::Arc;

use leasehold::engine::{CellValue, Decision, Rule, Swap, Write};
use rustix::fs::{FlockOperation, flock};

use super::{boot_dir, dir};
use crate::bench::{Ground, ms, not_within, soon};
use crate::cells::name;
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!("store", [whoever_only_looks_does_not_wait_for_whoever_writes]).cases
}

/// Answers with the value, and replaces it if it is another one than this.
#[derive(Debug)]
struct Becomes(&'static [u8]);

impl Rule for Becomes {
    fn step(&self, values: &[Option<&[u8]>], _: u64) -> Decision {
        let value = values[0].unwrap_or_default();
        let put = Write::Put(CellValue { bytes: self.0.to_vec(), lives: ms(60_000) });
        let writes = if value == self.0 { Vec::new() } else { vec![put] };
        Decision { writes, answer: value.to_vec() }
    }

    fn mostly_looks(&self) -> bool {
        true
    }
}

async fn whoever_only_looks_does_not_wait_for_whoever_writes(mut ground: Ground) {
    let (engine, cells) = (ground.engine().await, [name("x")]);
    let write = Write::Put(CellValue { bytes: b"old".to_vec(), lives: ms(60_000) });
    engine.swap(vec![Swap { name: name("x"), version: 0, write }]).await.expect("an answer");
    let becomes = |value| Arc::new(Becomes(value)) as Arc<dyn Rule>;
    let (old, new) = (becomes(b"old"), becomes(b"new"));
    let gate = OpenOptions::new().write(true).open(boot_dir(&dir(&ground)).join("gate")).expect("the gate");
    flock(&gate, FlockOperation::LockExclusive).expect("shut");
    assert_eq!(soon("an answer", engine.apply(&cells, &old)).await.expect("an answer"), b"old");
    not_within(ms(100), "it wrote", engine.apply(&cells, &new)).await;
    flock(&gate, FlockOperation::Unlock).expect("open");
    assert_eq!(soon("an answer", engine.apply(&cells, &new)).await.expect("an answer"), b"old");
    assert_eq!(soon("an answer", engine.apply(&cells, &new)).await.expect("an answer"), b"new");
}
