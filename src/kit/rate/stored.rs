//! What is stored of limits, for people who look.

use std::time::Duration;

use super::algorithm::Usage;
use super::bucket::Kind;
use super::fixed_window::FixedWindow;
use super::sliding_log::SlidingLog;
use super::sliding_window::{self, SlidingWindow};
use crate::claim::Micros;
use crate::client::Client;
use crate::error::Result;
use crate::kit::bytes::Reader;
use crate::kit::cells;

/// What is stored of a limit for one key.
///
/// How much it allows is not stored: whoever asks brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredLimit {
    /// The name of the limiter.
    pub name: String,
    /// For whom.
    pub key: String,
    /// `bucket`, `leaky`, `window`, `log` or `sliding`.
    pub algorithm: String,
    /// The period of the limit.
    pub period: Duration,
    /// How much is used; of a bucket, how much was when it was last changed.
    pub used: u32,
    /// How long ago it was last changed.
    pub changed: Duration,
}

impl Client {
    /// All that is stored of limits whose names start with `prefix`: of those keys of which
    /// something is used. For people: it reads every one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn limits_in_use(&self, prefix: impl AsRef<str>) -> Result<Vec<StoredLimit>> {
        if !self.guarantees().cells {
            return Ok(Vec::new());
        }
        let prefix = prefix.as_ref();
        let wanted = |name: &str| parse(name).is_some_and(|parsed| parsed.name.starts_with(prefix));
        let found = self.find_cells(wanted).await?;
        let limits = found
            .iter()
            .filter_map(|(name, cell, now)| stored(name, cell.value.as_deref()?, cell.changed_at, *now));
        Ok(limits.filter(|limit| limit.used > 0).collect())
    }
}

fn parse(name: &str) -> Option<cells::Parsed<'_>> {
    cells::parse("limit", true, name)
}

fn stored(name: &str, state: &[u8], changed_at: Micros, now: Micros) -> Option<StoredLimit> {
    let cells::Parsed { name, about, key } = parse(name)?;
    let (algorithm, period) = about?.split_once('-')?;
    let period: Micros = match period.strip_suffix("us") {
        Some(micros) => micros.parse().ok()?,
        None => period.strip_suffix('s')?.parse::<Micros>().ok()?.checked_mul(1_000_000)?,
    };
    let used = used(algorithm, period, state, now)?;
    let changed = Duration::from_micros(now.saturating_sub(changed_at));
    let (algorithm, period) = (algorithm.to_owned(), Duration::from_micros(period));
    Some(StoredLimit { name, key, algorithm, period, used, changed })
}

fn used(algorithm: &str, period: Micros, state: &[u8], now: Micros) -> Option<u32> {
    // Of a limit that nothing reaches, what is not left is used.
    const LIMIT: u32 = u32::MAX;
    let missing = |usage: &dyn Usage| LIMIT - usage.left();
    Some(match algorithm {
        "window" => missing(&FixedWindow { limit: LIMIT, period }.load(Some(state), now)?),
        "log" => missing(&SlidingLog { limit: LIMIT, period }.load(Some(state), now)?),
        "sliding" => {
            let width = Reader::new(state, sliding_window::TAG)?.wide()?;
            let slices = u32::try_from(period.checked_div(width)?).ok()?;
            missing(&SlidingWindow { limit: LIMIT, slices, width }.load(Some(state), now)?)
        }
        _ => {
            let kind = [Kind::Token, Kind::Leaky].into_iter().find(|kind| kind.word() == algorithm)?;
            let mut reader = Reader::new(state, kind.tag())?;
            let (cost, _, units) = (reader.wide()?, reader.wide()?, reader.wide()?);
            u32::try_from(units.checked_add(cost.checked_sub(1)?)?.checked_div(cost)?).ok()?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::{Change, Request};
    use super::super::limit::Limit;
    use super::*;

    #[test]
    fn what_is_used_is_read_from_any_state() {
        let (second, now) = (Duration::from_secs(1), 1_700_000_000_000_000);
        for limit in [
            Limit::token_bucket(7, second),
            Limit::leaky_bucket(7, second).queue(9),
            Limit::fixed_window(7, second),
            Limit::sliding_log(7, second),
            Limit::sliding_window(7, second),
        ] {
            let algorithm = limit.algorithm().expect("in range");
            let request = Request::Take { least: 3, most: 3 };
            let Some(Change::Put { state, .. }) = algorithm.step(None, now, request).map(|step| step.change)
            else {
                panic!("{limit:?} stores nothing");
            };
            let name = format!("shop/limit/search/{}-1s/{{user7}}", algorithm.word());
            let found = stored(&name, &state, now, now + 10).expect("a limit");
            assert_eq!((found.name.as_str(), found.key.as_str(), found.used), ("shop/search", "user7", 3));
            assert_eq!((found.period, found.changed), (second, Duration::from_micros(10)));
            assert_eq!(stored(&name, &state[1..], now, now), None, "{limit:?}");
            assert_eq!(stored(&name, &[0; 22], now, now), None, "{limit:?}");
        }
    }
}
