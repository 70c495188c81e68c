//! How near the engines come to what their ground allows, in one run.
//!
//! ```text
//! cargo bench -p leasehold --bench limits                # all, about a minute
//! cargo bench -p leasehold --bench limits -- --quick     # all, about ten seconds
//! cargo bench -p leasehold --bench limits -- --crowd     # only the crowd, which is a proof, too
//! ```
//!
//! The other parts can be picked in the same way: `--memory`, `--file`, `--processes`, `--tasks`.

use std::process::ExitCode;
use std::time::Duration;

use kit::Result;

#[path = "../bare.rs"]
mod bare;
mod crowd;
#[path = "../kit.rs"]
mod kit;
mod processes;
mod single;
mod tasks;

/// How long everything takes.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    slice: Duration,
    /// In all processes together.
    sections: u64,
}

const FULL: Plan = Plan { rounds: 9, slice: Duration::from_millis(400), sections: 100_000 };
const QUICK: Plan = Plan { rounds: 3, slice: Duration::from_millis(150), sections: 10_000 };

type Part = fn(Plan) -> Result<()>;

const PARTS: [(&str, Part); 5] = [
    ("--memory", single::memory),
    ("--file", single::file),
    ("--processes", processes::run),
    ("--tasks", tasks::run),
    ("--crowd", crowd::run),
];

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limits: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    match arguments.first().map(String::as_str) {
        Some("--child-cycles") => return processes::child(&arguments[1..]),
        Some("--child-crowd") => return crowd::child(&arguments[1..]),
        _ => {}
    }
    let plan = if has("--quick") { QUICK } else { FULL };
    let all = !PARTS.iter().any(|(flag, _)| has(flag));
    PARTS.iter().filter(|(flag, _)| all || has(flag)).try_for_each(|(_, part)| part(plan))
}
