//! Another process: this binary, started again, told what to do line by line.
//!
//! `lock NAME LEASE_MS`, `try NAME LEASE_MS`, `release NAME`, `standing NAME`, `exit`, `fork NAME`,
//! `fork-connect NAME ORDER`, `task NAME PERIOD LEASE`, which begins an occurrence,
//! `cache NAME ENTRY LEASE`, which begins a load that never ends, `sessions USER COUNT`, which
//! answers with their ids, `end-sessions USER`, `use-session ID`, which ends with the session,
//! `publish TOPIC`, `publish-one TOPIC TEXT`, `subscribe TOPIC COUNT`, which answers with that many
//! messages, `lifeline`, which starts a program that keeps the claims alive and answers with its
//! number, and `sections NAME COUNT FILE TASKS`, which adds to a counter in a file that nothing
//! else protects and answers with what it saw, one line a section.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use leasehold::{Client, Clock as _, Guard, Options, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::history::{self, Rules, Section, Summary};

/// A child process that is killed when it is dropped.
pub(crate) struct Child {
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) async fn start(url: &str) -> Child {
        let program = std::env::current_exe().expect("this binary");
        Child::spawn(Command::new(program).args(["child", url])).await
    }

    /// Starts a child in a way of one's own; the command must end in `child URL`.
    pub(crate) async fn spawn(command: &mut Command) -> Child {
        let mut child = Child::spawn_silent(command);
        assert_eq!(child.line().await, "ready");
        child
    }

    /// A process that forks workers.
    pub(crate) fn start_workers(url: &str, count: usize) -> Child {
        let program = std::env::current_exe().expect("this binary");
        Child::spawn_silent(Command::new(program).args(["workers", url, &count.to_string()]))
    }

    fn spawn_silent(command: &mut Command) -> Child {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut process = spawned.expect("this binary starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        Child { process, input, output }
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(Duration::from_secs(60), self.output.next_line()).await;
        line.expect("the child answers").expect("the pipe is fine").unwrap_or_else(|| "(ended)".to_owned())
    }

    /// Says something without waiting for the answer.
    pub(crate) async fn say(&mut self, words: &str) {
        self.input.write_all(format!("{words}\n").as_bytes()).await.expect("the child listens");
    }

    /// Says something and hears the answer.
    pub(crate) async fn ask(&mut self, words: &str) -> String {
        self.say(words).await;
        self.line().await
    }

    /// Takes a name; the token.
    pub(crate) async fn lock(&mut self, name: &str, lease: Duration) -> u64 {
        let answer = self.ask(&format!("lock {name} {}", lease.as_millis())).await;
        let token = answer.strip_prefix("held ").and_then(|token| token.parse().ok());
        token.unwrap_or_else(|| panic!("the child said `{answer}`"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("it can be signalled");
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Lets a process that is stopped go on for a moment, after a call of ours has failed: on
    /// `file:` whoever is stopped inside a transaction stops everybody else's. On other engines it
    /// is in nobody's way.
    #[cfg(any(feature = "sessions", feature = "topics"))]
    pub(crate) async fn stop_elsewhere(&self, ground: &crate::bench::Ground, error: &leasehold::Error) {
        assert_eq!(ground.promises().engine, "file", "a stopped process is in our way: {error}");
        self.resume();
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.stop();
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("it can be killed");
    }

    /// Leaves without releasing anything, and without being killed.
    pub(crate) async fn exit(&mut self) {
        self.say("exit").await;
        self.process.wait().await.expect("it ends");
    }
}

/// Processes of five tasks each that add to one counter, `each` times, under one name; checks that
/// nothing was lost.
pub(crate) async fn take_turns(url: &str, processes: usize, each: usize) -> Summary {
    let counter = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(counter.path(), 0_u64.to_le_bytes()).expect("a counter");
    let mut children = Vec::new();
    for _ in 0..processes {
        children.push(Child::start(url).await);
    }
    for child in &mut children {
        child.say(&format!("sections x {each} {} 5", counter.path().display())).await;
    }
    // All at the same time: who is not listened to stops in the middle of a section when its pipe
    // is full.
    let heard = children.into_iter().map(|mut child| async move {
        let mut sections = Vec::new();
        loop {
            let line = child.line().await;
            match Section::from_line(&line) {
                Some(section) => sections.push(section),
                None => break assert_eq!(line, "done"),
            }
        }
        sections
    });
    let sections = heard.collect::<JoinSet<_>>().join_all().await.concat();
    let summary = history::check(&sections, Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None })
        .expect("a good history");
    assert_eq!((summary.sections, summary.workers), (processes * each, processes));
    let bytes = std::fs::read(counter.path()).expect("the counter");
    assert_eq!(u64::from_le_bytes(bytes.try_into().expect("8 bytes")), (processes * each) as u64);
    summary
}

/// The child's side.
pub(crate) fn main() -> ExitCode {
    let url = std::env::args().nth(2).expect("child URL");
    runtime().block_on(async {
        let client = match leasehold::connect_with(&url, Options::new().label("child")).await {
            Ok(client) => client,
            Err(error) => {
                answer(&format!("refused {error}"));
                return ExitCode::FAILURE;
            }
        };
        answer("ready");
        serve(&url, client).await;
        ExitCode::SUCCESS
    })
}

fn answer(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{words}").and_then(|()| out.flush()).expect("the parent listens");
}

async fn serve(url: &str, client: Client) {
    let mut guards: HashMap<String, Guard> = HashMap::new();
    #[cfg(feature = "schedule")]
    let mut runs = Vec::new();
    let (lines, mut words) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "exit" {
                std::process::exit(0);
            }
            lines.send(line).ok();
        }
    });
    while let Some(line) = words.recv().await {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(30_000);
        match verb {
            "lock" | "try" => {
                let lease = Duration::from_millis(number(words.next()));
                let mutex = client.mutex(name).expect("a name").lease(lease);
                let guard = if verb == "try" { mutex.try_lock().await } else { mutex.lock().await.map(Some) };
                match guard {
                    Ok(Some(guard)) => {
                        answer(&format!("held {}", guard.token()));
                        guards.insert(name.to_owned(), guard);
                    }
                    Ok(None) => answer("busy"),
                    Err(error) => answer(&format!("error {error}")),
                }
            }
            "release" => {
                let released = match guards.remove(name) {
                    Some(guard) => guard.release().await,
                    None => Ok(()),
                };
                answer(&released.map_or_else(|error| format!("error {error}"), |()| "released".to_owned()));
            }
            "standing" => answer(&format!("{:?}", guards[name].standing())),
            "sections" => {
                let count = number(words.next());
                let path = words.next().expect("a file").to_owned();
                let tasks = number(words.next());
                sections(&client, name, count, &path, tasks).await;
            }
            #[cfg(feature = "schedule")]
            "task" => {
                let (period, lease) = (number(words.next()), number(words.next()));
                runs.push(begin_task(&client, name, period, lease).await);
            }
            #[cfg(feature = "cache")]
            "cache" => {
                let entry = words.next().unwrap_or_default();
                begin_load(&client, name, entry, number(words.next())).await;
            }
            #[cfg(feature = "leaderboards")]
            "leaderboard" => crate::leaderboards::write_in_child(&client, name, answer).await,
            #[cfg(feature = "leaderboards")]
            "rebuild-leaderboard" => {
                crate::leaderboards::rebuild::rebuild_in_child(&client, name, answer).await;
            }
            #[cfg(feature = "sessions")]
            "sessions" => crate::sessions::create_in_child(&client, name, number(words.next()), answer).await,
            #[cfg(feature = "sessions")]
            "end-sessions" => crate::sessions::end_in_child(&client, name, answer).await,
            #[cfg(feature = "sessions")]
            "use-session" => crate::sessions::use_in_child(&client, name, answer).await,
            #[cfg(feature = "topics")]
            "publish" => crate::topics::publish_in_child(&client, name, answer).await,
            #[cfg(feature = "topics")]
            "publish-one" => {
                let text = words.next().unwrap_or_default();
                crate::topics::publish_one_in_child(&client, name, text, answer).await;
            }
            #[cfg(feature = "topics")]
            "subscribe" => {
                crate::topics::subscribe_in_child(&client, name, number(words.next()), answer).await;
            }
            "lifeline" => answer(&lifeline(&client)),
            "fork" => fork(&client, &guards[name]).await,
            #[cfg(feature = "sale")]
            "fork-sale" => crate::sale::fork_with_sale(&client, answer).await,
            #[cfg(feature = "blocking")]
            "fork-blocking" => fork_blocking(url, name).await,
            "fork-connect" => {
                let order = words.next().unwrap_or_default().to_owned();
                if fork_here() == 0 {
                    return connect_in_fork(url, (client, guards), name, &order);
                }
            }
            other => panic!("the child does not know `{other}`"),
        }
    }
}

/// Adds to an unprotected counter under the lock.
async fn sections(client: &Client, name: &str, count: u64, path: &str, tasks: u64) {
    let mut all = JoinSet::new();
    for _ in 0..tasks {
        let mutex = client.mutex(name).expect("a name");
        let path = path.to_owned();
        all.spawn(async move {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the counter");
            for _ in 0..count / tasks {
                let asked = SystemClock.now().as_micros();
                let guard = mutex.lock().await.expect("the lock");
                let granted = SystemClock.now().as_micros();
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).expect("the counter");
                tokio::task::yield_now().await;
                file.write_all_at(&(u64::from_le_bytes(bytes) + 1).to_le_bytes(), 0).expect("the counter");
                let token = guard.token().get();
                let released = SystemClock.now().as_micros();
                guard.release().await.expect("the release");
                answer(
                    &Section {
                        worker: u64::from(std::process::id()),
                        asked,
                        granted,
                        released,
                        token,
                        weight: 1,
                    }
                    .to_line(),
                );
            }
        });
    }
    // A section that failed is not a section that was not asked for.
    while let Some(ended) = all.join_next().await {
        if let Err(error) = ended {
            return answer(&format!("failed {error}"));
        }
    }
    answer("done");
}

/// Begins an occurrence of a task and goes on with it.
#[cfg(feature = "schedule")]
async fn begin_task(client: &Client, name: &str, period: u64, lease: u64) -> leasehold::kit::schedule::Run {
    let task = client.schedule(name).every(Duration::from_millis(period)).expect("a task");
    let task = task.grace(Duration::from_secs(600)).lease(Duration::from_millis(lease));
    let run = task.next().await.expect("an occurrence");
    let instant = run.occurrence().scheduled().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    answer(&format!("began {} {}", instant.as_millis(), run.occurrence().token()));
    run
}

/// Begins a load that never ends.
#[cfg(feature = "cache")]
async fn begin_load(client: &Client, name: &str, entry: &str, lease: u64) {
    let cache = client.cache(name, Duration::from_secs(60), |_| async {
        answer("loading");
        std::future::pending::<Result<Vec<u8>, String>>().await
    });
    let cache = cache.and_then(|cache| cache.lease(Duration::from_millis(lease))).expect("a cache");
    let entry = entry.to_owned();
    tokio::spawn(async move { cache.get(entry).await });
}

/// Starts a program that inherits the lifeline; its number.
fn lifeline(client: &Client) -> String {
    let lifeline = match client.lifeline() {
        Ok(Some(lifeline)) => lifeline,
        Ok(None) => return "none".to_owned(),
        Err(error) => return format!("error {error}"),
    };
    let closed_on_exec = rustix::io::fcntl_getfd(&lifeline).expect("a descriptor");
    assert!(closed_on_exec.contains(rustix::io::FdFlags::CLOEXEC));
    rustix::io::fcntl_setfd(&lifeline, rustix::io::FdFlags::empty()).expect("a descriptor");
    let mut command = std::process::Command::new("sleep");
    let started = command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    started.expect("sleep runs").id().to_string()
}

/// Forks this process: 0 in the child.
#[expect(unsafe_code, reason = "there is no other way to fork without exec")]
pub(crate) fn fork_here() -> libc::pid_t {
    // SAFETY: no other thread of this process holds a lock that the child needs; the child leaves
    // through `leave`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        // Nothing is left running when a case fails.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    }
    pid
}

/// Leaves a forked child without running what belongs to its parent.
#[expect(unsafe_code, reason = "there is no other way to leave without it")]
pub(crate) fn leave() -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// A forked child must not use what its parent holds.
async fn fork(client: &Client, guard: &Guard) {
    let pid = fork_here();
    if pid == 0 {
        let refused = client.mutex("after-fork").expect("a name").try_lock().await;
        let words = match refused {
            Err(error) => format!("refused {error}"),
            Ok(_) => format!("accepted {}", guard.token()),
        };
        answer(&words);
        leave();
    }
    wait_for(pid);
}

/// The same for a client with a thread of its own, which the fork does not have.
#[cfg(feature = "blocking")]
async fn fork_blocking(url: &str, name: &str) {
    let (url, name) = (url.to_owned(), name.to_owned());
    let work = move || {
        let client = leasehold::blocking::connect(&url).expect("a client");
        let mutex = client.mutex(&name).expect("a name");
        let guard = mutex.lock().expect("free");
        let pid = fork_here();
        if pid == 0 {
            match mutex.try_lock() {
                Err(error) => answer(&format!("refused {error}")),
                Ok(_) => answer("accepted"),
            }
            drop((client, mutex));
            std::mem::forget(guard);
            answer("dropped");
            leave();
        }
        wait_for(pid);
        guard.check().expect("held");
        guard.release().expect("held");
        answer(&format!("held {}", mutex.lock().expect("free").token()));
    };
    tokio::task::spawn_blocking(work).await.expect("no panic");
}

#[expect(unsafe_code, reason = "waits for a fork that no library knows of")]
pub(crate) fn wait_for(pid: libc::pid_t) {
    // SAFETY: waits for a child that was made here.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// A forked child that connects for itself: before it drops the client that it inherited, after it,
/// or without. It asks for the name that its parent holds, says what it heard, and then waits for
/// it.
fn connect_in_fork(url: &str, old: (Client, HashMap<String, Guard>), name: &str, order: &str) {
    let (url, name, order) = (url.to_owned(), name.to_owned(), order.to_owned());
    // The runtime of the parent is of no use here, nor is a thread that is inside it.
    let work = std::thread::spawn(move || {
        runtime().block_on(async {
            let (client, kept) = match order.as_str() {
                "drop-then-connect" => {
                    drop(old);
                    (leasehold::connect(&url).await, None)
                }
                "connect-then-drop" => {
                    let client = leasehold::connect(&url).await;
                    drop(old);
                    (client, None)
                }
                _ => (leasehold::connect(&url).await, Some(old)),
            };
            let client = match client {
                Ok(client) => client,
                Err(error) => return answer(&format!("refused {error}")),
            };
            if let Some((old, _)) = &kept {
                let used = old.mutex("after-fork").expect("a name").try_lock().await;
                assert!(used.is_err(), "a client must not be used after a fork");
            }
            let mutex = client.mutex(&name).expect("a name");
            match mutex.try_lock().await {
                Ok(None) => answer("busy"),
                other => return answer(&format!("not busy: {other:?}")),
            }
            match mutex.lock().await {
                Ok(guard) => {
                    answer(&format!("fork held {}", guard.token()));
                    guard.release().await.expect("held");
                    client.close().await.expect("closed");
                    drop((client, kept));
                    answer("fork left");
                }
                Err(error) => answer(&format!("error {error}")),
            }
        });
    });
    if work.join().is_err() {
        answer("the fork panicked");
    }
    leave();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// `workers URL COUNT`: forks workers before anything else, as a server does. Each connects for
/// itself and tries to take `x`, and says `first TOKEN` or `first busy`; when it is told to go on,
/// each takes `x` in turn and says `then TOKEN`.
pub(crate) fn workers() -> ExitCode {
    let url = std::env::args().nth(2).expect("workers URL");
    let count: usize = std::env::args().nth(3).and_then(|count| count.parse().ok()).expect("a number");
    // What a thread draws from its own source of random numbers from here on, a fork draws too.
    std::hint::black_box(std::hash::RandomState::new());
    let (mut wait, go) = std::io::pipe().expect("a pipe");
    let mut pids = Vec::new();
    for _ in 0..count {
        match fork_here() {
            0 => {
                drop(go);
                runtime().block_on(work(&url, &mut wait));
                leave();
            }
            pid => pids.push(pid),
        }
    }
    drop(wait);
    std::io::stdin().lock().read_line(&mut String::new()).ok();
    drop(go);
    pids.into_iter().for_each(wait_for);
    ExitCode::SUCCESS
}

async fn work(url: &str, wait: &mut std::io::PipeReader) {
    let client = match leasehold::connect(url).await {
        Ok(client) => client,
        Err(error) => return answer(&format!("refused {error}")),
    };
    let mutex = client.mutex("x").expect("a name");
    let held = mutex.try_lock().await.expect("an answer");
    match &held {
        Some(guard) => answer(&format!("first {}", guard.token())),
        None => answer("first busy"),
    }
    // Returns when the other end is closed.
    std::io::Read::read(wait, &mut [0]).expect("a pipe");
    if let Some(guard) = held {
        guard.release().await.expect("held");
    }
    let guard = mutex.lock().await.expect("the lock");
    answer(&format!("then {}", guard.token()));
    guard.release().await.expect("held");
    client.close().await.expect("closed");
}
