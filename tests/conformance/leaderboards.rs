//! Leaderboards.

pub(crate) mod rebuild;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::engine::{CellValue, Engine, Swap, Write};
use leasehold::kit::leaderboards::{
    Incremented, LONGEST_EVENT, LONGEST_MEMBER, Leaderboard, MOST_EVENTS, Ranked, RebuildEntry,
};
use leasehold::{Client, Error};
use tokio::task::JoinSet;

use self::rebuild::{
    a_board_is_rebuilt_in_one_step, a_dropped_rebuild_leaves_the_old_board,
    a_killed_rebuild_holds_nobody_up_for_long, a_rebuilt_board_knows_the_events_that_it_was_given, entries,
    no_change_is_lost_while_the_source_is_read, no_score_is_lost_while_a_board_is_rebuilt,
    nobody_is_removed_from_a_board_before_it_is_built, source,
};
use crate::bench::{Ground, ms, refuses, soon, until};
use crate::cancel::poll_and_drop;
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "leaderboards",
        able,
        [
            scores_have_places,
            equal_scores_are_in_the_order_in_which_they_were_reached,
            the_lower_score_can_be_the_better_one,
            around_a_member_and_pages_go_over_the_edges_of_leaves,
            an_event_is_counted_once,
            clients_that_write_together_lose_nothing,
            places_are_exact_while_a_member_moves,
            members_leave_and_nothing_is_left,
            a_killed_writer_leaves_a_whole_board,
            a_dropped_call_leaves_a_whole_board,
            a_lost_answer_can_be_asked_for_again,
            a_board_is_rebuilt_in_one_step,
            no_change_is_lost_while_the_source_is_read,
            a_killed_rebuild_holds_nobody_up_for_long,
            a_rebuilt_board_knows_the_events_that_it_was_given,
            nobody_is_removed_from_a_board_before_it_is_built,
            no_score_is_lost_while_a_board_is_rebuilt,
            a_dropped_rebuild_leaves_the_old_board,
            a_board_ends,
            a_board_of_the_other_order_is_refused,
            what_does_not_fit_is_refused,
            nothing_is_told_while_the_engine_is_away,
            a_cell_of_something_else_is_no_board,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse leaderboards.
async fn able(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.leaderboard("x"));
    None
}

/// With small leaves, so that a few members make a tree.
fn board(client: &Client) -> Leaderboard {
    client.leaderboard("x").expect("a name").fan_out(16).expect("in range")
}

fn shown(list: &[Ranked]) -> Vec<(u64, &str, i64)> {
    list.iter().map(|ranked| (ranked.place, ranked.member.as_str(), ranked.score)).collect()
}

async fn place(board: &Leaderboard, member: &str) -> Option<u64> {
    board.rank(member).await.expect("an answer").map(|rank| rank.place)
}

async fn stored(engine: &dyn Engine) -> usize {
    engine.list_cells("", None, 10_000).await.expect("a list").len()
}

/// Checks a board at rest: it has these scores, in order, and every way to look says the same.
async fn check(board: &Leaderboard, book: &BTreeMap<String, i64>) {
    let all = board.page(1, book.len() + 10).await.expect("an answer");
    let found: BTreeMap<String, i64> =
        all.iter().map(|ranked| (ranked.member.clone(), ranked.score)).collect();
    assert_eq!(found, *book);
    assert_eq!(all.len(), book.len(), "nobody is there twice");
    assert!(all.windows(2).all(|pair| pair[0].score >= pair[1].score), "in order");
    assert!(all.iter().map(|ranked| ranked.place).eq(1..=book.len() as u64));
    assert_eq!(board.count().await.expect("an answer"), book.len() as u64);
    for ranked in all.iter().step_by(7) {
        let rank = board.rank(&ranked.member).await.expect("an answer").expect("a member");
        assert_eq!((rank.place, rank.of, rank.score), (ranked.place, book.len() as u64, ranked.score));
        assert_eq!(board.get(&ranked.member).await.expect("an answer"), Some(ranked.score));
    }
}

async fn scores_have_places(mut ground: Ground) {
    let (one, two) = (board(&ground.client().await), board(&ground.client().await));
    assert_eq!(one.rank("ada").await.expect("an answer"), None);
    assert_eq!(one.top(3).await.expect("an answer"), []);
    assert_eq!(one.around("ada", 3).await.expect("an answer"), []);
    assert_eq!(
        (one.count().await.expect("an answer"), two.remove("ada").await.expect("an answer")),
        (0, None)
    );
    assert_eq!(one.set("ada", 300).await.expect("set"), None);
    assert_eq!(two.increment("bob", 200).await.expect("added"), 200);
    assert_eq!(two.set("ada", 100).await.expect("set"), Some(300));
    assert_eq!(one.increment("bob", -50).await.expect("added"), 150);
    assert!(one.best("eve", 120).await.expect("set"));
    assert!(!two.best("eve", 120).await.expect("not set"));
    assert!(!two.best("eve", -7).await.expect("not set"));
    assert!(two.best("eve", 130).await.expect("set"));
    let expected = [(1, "bob", 150), (2, "eve", 130), (3, "ada", 100)];
    for board in [&one, &two] {
        assert_eq!(shown(&board.top(10).await.expect("an answer")), expected);
        assert_eq!(shown(&board.page(2, 1).await.expect("an answer")), expected[1..2]);
        assert_eq!(shown(&board.around("eve", 1).await.expect("an answer")), expected);
        assert_eq!(place(board, "ada").await, Some(3));
        assert_eq!(board.get("eve").await.expect("an answer"), Some(130));
        assert_eq!(board.get("nobody").await.expect("an answer"), None);
    }
    assert_eq!(two.remove("bob").await.expect("removed"), Some(150));
    assert_eq!((place(&one, "eve").await, place(&one, "bob").await), (Some(1), None));
    // Boards are apart.
    let client = ground.client().await;
    for other in [client.leaderboard("y").expect("a name"), board(&client.namespace("shop"))] {
        assert_eq!(other.count().await.expect("an answer"), 0);
    }
}

async fn equal_scores_are_in_the_order_in_which_they_were_reached(mut ground: Ground) {
    let (one, two) = (board(&ground.client().await), board(&ground.client().await));
    // More than a leaf, all with one score, in no order of their names.
    let mut order = Vec::new();
    for number in 0..40_u32 {
        let member = format!("{:02}", number * 17 % 40);
        let board = if number % 2 == 0 { &one } else { &two };
        board.set(&member, 7).await.expect("set");
        order.push(member);
        // Clocks of etcd's clients are their own, and count microseconds.
        tokio::time::sleep(ms(2)).await;
    }
    let listed = async |board: &Leaderboard| -> Vec<String> {
        let all = board.top(50).await.expect("an answer");
        all.into_iter().map(|ranked| ranked.member).collect()
    };
    assert_eq!(listed(&one).await, order);
    // Setting the same score is not reaching it again; leaving and coming back is.
    one.set(&order[3], 7).await.expect("set");
    assert_eq!(listed(&two).await, order);
    let late = order.remove(3);
    two.set(&late, 8).await.expect("set");
    assert_eq!(place(&one, &late).await, Some(1));
    two.set(&late, 7).await.expect("set");
    order.push(late);
    assert_eq!(listed(&one).await, order);
}

async fn the_lower_score_can_be_the_better_one(mut ground: Ground) {
    let golf = board(&ground.client().await).lower_first();
    for (member, score) in [("ada", 72), ("bob", 68), ("eve", -1), ("zoe", i64::MIN), ("max", i64::MAX)] {
        golf.set(member, score).await.expect("set");
    }
    assert!(golf.best("ada", 67).await.expect("set"));
    assert!(!golf.best("ada", 70).await.expect("not set"));
    let members: Vec<String> =
        golf.top(9).await.expect("an answer").into_iter().map(|ranked| ranked.member).collect();
    assert_eq!(members, ["zoe", "eve", "ada", "bob", "max"]);
}

async fn around_a_member_and_pages_go_over_the_edges_of_leaves(mut ground: Ground) {
    const COUNT: usize = 150;
    // They take turns, and all together may need longer than a call usually has.
    let options = ground.options().call_limit(ms(60_000));
    let (one, two) = (board(&ground.client_with(options).await), board(&ground.client().await));
    let mut tasks = JoinSet::new();
    for number in 0..COUNT {
        let board = one.clone();
        tasks
            .spawn(async move { board.set(number.to_string(), (number * 7 % COUNT) as i64).await.map(drop) });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    let all = two.top(COUNT + 1).await.expect("an answer");
    assert!(all.len() == COUNT && all.windows(2).all(|pair| pair[0].score == pair[1].score + 1));
    for place in (0..COUNT).step_by(3) {
        let around = two.around(&all[place].member, 5).await.expect("an answer");
        assert_eq!(around, all[place.saturating_sub(5)..(place + 6).min(COUNT)], "around {place}");
        let page = one.page(place as u64 + 1, 10).await.expect("an answer");
        assert_eq!(page, all[place..(place + 10).min(COUNT)], "from {place}");
    }
    // More than is read in one call.
    assert_eq!(one.around(&all[70].member, COUNT).await.expect("an answer"), all);
    assert_eq!(one.page(COUNT as u64 + 1, 10).await.expect("an answer"), []);
}

async fn an_event_is_counted_once(mut ground: Ground) {
    let (one, two) = (board(&ground.client().await), board(&ground.client().await));
    let add = async |board: &Leaderboard, by, event: u32| {
        board.increment_once("ada", by, event.to_string()).await.expect("added")
    };
    assert_eq!(add(&one, 5, 0).await, Incremented::Yes(5));
    assert_eq!(add(&two, 5, 0).await, Incremented::Repeated(5));
    // Other changes do not make it forget.
    two.set("ada", 50).await.expect("set");
    one.increment("ada", 1).await.expect("added");
    assert_eq!(add(&one, 5, 0).await, Incremented::Repeated(51));
    assert_eq!(add(&one, 0, 1).await, Incremented::Yes(51));
    assert_eq!(add(&two, 0, 1).await, Incremented::Repeated(51));
    for event in 2..=MOST_EVENTS as u32 {
        assert_eq!(add(&one, 1, event).await, Incremented::Yes(50 + i64::from(event)));
    }
    assert_eq!(add(&two, 5, 1).await.score(), 50 + MOST_EVENTS as i64);
    // The oldest is not known any more.
    assert_eq!(add(&two, 5, 0).await, Incremented::Yes(55 + MOST_EVENTS as i64));
    // The events of members are apart.
    assert_eq!(one.increment_once("bob", 5, "2").await.expect("added"), Incremented::Yes(5));
}

async fn clients_that_write_together_lose_nothing(mut ground: Ground) {
    const EACH: i64 = 30;
    // The cells of `memory:` are there as long as one of its clients is.
    let last = board(&ground.client().await);
    let mut tasks = JoinSet::new();
    let mut looking = JoinSet::new();
    let stop = Arc::new(AtomicBool::new(false));
    for writer in 0..4_i64 {
        // Two clients, with two tasks each that do not share what they remember.
        let client = ground.client().await;
        let (board, reader) = (board(&client), board(&client));
        tasks.spawn(async move {
            let mut book = BTreeMap::new();
            for number in 0..EACH {
                let member = format!("{writer}/{}", number % 25);
                let score = (number * 31 + writer) % 40;
                board.set(&member, score).await.expect("set");
                book.insert(member, score);
                // One that all of them change.
                board.increment("all", 1).await.expect("added");
                if number % 9 == 8 {
                    let member = format!("{writer}/{}", number % 7);
                    board.remove(&member).await.expect("removed");
                    book.remove(&member);
                }
            }
            book
        });
        let stop = Arc::clone(&stop);
        looking.spawn(async move {
            while !stop.load(Ordering::Acquire) {
                // At one moment: places follow each other, and scores are in order.
                let around = reader.around("all", 3).await.expect("an answer");
                assert!(
                    around.is_empty() || around.iter().any(|ranked| ranked.member == "all"),
                    "{around:?}"
                );
                assert!(around.windows(2).all(|pair| pair[0].place + 1 == pair[1].place), "{around:?}");
                tokio::time::sleep(ms(5)).await;
            }
        });
    }
    let mut book: BTreeMap<String, i64> = tasks.join_all().await.into_iter().flatten().collect();
    stop.store(true, Ordering::Release);
    soon("all have looked", looking.join_all()).await;
    book.insert("all".to_owned(), 4 * EACH);
    check(&last, &book).await;
}

/// One member moves from the first place to just before the 21st of the others, in another leaf,
/// and back: those behind it never move, and those that it jumps over have one of two places. The
/// leaf of one moment with the counts of another would be off by one.
async fn places_are_exact_while_a_member_moves(mut ground: Ground) {
    const OTHERS: i64 = 40;
    let writer = board(&ground.client().await);
    let score = |number: i64| 1000 - 10 * number;
    for number in 0..OTHERS {
        writer.set(format!("{number:02}"), score(number)).await.expect("set");
    }
    let (first, before_20) = (score(-1), score(20) + 5);
    writer.set("mover", first).await.expect("set");
    let stop = Arc::new(AtomicBool::new(false));
    let mut looking = JoinSet::new();
    for _ in 0..3 {
        let (reader, stop) = (board(&ground.client().await), Arc::clone(&stop));
        looking.spawn(async move {
            let mut looks = 0_u32;
            while !stop.load(Ordering::Acquire) {
                for (member, places) in
                    [("05", [6, 7]), ("19", [20, 21]), ("20", [22, 22]), ("21", [23, 23]), ("mover", [1, 21])]
                {
                    let rank = reader.rank(member).await.expect("an answer").expect("it never leaves");
                    assert!(places.contains(&rank.place) && rank.of == 41, "{member}: {rank:?}");
                }
                let around = reader.around("20", 2).await.expect("an answer");
                let shown = shown(&around);
                let moved = shown[1].1 == "mover";
                let expected = if moved { ["19", "mover"] } else { ["18", "19"] };
                let members: Vec<&str> = shown.iter().map(|(_, member, _)| *member).collect();
                assert_eq!(members, [expected[0], expected[1], "20", "21", "22"]);
                assert!(shown.iter().map(|(place, ..)| *place).eq(20..=24), "{shown:?}");
                looks += 1;
                tokio::time::sleep(ms(1)).await;
            }
            looks
        });
    }
    for number in 0..150 {
        let score = if number % 2 == 0 { before_20 } else { first };
        writer.set("mover", score).await.expect("set");
        tokio::time::sleep(ms(1)).await;
    }
    stop.store(true, Ordering::Release);
    let looks = soon("all have looked", looking.join_all()).await;
    assert!(looks.iter().all(|looks| *looks > 5), "{looks:?}");
}

async fn members_leave_and_nothing_is_left(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let board = board(&client);
    for number in 0..60 {
        board.set(number.to_string(), number).await.expect("set");
    }
    assert!(stored(&*engine).await > 60 + 4);
    for number in 0..60 {
        board.remove((number * 7 % 60).to_string()).await.expect("removed");
    }
    assert_eq!((board.count().await.expect("an answer"), stored(&*engine).await), (0, 2));
    for number in 0..40 {
        board.set(number.to_string(), number % 5).await.expect("set");
    }
    board.delete().await.expect("deleted");
    assert_eq!((board.count().await.expect("an answer"), stored(&*engine).await), (0, 0));
    board.delete().await.expect("deleted");
    board.set("new", 1).await.expect("set");
    assert_eq!(place(&board, "new").await, Some(1));
}

async fn a_killed_writer_leaves_a_whole_board(mut ground: Ground) {
    let client = ground.client().await;
    let board = board(&client);
    let mut most = 0;
    let mut book = BTreeMap::new();
    for round in 0..4_i64 {
        let Some(mut child) = ground.child().await else { return };
        assert_eq!(child.ask("leaderboard x").await, "writing");
        until("it has written", async || board.count().await.expect("an answer") > 25).await;
        tokio::time::sleep(ms(60) + Duration::from_micros(round.cast_unsigned() * 1300)).await;
        child.kill().await;
        // Whatever it has done, it has done whole. A call may be on its way for a moment.
        let mut all = soon("a look", board.top(10_000)).await.expect("an answer");
        until("it has stopped", async || {
            tokio::time::sleep(ms(50)).await;
            let before = std::mem::replace(&mut all, board.top(10_000).await.expect("an answer"));
            before == all
        })
        .await;
        // The last call of a killed writer is seen in `file:` when somebody else writes.
        for number in 0..20 {
            let member = format!("mine/{number}");
            let sum = board.increment(&member, number).await.expect("added");
            assert_eq!(sum, number * (round + 1), "the sum of {member}");
            book.insert(member, sum);
        }
        let all = board.top(10_000).await.expect("an answer");
        let found = all.into_iter().map(|ranked| (ranked.member, ranked.score)).collect();
        // It makes one call after the other, so what is there is what some of them have left.
        let mut changes = (0..CALLS_OF_CHILD).flat_map(changes_of_child);
        while book != found {
            let (member, score) = changes.next().unwrap_or_else(|| panic!("no calls leave {found:?}"));
            change(&mut book, member, score);
        }
        check(&board, &book).await;
        most = most.max(book.len() - 20);
    }
    assert!(most > 20, "it has written {most} members");
}

/// It stops by itself after so many numbers: the case would look for the last one for too long.
const CALLS_OF_CHILD: i64 = 5000;

/// What the child does with this number: members that get a score or leave.
fn changes_of_child(number: i64) -> impl Iterator<Item = (String, Option<i64>)> {
    let set = (format!("child/{}", number * 7 % 90), Some(number * 13 % 50));
    let removed = (number % 5 == 4).then(|| (format!("child/{}", number * 3 % 90), None));
    [set].into_iter().chain(removed)
}

fn change(book: &mut BTreeMap<String, i64>, member: String, score: Option<i64>) {
    match score {
        Some(score) => drop(book.insert(member, score)),
        None => drop(book.remove(&member)),
    }
}

async fn a_dropped_call_leaves_a_whole_board(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (cut, whole) = (board(&client), board(&ground.client().await));
    // What each member may have.
    let mut may_have: BTreeMap<String, Vec<Option<i64>>> = BTreeMap::new();
    for number in 0..40_i64 {
        whole.set(number.to_string(), number).await.expect("set");
        may_have.insert(number.to_string(), vec![Some(number)]);
    }
    wire.set(Fault::Stutter);
    for depth in 0..14 {
        // Into another leaf, onto the board, and off it.
        let (moved, removed) = ((depth * 3 % 40).to_string(), ((depth * 3 + 1) % 40).to_string());
        let mut asked = |member: &String, score, done| {
            let scores = may_have.entry(member.clone()).or_insert_with(|| vec![None]);
            if done {
                scores.clear();
            }
            scores.push(score);
        };
        asked(&moved, Some(1000), poll_and_drop(cut.set(&moved, 1000), depth).await);
        let new = format!("new{depth}");
        asked(&new, Some(20), poll_and_drop(cut.set(&new, 20), depth).await);
        asked(&removed, None, poll_and_drop(cut.remove(&removed), depth).await);
        poll_and_drop(cut.around(&moved, 3), depth).await;
    }
    wire.set(Fault::None);
    let all = whole.top(100).await.expect("an answer");
    let book: BTreeMap<String, i64> = all.into_iter().map(|ranked| (ranked.member, ranked.score)).collect();
    for (member, scores) in &may_have {
        let score = book.get(member).copied();
        assert!(scores.contains(&score), "{member} has {score:?} and not one of {scores:?}");
    }
    assert!(book.keys().all(|member| may_have.contains_key(member)), "{book:?}");
    check(&whole, &book).await;
    // The handle whose calls were dropped goes on.
    cut.set("last", -5).await.expect("set");
    assert_eq!(place(&whole, "last").await, Some(book.len() as u64 + 1));
}

async fn a_lost_answer_can_be_asked_for_again(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (cut, whole) = (board(&client), board(&ground.client().await));
    whole.set("bob", 3).await.expect("set");
    let mut repeated = 0;
    for event in 0..5_u32 {
        // The cells are known, so that the change itself is what is lost.
        cut.rank("ada").await.expect("an answer");
        wire.set(Fault::LoseAnswer);
        let lost = cut.increment_once("ada", 2, event.to_string()).await.expect_err("not heard");
        assert!(matches!(lost, Error::Unavailable { .. }), "{lost}");
        wire.set(Fault::None);
        let score = 2 * (i64::from(event) + 1);
        let was_added = whole.get("ada").await.expect("an answer") == Some(score);
        let again = cut.increment_once("ada", 2, event.to_string()).await.expect("an answer");
        let expected = if was_added { Incremented::Repeated(score) } else { Incremented::Yes(score) };
        assert_eq!(again, expected);
        repeated += u32::from(was_added);
    }
    assert!(repeated >= 4, "only {repeated} of the answers that were lost were to a change");
    check(&whole, &BTreeMap::from([("ada".to_owned(), 10), ("bob".to_owned(), 3)])).await;
}

async fn a_board_ends(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    // By the engine's clock, which is this machine's.
    let end = SystemTime::now() + ms(30_000);
    let week = board(&client).until(end);
    for number in 0..5 {
        week.set(number.to_string(), number).await.expect("set");
    }
    if SystemTime::now() + ms(5000) < end {
        assert_eq!(board(&client).count().await.expect("an answer"), 5);
    }
    while board(&client).count().await.expect("an answer") > 0 {
        assert!(SystemTime::now() < end + ms(10_000), "it does not end");
        tokio::time::sleep(ms(50)).await;
    }
    assert!(ground.paused_time() || SystemTime::now() >= end);
    assert_eq!(
        (week.rank("3").await.expect("an answer"), week.get("3").await.expect("an answer")),
        (None, None)
    );
    let error = week.set("late", 1).await.expect_err("it has ended");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let error = week.rebuild(source(entries(3))).await.expect_err("it has ended");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    // Its cells are kept for a while, and the next one, which may begin before they are gone, has
    // none of them.
    let next = board(&client).until(SystemTime::now() + Duration::from_secs(24 * 3600));
    next.set("3", 1).await.expect("set");
    // It is not the one that is meant.
    for late in [week.set("3", 9).await.map(drop), week.remove("3").await.map(drop)] {
        assert!(matches!(late, Err(Error::Invalid { .. })), "{late:?}");
    }
    for board in [&next, &week, &board(&client)] {
        check(board, &BTreeMap::from([("3".to_owned(), 1)])).await;
    }
    assert!(stored(&*engine).await > 3);
    if ground.paused_time() {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        // The head, a leaf and a member are left.
        assert_eq!(stored(&*engine).await, 3);
        check(&next, &BTreeMap::from([("3".to_owned(), 1)])).await;
    }
}

async fn a_board_of_the_other_order_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    board(&client).set("ada", 1).await.expect("set");
    let other = board(&client).lower_first();
    assert!(matches!(other.set("bob", 1).await, Err(Error::Invalid { .. })));
    assert!(matches!(other.rank("ada").await, Err(Error::Invalid { .. })));
    assert!(matches!(other.top(3).await, Err(Error::Invalid { .. })));
    other.rebuild(source([RebuildEntry::new("bob", 1), RebuildEntry::new("ada", 2)])).await.expect("built");
    assert_eq!(place(&other, "ada").await, Some(2));
    assert!(matches!(board(&client).set("ada", 1).await, Err(Error::Invalid { .. })));
}

async fn what_does_not_fit_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    let board = board(&client);
    let longest = "m".repeat(LONGEST_MEMBER);
    board.set(&longest, i64::MAX).await.expect("set");
    board.set("least", i64::MIN).await.expect("set");
    for (member, by) in [(longest.as_str(), 1), ("least", -1)] {
        let error = board.increment(member, by).await.expect_err("it does not fit");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(matches!(board.increment_once(member, by, "e").await, Err(Error::Invalid { .. })));
    }
    check(&board, &BTreeMap::from([(longest.clone(), i64::MAX), ("least".to_owned(), i64::MIN)])).await;
    // An event that was refused was not counted.
    assert_eq!(board.increment_once("least", 1, "e").await.expect("added"), Incremented::Yes(i64::MIN + 1));
    let too_long = format!("{longest}m");
    assert!(matches!(board.set(&too_long, 1).await, Err(Error::Invalid { .. })));
    assert!(matches!(board.rank(&too_long).await, Err(Error::Invalid { .. })));
    let event = [7; LONGEST_EVENT + 1];
    assert!(matches!(board.increment_once("ada", 1, event).await, Err(Error::Invalid { .. })));
    assert!(matches!(client.leaderboard("x").expect("a name").fan_out(15), Err(Error::Invalid { .. })));
    assert_eq!(board.count().await.expect("an answer"), 2);
}

async fn nothing_is_told_while_the_engine_is_away(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let board = board(&client);
    board.set("ada", 1).await.expect("set");
    wire.set(Fault::Refuse);
    for error in [
        board.rank("ada").await.expect_err("not known"),
        board.top(3).await.expect_err("not known"),
        board.set("ada", 2).await.expect_err("not known"),
        board.rebuild(source(entries(3))).await.expect_err("not known"),
    ] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    wire.set(Fault::None);
    assert_eq!(board.get("ada").await.expect("an answer"), Some(1));
}

async fn a_cell_of_something_else_is_no_board(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let put = Write::Put(CellValue { bytes: b"other".to_vec(), lives: ms(60_000) });
    let swap = Swap { name: name("leaderboards/{x}"), version: 0, write: put };
    engine.swap(vec![swap]).await.expect("an answer");
    let board = board(&client);
    assert!(matches!(board.set("ada", 1).await, Err(Error::Engine { .. })));
    assert!(matches!(board.rank("ada").await, Err(Error::Engine { .. })));
    assert!(matches!(board.top(3).await, Err(Error::Engine { .. })));
    // A part that the store has lost is told, and a rebuild heals it.
    let other = client.leaderboard("y").expect("a name");
    other.set("ada", 1).await.expect("set");
    let cells = engine.list_cells("leaderboards/{y}/", None, 10).await.expect("a list");
    let leaf = cells.into_iter().find(|cell| !cell.as_str().contains('=')).expect("a leaf");
    let version = engine.read(std::slice::from_ref(&leaf)).await.expect("a cell").cells[0].version;
    engine.swap(vec![Swap { name: leaf, version, write: Write::Delete }]).await.expect("an answer");
    assert!(matches!(other.rank("ada").await, Err(Error::Engine { .. })));
    assert!(matches!(other.set("ada", 2).await, Err(Error::Engine { .. })));
    other.rebuild(source([RebuildEntry::new("ada", 3)])).await.expect("built");
    assert_eq!(place(&other, "ada").await, Some(1));
}

/// In a child process: sets scores until it is killed.
pub(crate) async fn write_in_child(client: &Client, name: &str, answer: fn(&str)) {
    let board = client.leaderboard(name).expect("a name").fan_out(16).expect("in range");
    answer("writing");
    for number in 0..CALLS_OF_CHILD {
        for (member, score) in changes_of_child(number) {
            match score {
                Some(score) => drop(board.set(member, score).await.expect("set")),
                None => drop(board.remove(member).await.expect("removed")),
            }
        }
    }
    // It is killed all the same.
    std::future::pending::<()>().await;
}
