//! rslock, with its own delays: up to 200 ms. Arguments: ports, key. See ../../strangers.rs for the
//! lines.

use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use redis::AsyncCommands as _;
use rslock::{Lock, LockManager};

/// Adds one to a counter that nothing else protects, again and again.
async fn work(
    manager: &LockManager,
    redis: &mut redis::aio::MultiplexedConnection,
    key: &str,
    total: Duration,
    lease: Duration,
) -> String {
    let end = Instant::now() + total;
    let (mut sections, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let asked = Instant::now();
        let lock = manager.acquire_no_guard(key, lease).await.expect("a lock");
        longest = longest.max(asked.elapsed());
        let count: Option<u64> = redis.get("counter").await.expect("a number");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let _: () = redis.set("counter", count.unwrap_or(0) + 1).await.expect("written");
        // It does not tell whether it still had it.
        lock.release().await;
        sections += 1;
    }
    format!("worked {sections} {}", longest.as_millis())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let urls: Vec<String> = arguments[1].split(',').map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let key = &*arguments[2];
    let client = redis::Client::open(&*urls[0]).expect("a URL");
    let mut redis = client.get_multiplexed_async_connection().await.expect("a server");
    let manager = LockManager::new(urls);
    let mut hasty = manager.clone();
    hasty.set_retry(1, Duration::from_millis(1));
    let mut held: Option<Lock> = None;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let mut words = line.split(' ');
        let word = words.next().expect("a word");
        let mut time = || Duration::from_millis(words.next().expect("a number").parse().expect("a number"));
        let answer = match word {
            "take" => {
                held = Some(manager.acquire_no_guard(key, time()).await.expect("a lock"));
                "held".to_owned()
            }
            "try" => match hasty.lock(key, time()).await {
                Ok(lock) => {
                    held = Some(lock);
                    "held".to_owned()
                }
                Err(_) => "busy".to_owned(),
            },
            "release" => {
                held.take().expect("something held").release().await;
                "released".to_owned()
            }
            _ => work(&manager, &mut redis, key, time(), time()).await,
        };
        println!("{answer}");
        std::io::stdout().flush().expect("a pipe");
    }
}
