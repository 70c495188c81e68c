//! One client that holds many locks and does nothing: what that costs the cluster.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::kit::{self, Goal, Result, verdict};

const LOCKS: usize = 1000;
const LEASE: Duration = Duration::from_secs(30);
const WATCHED_FOR: Duration = Duration::from_secs(30);

/// What the server has counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    leases: f64,
    watches: f64,
    streams: f64,
    requests: f64,
}

pub(crate) fn run(address: &str) -> Result<()> {
    println!("one client that holds {LOCKS} locks with leases of {LEASE:?}");
    let runtime = kit::two_threads()?;
    let before = counted(address)?;
    let client = runtime.block_on(leasehold::connect(&format!("etcd://{address}/idle")))?;
    let guards = runtime.block_on(async {
        let mut guards = Vec::new();
        for lock in 0..LOCKS {
            guards.push(client.mutex(format!("n{lock}"))?.lease(LEASE).lock().await?);
        }
        Result::Ok(guards)
    })?;
    let started = counted(address)?;
    let cpu = kit::process_time();
    std::thread::sleep(WATCHED_FOR);
    let ended = counted(address)?;
    let cpu = (kit::process_time() - cpu).as_secs_f64() / WATCHED_FOR.as_secs_f64();
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("  {held} are still held; {:.2} % of a core", 100.0 * cpu);
    verdict("etcd leases", Goal::AtMost(3.0), ended.leases - before.leases);
    verdict("watches", Goal::AtMost(5.0), ended.watches - before.watches);
    verdict("streams of watches", Goal::AtMost(2.0), ended.streams - before.streams);
    let requests = (ended.requests - started.requests) / WATCHED_FOR.as_secs_f64();
    verdict("requests per second", Goal::AtMost(5.0), requests);
    runtime.block_on(async {
        for guard in guards {
            guard.release().await?;
        }
        client.close().await
    })?;
    Ok(())
}

/// Reads the server's own figures.
fn counted(address: &str) -> Result<Counted> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let sum = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let lines = text.lines().filter(|line| wanted(line));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    Ok(Counted {
        // Those that were made, less those that have ended.
        leases: sum(&|line| line.starts_with("etcd_debugging_lease_granted_total"))
            - sum(&|line| line.starts_with("etcd_debugging_lease_revoked_total"))
            - sum(&|line| line.starts_with("etcd_server_lease_expired_total")),
        watches: sum(&|line| line.starts_with("etcd_debugging_mvcc_watcher_total")),
        streams: sum(&|line| line.starts_with("etcd_debugging_mvcc_watch_stream_total")),
        // Unary calls, and messages of streams that came in.
        requests: sum(&|line| line.starts_with("grpc_server_msg_received_total")),
    })
}
