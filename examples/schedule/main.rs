//! Five nodes, one task that is due every second, and everything that goes wrong: nodes are killed,
//! stopped and cut off from the server, and their clocks are wrong by seconds.
//!
//! ```sh
//! cargo run -p leasehold --example schedule --features schedule,redis -- --for 30
//! ```
//!
//! It starts a Redis server of its own if there is one on this machine; `--on URL` names another
//! engine (`file:DIR`, `redis://HOST:PORT/`). At the end it prints what became of each occurrence,
//! and ends with 1 if one of them was started twice, or neither ran nor is listed as missed or
//! lost.

mod judge;
mod network;
mod node;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::judge::Judge;
use crate::network::Line;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NODES: usize = 5;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, url, log] = &args[..]
        && word == "node"
    {
        node::run(url, Path::new(log)).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let option = |name: &str| args.iter().position(|word| word == name).and_then(|at| args.get(at + 1));
    let time = Duration::from_secs(option("--for").map_or(Ok(20), |seconds| seconds.parse())?);
    let dir = tempfile::tempdir()?;
    let (url, _server) = match option("--on") {
        Some(url) => (url.clone(), None),
        None => own_server(dir.path()).await?,
    };
    let mut cluster = Cluster::start(&url, dir.path())?;
    println!("{NODES} nodes on {url}, a task every second, {} s", time.as_secs());
    println!("clocks are wrong by {:?} s", cluster.nodes.iter().map(|node| node.skew).collect::<Vec<_>>());

    let mut judge = Judge::new(&url).await?;
    let (end, mut numbers) = (Instant::now() + time, Numbers(SystemClock.now().as_micros() | 1));
    while Instant::now() < end {
        sleep(Duration::from_millis(1000 + numbers.below(1500))).await;
        let hurt = cluster.hurt(&mut numbers).await?;
        judge.note(hurt);
        judge.look().await?;
    }
    // Quiet for a while, so that what was lost is found.
    sleep(node::LEASE * 3).await;
    cluster.stop().await;
    judge.look().await?;
    Ok(if judge.verdict(dir.path(), &cluster.counts())? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server for this run, or a directory if there is no Redis on this machine.
async fn own_server(dir: &Path) -> Result<(String, Option<Owned>)> {
    // A free port, which nobody takes in the next moment.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    command.arg("--dir").arg(dir).stdout(Stdio::null());
    let Ok(server) = command.spawn() else {
        return Ok((format!("file:{}", dir.join("store").display()), None));
    };
    let (server, limit) = (Owned(server), Instant::now() + Duration::from_secs(10));
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > limit {
            return Err("redis-server does not start".into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok((format!("redis://127.0.0.1:{port}/"), Some(server)))
}

/// A process that ends with this value.
struct Owned(Child);

impl Owned {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            kill_process(pid, signal).ok();
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

struct Node {
    process: Owned,
    /// Its way to the server, if there is one.
    line: Option<Line>,
    url: String,
    log: PathBuf,
    skew: i64,
    skew_library: Option<PathBuf>,
}

impl Node {
    fn spawn(url: &str, log: &Path, skew: i64, library: Option<&Path>) -> Result<Owned> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", url]).arg(log);
        if let Some(library) = library {
            command.env("LD_PRELOAD", library).env("LEASEHOLD_SKEW_MS", (skew * 1000).to_string());
        }
        Ok(Owned(command.spawn()?))
    }
}

struct Cluster {
    nodes: Vec<Node>,
    kills: u32,
    pauses: u32,
    cuts: u32,
}

impl Cluster {
    fn start(url: &str, dir: &Path) -> Result<Cluster> {
        let library = skew_library(dir);
        let mut nodes = Vec::new();
        for (number, skew) in [-7, -2, 0, 3, 11].into_iter().enumerate().take(NODES) {
            let (line, url) = match Line::before(url)? {
                Some((line, url)) => (Some(line), url),
                None => (None, url.to_owned()),
            };
            let log = dir.join(format!("node-{number}.log"));
            let skew = if library.is_some() { skew } else { 0 };
            let process = Node::spawn(&url, &log, skew, library.as_deref())?;
            nodes.push(Node { process, line, url, log, skew, skew_library: library.clone() });
        }
        Ok(Cluster { nodes, kills: 0, pauses: 0, cuts: 0 })
    }

    /// Hurts a node, most often one that is in the middle of its work; when that was, if it was.
    async fn hurt(&mut self, numbers: &mut Numbers) -> Result<Option<u64>> {
        let random = usize::try_from(numbers.below(NODES as u64))?;
        let limit = Instant::now() + Duration::from_secs(2);
        let (search, mut working) = (numbers.below(4) > 0, None);
        while search && working.is_none() && Instant::now() < limit {
            sleep(Duration::from_millis(5)).await;
            let logs = self.nodes.iter().map(|node| node.log.as_path());
            working = judge::who_works(logs);
        }
        let node = &mut self.nodes[working.unwrap_or(random)];
        let when = working.map(|_| SystemClock.now().as_micros());
        let long = Duration::from_millis(500 + numbers.below(2500));
        match (numbers.below(3), &node.line) {
            (0, Some(line)) => {
                self.cuts += 1;
                line.cut();
                sleep(long).await;
                line.mend();
            }
            (1, _) => {
                self.pauses += 1;
                node.process.signal(Signal::STOP);
                sleep(long).await;
                node.process.signal(Signal::CONT);
            }
            _ => {
                self.kills += 1;
                node.process.signal(Signal::KILL);
                sleep(long).await;
                let process = Node::spawn(&node.url, &node.log, node.skew, node.skew_library.as_deref())?;
                node.process = process;
            }
        }
        Ok(when)
    }

    /// Lets all of them finish what they have begun.
    async fn stop(&mut self) {
        for node in &self.nodes {
            node.process.signal(Signal::TERM);
        }
        let limit = Instant::now() + Duration::from_secs(10);
        for node in &mut self.nodes {
            while node.process.0.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < limit {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn counts(&self) -> String {
        format!("{} kills, {} pauses, {} cuts", self.kills, self.pauses, self.cuts)
    }
}

/// What makes the clocks of nodes wrong; none without a C compiler.
fn skew_library(dir: &Path) -> Option<PathBuf> {
    let library = dir.join("skew.so");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O2", "-x", "c", "-", "-o"]).arg(&library);
    let mut cc = command.stdin(Stdio::piped()).spawn().ok()?;
    cc.stdin.take()?.write_all(include_bytes!("skew.c")).ok()?;
    cc.wait().ok()?.success().then_some(library)
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
