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

/// What the name of a cell says: see [`parse`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    /// The name of the part of the kit, with the namespaces before it.
    pub(crate) name: String,
    /// What stands between that and the key, if anything does.
    pub(crate) about: Option<&'a str>,
    pub(crate) key: String,
}

/// Understands `[NAMESPACE/]KIND/NAME/[ABOUT/]KEY`.
pub(crate) fn parse<'a>(kind: &str, has_about: bool, text: &'a str) -> Option<Parsed<'a>> {
    let at = match text.strip_prefix(kind) {
        Some(rest) if rest.starts_with('/') => 0,
        _ => text.find(&format!("/{kind}/"))? + 1,
    };
    let (namespaces, rest) = (&text[..at], &text[at + kind.len() + 1..]);
    let (part, key) = rest.split_at(rest.find(['{', '='])?);
    let mut part = part.strip_suffix('/')?;
    let about = if has_about {
        let (name, about) = part.rsplit_once('/')?;
        part = name;
        Some(about)
    } else {
        None
    };
    let key = match key.strip_prefix('=') {
        Some(tagged) => tagged.to_owned(),
        None => match key.strip_prefix('{')?.strip_suffix('}')? {
            "%" => String::new(),
            escaped => unescape(escaped)?,
        },
    };
    Some(Parsed { name: format!("{namespaces}{}", unescape(part)?), about, key })
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        unescaped.push(char::from(u8::from_str_radix(code, 16).ok()?));
        unescaped.push_str(rest);
    }
    Some(unescaped)
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
    fn names_are_understood() {
        let texts =
            ["", "a", "%", "%25", "{a}", "={a}", "=a", "a/{a}", "{", "}", "{}", "%7B", "a/x/{a}", "é"];
        for (name, key) in texts.iter().flat_map(|name| texts.iter().map(move |key| (*name, *key))) {
            for (namespaces, about) in [("", None), ("shop/", None), ("shop/eu/", Some("bucket-1s"))] {
                let mut prefix = format!("{namespaces}once/");
                part(name, &mut prefix);
                prefix.push('/');
                prefix.extend(about.iter().flat_map(|about| [*about, "/"]));
                let text = cell(&prefix, key);
                let (name, key) = (format!("{namespaces}{name}"), key.to_owned());
                assert_eq!(
                    parse("once", about.is_some(), &text),
                    Some(Parsed { name, about, key }),
                    "{text}"
                );
                assert_eq!(parse("limit", about.is_some(), &text), None);
            }
        }
        for strange in ["once", "once/", "once/a", "once/a/", "once/a/{b", "once/a/{%2}", "onces/a/{b}", "x"]
        {
            assert_eq!(parse("once", false, strange), None, "{strange}");
        }
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
