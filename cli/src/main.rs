//! `leasehold`: hold a name while a command runs, see who holds what, and take it away.
//!
//! One file per command; [`args`] is what can be typed, [`exit`] is what it ends with.

use std::process::ExitCode;

use crate::args::{Args, Command};
use crate::exit::Failure;

mod args;
mod break_;
mod child;
mod connect;
mod cron;
mod duration;
mod elect;
mod exit;
mod hold;
mod job;
mod limit;
mod list;
mod manual;
mod name;
mod nested;
mod once;
mod print;
mod report;
mod run;
mod show;
mod signals;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
mod stored;
mod supervise;
mod take;
mod tasks;
mod tree;
mod watch;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    // Started by `run` and not typed, so it is no part of what can be typed.
    if words.next().is_some_and(|word| word == supervise::WORD) {
        return end(connect::block_on(supervise::supervise(words.collect())));
    }
    let args = match Args::typed() {
        Ok(args) => args,
        Err(error) => return exit::refuse(&error),
    };
    end(match args.command {
        Command::Run(args) => connect::block_on(run::run(&args)),
        Command::Hold(args) => connect::block_on(hold::hold(&args)),
        Command::Elect(args) => connect::block_on(elect::elect(&args)),
        Command::Limit(args) => connect::block_on(limit::limit(&args)),
        Command::Once(args) => connect::block_on(once::once(&args)),
        Command::Cron(args) => connect::block_on(cron::cron(&args)),
        Command::Pause(args) => connect::block_on(tasks::pause(&args)),
        Command::Resume(args) => connect::block_on(tasks::resume(&args)),
        Command::Ls(args) => connect::block_on(list::list(&args)),
        Command::Show(args) => connect::block_on(show::show(&args)),
        Command::Break(args) => connect::block_on(break_::break_(&args)),
        Command::Watch(args) => connect::block_on(watch::watch(&args)),
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        Command::Sql(args) => sql::sql(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man => manual::man(),
    })
}

fn end(ended: Result<u8, Failure>) -> ExitCode {
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            if let Some(message) = message {
                print::complain(&message);
            }
            ExitCode::from(code)
        }
    }
}
