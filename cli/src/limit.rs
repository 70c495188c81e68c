//! `leasehold limit`: run a command only as often as a rate allows.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::Options;
use leasehold::kit::rate::{self, Limiter, Mode, Verdict, WhenAway};
use serde::Serialize;

use crate::args::Limit;
use crate::connect::connect;
use crate::exit::{Failure, NOT_FOUND, NOT_STARTED, UNAVAILABLE};
use crate::{duration, print};

/// A command is no request of thousands: it can wait for the engine.
const ENGINE_LIMIT: Duration = Duration::from_secs(5);
/// Someone at a terminal is told what is waited for if it takes longer than this.
const TELL_FROM: Duration = Duration::from_secs(1);

/// How many in which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    amount: u32,
    period: Duration,
}

/// Understands `10/s` and `3/90s`.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, String> {
    const LIKE: &str = "write it like `10/s`, `100/m`, `1000/d` or `3/90s`";
    let (amount, period) = text.split_once('/').ok_or_else(|| format!("this is not a rate; {LIKE}"))?;
    let amount = match amount.parse() {
        Ok(0) => return Err("a rate of 0 would never let anything pass".into()),
        Ok(amount) => amount,
        Err(_) => return Err(format!("`{amount}` is not a whole number, or too large; {LIKE}")),
    };
    let unit = period.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let period =
        if unit { duration::parse_some(&format!("1{period}")) } else { duration::parse_some(period) };
    Ok(Rate { amount, period: period? })
}

pub(crate) async fn limit(args: &Limit) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new().call_limit(ENGINE_LIMIT)).await?;
    let mut limit = rate::Limit::token_bucket(args.rate.amount, args.rate.period);
    if let Some(burst) = args.burst {
        limit = limit.burst(burst);
    }
    let limiter = client.limiter(&args.name, limit, WhenAway::Closed)?.deadline(ENGINE_LIMIT);
    let verdict = ask(&limiter, args).await?;
    client.close().await.ok();
    if args.json {
        print::json(&Told::new(&verdict))?;
    }
    let name = print::visible(&args.name).into_owned();
    match verdict {
        Verdict::Allowed(_) if args.command.is_empty() => Ok(0),
        Verdict::Allowed(_) => Err(run(args)),
        Verdict::Denied { by: Mode::Closed, .. } => {
            Err(Failure::new(UNAVAILABLE, format!("can not ask whether `{name}` is used up: no answer")))
        }
        Verdict::Impossible { capacity, .. } => Err(Failure::usage(format!(
            "a cost of {} can never pass: at most {capacity} are there at once; give a larger --burst",
            args.cost
        ))),
        _ if args.json => Err(Failure { code: args.exit_if_limited, message: None }),
        verdict => {
            let wait = duration::show(rounded_up(verdict.retry_after().unwrap_or_default()));
            Err(Failure::new(args.exit_if_limited, format!("`{name}` is used up; come back in {wait}")))
        }
    }
}

/// Asks once, or until it may pass.
async fn ask(limiter: &Limiter, args: &Limit) -> Result<Verdict, Failure> {
    let end = args.wait.map(|wait| Instant::now() + wait);
    let mut told = false;
    loop {
        let verdict = limiter.check_cost(&args.key, args.cost).await?;
        let (Some(end), Verdict::Denied { retry_after, by, .. }) = (end, &verdict) else {
            return Ok(verdict);
        };
        // Longer than there is time: known at once.
        if *by == Mode::Closed || Instant::now() + *retry_after > end {
            return Ok(verdict);
        }
        if !told && *retry_after >= TELL_FROM && io::stderr().is_terminal() {
            told = true;
            let (name, wait) = (print::visible(&args.name), duration::show(rounded_up(*retry_after)));
            print::complain(&format!("`{name}` is used up; waiting, {wait} at least"));
        }
        tokio::time::sleep(*retry_after).await;
    }
}

/// Becomes the command. Comes back only if that fails.
fn run(args: &Limit) -> Failure {
    let Some((program, rest)) = args.command.split_first() else {
        return Failure::usage("there is no command to run");
    };
    let error = Command::new(program).args(rest).exec();
    let program = program.display().to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(NOT_FOUND, format!("`{program}` was not found")),
        _ => Failure::new(NOT_STARTED, format!("can not start `{program}`: {error}")),
    }
}

/// To the millisecond: whoever comes back then is not too early.
fn rounded_up(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
}

/// A verdict in JSON.
#[derive(Debug, Serialize)]
struct Told {
    allowed: bool,
    left: Option<u32>,
    retry_after_ms: Option<u64>,
}

impl Told {
    fn new(verdict: &Verdict) -> Told {
        let left = match verdict {
            Verdict::Allowed(allowed) => Some(allowed.left()),
            Verdict::Denied { left, .. } => Some(*left),
            _ => None,
        };
        let retry_after = verdict.retry_after().map(rounded_up);
        let retry_after_ms = retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Told { allowed: verdict.is_allowed(), left, retry_after_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_understood() {
        for (text, amount, seconds) in
            [("10/s", 10, 1), ("100/m", 100, 60), ("1/d", 1, 86_400), ("3/90s", 3, 90)]
        {
            assert_eq!(parse_rate(text), Ok(Rate { amount, period: Duration::from_secs(seconds) }), "{text}");
        }
        for (text, reason) in [
            ("10", "not a rate"),
            ("0/s", "never"),
            ("x/s", "not a whole number"),
            ("5000000000/s", "too large"),
            ("1/", "empty"),
            ("1/x", "no unit `x`"),
            ("1/0s", "longer than 0"),
        ] {
            assert!(parse_rate(text).unwrap_err().contains(reason), "{text}: {:?}", parse_rate(text));
        }
    }
}
