//! Durations, as they are typed and shown: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 60 * 60_000), ("d", 24 * 60 * 60_000)];
/// Longer than anybody waits; what is above is a slip of the finger.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Understands what was typed.
///
/// A number without a unit is refused: `--wait 30` would be seconds to some and milliseconds to others.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const LIKE: &str = "write it like `500ms`, `30s`, `5m` or `1h30m`";
    if text.is_empty() {
        return Err(format!("the duration is empty; {LIKE}"));
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(format!("this is not a duration; {LIKE}"));
        }
        if unit.is_empty() {
            return Err(if after.is_empty() {
                format!("`{number}` has no unit; {LIKE}")
            } else {
                format!("this is not a duration; {LIKE}")
            });
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("there is no unit `{unit}`; there are `ms`, `s`, `m`, `h` and `d`"));
        };
        if *scale >= smallest {
            return Err(format!("larger units come first, each of them once; {LIKE}"));
        }
        smallest = *scale;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*scale));
        millis = part.and_then(|part| millis.checked_add(part)).ok_or_else(too_long)?;
        rest = after;
    }
    let duration = Duration::from_millis(millis);
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
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("30", "`30` has no unit"),
            ("1h30", "`30` has no unit"),
            ("-5s", "not a duration"),
            ("1.5s", "not a duration"),
            ("s", "not a duration"),
            ("5 s", "not a duration"),
            ("5x", "no unit `x`"),
            ("5S", "no unit `S`"),
            ("5m5m", "larger units come first"),
            ("5s1m", "larger units come first"),
            ("9999999999999999999999s", "more than"),
            ("18446744073709551615d", "more than"),
            ("400d", "more than"),
            ("٣s", "not a duration"),
        ] {
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
