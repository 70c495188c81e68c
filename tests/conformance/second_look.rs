//! A case that fails beside others is judged again alone.
//!
//! Cases are about time: leases of a second, answers within two. Six of them share a machine that
//! may stand still for as long. So a failure counts if the case fails again while no other runs.
//! A history that shows two holders, or tokens that do not rise, counts at once: no slow machine
//! makes one. Either way the first failure is printed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use libtest_mimic::Failed;

use crate::history::UNSAFE;

/// Held shared by each case, and alone by one that is judged again.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a case, and a second time if that decides.
pub(crate) fn judge(name: &str, case: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    let first = {
        let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        attempt(&case)
    };
    let Err(first) = first else { return Ok(()) };
    if first.contains(UNSAFE) {
        return Err(first.into());
    }
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    eprintln!("{name} is judged again, alone; the first time: {first}");
    attempt(&case).map_err(|second| format!("{second}; the first time: {first}").into())
}

fn attempt(case: &impl Fn() -> Result<(), Failed>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(case)) {
        Ok(done) => done.map_err(|failed| failed.message().unwrap_or_default().to_owned()),
        Err(panic) => Err(panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without a text".to_owned())),
    }
}
