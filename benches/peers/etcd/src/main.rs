//! Leasehold beside its peers on etcd, in one run: etcd-client's lock API and Go's concurrency
//! package.
//!
//! ```text
//! cd benches/peers/etcd && cargo run --release            # all
//! cargo run --release -- --free                           # or: --processes, --idle
//! cargo run --release -- --disk                           # a server that waits for its disk
//! cargo run --release -- --on 127.0.0.1:2379              # a server of yours
//! ```
//!
//! What is compared runs in turns on the same server. etcd-client needs `protoc` to be built, and
//! Go's package a Go of 1.26; where Go is missing it is left out.

use std::process::ExitCode;
use std::time::Duration;

use kit::Result;
use servers::{Etcd, Fsync};

mod free;
mod idle;
mod others;
mod processes;

#[path = "../../../kit.rs"]
mod kit;
#[path = "../../../../tests/servers/mod.rs"]
mod servers;

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etcd-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    if let [flag, child @ ..] = arguments
        && flag == "--child"
    {
        return processes::child(child);
    }
    let parts = ["--free", "--processes", "--idle"];
    let some = arguments.iter().any(|argument| parts.contains(&argument.as_str()));
    let wanted = |part: &str| !some || arguments.iter().any(|argument| argument == part);
    let disk = arguments.iter().any(|argument| argument == "--disk");
    let server = match kit::value_after(arguments, "--on") {
        Some(_) => None,
        None => match Etcd::missing() {
            Some(missing) => return Err(format!("{missing} is missing; `./test.sh` installs it").into()),
            None => Some(Etcd::start_syncing(if disk { Fsync::On } else { Fsync::Off })),
        },
    };
    let address = match (kit::value_after(arguments, "--on"), &server) {
        (Some(address), _) => address.to_owned(),
        (None, Some(server)) => format!("127.0.0.1:{}", server.port()),
        (None, None) => return Err("no server".into()),
    };
    let others = others::all()?;
    if wanted("--free") {
        for tasks in [1, 64] {
            free::run(&address, &others, tasks)?;
        }
    }
    if wanted("--processes") {
        processes::run(&address, &others)?;
    }
    if wanted("--idle") {
        idle::run(&address)?;
    }
    Ok(())
}
