//! The cache: one loads for all, and an invalidation holds.

mod consistency;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod crashes;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod database;
mod failing;
mod filters;
mod loading;
mod outage;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod outbox;
mod source;
mod waiting;

use leasehold::kit::cache::Loaded;

use self::source::{Source, told, value};
use crate::Group;
use crate::bench::{Ground, ms, refuses};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        loading::group(),
        waiting::group(),
        failing::group(),
        consistency::group(),
        outage::group(),
        filters::group(),
    ]
}

/// The ground, if its engine has cells; if not, it must refuse caches.
async fn caches(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let client = ground.client().await;
    refuses(client.cache("x", ms(1000), |_| async { Ok::<_, String>(Loaded::none()) }));
    refuses(client.filter("x"));
    refuses(client.outbox("x"));
    None
}
