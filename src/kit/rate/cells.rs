//! The names of the cells of a limit.
//!
//! The cells of one key must be in one slot of a Redis Cluster, so that they can be decided together.
//! The key is their hash tag, unless it has one itself: then several keys with that tag can be decided
//! together too.

use std::fmt::Write as _;

use super::algorithm::Algorithm;
use super::limit::Limit;

/// What the names of the cells of one limit start with.
///
/// Algorithm and period are part of it: a limit that gets another one starts anew. One that gets another
/// amount goes on with what was used.
pub(super) fn prefix(name: &str, limit: &Limit, algorithm: Algorithm) -> String {
    let mut text = String::from("limit/");
    escape(name, &['%', '{', '}', '='], &mut text);
    let micros = limit.period().as_micros();
    let word = algorithm.word();
    // Writing to a String can not fail.
    if micros.is_multiple_of(1_000_000) {
        write!(text, "/{word}-{}s/", micros / 1_000_000).unwrap_or_default();
    } else {
        write!(text, "/{word}-{micros}us/").unwrap_or_default();
    }
    text
}

/// The name of the cell of a key.
pub(super) fn cell(prefix: &str, key: &str) -> String {
    let mut text = String::with_capacity(prefix.len() + key.len() + 2);
    text.push_str(prefix);
    if has_tag(key) {
        // No other name has this sign before its first brace.
        text.push('=');
        text.push_str(key);
        return text;
    }
    text.push('{');
    if key.is_empty() {
        // An empty tag is none. No other key is written like this.
        text.push('%');
    }
    escape(key, &['%', '{', '}'], &mut text);
    text.push('}');
    text
}

fn has_tag(key: &str) -> bool {
    key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

fn escape(text: &str, signs: &[char], into: &mut String) {
    for letter in text.chars() {
        if signs.contains(&letter) {
            write!(into, "%{:02X}", u32::from(letter)).unwrap_or_default();
        } else {
            into.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    /// Stores keep these: they never change.
    #[test]
    fn names_are_pinned() {
        let name = |name: &str, limit: &Limit, key: &str| {
            cell(&prefix(name, limit, limit.algorithm().expect("in range")), key)
        };
        let (second, day) = (Limit::per_second(5), Limit::fixed_window(5, Duration::from_secs(86_400)));
        assert_eq!(name("search", &second, "user7"), "limit/search/bucket-1s/{user7}");
        assert_eq!(name("search", &day, "user7"), "limit/search/window-86400s/{user7}");
        assert_eq!(name("a=b{c}", &second, "x%{y"), "limit/a%3Db%7Bc%7D/bucket-1s/{x%25%7By}");
        assert_eq!(name("search", &second, "{t}/user7"), "limit/search/bucket-1s/={t}/user7");
        assert_eq!(name("search", &second, ""), "limit/search/bucket-1s/{%}");
        let odd = Limit::sliding_window(5, Duration::from_micros(1500));
        assert_eq!(name("search", &odd, "é"), "limit/search/sliding-1500us/{é}");
    }

    #[test]
    fn no_two_keys_have_one_cell() {
        let limit = Limit::per_second(5);
        let algorithm = limit.algorithm().expect("in range");
        let texts =
            ["", "a", "%", "%25", "{a}", "={a}", "=a", "a/{a}", "{", "}", "{}", "%7B", "a/bucket-1s/{a}"];
        let mut seen = HashSet::new();
        for name in texts {
            for key in texts {
                assert!(seen.insert(cell(&prefix(name, &limit, algorithm), key)), "{name} {key}");
            }
        }
    }
}
