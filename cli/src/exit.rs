//! What `leasehold` ends with.
//!
//! The codes are those of `sysexits.h`, which scripts and mail systems know, and of the shell. They
//! lie apart from the small codes that most commands use for themselves.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use leasehold::Error;

use crate::print;

/// `show` and `break`: nobody holds the name.
pub(crate) const FREE: u8 = 1;
/// The command line is wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The engine can not be reached or used (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The output could not be written (`EX_IOERR`).
pub(crate) const OUTPUT: u8 = 74;
/// Somebody else holds the name (`EX_TEMPFAIL`): trying again later may work.
pub(crate) const BUSY: u8 = 75;
/// The lease was lost before the command ended.
pub(crate) const LOST: u8 = 76;
/// The command was found and could not be started, as in shells.
pub(crate) const NOT_STARTED: u8 = 126;
/// The command was not found, as in shells.
pub(crate) const NOT_FOUND: u8 = 127;
/// A command that signal N ended gives this and N, as in shells.
pub(crate) const BY_SIGNAL: u8 = 128;

/// What most people type, for the help and the manual.
macro_rules! examples {
    () => {
        "\
Examples:
  One at a time on this machine; the next one waits:
    leasehold run nightly -- ./backup.sh
  The same for all machines that reach a server:
    leasehold run --on redis://10.0.0.7/ nightly -- ./backup.sh
  In cron: skip it, without a mail, if the last one still runs:
    leasehold run -n -E 0 nightly -- ./backup.sh"
    };
}
pub(crate) const EXAMPLES: &str = examples!();

/// What the command finds and what `run` ends with, for its help and the manual.
pub(crate) const RUN_HELP: &str = concat!(
    examples!(),
    "

Environment of the command:
  LEASEHOLD_NAME      NAME, the first one
  LEASEHOLD_TOKEN     its fencing token, greater than any holder's before;
                      empty if the engine gives none
  LEASEHOLD_DEADLINE  when the lease ends unless it is renewed, as of the
                      start, in ms of Unix time
  LEASEHOLD_HELD      all names and tokens of this run and of those around
                      it, as JSON, so that a run inside is recognised

Exit codes:
  The command's own code; or
  64     the command line is wrong, the name is in use with another number
         of slots, or the run is inside one that holds the name and would
         wait for itself
  69     the engine can not be reached or used; nothing was started
  75     the name was not free in time (or the code of --exit-if-busy);
         nothing was started
  76     the lease was lost before the command ended, and the command was
         stopped; or it may have been lost: the store was removed or moved,
         or the last renewal failed and so did the release
  126    the command was found but could not be started
  127    the command was not found
  128+N  signal N ended the command, or ended the wait for the name

A release that the engine did not hear, although the lease stood to the
end of the command, is told on stderr and leaves the command's code as it
is; the name is free when the lease ends."
);

/// What the command of `elect` finds, and what `elect` ends with, for its help and the manual.
pub(crate) const ELECT_HELP: &str = "\
Example, on every machine that could do the work:
  leasehold elect --on redis://10.0.0.7/ scheduler -- ./scheduler

Environment of the command:
  LEASEHOLD_NAME      NAME
  LEASEHOLD_TOKEN     the fencing token of the term, greater than any before
  LEASEHOLD_DEADLINE  when the lease ends unless it is renewed, as of the
                      start, in ms of Unix time

Exit codes:
  The command's own code, when it has ended by itself; or
  64     the command line is wrong, or the engine has no elections
  69     the engine can not be reached or used; nothing was started
  75     nobody was elected in time, with --wait or --no-wait (or the code of
         --exit-if-busy)
  76     the leadership was lost, with --one-term; or it may have been lost
         before the command ended by itself
  126    the command was found but could not be started
  127    the command was not found
  128+N  signal N ended the command, or the wait";

/// What `hold` ends with, for its help and the manual.
pub(crate) const HOLD_HELP: &str = "\
Exit codes:
  0      it was held and given back
  64     the command line is wrong, or it would wait for itself, inside a
         run that holds the name
  69     the engine can not be reached or used
  74     the output could not be written
  75     the name was not free in time (or the code of --exit-if-busy)
  76     the lease was lost; or it may have been: the store was removed or
         moved, or the last renewal failed and so did the release
  128+N  signal N ended the wait for the name

In a script, with `held` to wait for:
  coproc leasehold hold nightly
  read -r held <&${COPROC[0]}
  …
  kill $COPROC_PID";

/// What `limit` ends with, for its help and the manual.
pub(crate) const LIMIT_HELP: &str = "\
Exit codes:
  The command's own code, or 0 without a command; or
  64     the command line is wrong, or the cost is more than the burst and
         can never pass
  69     the engine can not be reached or used; nothing was started
  74     the output could not be written
  75     the limit is used up (or the code of --exit-if-limited); nothing
         was started
  126    the command was found but could not be started
  127    the command was not found
  128+N  signal N ended the command, or the wait";

/// What `once` ends with, for its help and the manual.
pub(crate) const ONCE_HELP: &str = "\
Exit codes:
  The code of the command, now or when it ran; or
  64     the command line is wrong, or the key was used for another command
  69     the engine can not be reached or used; nothing was started
  74     the output could not be written
  75     it is running
  76     it is not known whether it has run to its end; or the lease was
         lost, and it was killed
  126    the command was found but could not be started
  127    the command was not found
  128+N  signal N ended the command";

/// What the command of `cron` finds, and what `cron` ends with, for its help and the manual.
pub(crate) const CRON_HELP: &str = "\
Environment of the command:
  LEASEHOLD_NAME       NAME
  LEASEHOLD_SCHEDULED  the instant at which it was due, in ms of Unix time:
                       the same on all machines
  LEASEHOLD_TOKEN      its fencing token, greater than any earlier run's
  LEASEHOLD_ATTEMPT    1, or more if it runs again
  LEASEHOLD_DEADLINE   when the lease ends unless it is renewed, as of the
                       start, in ms of Unix time

Exit codes:
  0   a signal ended it, or the occurrences of --runs are done
  64  the command line is wrong, or SPEC names no time
  69  the engine can not be used, or could not be reached at the start

A command that fails or can not be started, and a lease that is lost, are
told on stderr and recorded. While the engine is away nothing is started.";

/// The codes of `pause` and `resume`, for their help and the manual.
pub(crate) const PAUSE_HELP: &str = "\
Exit codes:
  0   it is done
  1   there is no such task, or it was so before
  64  the command line is wrong
  69  the engine can not be reached or used";

/// The codes of the commands that look, for their help and the manual.
pub(crate) const LOOK_HELP: &str = "\
Exit codes:
  0   the name is held, or there is a task of that name
  1   the name is free
  64  the command line is wrong
  69  the engine can not be reached or used
  74  the output could not be written";

/// The codes of `break`, for its help and the manual.
pub(crate) const BREAK_HELP: &str = "\
Exit codes:
  0   the name was taken away from its holders
  1   nobody held it, or the answer was no
  64  the command line is wrong
  69  the engine can not be reached or used
  74  the output could not be written";

/// Why `leasehold` ends with a code of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Said on stderr; `None` if there is nothing to say.
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: Some(message.into()) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(USAGE, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error {
            // Another URL, name or option is needed: nothing that is typed the same way again will
            // work.
            Error::Invalid { .. } | Error::Unsupported { .. } => USAGE,
            Error::Lost { .. } => LOST,
            _ => UNAVAILABLE,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// For what is written to stdout.
    fn from(error: io::Error) -> Failure {
        // Whoever read the output has seen enough: `leasehold ls | head -1` is no failure.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { code: 0, message: None };
        }
        Failure::new(OUTPUT, format!("can not write to stdout: {error}"))
    }
}

/// Ends because of what was typed: help and version are answers, the rest is an error.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to tell if stdout is closed.
            error.print().ok();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print().ok();
            ExitCode::from(USAGE)
        }
        _ => {
            let text = error.render().to_string();
            let mut text = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
            let tip = match error.kind() {
                ErrorKind::UnknownArgument if forgot_dashes() => {
                    Some("put `--` before the command: leasehold run NAME -- CMD".to_owned())
                }
                ErrorKind::InvalidSubcommand => {
                    let typed = std::env::args_os().nth(1).unwrap_or_default().to_string_lossy().into_owned();
                    let meant = word_of_others(&typed);
                    // A word that is spelt alike is a worse guess than what others call it.
                    if meant.is_some() {
                        text = without_tip(&text);
                    }
                    let meant = meant.or_else(|| nearest(&typed).filter(|_| !text.contains("tip:")));
                    meant.map(|meant| format!("did you mean `leasehold {meant}`?"))
                }
                _ => None,
            };
            match tip {
                // Where the parser puts its own.
                Some(tip) => print::complain_in_lines(&text.replacen(
                    "\n\nUsage:",
                    &format!("\n\n  tip: {tip}\n\nUsage:"),
                    1,
                )),
                None => print::complain_in_lines(&text),
            }
            ExitCode::from(USAGE)
        }
    }
}

/// The command that others call by the word that was typed.
fn word_of_others(typed: &str) -> Option<&'static str> {
    Some(match typed {
        "lock" | "exec" | "with" | "flock" => "run NAME -- CMD",
        "acquire" | "take" | "keep" => "hold NAME",
        "list" | "names" | "locks" => "ls",
        "status" | "info" | "get" | "who" => "show NAME",
        "unlock" | "release" | "remove" | "rm" | "kill" | "steal" | "force" => "break NAME",
        "schedule" | "at" | "every" => "cron SPEC NAME -- CMD",
        "tail" | "follow" | "events" | "monitor" => "watch",
        _ => return None,
    })
}

/// The command that is a slip of the finger away.
fn nearest(typed: &str) -> Option<&'static str> {
    const COMMANDS: [&str; 7] = ["run", "hold", "cron", "ls", "show", "break", "watch"];
    COMMANDS.into_iter().find(|command| strsim::osa_distance(command, typed) == 1)
}

/// What the parser says, without its own tip.
fn without_tip(text: &str) -> String {
    match (text.find("\n\n  tip:"), text.find("\n\nUsage:")) {
        (Some(tip), Some(usage)) if tip < usage => [&text[..tip], &text[usage..]].concat(),
        _ => text.to_owned(),
    }
}

/// True for `leasehold run NAME CMD`.
fn forgot_dashes() -> bool {
    let mut args = std::env::args_os().skip(1);
    args.next().is_some_and(|command| command == "run") && args.all(|arg| arg != "--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_below_the_options_fits_a_terminal() {
        for text in [RUN_HELP, HOLD_HELP, LIMIT_HELP, ONCE_HELP, CRON_HELP, PAUSE_HELP, LOOK_HELP, BREAK_HELP]
        {
            // 80 columns, less the margin of a manual page. Longer lines would be broken where it
            // hurts: these texts are tables.
            let too_long = text.lines().find(|line| line.chars().count() > 75);
            assert_eq!(too_long, None);
        }
    }

    #[test]
    fn the_help_of_run_names_every_code() {
        for code in [USAGE, UNAVAILABLE, BUSY, LOST, NOT_STARTED, NOT_FOUND, BY_SIGNAL] {
            assert!(RUN_HELP.contains(&format!("\n  {code}")), "{code} is not in the help");
        }
    }
}
