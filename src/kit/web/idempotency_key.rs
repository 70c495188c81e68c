//! The key of a request, as its caller has written it.

use http::HeaderMap;

/// The longest `Idempotency-Key`, in bytes.
pub const LONGEST_KEY: usize = 255;

/// The key of a request: `None` if it has none, and an error that says why it is not one.
///
/// The draft has a string of structured fields there, in quotes. Most clients leave them out, so a
/// key without them is taken as it is.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("there are several keys");
    }
    let text = value.to_str().map_err(|_| "the key has other signs than printable ASCII")?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquoted(rest).ok_or("the key is not a string of structured fields")?,
        None if text.contains(['"', ',', ';', '\\', ' ']) => {
            return Err("a key with such signs must be in quotes");
        }
        None => text.to_owned(),
    };
    match key.len() {
        0 => Err("the key is empty"),
        length if length > LONGEST_KEY => Err("the key is longer than 255 bytes"),
        _ => Ok(Some(key)),
    }
}

/// The text of a string whose first quote is gone. Parameters after it mean nothing here.
fn unquoted(rest: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => break,
            '\\' => match letters.next()? {
                letter @ ('"' | '\\') => text.push(letter),
                _ => return None,
            },
            letter => text.push(letter),
        }
    }
    let after = letters.as_str();
    (after.is_empty() || after.trim_start().starts_with(';')).then_some(text)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(values: &[&str]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        key(&headers)
    }

    #[test]
    fn keys_are_read_with_quotes_and_without() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["8e03978e-40d5"]), some("8e03978e-40d5"));
        assert_eq!(of(&["\"8e03978e-40d5\""]), some("8e03978e-40d5"));
        assert_eq!(of(&["\"a \\\"b\\\\\";p=1"]), some("a \"b\\"));
        assert_eq!(of(&[&"x".repeat(LONGEST_KEY)]), some(&"x".repeat(LONGEST_KEY)));
        for bad in ["", "\"\"", "\"a", "\"a\\b\"", "\"a\"b", "a b", "a,b", "é"] {
            assert!(of(&[bad]).is_err(), "{bad}");
        }
        assert!(of(&[&"x".repeat(LONGEST_KEY + 1)]).is_err());
        assert!(of(&["a", "a"]).is_err());
    }
}
