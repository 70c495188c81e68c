//! Publishers and subscribers that are killed, stopped, dropped and cut off.

use std::time::Duration;

use leasehold::kit::topics::{Delivery, From};
use leasehold::{Client, Error};

use super::{able, message, publish, subscribe, topic};
use crate::bench::{Ground, ms, soon};
use crate::cancel::poll_and_drop;
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "topics",
        able,
        [
            a_publisher_that_is_killed_leaves_no_hole,
            a_paused_subscriber_goes_on_where_it_was,
            a_dropped_call_loses_nothing,
            a_lost_answer_is_told_and_the_order_stays,
            a_subscriber_survives_an_outage,
        ]
    )
}

async fn a_publisher_that_is_killed_leaves_no_hole(mut ground: Ground) {
    let topic = topic(&ground.client().await);
    let mut subscriber = subscribe(&topic, From::Now).await;
    let (mut expected, mut all) = (0, 0);
    for round in 0..5_u64 {
        let Some(mut child) = ground.child().await else { return };
        assert_eq!(child.ask("publish x").await, "publishing");
        tokio::time::sleep(ms(30) + Duration::from_micros(round * 700)).await;
        child.kill().await;
        publish(&topic, "end").await;
        // Numbers from 0 on, without a hole, as far as it came.
        loop {
            let got = message(&mut subscriber).await;
            if got == "end" {
                break;
            }
            assert_eq!(got, expected.to_string());
            (expected, all) = (expected + 1, all + 1);
        }
        expected = 0;
    }
    assert!(all > 0, "nothing was published");
}

async fn a_paused_subscriber_goes_on_where_it_was(mut ground: Ground) {
    let topic = topic(&ground.client().await);
    let Some(mut child) = ground.child().await else { return };
    assert_eq!(child.ask("subscribe x 40").await, "subscribed");
    for number in 0..40 {
        if number == 10 {
            child.stop();
        }
        while let Err(error) = topic.publish(number.to_string()).await {
            child.stop_elsewhere(&ground, &error).await;
        }
    }
    child.resume();
    let got = child.line().await;
    assert_eq!(got, (0..40).map(|number| number.to_string()).collect::<Vec<_>>().join(","));
}

async fn a_dropped_call_loses_nothing(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (cut, whole) = (topic(&client), topic(&ground.client().await));
    let mut subscriber = subscribe(&cut, From::Now).await;
    wire.set(Fault::Stutter);
    let (mut published, mut got) = (0, Vec::new());
    for depth in 0..12 {
        publish(&whole, published.to_string()).await;
        published += 1;
        for _ in 0..3 {
            let next = async {
                if let Ok(Delivery::Message(message)) = subscriber.next().await {
                    got.push(String::from_utf8(message.data).expect("text"));
                }
            };
            poll_and_drop(next, depth).await;
        }
    }
    wire.set(Fault::None);
    while got.len() < published {
        got.push(message(&mut subscriber).await);
    }
    assert_eq!(got, (0..published).map(|number| number.to_string()).collect::<Vec<_>>());
    // A publisher that is dropped has published or has not, and never half.
    wire.set(Fault::Stutter);
    let before = publish(&whole, "before").await;
    for depth in 0..8 {
        if poll_and_drop(cut.publish("maybe"), depth).await {
            break;
        }
    }
    wire.set(Fault::None);
    publish(&whole, "after").await;
    let mut subscriber = subscribe(&whole, From::Cursor(before)).await;
    loop {
        match message(&mut subscriber).await.as_str() {
            "maybe" => {}
            "after" => break,
            other => panic!("{other}"),
        }
    }
}

async fn a_lost_answer_is_told_and_the_order_stays(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (cut, whole) = (topic(&client), topic(&ground.client().await));
    let mut subscriber = subscribe(&whole, From::Now).await;
    publish(&cut, "0").await;
    wire.set(Fault::LoseAnswer);
    let lost = cut.publish("1").await.expect_err("not heard");
    assert!(matches!(lost, Error::Unavailable { .. }), "{lost}");
    wire.set(Fault::None);
    publish(&cut, "2").await;
    for number in ["0", "1", "2"] {
        assert_eq!(message(&mut subscriber).await, number);
    }
}

async fn a_subscriber_survives_an_outage(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let whole = topic(&ground.client().await);
    let mut subscriber = subscribe(&topic(&client), From::Now).await;
    publish(&whole, "0").await;
    assert_eq!(message(&mut subscriber).await, "0");
    wire.set(Fault::Refuse);
    wire.deafen();
    publish(&whole, "1").await;
    let error = soon("an answer", subscriber.next()).await.expect_err("away");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    wire.set(Fault::None);
    assert_eq!(message(&mut subscriber).await, "1");
    // It hears nothing any more, and looks.
    let waiting = tokio::spawn(async move { message(&mut subscriber).await });
    tokio::time::sleep(ms(20)).await;
    publish(&whole, "2").await;
    assert_eq!(waiting.await.expect("no panic"), "2");
}

/// In a child process: publishes numbers until it is killed.
pub(crate) async fn publish_in_child(client: &Client, name: &str, answer: fn(&str)) {
    let topic = client.topic(name).expect("a name");
    answer("publishing");
    for number in 0_u64.. {
        publish(&topic, number.to_string()).await;
    }
}

/// In a child process: reads so many messages, and tells them.
pub(crate) async fn subscribe_in_child(client: &Client, name: &str, count: u64, answer: fn(&str)) {
    let mut subscriber = subscribe(&client.topic(name).expect("a name"), From::Now).await;
    answer("subscribed");
    let mut got = Vec::new();
    for _ in 0..count {
        got.push(match subscriber.next().await.expect("an answer") {
            Delivery::Message(message) => String::from_utf8_lossy(&message.data).into_owned(),
            gap => format!("{gap:?}"),
        });
    }
    answer(&got.join(","));
}

/// In a child process: publishes one message.
pub(crate) async fn publish_one_in_child(client: &Client, name: &str, text: &str, answer: fn(&str)) {
    publish(&client.topic(name).expect("a name"), text).await;
    answer("published");
}
