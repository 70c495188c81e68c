//! How costs grow: with the names, with the waiters and with the leases.
//!
//! ```text
//! cargo bench -p leasehold --bench growth                # about two minutes
//! cargo bench -p leasehold --bench growth -- --quick     # a tenth of everything
//! ```
//!
//! Every part runs in a process of its own, so that none pays for what another left in memory.

use std::process::ExitCode;

use kit::Result;

#[path = "../bare.rs"]
mod bare;
mod ground;
mod keeper;
#[path = "../kit.rs"]
mod kit;
mod names;
mod waiters;

/// How far it goes.
#[derive(Clone, Copy)]
struct Plan {
    names: u64,
    waiters: u64,
    leases: u64,
}

const FULL: Plan = Plan { names: 1_000_000, waiters: 10_000, leases: 10_000 };
const QUICK: Plan = Plan { names: 100_000, waiters: 1_000, leases: 1_000 };

/// The parts, each on both engines.
const PARTS: [(&str, Part); 4] = [
    ("names-in-use", names::in_use),
    ("names-idle", names::idle),
    ("waiters", waiters::run),
    ("keeper", keeper::run),
];

type Part = fn(Plan, &Place) -> Result<()>;

/// Where a part is measured.
struct Place {
    engine: String,
    dir: tempfile::TempDir,
}

impl Place {
    /// A store of its own.
    fn url(&self, label: &str) -> String {
        match self.engine.as_str() {
            "file" => format!("file:{}", self.dir.path().join(label).display()),
            _ => "memory:".into(),
        }
    }
}

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("growth: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let quick = arguments.iter().any(|argument| argument == "--quick");
    if let Some(wanted) = kit::value_after(arguments, "--part") {
        let (_, part) = PARTS.iter().find(|(name, _)| *name == wanted).ok_or("there is no such part")?;
        let engine = kit::value_after(arguments, "--engine").unwrap_or("memory").to_owned();
        let place = Place { engine, dir: tempfile::tempdir()? };
        return part(if quick { QUICK } else { FULL }, &place);
    }
    for (part, _) in PARTS {
        for engine in ["memory", "file"] {
            let mut child = std::process::Command::new(std::env::current_exe()?);
            child.args(["--part", part, "--engine", engine]).args(quick.then_some("--quick"));
            let status = child.status()?;
            if !status.success() {
                return Err(format!("{part} on {engine} ended with {status}").into());
            }
        }
    }
    Ok(())
}

/// 1, 10, 100, … up to `most`.
fn tens(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1_u64), |number| number.checked_mul(10))
        .take_while(move |number| *number <= most)
}
