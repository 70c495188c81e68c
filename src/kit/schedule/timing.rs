//! When a task is due: cron expressions in a time zone, and intervals.
//!
//! Pure: from one moment to the next instant after it, in microseconds since 1970.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::claim::Micros;
use crate::error::{Error, Result};

/// The shortest interval: what is asked more often is no schedule.
const SHORTEST: Duration = Duration::from_millis(10);
const SECOND: Micros = 1_000_000;

/// When a task is due.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    kind: Kind,
    text: String,
}

#[derive(Clone, Debug)]
enum Kind {
    Cron { cron: Box<Cron>, zone: TimeZone },
    Every(Micros),
}

impl Timing {
    /// An expression with five fields, or six with seconds, in the time of a zone.
    pub(super) fn cron(expression: &str, zone: &str) -> Result<Timing> {
        let wrong = |why: String| Error::invalid(format!("`{expression}` is not a cron expression: {why}"));
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| wrong(error.to_string()))?;
        let found = TimeZone::get(zone).map_err(|_| {
            Error::invalid(format!(
                "there is no time zone `{zone}`; write it like `Europe/Berlin`, `America/New_York` or `UTC`"
            ))
        })?;
        let timing = Timing {
            kind: Kind::Cron { cron: Box::new(cron), zone: found },
            text: format!("{} {zone}", expression.trim()),
        };
        // 30 February, for one.
        if timing.next_after(0).is_none() {
            return Err(wrong("it names no day that there is".to_owned()));
        }
        Ok(timing)
    }

    /// Multiples of a period, counted from 1970 in UTC, so that all nodes mean the same instants.
    pub(super) fn every(period: Duration) -> Result<Timing> {
        let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        if period < SHORTEST || micros > u64::MAX / 4 {
            return Err(Error::invalid(format!(
                "an interval of {period:?} is out of range: {SHORTEST:?} or more"
            )));
        }
        Ok(Timing {
            kind: Kind::Every(micros),
            text: format!("every {}", humantime::format_duration(period)),
        })
    }

    /// Understands what [`Timing::text`] has said.
    pub(super) fn of_text(text: &str) -> Option<Timing> {
        match text.strip_prefix("every ") {
            Some(period) => Timing::every(humantime::parse_duration(period).ok()?).ok(),
            None => {
                let (expression, zone) = text.rsplit_once(' ')?;
                Timing::cron(expression, zone).ok()
            }
        }
    }

    /// For people.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The first instant after a time; `None` if there is none any more.
    ///
    /// The rule for clocks that change is that of croner, and of most crons since Vixie's. Where an
    /// hour is left out, a task at one time of day in that hour is due at the first moment after
    /// it, and one that goes by lists, `*` or steps is not due in it. Where an hour comes twice,
    /// the first is due the first time, and the second both times.
    pub(super) fn next_after(&self, time: Micros) -> Option<Micros> {
        match &self.kind {
            Kind::Every(period) => Some((time / period).checked_add(1)?.checked_mul(*period)?),
            Kind::Cron { cron, zone } => {
                // Instants are whole seconds, and the search leaves out the second it starts in.
                let search = |second: i64| {
                    let start = Timestamp::from_second(second).ok()?.to_zoned(zone.clone());
                    Some(cron.find_next_occurrence(&start, false).ok()?.timestamp().as_second())
                };
                let mut found = search(i64::try_from(time / SECOND).ok()?)?;
                // An instant counts if it is found from right before it too. Where a day begins
                // with an hour that is left out (Havana), a search that comes from the day before
                // takes the end of that hour for an instant, whatever the time of day is.
                while search(found - 1)? != found {
                    found = search(found)?;
                }
                let found = u64::try_from(found).ok()?.checked_mul(SECOND)?;
                (found > time).then_some(found)
            }
        }
    }
}

/// A time for people, in RFC 3339.
pub(super) fn show(time: Micros) -> String {
    let time = i64::try_from(time).ok().and_then(|time| Timestamp::from_microsecond(time).ok());
    time.map_or_else(|| "?".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Micros {
        let time: Timestamp = text.parse().expect("a time");
        u64::try_from(time.as_microsecond()).expect("after 1970")
    }

    fn instants(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let timing = Timing::cron(expression, zone).expect("a timing");
        let mut found = Vec::new();
        let mut time = at(from);
        for _ in 0..count {
            time = timing.next_after(time).expect("another one");
            found.push(show(time));
        }
        found
    }

    #[test]
    fn a_fixed_time_in_a_missing_hour_is_due_right_after_it() {
        // In Berlin there was no time from 2 to 3 o'clock on 30 March 2025.
        let due = instants("30 2 * * *", "Europe/Berlin", "2025-03-29T00:00:00Z", 3);
        assert_eq!(due, ["2025-03-29T01:30:00Z", "2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"]);
    }

    #[test]
    fn a_missing_hour_at_midnight_is_no_time_of_day() {
        // In Havana there was no time from 0 to 1 o'clock on 8 March 2026.
        let due = instants("30 2 * * *", "America/Havana", "2026-03-07T07:30:00Z", 2);
        assert_eq!(due, ["2026-03-08T06:30:00Z", "2026-03-09T06:30:00Z"]);
        let due = instants("30 0 * * *", "America/Havana", "2026-03-07T07:30:00Z", 2);
        assert_eq!(due, ["2026-03-08T05:00:00Z", "2026-03-09T04:30:00Z"]);
    }

    #[test]
    fn a_fixed_time_in_an_hour_that_comes_twice_is_due_once() {
        // On 26 October 2025 it was half past two at 0:30 and at 1:30 UTC.
        let due = instants("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", 2);
        assert_eq!(due, ["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"]);
    }

    #[test]
    fn steps_leave_out_a_missing_hour_and_run_through_one_that_comes_twice() {
        let due = instants("*/30 * * * *", "Europe/Berlin", "2025-03-30T00:30:00Z", 2);
        assert_eq!(due, ["2025-03-30T01:00:00Z", "2025-03-30T01:30:00Z"]);
        let due = instants("*/30 * * * *", "Europe/Berlin", "2025-10-26T00:00:00Z", 4);
        let expected =
            ["2025-10-26T00:30:00Z", "2025-10-26T01:00:00Z", "2025-10-26T01:30:00Z", "2025-10-26T02:00:00Z"];
        assert_eq!(due, expected);
    }

    #[test]
    fn six_fields_begin_with_seconds() {
        let due = instants("*/20 * * * * *", "UTC", "2025-01-01T00:00:10.5Z", 3);
        assert_eq!(due, ["2025-01-01T00:00:20Z", "2025-01-01T00:00:40Z", "2025-01-01T00:01:00Z"]);
        let due = instants("0 3 * * 1", "America/New_York", "2025-01-01T00:00:00Z", 1);
        assert_eq!(due, ["2025-01-06T08:00:00Z"]);
    }

    #[test]
    fn intervals_are_multiples_that_all_nodes_agree_on() {
        let timing = Timing::every(Duration::from_secs(300)).expect("a timing");
        assert_eq!(timing.next_after(at("2025-01-01T00:03:00Z")), Some(at("2025-01-01T00:05:00Z")));
        assert_eq!(timing.next_after(at("2025-01-01T00:05:00Z")), Some(at("2025-01-01T00:10:00Z")));
        assert_eq!(timing.text(), "every 5m");
        for timing in [timing, Timing::cron(" 0 3 * * 1", "Europe/Berlin").expect("a timing")] {
            assert_eq!(Timing::of_text(timing.text()).expect("a timing").text(), timing.text());
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_reason() {
        for (expression, zone, reason) in [
            ("61 * * * *", "UTC", "cron expression"),
            ("* * *", "UTC", "cron expression"),
            ("", "UTC", "cron expression"),
            ("0 0 30 2 *", "UTC", "no day"),
            ("0 0 * * * * 2030", "UTC", "cron expression"),
            ("* * * * *", "Europe/Atlantis", "no time zone `Europe/Atlantis`"),
        ] {
            let error = Timing::cron(expression, zone).expect_err(expression);
            assert!(error.to_string().contains(reason), "{expression}: {error}");
        }
        assert!(Timing::every(Duration::from_micros(3)).is_err());
        assert!(Timing::every(Duration::MAX).is_err());
    }

    const EXPRESSIONS: [&str; 10] = [
        "30 2 * * *",
        "*/30 * * * *",
        "0,30 1-3 * * *",
        "15 */2 * * *",
        "*/7 * * * * *",
        "59 59 1,2 * * *",
        "0 0 L * *",
        "30 2 * * SUN#L",
        "0 3 1,15 * *",
        "20 0 * 3,10 0",
    ];
    const ZONES: [&str; 5] =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "UTC"];

    proptest! {
        /// Whatever time a node or a record starts from, it comes to the same instants: nothing
        /// between a time and the next instant after it has another next instant.
        #[test]
        fn the_next_instant_does_not_depend_on_where_the_search_starts(
            expression in 0..EXPRESSIONS.len(),
            zone in 0..ZONES.len(),
            // Around the days on which clocks change, in 2025 and 2026.
            day in prop_oneof![60..110u64, 280..315u64, 430..460u64, 640..675u64],
            second in 0..86_400u64,
            part in 0..1_000_000u64,
        ) {
            let timing = Timing::cron(EXPRESSIONS[expression], ZONES[zone]).expect("a timing");
            let start = at("2025-01-01T00:00:00Z") + (day * 86_400 + second) * SECOND + part;
            let next = timing.next_after(start).expect("another one");
            prop_assert!(next > start);
            for share in 0..8 {
                let between = start + (next - start - 1) / 7 * share;
                prop_assert_eq!(timing.next_after(between), Some(next), "{} {}", show(between), show(next));
            }
            prop_assert_eq!(timing.next_after(next - 1), Some(next));
            prop_assert!(timing.next_after(next).expect("another one") > next);
        }
    }
}
