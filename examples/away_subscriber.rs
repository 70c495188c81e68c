//! What a subscriber gets that was away for a minute.
//!
//! ```text
//! cargo run -p leasehold --features topics --example away_subscriber
//! cargo run -p leasehold --features topics,redis --example away_subscriber -- --on redis://127.0.0.1/
//! ```
//!
//! Twenty messages are published every second to two topics: one keeps them for an hour, the other
//! for half of the time that the subscriber is away. If a message is missing that no gap has told
//! of, or if they are out of order, the program ends with an error.
//!
//! `--seconds 60` that it is away.

#[path = "processes/mod.rs"]
mod processes;

use std::time::{Duration, Instant};

use leasehold::kit::topics::{Cursor, Delivery, From, Topic};
use processes::{Arguments, Result, random};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    let dir = tempfile::tempdir()?;
    let url = arguments.url(&dir);
    let away = Duration::from_secs(u64::from(arguments.number("--seconds", 60)?));
    let publisher = leasehold::connect(&url).await?;
    // What is inside a client is not shared with another one.
    let subscriber = if url == "memory:" { publisher.clone() } else { leasehold::connect(&url).await? };
    let name = format!("prices-{}", random(u64::MAX));
    let topics = |client: &leasehold::Client| -> Result<[Topic; 2]> {
        let (long, short) = (client.topic(&name)?, client.topic(format!("{name}-short"))?);
        Ok([long, short.keep_for(away / 2)])
    };
    let (published, read) = (topics(&publisher)?, topics(&subscriber)?);

    // It reads one message of each, notes where it is, and goes away.
    let mut noted = Vec::new();
    for (published, read) in published.iter().zip(&read) {
        let mut subscriber = read.subscribe(From::Now).await?;
        published.publish("0").await?;
        noted.push(subscriber.next().await?.cursor().to_string());
    }
    let (begun, mut count) = (Instant::now(), 1_u64);
    while begun.elapsed() < away {
        for topic in &published {
            topic.publish(count.to_string()).await?;
        }
        count += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("away for {away:?} on {}; {count} messages were published", publisher.guarantees().engine);
    for ((topic, noted), kept) in read.iter().zip(noted).zip(["for an hour", "for half of that time"]) {
        let (started, cursor) = (Instant::now(), noted.parse()?);
        let (got, missed) = catch_up(topic, cursor, count).await?;
        println!(
            "  kept {kept}: {got} messages in order, {missed} told as a gap, in {:.1?}",
            started.elapsed()
        );
        if got + missed + 1 != count {
            return Err(format!("{} messages are missing", count - got - missed - 1).into());
        }
    }
    Ok(())
}

/// Reads what there is: how many messages, and how many are told to be missing.
async fn catch_up(topic: &Topic, cursor: Cursor, count: u64) -> Result<(u64, u64)> {
    let mut subscriber = topic.subscribe(From::Cursor(cursor)).await?;
    let (mut next, mut got, mut gap) = (1, 0, 0);
    while next < count {
        match subscriber.next().await? {
            Delivery::Message(message) if message.data == next.to_string().as_bytes() => {
                (next, got) = (next + 1, got + 1);
            }
            Delivery::Message(message) => {
                let data = String::from_utf8_lossy(&message.data);
                return Err(format!("message {data} came instead of {next}").into());
            }
            Delivery::Gap { missed: Some(missed), .. } => (next, gap) = (next + missed, gap + missed),
            Delivery::Gap { missed: None, .. } => return Err("the store has lost the topic".into()),
        }
    }
    Ok((got, gap))
}
