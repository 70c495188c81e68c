//! A client that stands still for longer than its session lives, but not for its whole lease.

use leasehold::Standing;

use super::*;
use crate::bench::ms;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "pauses",
        [
            who_stood_still_past_the_session_has_lost,
            who_stood_still_past_the_session_has_lost_a_raw_name,
            an_idle_client_is_granted_as_much_as_a_busy_one,
        ]
    )
    .cases
}

/// What a guard says right after everything in its process has stood still for that long, before
/// any task has run.
fn after_standing_still(url: String, still: Duration) -> (Standing, Duration) {
    let starved = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = connect(&url).await;
            let guard = lock(&client, "x", ms(60_000)).await;
            assert_eq!(guard.standing(), Standing::Held);
            std::thread::sleep(still);
            (guard.standing(), guard.remaining())
        })
    });
    starved.join().expect("no panic")
}

/// The sessions of these cases live for four seconds.
const PAST: Duration = ms(4050);

async fn who_stood_still_past_the_session_has_lost(ground: Ground) {
    assert_eq!(after_standing_still(ground.url().to_owned(), PAST), (Standing::Lost, Duration::ZERO));
}

async fn who_stood_still_past_the_session_has_lost_a_raw_name(ground: Ground) {
    let url = format!("{}&raw", ground.url());
    assert_eq!(after_standing_still(url, PAST), (Standing::Lost, Duration::ZERO));
}

/// A session is proved while nobody uses it, so that what is granted then can be relied on.
async fn an_idle_client_is_granted_as_much_as_a_busy_one(mut ground: Ground) {
    let client = ground.client().await;
    // Longer than a session is proved often for nobody.
    tokio::time::sleep(ms(11_000)).await;
    let guard = lock(&client, "x", ms(60_000)).await;
    assert_eq!(guard.standing(), Standing::Held);
    assert!(guard.remaining() > ms(500), "{:?}", guard.remaining());
    let (mut shortest, begun) = (guard.remaining(), std::time::Instant::now());
    while begun.elapsed() < ms(5000) {
        shortest = shortest.min(guard.remaining());
        assert_eq!(guard.standing(), Standing::Held, "{shortest:?} were left");
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.expect("held");
}
