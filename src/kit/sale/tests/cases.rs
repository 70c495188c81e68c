//! What sequences hit too seldom, and what never changes.

use super::*;

#[test]
fn a_payment_and_an_expiry_have_one_winner() {
    let mut world = World::new(Terms::new(1));
    world.buy("a", 1, 7);
    assert_eq!(world.settle(7, Event::Pay), Some((State::Reserved, false)), "there is no order yet");
    world.settle(7, Event::Placed);
    assert_eq!(world.settle(7, Event::Expire), Some((State::Ordered, false)), "not due");
    world.now += 15 * 60 * SECOND;
    let cells = world.cells.clone();
    assert_eq!(world.settle(7, Event::Expire), Some((State::Expiring, true)));
    assert_eq!(world.settle(7, Event::Pay), Some((State::Expiring, false)));
    world.cells = cells;
    assert_eq!(world.settle(7, Event::Pay), Some((State::Paid, true)));
    assert_eq!(world.settle(7, Event::Expire), Some((State::Paid, false)));
    assert_eq!(world.settle(7, Event::Cancel), Some((State::Paid, false)));
}

#[test]
fn many_that_have_ended_are_forgotten() {
    let mut world = World::new(Terms::new(1));
    for number in 1..100 {
        world.buy("a", 1, number);
        world.settle(number, Event::Cancel);
        world.settle(number, Event::Expired);
        world.check();
    }
    let numbers: Vec<_> = world.records().iter().map(|record| record.number).collect();
    assert_eq!(numbers, (68..100).collect::<Vec<_>>(), "the last ones are remembered");
}

#[test]
fn units_come_back_only_with_their_buyer() {
    let mut world = World::new(Terms::new(1));
    world.buy("a", 1, 7);
    world.settle(7, Event::Cancel);
    let rule = Settle { epoch: 1, bucket: 0, buyers: Vec::new(), events: vec![(7, Event::Expired)] };
    let answer = world.apply(&[head(0), bucket(0, 0)], &rule);
    assert_eq!(answer, Settled::Now(vec![Some((State::Expiring, false))]));
    world.check();
}

#[test]
fn an_earlier_epoch_changes_nothing() {
    let terms = Terms::new(10).shards(3);
    let mut world = World::new(terms.clone());
    world.buy("a", 1, 7);
    let old = world.layout();
    assert_eq!(world.heads(Ask::Open(terms.clone())), heads::Answer::Epoch(1));
    assert_eq!(world.heads(Ask::Pause(terms.clone())), heads::Answer::Epoch(1));
    let next = Terms::new(9).epoch(2);
    assert_eq!(world.heads(Ask::Pause(next.clone())), heads::Answer::Yes);
    assert!(!world.cells.contains_key(&head(1)), "it has one shard now");
    assert_eq!(world.reserve("b", 1, 8), Reserved::Rebuilding);
    assert_eq!(world.gather(0, 1), heads::Answer::Epoch(2));
    let cells = world.cells.clone();
    let (shard, place) = old.place(7);
    let settle = |epoch| Settle { epoch, bucket: place, buyers: vec![], events: vec![(7, Event::Placed)] };
    assert_eq!(world.apply(&[head(0), bucket(shard, place)], &settle(1)), Settled::Stale);
    assert_eq!(world.apply(&[head(0), bucket(shard, place)], &settle(2)), Settled::Stale);
    assert!(!world.apply(&[head(0), buyer("a")], &Fill { epoch: 1, values: vec![vec![1]] }));
    assert_eq!(world.heads(Ask::Resume { epoch: 1, shards: vec![[9, 0, 0]] }), heads::Answer::Epoch(2));
    assert_eq!(world.cells, cells);
    assert_eq!(world.heads(Ask::Resume { epoch: 2, shards: vec![[9, 0, 0]] }), heads::Answer::Yes);
    // A second one that rebuilds the same epoch does not put back what was sold since.
    assert_eq!(world.heads(Ask::Resume { epoch: 2, shards: vec![[9, 0, 0]] }), heads::Answer::Epoch(2));
    world.terms = next;
    let mut rule = Reserve::of(old);
    rule.add(ReservationId(8), "b", 1);
    let answers = world.apply(&[head(0), buyer("b"), bucket(0, 0)], &rule);
    assert_eq!(answers, [Reserved::Elsewhere(world.layout())]);
    // What the buyer had in the earlier epoch does not count.
    assert!(matches!(world.buy("a", 1, 9), Reserved::There { .. }));
    world.check();
}

#[test]
fn a_sale_that_was_forgotten_begins_with_another_epoch() {
    let terms = Terms::new(10).shards(3);
    let mut world = World::new(terms.clone());
    world.buy("a", 1, 7);
    let layout = world.layout();
    assert_eq!(world.heads(Ask::Close { epoch: 2 }), heads::Answer::Epoch(1));
    assert_eq!(world.heads(Ask::Close { epoch: 1 }), heads::Answer::Yes);
    assert_eq!(world.heads(Ask::Close { epoch: 1 }), heads::Answer::NoSale);
    let nobody_is_there = |world: &mut World| {
        let cells = world.cells.clone();
        assert_eq!(world.reserve("b", 1, 8), Reserved::NoSale);
        assert_eq!(world.gather(0, 1), heads::Answer::NoSale);
        assert_eq!(world.heads(Ask::Resume { epoch: 1, shards: vec![[9, 0, 0]; 3] }), heads::Answer::NoSale);
        for ask in [Ask::Open(terms.clone()), Ask::Pause(terms.clone())] {
            assert_eq!(world.heads(ask), heads::Answer::Forgotten(1));
        }
        let (shard, place) = layout.place(7);
        let rule = Settle { epoch: 1, bucket: place, buyers: vec![], events: vec![(7, Event::Placed)] };
        assert_eq!(world.apply(&[head(shard), bucket(shard, place)], &rule), Settled::NoSale);
        world.apply(&[head(0)], &Swept { epoch: 1, due: 0 });
        assert!(!world.apply(&[head(0), buyer("a")], &Fill { epoch: 1, values: vec![vec![1]] }));
        assert_eq!(world.cells, cells);
    };
    nobody_is_there(&mut world);
    // Also if the time of the store is another one by now.
    world.now -= SECOND;
    nobody_is_there(&mut world);
    // The next one is remembered for as long as a cell of this one can be there.
    let ends = world.head(0).ends;
    let next = Terms::new(10).epoch(2).open_for(Duration::from_secs(1)).kept_for(Duration::from_secs(3600));
    assert_eq!(world.heads(Ask::Open(next.clone())), heads::Answer::Yes);
    assert_eq!(world.head(0).ends, ends);
    world.terms = next;
    assert!(world.records().is_empty());
    assert!(matches!(world.buy("a", 1, 7), Reserved::There { .. }));
    world.check();
}

#[test]
fn a_sale_that_has_ended_is_not_there() {
    let terms = Terms::new(10).shards(2);
    let mut world = World::new(terms.clone());
    world.buy("a", 1, 7);
    world.check();
    let (ends, cells) = (world.head(0).ends, world.cells.clone());
    world.now = ends - 1;
    assert_eq!(world.reserve("b", 1, 8), Reserved::Over);
    world.now = ends;
    assert_eq!(world.reserve("b", 1, 8), Reserved::NoSale);
    assert_eq!(world.gather(1, 1), heads::Answer::NoSale);
    assert_eq!(world.heads(Ask::Close { epoch: 1 }), heads::Answer::NoSale);
    assert_eq!(world.heads(Ask::Open(terms)), heads::Answer::Forgotten(1));
    assert_eq!(world.cells, cells);
    assert!(world.ends.iter().all(|(name, end)| name.starts_with("head/") == (*end > ends)));
    assert_eq!(world.heads(Ask::Open(Terms::new(1).epoch(2))), heads::Answer::Yes);
}

#[test]
fn what_is_not_ours_is_seen() {
    let mut world = World::new(Terms::new(10));
    world.buy("a", 1, 7);
    let fresh = world.cells.clone();
    let (_, place) = world.layout().place(7);
    for name in [head(0), bucket(0, place), buyer("a")] {
        for garbage in [vec![], vec![0x81], b"something else".to_vec(), vec![0xff; 200]] {
            world.cells = fresh.clone();
            world.cells.insert(name.clone(), garbage);
            let before = world.cells.clone();
            let mut rule = Reserve::new(1, (1, 1));
            rule.add(ReservationId(u128::from(u64::MAX)), "a", 1);
            let answers = world.apply(&[head(0), buyer("a"), bucket(0, place)], &rule);
            assert_eq!(answers, [Reserved::Foreign], "{name}");
            let rule = Settle {
                epoch: 1,
                bucket: place,
                buyers: vec!["a".into()],
                events: vec![(7, Event::Placed)],
            };
            let names = [head(0), bucket(0, place), buyer("a")];
            assert_eq!(world.apply(&names, &rule), Settled::Foreign, "{name}");
            assert_eq!(world.cells, before);
        }
    }
}

#[test]
fn terms_that_can_not_be_kept_are_refused() {
    let good = Terms::new(5);
    assert!(good.check().is_ok());
    for bad in [
        good.clone().shards(0),
        good.clone().shards(MOST_SHARDS + 1),
        good.clone().limit(0),
        good.clone().epoch(0),
        good.clone().open_for(Duration::ZERO),
        good.clone().pay_within(Duration::ZERO),
        good.clone().kept_for(Duration::MAX),
        good.clone().kept_for(Duration::ZERO),
        Terms::new(u32::MAX),
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
    let split: Vec<_> = Terms::new(11).shards(3).split(11).collect();
    assert_eq!(split, [(0, 4), (1, 4), (2, 3)]);
}

#[test]
fn numbers_are_spread_over_shards_and_buckets() {
    let layout = Layout { epoch: 1, shards: 16, buckets: 64 };
    // Random, and random in their upper bits only.
    for shift in [0, 64, 96] {
        let mut dice = Dice(3);
        let mut counts = HashMap::<_, u32>::new();
        for _ in 0..64 * 1024 {
            let number = u128::from(dice.roll(1 << 31)) << shift;
            *counts.entry(layout.place(number)).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or_default();
        assert!(counts.len() == 1024 && most < 128, "{} places, up to {most}", counts.len());
    }
}

/// Stores keep these: they never change.
#[test]
fn what_is_stored_is_pinned() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut world = World::new(Terms::new(20).limit(2));
    world.buy("al", 2, 7);
    let (_, place) = world.layout().place(7);
    assert_eq!(
        hex(&world.cells[&head(0)]),
        "81000000000100010002060a24181e4000060a3835f5a000060a4c8971e90000000035a4e900060a244dc3290000000002\
         00000014000000000000000000000000000000000000000000000000000012000000020000000000000202"
    );
    assert_eq!(hex(&world.cells[&buyer("al")]), "820000000100000002");
    assert_eq!(
        hex(&world.cells[&bucket(0, place)]),
        "8300000001000000000000000000000000000000070000\
         00000002060a244dc3290002616c"
    );
}
