//! Leasehold beside its peers on ZooKeeper, in one run: the lock of zookeeper-client, Curator and
//! kazoo.
//!
//! ```text
//! cd benches/peers/zookeeper && cargo run --release       # all
//! cargo run --release -- --free                           # or: --processes
//! cargo run --release -- --on 127.0.0.1:2181              # a server of yours
//! ```
//!
//! What is compared runs in turns on the same server. `tests/interop/install.sh` installs the
//! server, Curator and kazoo.

use std::process::ExitCode;
use std::time::Duration;

use kit::Result;
use servers::ZooKeeper;

mod free;
mod peers;
mod processes;

#[path = "../../../kit.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod kit;
#[path = "../../../../tests/servers/mod.rs"]
mod servers;

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zookeeper-peers: {error}");
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
    let parts = ["--free", "--processes"];
    let some = arguments.iter().any(|argument| parts.contains(&argument.as_str()));
    let wanted = |part: &str| !some || arguments.iter().any(|argument| argument == part);
    let server = match kit::value_after(arguments, "--on") {
        Some(_) => None,
        None => match ZooKeeper::missing() {
            Some(missing) => return Err(format!("{missing} is missing; `./test.sh` installs it").into()),
            None => Some(ZooKeeper::start()),
        },
    };
    let address = match (kit::value_after(arguments, "--on"), &server) {
        (Some(address), _) => address.to_owned(),
        (None, Some(server)) => format!("127.0.0.1:{}", server.port()),
        (None, None) => return Err("no server".into()),
    };
    if wanted("--free") {
        for tasks in [1, 64] {
            free::run(&address, tasks)?;
        }
    }
    if wanted("--processes") {
        processes::run(&address)?;
    }
    Ok(())
}
