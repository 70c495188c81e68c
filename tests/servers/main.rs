//! The servers that the tests use, themselves put to the test.
//!
//! The same binary is the process that is killed: `servers child` (see [`child`]).

mod databases;
#[path = "mod.rs"]
mod servers;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use servers::{Clock, Connection, FrozenRedis, LIMIT, Proxy, Redis, Reply};

/// A case by its name.
type Case = (&'static str, fn());

macro_rules! cases {
    ([$($case:ident),* $(,)?]) => { vec![$((stringify!($case), $case as fn())),*] };
}
use cases;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("child") => return child(),
        Some("postgres") => {
            databases::child();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let cases = cases!([
        a_server_starts_fast_and_alone,
        many_start_at_once,
        arguments_win_over_the_defaults,
        a_password_is_given,
        a_server_that_can_not_start_says_why,
        every_kind_of_reply_is_read,
        a_paused_server_answers_later,
        a_killed_server_refuses,
        a_restart_keeps_what_is_on_disk_and_no_more,
        a_server_outlives_the_thread_that_started_it,
        a_server_dies_with_its_parent,
        a_dropped_server_leaves_nothing,
        a_proxy_passes_everything,
        a_cut_resets_and_refuses,
        a_reset_happens_once,
        a_stall_holds_everything_back,
        a_stall_of_what_is_open_lets_newcomers_pass,
        a_stalled_request_arrives_after_its_client_gave_up,
        a_stalled_reply_is_to_something_done,
        a_delay_is_counted_each_way_and_keeps_the_order,
        the_end_of_a_connection_passes,
        a_frozen_server_knows_only_the_time_it_is_told,
        a_key_ends_when_its_moment_is_past,
        a_frozen_server_is_prompt_and_keeps_its_time,
        a_frozen_server_sees_by_itself_that_time_has_moved,
    ]);
    let redis = (Redis::missing().or_else(Clock::missing), cases);
    let mut trials = Vec::new();
    for (missing, cases) in [redis].into_iter().chain(databases::groups()) {
        if let Some(missing) = &missing {
            eprintln!("servers: {missing} is missing; `./test.sh` installs it");
        }
        let ignored = missing.is_some() && std::env::var_os("CI").is_none();
        trials.extend(cases.into_iter().map(|(name, case): Case| {
            let run = move || {
                case();
                Ok(())
            };
            Trial::test(name, run).with_ignored_flag(ignored)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Starts a server, says which and where, and waits to be killed.
fn child() -> ExitCode {
    let redis = Redis::start();
    // Even a process that can do nothing by itself is to end.
    redis.pause();
    println!("{} {}", redis.pid(), redis.dir().display());
    io::stdout().flush().expect("a pipe");
    io::stdin().lines().for_each(drop);
    ExitCode::SUCCESS
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn timed_out(result: io::Result<Reply>) -> bool {
    result.is_err_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

/// Whether a process has ended, waited for or not.
fn dead(pid: u32) -> bool {
    matches!(servers::state(pid), None | Some('Z'))
}

fn a_server_starts_fast_and_alone() {
    let before = Instant::now();
    let redis = Redis::start();
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
    // `setpriv` and the shell have made way for the server.
    let info = redis.command(&["INFO", "server"]).text();
    assert!(info.contains(&format!("process_id:{}\r\n", redis.pid())), "{info}");
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
}

fn many_start_at_once() {
    let start = |number: usize| {
        let redis = Redis::start();
        redis.command(&["SET", "who", &number.to_string()]).ok();
        (redis, number)
    };
    let threads: Vec<_> = (0..12).map(|number| thread::spawn(move || start(number))).collect();
    let all: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a server")).collect();
    for (redis, number) in &all {
        assert_eq!(redis.command(&["GET", "who"]).text(), number.to_string());
    }
}

fn arguments_win_over_the_defaults() {
    let redis = Redis::start_with(&[
        "--appendonly",
        "yes",
        "--maxmemory-policy",
        "allkeys-lru",
        "--unixsocket",
        "redis.sock",
    ]);
    let setting = |name| redis.command(&["CONFIG", "GET", name]).texts();
    assert_eq!(setting("appendonly"), ["appendonly", "yes"]);
    assert_eq!(setting("save"), ["save", ""]);
    assert_eq!(setting("maxmemory-policy"), ["maxmemory-policy", "allkeys-lru"]);
    assert!(redis.dir().join("redis.sock").exists(), "a relative path is in the directory");
}

fn a_password_is_given() {
    let redis = Redis::start_with(&["--requirepass", "secret"]);
    redis.command(&["SET", "x", "1"]).ok();
    let mut stranger = Connection::open(redis.port(), LIMIT).expect("the server is there");
    assert!(stranger.command(&["GET", "x"]).error().starts_with("NOAUTH"));
}

fn a_server_that_can_not_start_says_why() {
    let said = Redis::try_start_with(&["--no-such-option", "1"]).err().expect("it can not start");
    assert!(said.contains("no-such-option"), "{said}");
}

fn every_kind_of_reply_is_read() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    connection.command(&["SET", "x", "two\r\nlines"]).ok();
    assert_eq!(connection.command(&["GET", "x"]).text(), "two\r\nlines");
    assert!(connection.command(&["GET", "y"]).is_nil());
    assert_eq!(connection.command(&["DEL", "x", "y"]).int(), 1);
    assert!(connection.command(&["NO-SUCH"]).error().starts_with("ERR unknown command"));
    let nested = connection.command(&["EVAL", "return {1, {'a', false}, {}}", "0"]);
    let inner = Reply::Array(vec![Reply::Bulk(Some(b"a".to_vec())), Reply::Bulk(None)]);
    assert_eq!(nested.array(), [Reply::Int(1), inner, Reply::Array(vec![])]);
    // A null array.
    assert!(connection.command(&["BLPOP", "none", "0.001"]).is_nil());
}

fn a_paused_server_answers_later() {
    let redis = Redis::start();
    let mut open = redis.connect();
    redis.pause();
    assert!(timed_out(redis.try_command(&["INCR", "x"], ms(50))), "paused");
    open.send(&["INCR", "x"]).expect("the kernel takes it");
    redis.resume();
    // Both were done, in whichever order.
    open.receive().expect("an answer").int();
    assert_eq!(redis.command(&["GET", "x"]).text(), "2");
}

fn a_killed_server_refuses() {
    let redis = Redis::start();
    let pid = redis.pid();
    redis.pause();
    redis.kill();
    assert_eq!(servers::state(pid), None, "waited for");
    let error = redis.try_command(&["PING"], LIMIT).expect_err("it is dead");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    redis.kill();
    redis.restart();
    assert_ne!(redis.pid(), pid);
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
}

fn a_restart_keeps_what_is_on_disk_and_no_more() {
    for (kept, appendonly) in [(true, "yes"), (false, "no")] {
        let redis = Redis::start_with(&["--appendonly", appendonly]);
        let port = redis.port();
        redis.command(&["SET", "x", "1"]).ok();
        redis.restart();
        assert_eq!(redis.port(), port);
        assert_eq!(redis.command(&["GET", "x"]).is_nil(), !kept, "appendonly {appendonly}");
        redis.command(&["SET", "x", "1"]).ok();
        redis.restart_empty();
        assert!(redis.command(&["GET", "x"]).is_nil(), "appendonly {appendonly}");
    }
}

fn a_server_outlives_the_thread_that_started_it() {
    let redis = thread::spawn(Redis::start).join().expect("a server");
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let started = runtime.block_on(async { tokio::spawn(async { Redis::start() }).await });
    drop(runtime);
    assert_eq!(started.expect("a server").command(&["PING"]).text(), "PONG");
}

fn a_server_dies_with_its_parent() {
    let program = std::env::current_exe().expect("this binary");
    let mut command = Command::new(program);
    let mut parent =
        command.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
    let mut line = String::new();
    BufReader::new(parent.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    let (pid, dir) = line.trim().split_once(' ').expect("a process and its directory");
    let pid: u32 = pid.parse().expect("a process");
    assert!(!dead(pid));
    let cmdline = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a process");
    assert!(cmdline.contains("redis-server"), "{cmdline}");
    parent.kill().expect("a child");
    parent.wait().expect("a child");
    servers::until("the server is dead", || dead(pid));
    // What a process that is killed can not do.
    fs::remove_dir_all(Path::new(dir).parent().expect("a directory")).expect("removed");
}

fn a_dropped_server_leaves_nothing() {
    let redis = Redis::start();
    let (pid, dir) = (redis.pid(), redis.dir());
    drop(redis);
    assert_eq!(servers::state(pid), None, "waited for");
    assert!(!dir.exists() && !dir.parent().expect("a directory").exists());
}

fn proxied() -> (Redis, Proxy) {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    (redis, proxy)
}

fn open(proxy: &Proxy) -> Connection {
    Connection::open(proxy.port(), LIMIT).expect("the proxy listens")
}

fn a_proxy_passes_everything() {
    let (redis, proxy) = proxied();
    let big = "x".repeat(8 << 20);
    open(&proxy).command(&["SET", "big", &big]).ok();
    assert_eq!(open(&proxy).command(&["GET", "big"]).text(), big);
    assert_eq!(redis.command(&["STRLEN", "big"]).int(), 8 << 20);
    redis.kill();
    // Told at once, perhaps before the connection is thought to be made.
    let told = Connection::open(proxy.port(), LIMIT).and_then(|mut client| client.try_command(&["PING"]));
    assert!(told.is_err() && !timed_out(told));
}

/// Whether a connection was reset, as whoever reads from it finds.
fn was_reset(connection: &mut Connection) -> bool {
    connection.receive().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

fn a_cut_resets_and_refuses() {
    let (_redis, proxy) = proxied();
    let mut used = open(&proxy);
    used.command(&["PING"]);
    let mut fresh = open(&proxy);
    proxy.cut();
    assert!(was_reset(&mut used) && was_reset(&mut fresh));
    let refused = Connection::open(proxy.port(), LIMIT).err().map(|error| error.kind());
    assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
    proxy.cut();
    proxy.reset();
    assert!(Connection::open(proxy.port(), LIMIT).is_err(), "still cut");
    proxy.pass();
    assert_eq!(open(&proxy).command(&["PING"]).text(), "PONG");
}

fn a_reset_happens_once() {
    let (_redis, proxy) = proxied();
    for _ in 0..20 {
        let mut used = open(&proxy);
        used.command(&["PING"]);
        // Perhaps not accepted yet.
        let mut fresh = open(&proxy);
        proxy.reset();
        assert!(was_reset(&mut used) && was_reset(&mut fresh));
        assert_eq!(open(&proxy).command(&["PING"]).text(), "PONG");
    }
}

fn a_stall_holds_everything_back() {
    let (redis, proxy) = proxied();
    let mut client = open(&proxy);
    client.command(&["PING"]);
    proxy.stall();
    client.send(&["INCR", "x"]).expect("the proxy takes it");
    let mut impatient = Connection::open(proxy.port(), ms(50)).expect("connections are made");
    assert!(timed_out(impatient.try_command(&["INCR", "y"])));
    assert_eq!(redis.command(&["EXISTS", "x", "y"]).int(), 0);
    proxy.pass();
    assert_eq!(client.receive().expect("a late answer").int(), 1);
}

fn a_stall_of_what_is_open_lets_newcomers_pass() {
    let (_redis, proxy) = proxied();
    let mut old = open(&proxy);
    old.command(&["PING"]);
    // One that the proxy may not have seen yet is open, too.
    let mut unseen = open(&proxy);
    proxy.stall_open();
    old.send(&["INCR", "x"]).expect("the proxy takes it");
    unseen.send(&["INCR", "x"]).expect("the proxy takes it");
    assert_eq!(open(&proxy).command(&["INCR", "x"]).int(), 1);
    proxy.pass();
    let mut late = [old, unseen].map(|mut client| client.receive().expect("a late answer").int());
    late.sort_unstable();
    assert_eq!(late, [2, 3]);
}

fn a_stalled_request_arrives_after_its_client_gave_up() {
    let (redis, proxy) = proxied();
    proxy.stall_requests();
    for _ in 0..2 {
        open(&proxy).send(&["INCR", "x"]).expect("the proxy takes it");
    }
    // This one has more to read when it closes, which resets the connection.
    proxy.pass();
    let mut rude = open(&proxy);
    rude.send(&["ECHO", "unread"]).expect("the proxy takes it");
    rude.peek().expect("a reply");
    proxy.stall_requests();
    rude.send(&["INCR", "x"]).expect("the proxy takes it");
    drop(rude);
    proxy.pass();
    servers::until("all arrive", || redis.command(&["GET", "x"]) == Reply::Bulk(Some(b"3".to_vec())));
}

fn a_stalled_reply_is_to_something_done() {
    let (redis, proxy) = proxied();
    let mut client = Connection::open(proxy.port(), ms(50)).expect("the proxy listens");
    proxy.stall_replies();
    assert!(timed_out(client.try_command(&["INCR", "x"])));
    assert_eq!(redis.command(&["GET", "x"]).text(), "1");
    proxy.cut();
    proxy.pass();
    assert!(was_reset(&mut client), "what was held back is lost in a cut");
}

fn a_delay_is_counted_each_way_and_keeps_the_order() {
    let (_redis, proxy) = proxied();
    let mut client = open(&proxy);
    proxy.delay(ms(30));
    let before = Instant::now();
    for _ in 0..20 {
        client.send(&["INCR", "x"]).expect("the proxy takes it");
        thread::sleep(ms(1));
    }
    for number in 1..=20 {
        assert_eq!(client.receive().expect("an answer").int(), number);
    }
    let took = before.elapsed();
    assert!(took >= ms(60) && took < ms(600), "delays overlap: {took:?}");
    proxy.delay(LIMIT * 10);
    client.send(&["PING"]).expect("the proxy takes it");
    proxy.pass();
    assert_eq!(client.receive().expect("no more delay").text(), "PONG");
}

fn the_end_of_a_connection_passes() {
    let (redis, proxy) = proxied();
    let mut client = open(&proxy);
    let id = client.command(&["CLIENT", "ID"]).int();
    assert_eq!(redis.command(&["CLIENT", "KILL", "ID", &id.to_string()]).int(), 1);
    let ended = client.receive().expect_err("killed");
    assert!(!timed_out(Err(ended)));
    drop(open(&proxy));
    let clients = || redis.command(&["CLIENT", "LIST", "TYPE", "normal"]).text().lines().count();
    servers::until("only the one that asks is left", || clients() == 1);
}

fn micros_of(connection: &mut Connection) -> u64 {
    let told = connection.command(&["TIME"]).texts();
    let [seconds, micros] =
        told.iter().map(|part| part.parse::<u64>().expect("a number")).collect::<Vec<_>>()[..]
    else {
        panic!("not a time: {told:?}")
    };
    seconds * 1_000_000 + micros
}

fn a_frozen_server_knows_only_the_time_it_is_told() {
    let redis = Redis::start_frozen();
    let mut connection = redis.connect();
    assert_eq!(micros_of(&mut connection), FrozenRedis::START);
    redis.advance(Duration::from_micros(1));
    assert_eq!(micros_of(&mut connection), FrozenRedis::START + 1);
    for micros in [1, 999_999, 2_000_000, u64::from(u32::MAX) * 1_000_000, FrozenRedis::START - 1] {
        redis.set_micros(micros);
        assert_eq!((micros_of(&mut connection), redis.micros()), (micros, micros));
    }
    let script = "local a = redis.call('TIME') return a[1] .. ' ' .. a[2]";
    redis.set_micros(5_000_007);
    assert_eq!(connection.command(&["EVAL", script, "0"]).text(), "5 7");
    // A number that is half written is never seen.
    let mut last = 0;
    thread::scope(|scope| {
        let moving =
            scope.spawn(|| (1..20_000).for_each(|step| redis.set_micros(6_000_000 + step * 0x101_0101)));
        while !moving.is_finished() {
            let now = micros_of(&mut connection);
            assert!(
                now >= last && (now == 5_000_007 || (now - 6_000_000).is_multiple_of(0x101_0101)),
                "{now}"
            );
            last = now;
        }
    });
}

fn a_key_ends_when_its_moment_is_past() {
    let redis = Redis::start_frozen();
    let mut connection = redis.connect();
    connection.command(&["SET", "x", "1", "PX", "1000"]).ok();
    assert_eq!(connection.command(&["PTTL", "x"]).int(), 1000);
    redis.advance(ms(999));
    assert_eq!(connection.command(&["PTTL", "x"]).int(), 1);
    redis.advance(ms(1));
    assert_eq!(connection.command(&["PTTL", "x"]).int(), 0);
    assert_eq!(connection.command(&["GET", "x"]).text(), "1", "its moment has come");
    redis.advance(Duration::from_micros(999));
    assert_eq!(connection.command(&["EXISTS", "x"]).int(), 1, "time is cut to milliseconds");
    redis.advance(Duration::from_micros(1));
    assert_eq!(connection.command(&["EXISTS", "x"]).int(), 0, "its moment is past");
    assert_eq!(connection.command(&["PTTL", "x"]).int(), -2);
}

fn a_frozen_server_is_prompt_and_keeps_its_time() {
    let redis = Redis::start_frozen_with(&["--appendonly", "yes"]);
    let before = Instant::now();
    let mut connection = redis.connect();
    for _ in 0..1000 {
        connection.command(&["INCR", "x"]).int();
    }
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    drop(connection);
    redis.advance(ms(11));
    redis.restart();
    assert_eq!(redis.command(&["GET", "x"]).text(), "1000");
    assert_eq!(micros_of(&mut redis.connect()), FrozenRedis::START + 11_000);
}

/// The timers of the server run, and find a time that has moved: nobody has to ask.
fn a_frozen_server_sees_by_itself_that_time_has_moved() {
    let redis = Redis::start_frozen_with(&["--notify-keyspace-events", "Ex"]);
    // Timers on this clock would now wait for years.
    redis.set_micros(FrozenRedis::START / 2);
    let (mut listening, mut waiting) = (redis.connect(), redis.connect());
    listening.command(&["SUBSCRIBE", "__keyevent@0__:expired"]).array();
    redis.command(&["SET", "x", "1", "PX", "10"]).ok();
    waiting.send(&["BLPOP", "none", "1"]).expect("sent");
    let blocked = || redis.command(&["INFO", "clients"]).text().contains("blocked_clients:1\r\n");
    servers::until("it waits", blocked);
    redis.advance(ms(11));
    let told = listening.receive().expect("the server removes it").texts();
    assert_eq!(told, ["message", "__keyevent@0__:expired", "x"]);
    assert!(blocked(), "a second that was not given does not pass");
    redis.advance(ms(990));
    assert!(waiting.receive().expect("the wait is over").is_nil());
}
