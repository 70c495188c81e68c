//! The names of the cells that the kit uses.
//!
//! The cells of one key must be in one slot of a Redis Cluster, so that they can be decided
//! together. The key is their hash tag, unless it has one itself: then several keys with that tag
//! can be decided together too.

use std::fmt::Write as _;

/// The name of a part of the kit, as cells have it before the key.
pub(crate) fn part(name: &str, into: &mut String) {
    escape(name, &['%', '{', '}', '='], into);
}

/// The name of the cell of a key.
pub(crate) fn cell(prefix: &str, key: &str) -> String {
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

    use super::*;

    /// Stores keep these: they never change.
    #[test]
    fn names_are_pinned() {
        assert_eq!(cell("x/", "user7"), "x/{user7}");
        assert_eq!(cell("x/", "x%{y"), "x/{x%25%7By}");
        assert_eq!(cell("x/", "{t}/user7"), "x/={t}/user7");
        assert_eq!(cell("x/", ""), "x/{%}");
        assert_eq!(cell("x/", "é"), "x/{é}");
        let mut text = String::new();
        part("a=b{c}/%", &mut text);
        assert_eq!(text, "a%3Db%7Bc%7D/%25");
    }

    #[test]
    fn no_two_keys_have_one_cell() {
        let texts = ["", "a", "%", "%25", "{a}", "={a}", "=a", "a/{a}", "{", "}", "{}", "%7B", "a/x/{a}"];
        let mut seen = HashSet::new();
        for name in texts {
            for key in texts {
                let mut prefix = String::new();
                part(name, &mut prefix);
                prefix.push_str("/x/");
                assert!(seen.insert(cell(&prefix, key)), "{name} {key}");
            }
        }
    }
}
