//! What Prometheus sees of a service whose Redis is away for three seconds.
//!
//! `cargo run -p leasehold --example metrics --features redis,metrics` (needs `redis-server`)
//!
//! A holder keeps one name all the time, and two workers take turns with another one. In the middle
//! Redis is stopped and started again. At the end the program prints what a scrape would read; a
//! service would serve that text at `/metrics`. docs/metrics.md says what each figure means.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Event, Options};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const MOMENT: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> Result<()> {
    // Before the client is made, so that the recorder hears what the figures mean.
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.001, 0.01, 0.1, 1.0, 10.0])?
        .install_recorder()?;

    let mut server = Server::start()?;
    let client = server.connect().await?;
    let listening = tokio::spawn(tell(client.clone()));
    let holder = client.mutex("report")?.lock().await?;
    let workers = [tokio::spawn(work(client.clone())), tokio::spawn(work(client.clone()))];

    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("redis is stopped");
    server.stop()?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("redis is started");
    server.run()?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    println!("the holder is {:?}", holder.standing());
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    holder.release().await?;
    client.close().await?;
    listening.abort();
    println!("\n{}", recorder.render());
    server.stop()
}

/// Takes a name for a moment, again and again, and does not wait for long.
async fn work(client: Client) -> Result<()> {
    let stock = client.mutex("stock/42")?;
    loop {
        match stock.lock_for(Duration::from_millis(400)).await {
            Ok(Some(guard)) => {
                guard.run(tokio::time::sleep(MOMENT)).await.ok();
                guard.release().await.ok();
            }
            // Not in time, or Redis is away: counted already.
            Ok(None) | Err(_) => tokio::time::sleep(MOMENT).await,
        }
    }
}

/// Prints what matters as it happens: the same that `tracing` would log.
async fn tell(client: Client) {
    let mut events = client.events();
    while let Some(event) = events.next().await {
        match event {
            Event::Disconnected { server, why } => println!("  lost the connection to {server}: {why}"),
            Event::Reconnected { server } => println!("  connected to {server} again"),
            Event::InDoubt { name, why, .. } => println!("  `{name}` is in doubt: {why}"),
            Event::Recovered { name, .. } => println!("  `{name}` is held for sure again"),
            Event::Lost { name, why, .. } => println!("  `{name}` is lost: {why}"),
            _ => {}
        }
    }
}

/// A Redis of our own that keeps its data while it is stopped.
struct Server {
    port: u16,
    dir: tempfile::TempDir,
    process: Option<Child>,
}

impl Server {
    fn start() -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut server = Server { port, dir: tempfile::tempdir()?, process: None };
        server.run()?;
        Ok(server)
    }

    fn run(&mut self) -> Result<()> {
        let mut redis = Command::new("redis-server");
        redis.args([
            "--port",
            &self.port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
        ]);
        redis.arg("--dir").arg(self.dir.path()).stdout(Stdio::null());
        self.process = Some(redis.spawn()?);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Connects as soon as it answers.
    async fn connect(&self) -> Result<Client> {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        for _ in 0..100 {
            match leasehold::connect_with(&url, Options::new().lease(Duration::from_secs(6))).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(MOMENT).await,
                answer => return Ok(answer?),
            }
        }
        Err("redis-server does not answer".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop().ok();
    }
}
