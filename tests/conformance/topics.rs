//! Topics: publish and subscribe.

mod faults;

use std::time::Duration;

use leasehold::engine::{CellValue, Engine, Swap, Write};
use leasehold::kit::topics::{Cursor, Delivery, From, LONGEST_MESSAGE, Subscriber, Topic};
use leasehold::{Client, Error};
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, not_within, refuses, soon, until};
use crate::cells::name;
use crate::{Group, cases};

pub(crate) use self::faults::{publish_in_child, publish_one_in_child, subscribe_in_child};

pub(crate) fn groups() -> Vec<Group> {
    vec![group(), faults::group()]
}

fn group() -> Group {
    cases!(
        "topics",
        able,
        [
            everybody_gets_every_message_in_order,
            a_subscriber_is_told_at_once,
            a_subscriber_hears_of_another_process,
            a_subscriber_that_waits_does_not_ask_again_and_again,
            many_publishers_have_one_order,
            a_subscriber_that_was_away_gets_what_it_missed,
            what_is_not_kept_any_more_is_a_gap,
            what_is_too_old_is_a_gap,
            messages_are_kept_as_long_as_their_publisher_says,
            what_was_read_is_delivered_before_a_gap,
            a_gap_of_many_is_found_quickly,
            the_oldest_message_is_where_a_new_subscriber_can_begin,
            a_topic_that_the_store_forgot_is_a_gap,
            a_message_that_is_too_long_is_refused,
            a_cell_of_something_else_is_no_topic,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse topics.
async fn able(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.topic("x"));
    None
}

fn topic(client: &Client) -> Topic {
    client.topic("x").expect("a name")
}

async fn publish(topic: &Topic, message: impl AsRef<[u8]>) -> Cursor {
    topic.publish(message).await.expect("published")
}

async fn subscribe(topic: &Topic, from: From) -> Subscriber {
    topic.subscribe(from).await.expect("subscribed")
}

async fn next(subscriber: &mut Subscriber) -> Delivery {
    soon("a delivery", subscriber.next()).await.expect("an answer")
}

/// The next message, which must be one.
async fn message(subscriber: &mut Subscriber) -> String {
    match next(subscriber).await {
        Delivery::Message(message) => String::from_utf8(message.data).expect("text"),
        gap => panic!("{gap:?}"),
    }
}

async fn nothing_more(subscriber: &mut Subscriber) {
    not_within(ms(20), "a message came", subscriber.next()).await;
}

async fn delete(engine: &dyn Engine, cell: &str) {
    let name = name(cell);
    let version = engine.read(std::slice::from_ref(&name)).await.expect("a cell").cells[0].version;
    engine.swap(vec![Swap { name, version, write: Write::Delete }]).await.expect("an answer");
}

async fn everybody_gets_every_message_in_order(mut ground: Ground) {
    let (one, two) = (topic(&ground.client().await), topic(&ground.client().await));
    let mut early = [subscribe(&one, From::Now).await, subscribe(&two, From::Now).await];
    for number in 0..50 {
        let topic = if number % 2 == 0 { &one } else { &two };
        publish(topic, number.to_string()).await;
    }
    let mut late = subscribe(&two, From::Now).await;
    publish(&one, "last").await;
    for subscriber in &mut early {
        for number in 0..50 {
            assert_eq!(message(subscriber).await, number.to_string());
        }
        assert_eq!(message(subscriber).await, "last");
        nothing_more(subscriber).await;
    }
    assert_eq!(message(&mut late).await, "last");
    // Topics are apart.
    let client = ground.client().await;
    let mut other = subscribe(&client.topic("y").expect("a name"), From::Oldest).await;
    let mut shop = subscribe(&topic(&client.namespace("shop")), From::Oldest).await;
    nothing_more(&mut other).await;
    nothing_more(&mut shop).await;
}

/// Whoever is not told looks every second, and up to half a second later.
const LOOKS: Duration = ms(1500);

/// Lets somebody publish while a subscriber waits; the shortest of five times until it has heard.
async fn fastest(mut subscriber: Subscriber, mut publish: impl AsyncFnMut()) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let waiting = tokio::spawn(async move {
            let got = message(&mut subscriber).await;
            (subscriber, got, tokio::time::Instant::now())
        });
        tokio::time::sleep(ms(50)).await;
        let published = tokio::time::Instant::now();
        publish().await;
        let (back, got, at) = waiting.await.expect("no panic");
        assert_eq!(got, "now");
        fastest = fastest.min(at - published);
        subscriber = back;
    }
    fastest
}

async fn a_subscriber_is_told_at_once(mut ground: Ground) {
    let (one, two) = (topic(&ground.client().await), topic(&ground.client().await));
    let subscriber = subscribe(&two, From::Now).await;
    let fastest = fastest(subscriber, async || {
        publish(&one, "now").await;
    })
    .await;
    // Clients of one process tell each other where the server does not.
    assert!(fastest <= LOOKS / 5, "the fastest took {fastest:?}");
}

async fn a_subscriber_hears_of_another_process(mut ground: Ground) {
    let Some(mut child) = ground.child().await else { return };
    let subscriber = subscribe(&topic(&ground.client().await), From::Now).await;
    let publish = async || assert_eq!(child.ask("publish-one x now").await, "published");
    let fastest = fastest(subscriber, publish).await;
    let told = !matches!(ground.word(), "mysql" | "pgbouncer");
    let limit = if told { LOOKS / 5 } else { LOOKS };
    assert!(fastest <= limit, "the fastest took {fastest:?}");
}

async fn a_subscriber_that_waits_does_not_ask_again_and_again(mut ground: Ground) {
    let (other, options) = (topic(&ground.client().await), ground.options());
    let (client, wire) = ground.client_on_wire(options).await;
    let mut subscriber = subscribe(&topic(&client), From::Now).await;
    let (begun, calls) = (tokio::time::Instant::now(), wire.calls());
    let waiting = tokio::spawn(async move { message(&mut subscriber).await });
    until("it looks", async || wire.calls() > calls).await;
    // It is watched for a while. Whoever hears nothing looks a second later at the earliest.
    tokio::time::sleep(ms(700)).await;
    let (calls, looks) = (wire.calls() - calls, begun.elapsed().as_secs() as usize);
    assert!(calls <= 1 + looks, "{calls} calls in {:?}", begun.elapsed());
    publish(&other, "now").await;
    assert_eq!(soon("it is told", waiting).await.expect("no panic"), "now");
}

async fn many_publishers_have_one_order(mut ground: Ground) {
    const EACH: usize = 25;
    let mut publishers = JoinSet::new();
    let mut subscribers = JoinSet::new();
    let mut topics = Vec::new();
    for _ in 0..4 {
        let topic = topic(&ground.client().await);
        let mut subscriber = subscribe(&topic, From::Now).await;
        topics.push(topic);
        subscribers.spawn(async move {
            let mut got = Vec::new();
            while got.len() < 4 * EACH {
                got.push(message(&mut subscriber).await);
            }
            got
        });
    }
    for (publisher, topic) in topics.into_iter().enumerate() {
        publishers.spawn(async move {
            for number in 0..EACH {
                publish(&topic, format!("{publisher}/{number:02}")).await;
            }
        });
    }
    publishers.join_all().await;
    let orders = subscribers.join_all().await;
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "{orders:?}");
    for publisher in 0..4 {
        let own = orders[0].iter().filter(|message| message.starts_with(&publisher.to_string()));
        assert!(own.clone().count() == EACH && own.is_sorted());
    }
}

async fn a_subscriber_that_was_away_gets_what_it_missed(mut ground: Ground) {
    let (one, two) = (topic(&ground.client().await), topic(&ground.client().await));
    let mut subscriber = subscribe(&one, From::Now).await;
    publish(&two, "0").await;
    let Delivery::Message(first) = next(&mut subscriber).await else { panic!("a message") };
    assert_eq!(first.cursor, subscriber.cursor());
    let noted = first.cursor.to_string();
    drop(subscriber);
    for number in 1..=100 {
        publish(&two, number.to_string()).await;
    }
    let cursor = From::Cursor(noted.parse().expect("a cursor"));
    let mut subscriber = subscribe(&one, cursor).await;
    for number in 1..=100 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
    nothing_more(&mut subscriber).await;
    // From the same place again: at least once.
    assert_eq!(message(&mut subscribe(&two, cursor).await).await, "1");
}

async fn what_is_not_kept_any_more_is_a_gap(mut ground: Ground) {
    let topic = topic(&ground.client().await).keep(32);
    let mut subscriber = subscribe(&topic, From::Now).await;
    publish(&topic, "0").await;
    message(&mut subscriber).await;
    for number in 1..100 {
        publish(&topic, number.to_string()).await;
    }
    let Delivery::Gap { missed: Some(missed), cursor } = next(&mut subscriber).await else { panic!("a gap") };
    assert!((35..=67).contains(&missed), "{missed} are missed");
    assert_eq!(cursor, subscriber.cursor());
    for number in missed + 1..100 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
    let engine = ground.engine().await;
    let stored = engine.list_cells("", None, 100).await.expect("a list").len();
    assert!(stored <= 5, "{stored} cells");
}

async fn what_is_too_old_is_a_gap(mut ground: Ground) {
    let client = ground.client().await;
    let (short, long) = (topic(&client).keep_for(ms(2000)), topic(&client));
    let mut subscriber = subscribe(&short, From::Now).await;
    let cursor = publish(&short, "0").await;
    message(&mut subscriber).await;
    for number in 1..5 {
        publish(&short, number.to_string()).await;
    }
    let engine = ground.engine().await;
    until("they are over", async || engine.list_cells("", None, 10).await.expect("a list").len() == 1).await;
    publish(&long, "5").await;
    let Delivery::Gap { missed, .. } = next(&mut subscriber).await else { panic!("a gap") };
    assert_eq!((missed, message(&mut subscriber).await.as_str()), (Some(4), "5"));
    let mut again = subscribe(&long, From::Cursor(cursor)).await;
    assert!(matches!(next(&mut again).await, Delivery::Gap { missed: Some(4), .. }));
}

async fn messages_are_kept_as_long_as_their_publisher_says(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let brief = |topic: Topic| topic.keep_for(ms(300));
    let (long, short) = (topic(&client), brief(topic(&client)));
    for number in 0..40 {
        // Also those of segments that the other one began.
        let topic = if number == 0 || number % 8 == 3 { &long } else { &short };
        publish(topic, number.to_string()).await;
    }
    let other = brief(client.topic("y").expect("a name"));
    publish(&other, "").await;
    until("that one is over", async || {
        engine.list_cells("topics/{y}/", None, 10).await.expect("a list").is_empty()
    })
    .await;
    let mut subscriber = subscribe(&long, From::Oldest).await;
    for number in 0..40 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
}

async fn what_was_read_is_delivered_before_a_gap(mut ground: Ground) {
    let (topic, engine) = (topic(&ground.client().await), ground.engine().await);
    let cursor = publish(&topic, "0").await;
    for number in 1..300 {
        publish(&topic, number.to_string()).await;
    }
    // In the middle, as a store may lose them.
    for segment in 1..10 {
        delete(&*engine, &format!("topics/{{x}}/{segment}")).await;
    }
    let mut subscriber = subscribe(&topic, From::Cursor(cursor)).await;
    for number in 1..16 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
    let gap = next(&mut subscriber).await;
    assert!(matches!(gap, Delivery::Gap { missed: Some(144), .. }), "{gap:?}");
    for number in 160..300 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
}

async fn a_gap_of_many_is_found_quickly(mut ground: Ground) {
    let topic = topic(&ground.client().await).keep(16);
    let cursor = publish(&topic, "0").await;
    for number in 1..300 {
        publish(&topic, number.to_string()).await;
    }
    let mut subscriber = subscribe(&topic, From::Cursor(cursor)).await;
    let Delivery::Gap { missed: Some(missed), .. } = next(&mut subscriber).await else { panic!("a gap") };
    assert!(missed >= 260, "{missed} are missed");
    for number in missed + 1..300 {
        assert_eq!(message(&mut subscriber).await, number.to_string());
    }
}

async fn the_oldest_message_is_where_a_new_subscriber_can_begin(mut ground: Ground) {
    let topic = topic(&ground.client().await).keep(32);
    for number in 0..100 {
        publish(&topic, number.to_string()).await;
    }
    let mut oldest = subscribe(&topic, From::Oldest).await;
    let first: u32 = message(&mut oldest).await.parse().expect("a number");
    assert!((36..=68).contains(&first), "{first}");
    assert_eq!(message(&mut oldest).await, (first + 1).to_string());
}

async fn a_topic_that_the_store_forgot_is_a_gap(mut ground: Ground) {
    let topic = topic(&ground.client().await);
    let mut subscriber = subscribe(&topic, From::Now).await;
    for number in 0..20 {
        publish(&topic, number.to_string()).await;
    }
    assert_eq!(message(&mut subscriber).await, "0");
    let cursor = From::Cursor(subscriber.cursor());
    let engine = ground.engine().await;
    for cell in engine.list_cells("", None, 10).await.expect("a list") {
        delete(&*engine, cell.as_str()).await;
    }
    publish(&topic, "new").await;
    let mut subscriber = subscribe(&topic, cursor).await;
    assert!(matches!(next(&mut subscriber).await, Delivery::Gap { missed: None, .. }));
    assert_eq!(message(&mut subscriber).await, "new");
}

async fn a_message_that_is_too_long_is_refused(mut ground: Ground) {
    let topic = topic(&ground.client().await);
    let mut subscriber = subscribe(&topic, From::Now).await;
    for _ in 0..17 {
        publish(&topic, vec![7; LONGEST_MESSAGE]).await;
    }
    let error = topic.publish(vec![7; LONGEST_MESSAGE + 1]).await.expect_err("too long");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    publish(&topic, "").await;
    for _ in 0..17 {
        assert_eq!(message(&mut subscriber).await.len(), LONGEST_MESSAGE);
    }
    assert_eq!(message(&mut subscriber).await, "");
}

async fn a_cell_of_something_else_is_no_topic(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let put = Write::Put(CellValue { bytes: b"other".to_vec(), lives: ms(60_000) });
    let swap = Swap { name: name("topics/{x}"), version: 0, write: put };
    engine.swap(vec![swap]).await.expect("an answer");
    let error = topic(&client).publish("").await.expect_err("no topic");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(matches!(topic(&client).subscribe(From::Now).await, Err(Error::Engine { .. })));
}
