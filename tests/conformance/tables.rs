//! What the tables of both SQL engines go through, whatever the columns of a database are called.

use std::sync::Arc;
use std::time::Duration;

use leasehold::claim::{Answer, Ask, OwnerId};
use leasehold::engine::{CellValue, Decision, Renewal, Renewed, Rule, Swap, Swapped, Write};
use leasehold::{Error, Family, Name};

use crate::bench::{Ground, ask, ms, until_within};
use crate::cells::{add, name};

/// How long a case may take that sends thousands of statements, and starts a program for each look
/// at the tables.
const LONG: Duration = ms(60_000);

/// Names that are held, and what renews them together.
async fn held(ground: &mut Ground, names: &[&str]) -> (Box<dyn leasehold::engine::Engine>, Vec<Renewal>) {
    let engine = ground.engine().await;
    let mut renewals = Vec::new();
    for (owner, name) in (1..).zip(names) {
        let name = Name::new(Family::Lock, *name).expect("a name");
        let answer = engine.acquire(&name, &ask(owner)).await.expect("an answer");
        assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
        renewals.push(Renewal { name, owner: OwnerId(owner), lease: ms(30_000) });
    }
    (engine, renewals)
}

/// `spoil` changes the row of the name `x` by hand.
pub(crate) async fn a_row_that_is_changed_by_hand_is_in_nobodys_way(
    mut ground: Ground,
    spoil: impl FnOnce(&Ground),
) {
    let (engine, renewals) = held(&mut ground, &["w", "x", "y", "z"]).await;
    spoil(&ground);
    let renewed = engine.renew(&renewals).await.expect("an answer");
    // Nobody can tell whether it is held.
    assert_eq!(renewed, [Renewed::Yes, Renewed::Unknown, Renewed::Yes, Renewed::Yes]);
    // Alone in a call, it is what the call fails with.
    let error = engine.renew(&renewals[1..2]).await.expect_err("it can not be read");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
}

/// What concerns all names is not taken for the fault of a row.
pub(crate) async fn what_keeps_all_names_from_being_renewed_is_said(
    mut ground: Ground,
    query: impl Fn(&Ground, &str) -> String,
) {
    let (engine, renewals) = held(&mut ground, &["w", "x", "y", "z"]).await;
    query(&ground, "alter table leasehold_names drop column ends");
    let error = engine.renew(&renewals).await.expect_err("the table is another one");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(error.to_string().contains("ends"), "{error}");
}

/// Looks at cells, and never writes.
#[derive(Debug)]
struct OnlyLook;

impl Rule for OnlyLook {
    fn step(&self, _: &[Option<&[u8]>], _: u64) -> Decision {
        Decision { writes: Vec::new(), answer: Vec::new() }
    }
}

/// `age` is a statement after which all cells have expired a while ago.
pub(crate) async fn whoever_only_looks_at_cells_sweeps_nothing(
    mut ground: Ground,
    query: impl Fn(&Ground, &str) -> String,
    age: &str,
) {
    // More than are written from one sweep to the next.
    const LOOKS: usize = 600;
    let engine = ground.engine().await;
    let write = Write::Put(CellValue { bytes: vec![1; 8], lives: ms(60_000) });
    let first = Swap { name: name("c"), version: 0, write };
    assert!(matches!(engine.swap(vec![first.clone()]).await.expect("an answer"), Swapped::Yes));
    let rule: Arc<dyn Rule> = Arc::new(OnlyLook);
    let too_late = Swap { version: 7, ..first };
    query(&ground, age);
    for _ in 0..LOOKS / 2 {
        engine.apply(&[name("c")], &rule).await.expect("an answer");
        let swapped = engine.swap(vec![too_late.clone()]).await.expect("an answer");
        assert!(matches!(swapped, Swapped::No(_)), "{swapped:?}");
    }
    assert_eq!(query(&ground, "select count(*) from leasehold_cells"), "1", "it was swept");
}

/// A row that can not be read must not stop the sweep. `spoil` damages the waiters of a name; `age`
/// is a statement after which all names and all cells but `kept` have ended a while ago.
pub(crate) async fn a_damaged_row_stops_no_sweep(
    mut ground: Ground,
    query: impl Fn(&Ground, &str) -> String,
    spoil: &str,
    age: &str,
) {
    let (engine, _) = held(&mut ground, &["x"]).await;
    let name = Name::new(Family::Lock, "x").expect("a name");
    let waiting = engine.acquire(&name, &Ask { wait: true, ..ask(2) }).await.expect("an answer");
    assert!(matches!(waiting, Answer::Queued(_)), "{waiting:?}");
    drop(engine);
    query(&ground, spoil);
    whoever_writes_cells_sweeps_the_table(ground, query, age).await;
}

/// `age` is a statement after which all cells but `kept` have expired a while ago.
pub(crate) async fn whoever_writes_cells_sweeps_the_table(
    mut ground: Ground,
    query: impl Fn(&Ground, &str) -> String,
    age: &str,
) {
    // It holds nothing, and so it renews nothing.
    let engine = ground.engine().await;
    let count = || query(&ground, "select count(*) from leasehold_cells").parse::<usize>().expect("a number");
    let put = async |name: Name, lives: Duration| {
        let version = engine.read(std::slice::from_ref(&name)).await.expect("an answer").cells[0].version;
        let write = Write::Put(CellValue { bytes: vec![1; 8], lives });
        let swapped = engine.swap(vec![Swap { name, version, write }]).await.expect("an answer");
        assert!(matches!(swapped, Swapped::Yes), "{swapped:?}");
    };
    for by_rule in [false, true] {
        for number in 0..20 {
            put(name(&format!("c{number}")), ms(1)).await;
        }
        assert!(count() >= 20);
        query(&ground, age);
        until_within(LONG, "the old cells are gone", async || {
            for _ in 0..64 {
                if by_rule {
                    engine.apply(&[name("kept")], &add(1)).await.expect("an answer");
                } else {
                    put(name("kept"), ms(60_000)).await;
                }
            }
            count() <= 1
        })
        .await;
    }
}
