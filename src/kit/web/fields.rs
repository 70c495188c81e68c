//! The fields of a response that say how a limit stands.

use std::fmt::Write as _;
use std::time::Duration;

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue};

use super::problem::seconds;
use crate::kit::rate::{Limiter, Mode, Verdict};

/// Which fields tell a caller how its limits stand.
///
/// There is no standard yet. The fields of the draft have changed with its versions, so a service
/// says which ones its callers know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit-Policy: "orders";q=10;w=1` and `RateLimit: "orders";r=9;t=1`, as in
    /// draft-ietf-httpapi-ratelimit-headers-08 to -10.
    #[default]
    Draft10,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as in the same draft up to
    /// -06, for the limit with the least left.
    Draft06,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, which many clients
    /// know, for the limit with the least left. The reset is in seconds from now; some services
    /// give a date there.
    Legacy,
    /// None. `Retry-After` is given all the same.
    None,
}

/// The fields of one limiter, as far as they are always the same.
#[derive(Debug)]
pub(super) struct Policies {
    fields: Fields,
    list: Vec<Policy>,
    /// `RateLimit-Policy`.
    line: Option<HeaderValue>,
}

#[derive(Debug)]
struct Policy {
    /// Without signs that a field can not have.
    name: String,
    quota: u32,
}

/// How one limit stands: which one, what is left, until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    policy: usize,
    left: u32,
    time: Duration,
}

impl Policies {
    pub(super) fn new(limiter: &Limiter, fields: Fields) -> Policies {
        let several = limiter.limits().count() > 1;
        let mut list = Vec::new();
        let mut line = String::new();
        for limit in limiter.limits() {
            let mut name = printable(limiter.name());
            if several {
                write!(name, "-{:?}", limit.period()).unwrap_or_default();
                name = printable(&name.replace('µ', "u"));
            }
            let separator = if line.is_empty() { "" } else { ", " };
            write!(line, "{separator}{};q={}", quoted(&name), limit.amount()).unwrap_or_default();
            // Fields have whole seconds. A window that is none is not told.
            if limit.period().subsec_nanos() == 0 {
                write!(line, ";w={}", limit.period().as_secs()).unwrap_or_default();
            }
            list.push(Policy { name, quota: limit.amount() });
        }
        let line = (fields == Fields::Draft10).then(|| HeaderValue::try_from(line).ok()).flatten();
        Policies { fields, list, line }
    }

    /// The name of a limit in fields and problems.
    pub(super) fn name(&self, limit: usize) -> &str {
        self.list.get(limit).map_or("", |policy| &policy.name)
    }

    /// Adds what a verdict says to a response. What is not known is left out.
    pub(super) fn add(&self, verdict: &Told, headers: &mut HeaderMap) {
        if let Some(line) = &self.line {
            headers.append(HeaderName::from_static("ratelimit-policy"), line.clone());
        }
        let names = match self.fields {
            Fields::None => return,
            Fields::Draft10 => {
                let item = |standing: &Standing| {
                    let Standing { policy, left, time } = *standing;
                    format!("{};r={left};t={}", quoted(self.name(policy)), seconds(time))
                };
                let items: Vec<String> = verdict.0.iter().map(item).collect();
                if let (false, Ok(value)) = (items.is_empty(), HeaderValue::try_from(items.join(", "))) {
                    headers.append(HeaderName::from_static("ratelimit"), value);
                }
                return;
            }
            Fields::Draft06 => ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            Fields::Legacy => ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        };
        let Some(least) = verdict.0.iter().min_by_key(|standing| standing.left) else { return };
        let quota = self.list.get(least.policy).map_or(0, |policy| policy.quota);
        let values = [u64::from(quota), u64::from(least.left), seconds(least.time)];
        for (name, value) in names.into_iter().zip(values) {
            // A layer further in has refused, or is nearer to it.
            if let Entry::Vacant(vacant) = headers.entry(HeaderName::from_static(name)) {
                vacant.insert(HeaderValue::from(value));
            }
        }
    }
}

/// What a verdict says of the limits, as far as it is known.
#[derive(Debug)]
pub(super) struct Told(Vec<Standing>);

impl Told {
    pub(super) fn new(verdict: &Verdict) -> Told {
        match verdict {
            // What a process knows of its own share says nothing of the limit.
            _ if !matches!(verdict.by(), Mode::Engine | Mode::Batch | Mode::Remembered) => Told(Vec::new()),
            Verdict::Denied { retry_after, left, limit, .. } => {
                // Only the limit that refuses, so that the time is the same as in `Retry-After`.
                Told(vec![Standing { policy: *limit, left: *left, time: *retry_after }])
            }
            _ => {
                let quotas = verdict.quotas().iter().enumerate();
                let standing =
                    quotas.map(|(policy, one)| Standing { policy, left: one.left, time: one.reset_after });
                Told(standing.collect())
            }
        }
    }
}

/// A string of structured fields (RFC 9651). The text is printable.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text without signs that a field can not have: they are percent-encoded.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => printable.push(char::from(byte)),
            _ => write!(printable, "%{byte:02X}").unwrap_or_default(),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::rate::{Limit, WhenAway};

    async fn limiter(name: &str, limits: Vec<Limit>) -> Limiter {
        let client = crate::connect("memory:").await.expect("always there");
        let limiter = client.limiter(name, limits, WhenAway::Open).expect("in range");
        // However slow the machine is, the engine decides.
        limiter.deadline(Duration::from_secs(10))
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().expect("printable"))
        };
        headers.iter().map(line).collect()
    }

    #[tokio::test]
    async fn each_choice_of_fields_is_pinned() {
        let day = Limit::fixed_window(1000, Duration::from_secs(86_400));
        let limiter = limiter("or\"ders é", vec![Limit::per_second(10).burst(3), day]).await;
        let verdict = Told::new(&limiter.check("k").await.expect("an answer"));
        for (fields, expected) in [
            (
                Fields::Draft10,
                vec![
                    r#"ratelimit-policy: "or\"ders %C3%A9-1s";q=10;w=1, "or\"ders %C3%A9-86400s";q=1000;w=86400"#,
                    r#"ratelimit: "or\"ders %C3%A9-1s";r=2;t=1, "or\"ders %C3%A9-86400s";r=999;t=86400"#,
                ],
            ),
            (Fields::Draft06, vec!["ratelimit-limit: 10", "ratelimit-remaining: 2", "ratelimit-reset: 1"]),
            (
                Fields::Legacy,
                vec!["x-ratelimit-limit: 10", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 1"],
            ),
            (Fields::None, vec![]),
        ] {
            let mut headers = HeaderMap::new();
            Policies::new(&limiter, fields).add(&verdict, &mut headers);
            assert_eq!(lines(&headers), expected, "{fields:?}");
        }
    }

    #[tokio::test]
    async fn a_window_of_half_seconds_is_not_told_as_whole_ones() {
        let limiter = limiter("x", vec![Limit::fixed_window(5, Duration::from_millis(1500))]).await;
        let mut headers = HeaderMap::new();
        Policies::new(&limiter, Fields::Draft10).add(&Told(Vec::new()), &mut headers);
        assert_eq!(lines(&headers), [r#"ratelimit-policy: "x";q=5"#]);
    }
}
