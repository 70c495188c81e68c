//! What can be typed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{FromArgMatches as _, Parser, Subcommand, ValueEnum};
use leasehold::Family;

use crate::print::visible;
use crate::{duration, exit, name};

/// Hold a name while a command runs, see who holds what, and take it away.
///
/// Names are held for a lease that renews itself for as long as the holder lives. A name whose
/// holder died is free again: at once on one machine, when its lease ends elsewhere. Every holder
/// has a token, greater than that of any holder before; a resource that refuses older tokens is
/// safe even from a holder that was paused and comes back late.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    long_version = version(),
    arg_required_else_help = true,
    max_term_width = WIDEST,
    after_help = exit::EXAMPLES
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The version, and the engines that this program was built with.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let schemes = leasehold::engine::schemes().filter(|scheme| *scheme != "memory");
        let schemes: Vec<String> = schemes.map(|scheme| format!("{scheme}:")).collect();
        format!("{}\nengines: {}", env!("CARGO_PKG_VERSION"), schemes.join(" "))
    });
    &VERSION
}

/// Help is not wider than this, however wide the terminal is.
const WIDEST: usize = 100;

impl Args {
    /// Understands what was typed.
    pub(crate) fn typed() -> Result<Args, clap::Error> {
        Args::understand(std::env::args_os()).map_err(|error| {
            // The error quotes what was typed, in a text of several lines: a line feed in a word
            // must not look like a line of ours. What was typed is as wrong when it is made visible
            // first.
            let visible = std::env::args_os().map(|word| {
                let chunks = word.as_bytes().utf8_chunks();
                let seen =
                    chunks.flat_map(|chunk| [visible(chunk.valid()).as_bytes(), chunk.invalid()].concat());
                OsString::from_vec(seen.collect())
            });
            Args::understand(visible).err().unwrap_or(error)
        })
    }

    fn understand(mut words: impl Iterator<Item = OsString>) -> Result<Args, clap::Error> {
        let first: Vec<OsString> = words.by_ref().take(2).collect();
        // What `run` costs is paid by every command that runs under a name, so the other commands
        // are left out when they were not asked for: that halves the time this takes.
        if first.get(1).is_some_and(|word| word == "run") {
            let run = clap::Command::new("leasehold run").no_binary_name(true).max_term_width(WIDEST);
            let run = <Run as clap::Args>::augment_args(run);
            let matches = run.try_get_matches_from(words)?;
            return Ok(Args { command: Command::Run(Run::from_arg_matches(&matches)?) });
        }
        Args::try_parse_from(first.into_iter().chain(words))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Hold(Hold),
    Elect(Elect),
    Limit(Limit),
    Once(Once),
    Cron(Cron),
    Pause(TaskName),
    /// Start occurrences of a task again: see `cron`
    ///
    /// What was due while it was paused does not run. Machines hear of it within 15 seconds.
    Resume(TaskName),
    Ls(Ls),
    Show(Show),
    Break(Break),
    Watch(Watch),
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    Sql(Sql),
    Completions(Completions),
    /// Print the manual page, in roff
    ///
    /// To read it: `leasehold man | man -l -`. To install it: `leasehold man > leasehold.1`.
    Man,
}

/// Where the names are kept.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct On {
    /// The engine that keeps the names [env: LEASEHOLD_ON] [default: file:]
    ///
    /// `file:DIR` locks the processes of this machine that name the same directory; `file:` alone
    /// is the user's default directory. Servers are named like `redis://10.0.0.7:6379/` (also
    /// `rediss:`, `redis+sentinel:`, `redis+cluster:`), `redlock://a,b,c`,
    /// `postgres://USER@HOST/DATABASE` or `mysql://USER@HOST/DATABASE`; `leasehold --version` lists
    /// what this program knows. A password in it can be seen by others on this machine, in the list
    /// of processes: put such a URL into the variable LEASEHOLD_ON, which is read without this
    /// option.
    #[arg(long = "on", value_name = "URL", help_heading = "Engine")]
    pub(crate) url: Option<String>,
}

/// Hold a name while a command runs
///
/// Waits until NAME is free, runs the command, and gives the name back when it ends. `run NAME` and
/// `run --shared NAME` are the write and the read side of one lock. `run --slots N NAME` is a
/// semaphore, a family of its own: it does not exclude a lock of the same name.
///
/// Signals are passed on to the command, and the name is held until it ends: TERM, HUP, INT, QUIT,
/// USR1, USR2, ALRM and whatever else is sent to tell a program something. What a terminal sends to
/// the whole job (INT and QUIT that are typed, WINCH) reaches the command without help and is not
/// sent a second time. Signals that are ignored when leasehold starts (nohup) stay ignored. Signals
/// that stop leasehold (TSTP, STOP) stop its renewals too. While it waits for the name, a signal
/// ends it at once.
///
/// If the lease is lost, because leasehold was stopped for too long, the engine could not be
/// reached, or somebody broke it, the command and all processes that it has started get TERM and,
/// after the grace period, KILL. Processes that left the group or the session of the command are
/// found too; those of another user can not be signalled.
///
/// If leasehold itself is killed (KILL), the command keeps the name on `file:` until its last
/// process has ended, as with flock. A process that closes the files that it does not know (sudo
/// does) no longer counts. On other engines the command is ended with its leasehold, as if the
/// lease were lost; let the grace period be shorter than two thirds of the lease, and it has ended
/// before the name is free. See --if-killed.
///
/// A run inside a run that holds the same name would wait for itself for ever, so it is refused.
/// Give it --wait or --no-wait if it should try nevertheless. A shared name inside a shared one,
/// and a slot while there are others, are granted.
///
/// -n, -w, -s, -c and -E are those of flock(1).
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = exit::RUN_HELP,
    override_usage = "leasehold run [OPTIONS] <NAME> -- <CMD>...\n       leasehold run [OPTIONS] <NAME> -c <SCRIPT>"
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) take: Take,

    #[command(flatten)]
    pub(crate) job: Job,
}

/// Run a command while this machine leads
///
/// Started on several machines with the same NAME, it runs the command on one of them: the leader.
/// The others wait. When the command ends by itself, the leader resigns, `elect` ends with the
/// command's code, and another machine leads. `leasehold show NAME` says who leads, and `leasehold
/// watch` follows it.
///
/// If the leadership is lost, because leasehold was stopped for too long, the engine could not be
/// reached, or somebody broke it, the command and all processes that it has started get TERM and,
/// after the grace period, KILL. Then it stands for election again, and runs the command anew when
/// it leads again; outages are waited for. With --one-term it ends instead.
///
/// Elections are a family of their own: one does not exclude a lock of the same name. Signals, and
/// what happens if leasehold itself is killed, are as with `run`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = exit::ELECT_HELP,
    override_usage = "leasehold elect [OPTIONS] <NAME> -- <CMD>...\n       leasehold elect [OPTIONS] <NAME> -c <SCRIPT>"
)]
pub(crate) struct Elect {
    /// What to lead: any text
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    name: String,

    /// What everybody can see of the leader: an address, usually [default: the host's name]
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,

    /// End if the leadership is lost, instead of standing for election again
    #[arg(long)]
    pub(crate) one_term: bool,

    #[command(flatten)]
    hold: Holding,

    #[command(flatten)]
    pub(crate) job: Job,
}

impl Elect {
    /// What is to be held to lead.
    pub(crate) fn take(&self) -> Take {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Take {
            name: self.name.clone(),
            also: Vec::new(),
            hold: self.hold.clone(),
            shared: false,
            slots: None,
            candidacy: Some(self.value.clone().unwrap_or_else(host)),
        }
    }
}

/// The command to run while something is held.
#[derive(Debug, clap::Args)]
pub(crate) struct Job {
    /// The command to run, after `--`
    #[arg(value_name = "CMD", last = true, required_unless_present = "script")]
    command: Vec<OsString>,

    /// Run this text with /bin/sh, instead of a command after `--`
    #[arg(short = 'c', long = "command", value_name = "SCRIPT", conflicts_with = "command")]
    script: Option<OsString>,

    /// How long the command has between TERM and KILL if the lease is lost
    #[arg(long, value_name = "D", default_value = "10s", allow_hyphen_values = true, value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// What becomes of the command if leasehold is killed [default: keep on `file:`, stop
    /// elsewhere]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) if_killed: Option<IfKilled>,
}

impl Job {
    /// The command, word by word.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.script {
            Some(script) => vec!["/bin/sh".into(), "-c".into(), script.clone()],
            None => self.command.clone(),
        }
    }

    /// What the holder is called if no label is given: the command, or the first word of a script.
    pub(crate) fn default_label(&self) -> String {
        let script = self.script.as_ref().map(|script| script.to_string_lossy());
        let first = script.as_ref().and_then(|script| script.split_whitespace().next()).map(OsString::from);
        let program = first.or_else(|| self.command.first().cloned()).unwrap_or_default();
        Path::new(&program).file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
    }
}

/// Hold a name without a command, until a signal comes
///
/// Waits until NAME is free, says so on stdout, and holds it until it gets INT (Ctrl-C), TERM, HUP
/// or QUIT, or until the time of --for is over. Then it gives the name back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::HOLD_HELP)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) take: Take,

    /// Hold it this long at most [default: until a signal comes]
    #[arg(long = "for", value_name = "D", allow_hyphen_values = true, value_parser = duration::parse)]
    pub(crate) for_: Option<Duration>,

    /// Print one JSON object when it is held
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to hold, and how: the same for all commands that hold something.
#[derive(Debug, clap::Args)]
pub(crate) struct Take {
    /// What to hold: any text
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    /// Hold this name too, all of them or none; can be given again
    #[arg(
        short = 'a',
        long = "also",
        value_name = "NAME",
        conflicts_with_all = ["shared", "slots"],
        value_parser = OsStringValueParser::new().try_map(name::parse)
    )]
    pub(crate) also: Vec<String>,

    /// Hold it together with others that say --shared
    #[arg(short, long)]
    pub(crate) shared: bool,

    /// Take one of N slots; all users of the name must give the same N
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,

    #[command(flatten)]
    pub(crate) hold: Holding,

    /// What everybody can see of the leader, if it is held to lead.
    #[arg(skip)]
    pub(crate) candidacy: Option<String>,
}

/// How something is waited for and held.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Holding {
    #[command(flatten)]
    pub(crate) on: On,

    /// How long the name stays taken if leasehold can not renew it
    ///
    /// It renews itself: the name can be held for as long as you like. From `10ms` to `24h`.
    /// Durations are written like `500ms`, `1.5s`, `5m`, `1h30m`, or as plain seconds.
    #[arg(long, value_name = "D", default_value = "30s", allow_hyphen_values = true, value_parser = duration::parse_some)]
    pub(crate) lease: Duration,

    /// Wait for the name this long at most [default: for ever]
    #[arg(short, long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait if the name is taken
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// What the holder is called in listings [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Keep the name closed this long if the lease runs out (not after a normal end)
    ///
    /// For resources that can not check tokens: it gives a holder that was paused time to find out.
    #[arg(long, value_name = "D", default_value = "0s", hide_default_value = true, allow_hyphen_values = true, value_parser = duration::parse)]
    pub(crate) lock_delay: Duration,

    /// What to end with if the name was not free in time; with 0, nothing is said about it
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::BUSY)]
    pub(crate) exit_if_busy: u8,

    /// Do not say that the name is taken, or that it is waited for
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Take {
    /// Which family the names are of.
    pub(crate) fn family(&self) -> Family {
        match (&self.candidacy, self.slots) {
            (Some(_), _) => Family::Election,
            (None, Some(_)) => Family::Semaphore,
            (None, None) => Family::Lock,
        }
    }

    /// All names, each once, in the order in which they were typed.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names = vec![self.name.as_str()];
        for name in &self.also {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// How long to wait; `None` for ever.
    pub(crate) fn limit(&self) -> Option<Duration> {
        if self.hold.no_wait { Some(Duration::ZERO) } else { self.hold.wait }
    }
}

/// What happens if leasehold is killed while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IfKilled {
    /// It goes on and keeps the name until it has ended; only `file:` can do this
    Keep,
    /// It and all that it has started get TERM and, after the grace period, KILL
    Stop,
}

/// Run a command only as often as a rate allows
///
/// All who use the same NAME and rate share the limit, on this machine or on all that use the
/// engine. If it is used up, nothing is run, and what is said tells when to come back; with --wait
/// it is waited for. Without a command it only asks, and ends with 0 or 75.
///
/// The limit is a token bucket: up to --burst pass at once, and what was used comes back at the
/// rate.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::LIMIT_HELP)]
pub(crate) struct Limit {
    /// What is limited: any text
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    /// The command to run, after `--`
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) on: On,

    /// How many in which time: `10/s`, `100/m`, `5/h`, `1000/d`, `3/90s`
    #[arg(long, value_name = "N/TIME", value_parser = crate::limit::parse_rate)]
    pub(crate) rate: crate::limit::Rate,

    /// How many can pass at once [default: the N of the rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: Option<u32>,

    /// Limit each KEY for itself: a user, a host, an address
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub(crate) key: String,

    /// How much it counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cost: u32,

    /// Wait until it may pass: for ever, or as `--wait=30s` says
    #[arg(long, value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = "365d", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// What to end with if the limit is used up
    #[arg(long, value_name = "CODE", default_value_t = exit::BUSY)]
    pub(crate) exit_if_limited: u8,

    /// Print the verdict as one JSON object; without a command
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
}

/// Run a command once, however often it is asked for
///
/// The first call with a KEY runs the command. Every later one, on this machine or on all that use
/// the engine, prints what the first one printed and ends with its code. The output is printed when
/// the command has ended, and up to 256 KiB of it are kept. The same KEY with another command is
/// refused.
///
/// If leasehold or its machine dies while the command runs, nobody can know whether it has done its
/// work. That is told, and it is not run again unless --run-again says that it may. If the lease is
/// lost, or leasehold is killed, the command and all that it has started get TERM and, after
/// --grace, KILL.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::ONCE_HELP)]
pub(crate) struct Once {
    /// What is done once: any text
    #[arg(value_name = "KEY", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) key: String,

    /// The command to run, after `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) on: On,

    /// How long it is remembered
    #[arg(long, value_name = "D", default_value = "24h", value_parser = duration::parse_some)]
    pub(crate) keep: Duration,

    /// How long after its last word one that runs counts as silent
    #[arg(long, value_name = "D", default_value = "30s", value_parser = duration::parse_some)]
    pub(crate) lease: Duration,

    /// How long the command has between TERM and KILL if the lease is lost
    #[arg(long, value_name = "D", default_value = "10s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// Wait for one that runs: for ever, or as `--wait=30s` says
    #[arg(long, value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = "365d", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Run it again if it is not known whether it has run to its end
    #[arg(long)]
    pub(crate) run_again: bool,
}

/// Run a command at set times, on one machine each time
///
/// Started on several machines with the same NAME and SPEC, each occurrence runs on one of them:
/// for all that reach the engine, whatever their clocks say. It runs until a signal ends it.
///
/// SPEC is a cron expression with five fields (minute, hour, day, month, weekday), or six that
/// begin with seconds, or `@every 30s`. Where the clocks of the zone are set forward, a time of day
/// in the missing hour is due right after it; where they are set back, it is due once.
///
/// The command does not overlap with itself: an occurrence that is due while an earlier one runs
/// waits for its end. The lease is renewed while the command runs. If it is lost, the command and
/// all that it has started get TERM and, after --grace, KILL. What a command ended with is in
/// `leasehold show NAME`. A signal that ends leasehold is passed on to the command that runs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::CRON_HELP)]
pub(crate) struct Cron {
    /// When it is due: `'0 3 * * *'`, `'*/10 * * * * *'`, `'@every 5m'`
    #[arg(value_name = "SPEC")]
    pub(crate) spec: String,

    /// What the task is called, on all machines: any text
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    /// The command to run, after `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) on: On,

    /// The time zone of a cron expression, like `Europe/Berlin`
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) zone: String,

    /// How late an occurrence may start and still be on time
    #[arg(long, value_name = "D", default_value = "10s", value_parser = duration::parse)]
    pub(crate) late: Duration,

    /// What becomes of those that are too late: `skip`, `once` (the newest runs), `all=N` (the
    /// newest N run)
    #[arg(long, value_name = "WHAT", default_value = "once", value_parser = crate::cron::parse_misfire)]
    pub(crate) misfire: leasehold::kit::schedule::Misfire,

    /// Run an occurrence again whose machine fell silent: if it is found within this time after its
    /// instant, up to three times in all
    #[arg(long, value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = "1h", value_parser = duration::parse_some)]
    pub(crate) run_again: Option<Duration>,

    /// Start all occurrences later, by less than this; how much follows from NAME
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration::parse)]
    pub(crate) jitter: Duration,

    /// How long after its last word a machine that runs it counts as silent
    #[arg(long, value_name = "D", default_value = "30s", value_parser = duration::parse_some)]
    pub(crate) lease: Duration,

    /// How long the command has between TERM and KILL if the lease is lost
    #[arg(long, value_name = "D", default_value = "10s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// End after this machine has run so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
}

/// Start no more occurrences of a task, on any machine, until it is resumed: see `cron`
///
/// What runs goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::PAUSE_HELP)]
pub(crate) struct TaskName {
    /// Which task
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) on: On,
}

/// List the names in use, and the tasks, limits and submissions
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only names that start with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) on: On,

    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who holds a name and who waits for it, and what a task of `cron` did
///
/// Looks in all families, and for a task, unless a family is given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::LOOK_HELP)]
pub(crate) struct Show {
    /// Which name
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    /// Which family
    #[arg(long, value_enum)]
    pub(crate) family: Option<FamilyWord>,

    #[command(flatten)]
    pub(crate) on: On,

    /// Print one JSON array: empty if the name is free
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a name away from all who hold it
///
/// For when you know that the holders are gone or must stop. They are told, at the latest when they
/// renew their lease, and go on until then: the next holder may start before they stop.
#[derive(Debug, clap::Args)]
#[command(after_long_help = exit::BREAK_HELP)]
pub(crate) struct Break {
    /// Which name
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: String,

    /// Which family; needed if the name is held in more than one
    #[arg(long, value_enum)]
    pub(crate) family: Option<FamilyWord>,

    /// Do not ask; needed where there is no terminal to ask at
    #[arg(long, short)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) on: On,

    /// Print one JSON array of what was broken
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print changes as they are seen, until Ctrl-C
///
/// Compares what is in use every 100 ms: what comes and goes in between is not seen. It starts with
/// what is held now. `released` is said of every end: a release, a lease that ran out, a holder
/// that died, a break.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Only this name
    #[arg(value_name = "NAME", value_parser = OsStringValueParser::new().try_map(name::parse))]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) on: On,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the statements that make the tables of a database
///
/// The tables are made on first use by whoever may do that. Where programs may not, let their owner
/// run these statements. Run again, they change nothing.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Debug, clap::Args)]
pub(crate) struct Sql {
    /// The database
    #[arg(value_name = "DATABASE")]
    pub(crate) database: Database,

    /// The schema of the tables in `postgres`, as `schema=` in the URL [default: the search path]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,

    /// How the names of the tables start, as `table=` in the URL [default: leasehold]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) table: Option<String>,
}

/// A database that has tables.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Database {
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "postgres")]
    Postgres,
}

/// Print a completion script
///
/// For bash: `leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// A family whose names are held.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FamilyWord {
    /// What `run NAME` and `run --shared NAME` hold
    Lock,
    /// What `run --slots N NAME` holds
    Semaphore,
    /// What leaders hold
    Election,
}

impl From<FamilyWord> for Family {
    fn from(word: FamilyWord) -> Family {
        match word {
            FamilyWord::Lock => Family::Lock,
            FamilyWord::Semaphore => Family::Semaphore,
            FamilyWord::Election => Family::Election,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        super::Args::command().debug_assert();
    }
}
