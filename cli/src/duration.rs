//! Durations, as they are typed and shown: `500ms`, `30s`, `1.5s`, `5m`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 60 * 60_000), ("d", 24 * 60 * 60_000)];
/// Longer than anybody waits; what is above is a slip of the finger.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Understands what was typed: a number alone is in seconds, as it is for flock and sleep.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = leasehold::duration::parse(text)?;
    if duration > LONGEST { Err(too_long()) } else { Ok(duration) }
}

fn too_long() -> String {
    format!("this is more than {}", show(LONGEST))
}

/// Understands what was typed where nothing at all makes no sense.
pub(crate) fn parse_some(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it must be longer than 0".into()),
        duration => Ok(duration),
    }
}

/// Shows a duration as short as it is still of use: the two largest units that count.
pub(crate) fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    if millis < 10_000 {
        return format!("{}.{}s", millis / 1_000, millis % 1_000 / 100);
    }
    let mut shown = String::new();
    let mut rest = millis;
    let mut parts = 0;
    for (unit, scale) in UNITS.iter().skip(1).rev() {
        let count = rest / scale;
        rest %= scale;
        if count > 0 {
            shown += &format!("{count}{unit}");
        }
        // Once the first unit is there, only the next smaller one is worth its place.
        parts += usize::from(count > 0 || parts > 0);
        if parts == 2 {
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_understood() {
        for (text, millis) in
            [("500ms", 500), ("1.5s", 1_500), ("30", 30_000), ("0.5", 500), ("366d", 31_622_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_nobody_can_mean_is_refused() {
        for (text, reason) in [("400d", "more than 366d"), ("-5s", "not a duration"), ("5x", "no unit `x`")] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(parse_some("0ms").is_err());
    }

    #[test]
    fn what_is_shown_is_short() {
        for (millis, shown) in [
            (0, "0ms"),
            (999, "999ms"),
            (3_250, "3.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (61_500, "1m1s"),
            (3_600_000, "1h"),
            (3_605_000, "1h"),
            (5_400_000, "1h30m"),
            (90_000_000, "1d1h"),
            (366 * 86_400_000, "366d"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), shown);
        }
    }
}
