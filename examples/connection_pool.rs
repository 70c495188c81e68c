//! A pool of connections that processes share, guarded by a semaphore, whose holders die.
//!
//! ```text
//! cargo run -p leasehold --example connection_pool
//! cargo run -p leasehold --features redis --example connection_pool -- --on redis://127.0.0.1/
//! ```
//!
//! A server takes at most so many connections. Workers take a permit, connect, work, disconnect and
//! give the permit back; every few hundred milliseconds one that is connected is killed. The server
//! counts: if it ever sees more connections than the pool has, or if the pool is not whole again
//! after the last worker has gone, the program ends with an error.
//!
//! `--size 5` of the pool, `--processes 8`, `--seconds 10`.

#[path = "processes/mod.rs"]
mod processes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use processes::{Arguments, Result, Worker, random, random_time};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A process that was killed keeps its permit for so long, unless the engine sees that it is dead.
const LEASE: Duration = Duration::from_secs(3);
/// How long the server waits for the end of a connection whose process is dying: the files of a
/// process are closed one after the other.
const DYING: Duration = Duration::from_millis(500);

/// What the server sees.
#[derive(Default)]
struct Seen {
    /// The process at the other end of each connection, by the number of the connection.
    open: HashMap<u64, u32>,
    made: u64,
    most: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url, name, size, server]) = arguments.of_worker() {
        return work(url, name, size.parse()?, server).await;
    }
    let dir = tempfile::tempdir()?;
    let (url, size) = (arguments.url(&dir), arguments.number("--size", 5)?);
    let count = arguments.number("--processes", 8)?;
    let time = Duration::from_secs(u64::from(arguments.number("--seconds", 10)?));
    let name = format!("connection-pool-{}", random(u64::MAX));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?.to_string();
    let seen = Arc::new(Mutex::new(Seen::default()));
    tokio::spawn(serve(listener, Arc::clone(&seen), usize::try_from(size)?));

    let text = size.to_string();
    let start = async || Worker::start(&[&url, &name, &text, &server]).await;
    let mut workers = HashMap::new();
    for _ in 0..count {
        let worker = start().await?;
        workers.insert(worker.id().ok_or("it has ended")?, worker);
    }
    let (mut killed, end) = (0, Instant::now() + time);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100) + random_time(300)).await;
        // One that is connected: it can not give its permit back.
        let victim = look(&seen).open.values().next().copied();
        if let Some(mut worker) = victim.and_then(|victim| workers.remove(&victim)) {
            worker.kill().await?;
            killed += 1;
            let worker = start().await?;
            workers.insert(worker.id().ok_or("it has ended")?, worker);
        }
    }
    for worker in workers.values_mut() {
        worker.kill().await?;
    }
    let gone = Instant::now();
    let client = leasehold::connect(&url).await?;
    let pool = client.semaphore(&name, size)?;
    while pool.available().await? != size && gone.elapsed() < LEASE * 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (whole_after, available) = (gone.elapsed(), pool.available().await?);
    client.close().await.ok();
    let Seen { made, most, .. } = *look(&seen);
    println!("{count} processes, a pool of {size}, {killed} killed while they were connected");
    println!("  connections made             {made}");
    println!("  open at the same time, most  {most}");
    println!("  the pool at the end          {available} of {size}, {whole_after:.1?} after all were killed");
    match () {
        () if most > usize::try_from(size)? => Err("there were more connections than the pool has".into()),
        () if available != size => Err("permits are missing".into()),
        () if made == 0 || killed == 0 => Err("nothing happened".into()),
        () => Ok(()),
    }
}

fn look(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().expect("nobody panics with it")
}

/// Counts connections. A client says who it is, and before it leaves it waits until it was counted.
async fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>, size: usize) -> Result<()> {
    loop {
        let (mut line, _) = listener.accept().await?;
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let Ok(process) = line.read_u32().await else { return };
            let since = Instant::now();
            while look(&seen).open.len() >= size && since.elapsed() < DYING {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let number = {
                let mut seen = look(&seen);
                seen.made += 1;
                let number = seen.made;
                seen.open.insert(number, process);
                seen.most = seen.most.max(seen.open.len());
                number
            };
            line.write_u8(1).await.ok();
            // It says goodbye, or it is dead.
            line.read_u8().await.ok();
            look(&seen).open.remove(&number);
            line.write_u8(1).await.ok();
        });
    }
}

/// Uses the pool until it is killed.
async fn work(url: &str, name: &str, size: u32, server: &str) -> Result<()> {
    let options = leasehold::Options::new().lease(LEASE);
    let client = leasehold::connect_with(url, options).await?;
    let pool = client.semaphore(name, size)?;
    println!("ready");
    loop {
        let permit = pool.acquire().await?;
        let session = async {
            let mut line = TcpStream::connect(server).await?;
            line.write_u32(std::process::id()).await?;
            line.read_u8().await?;
            tokio::time::sleep(random_time(30)).await;
            line.write_u8(0).await?;
            line.read_u8().await
        };
        // If the lease is lost, the connection is closed at once.
        if let Ok(ended) = permit.run(session).await {
            ended?;
            permit.release().await.ok();
        }
    }
}
