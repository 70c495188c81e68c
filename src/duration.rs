//! Durations as people write them: `500ms`, `30s`, `1.5s`, `5m`, `1h30m`, or plain seconds.
//!
//! For the options of URLs and for the command line tool, so that both understand the same.

use std::time::Duration;

/// Ends an error: what a duration looks like.
const LIKE: &str = "write it like `500ms`, `30s`, `1.5s`, `5m` or `1h30m`";

/// Reads a duration. A number alone is in seconds.
///
/// # Errors
///
/// What is wrong with the text, and what a duration looks like. The error may repeat a part of the
/// text.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.trim().is_empty() {
        return Err(format!("the duration is empty; {LIKE}"));
    }
    // The parser takes `M` for a month. Nobody waits for months; `5M` is meant as minutes.
    if text.contains('M') {
        return Err(format!("there is no unit `M` (a minute is `m`); {LIKE}"));
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let read =
        if plain { humantime::parse_duration(&format!("{text}s")) } else { humantime::parse_duration(text) };
    read.map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, .. } if !unit.is_empty() => {
            format!("there is no unit `{unit}`; {LIKE}")
        }
        humantime::DurationError::UnknownUnit { value, .. } => format!("`{value}` has no unit; {LIKE}"),
        humantime::DurationError::NumberOverflow => "the duration is too long".to_owned(),
        _ => format!("this is not a duration; {LIKE}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood() {
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("30", 30_000),
            ("0.25", 250),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            (" ", "empty"),
            ("1h30", "`30` has no unit"),
            ("-5s", "not a duration"),
            ("s", "not a duration"),
            ("soon", "not a duration"),
            (".", "not a duration"),
            ("1.2.3", "not a duration"),
            ("5x", "no unit `x`"),
            ("5S", "no unit `S`"),
            ("5M", "no unit `M`"),
            ("9999999999999999999999s", "too long"),
            ("99999999999999999999", "too long"),
            ("18446744073709551615d", "too long"),
            ("٣s", "not a duration"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
