//! Refusals: responses with a problem document (RFC 9457).

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// What is wrong, for the caller.
pub(super) struct Problem<'a> {
    pub(super) status: StatusCode,
    /// A name that programs know; if there is none, the status says it all.
    pub(super) kind: Option<&'static str>,
    pub(super) title: &'static str,
    pub(super) detail: String,
    /// The limits that refuse.
    pub(super) violated: &'a [&'a str],
    pub(super) retry_after: Option<Duration>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Problem<'a> {
        Problem { status, kind: None, title, detail: detail.into(), violated: &[], retry_after: None }
    }

    pub(super) fn retry_after(mut self, time: Duration) -> Problem<'a> {
        self.retry_after = Some(time);
        self
    }

    pub(super) fn response<B: From<Bytes>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(Bytes::from(self.document())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(time) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds(time)));
        }
        response
    }

    fn document(&self) -> String {
        let mut text = String::from("{");
        if let Some(kind) = self.kind {
            write!(text, "\"type\":{},", quoted(kind)).unwrap_or_default();
        }
        write!(text, "\"title\":{},\"status\":{}", quoted(self.title), self.status.as_u16())
            .unwrap_or_default();
        write!(text, ",\"detail\":{}", quoted(&self.detail)).unwrap_or_default();
        if !self.violated.is_empty() {
            let names: Vec<String> = self.violated.iter().map(|name| quoted(name)).collect();
            write!(text, ",\"violated-policies\":[{}]", names.join(",")).unwrap_or_default();
        }
        text + "}"
    }
}

/// Rounded up, and never 0: whoever comes back then is not too early.
pub(super) fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1)
}

/// A string in JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(letter)).unwrap_or_default();
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_valid_json_whatever_the_names_are() {
        let problem = Problem {
            violated: &["a\"b\\", "é\n"],
            ..Problem::new(StatusCode::CONFLICT, "title", "de\"tail")
        };
        let expected =
            r#"{"title":"title","status":409,"detail":"de\"tail","violated-policies":["a\"b\\","é\u000a"]}"#;
        assert_eq!(problem.document(), expected);
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, expected) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected);
        }
    }
}
