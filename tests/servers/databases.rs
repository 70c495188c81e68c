//! The databases that the tests use, themselves put to the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

use crate::servers::{self, LIMIT, MariaDb, PgBouncer, Pool, Postgres, Proxy};
use crate::{Case, cases, dead, ms};

/// The cases by what must be installed for them.
pub(crate) fn groups() -> [(Option<String>, Vec<Case>); 2] {
    let postgres = cases!([
        postgres_starts_alone,
        postgres_takes_settings,
        postgres_says_why_it_can_not_start,
        postgres_lets_the_role_in_with_its_password_alone,
        postgres_pauses_with_all_its_sessions,
        postgres_restarts_with_and_without_its_data,
        postgres_can_be_stopped_in_order,
        a_session_of_postgres_dies_with_the_test,
        a_dropped_postgres_leaves_nothing,
        a_standby_follows_and_is_promoted,
        a_standby_behind_a_stalled_line_misses_what_came_after,
        pgbouncer_shares_sessions,
        a_paused_pgbouncer_answers_later,
    ]);
    let mariadb = cases!([
        mariadb_starts_alone,
        mariadb_takes_arguments,
        mariadb_says_why_it_can_not_start,
        mariadb_lets_the_user_in_with_its_password_alone,
        mariadb_pauses,
        mariadb_restarts_with_and_without_its_data,
        mariadb_can_be_stopped_in_order,
        a_dropped_mariadb_leaves_nothing,
        what_is_idle_in_a_pool_is_dropped_at_the_end,
    ]);
    [(Postgres::missing().or_else(PgBouncer::missing), postgres), (MariaDb::missing(), mariadb)]
}

fn postgres_starts_alone() {
    let [one, two] = [Postgres::start(), Postgres::start()];
    one.query("create table x (n int)");
    assert_eq!(two.query("select to_regclass('x') is null"), "t");
    assert_eq!(one.sql("show data_directory"), one.dir().display().to_string());
    let owner = "select rolname from pg_roles join pg_database d on d.datdba = pg_roles.oid where datname = 'leasehold'";
    assert_eq!(one.sql(owner), "leasehold");
    one.fresh_database();
    assert_eq!(one.query("select to_regclass('x') is null"), "t");
}

fn postgres_takes_settings() {
    let postgres = Postgres::start_with(&["fsync=on", "max_connections=17"]);
    assert_eq!(postgres.sql("show fsync"), "on");
    assert_eq!(postgres.sql("show max_connections"), "17");
}

fn postgres_says_why_it_can_not_start() {
    let said = Postgres::try_start_with(&["no_such_setting=1"]).err().expect("it can not start");
    assert!(said.contains("no_such_setting"), "{said}");
}

/// What a role gets that gives this password.
fn ask_as_role(port: u16, password: &str) -> Result<String, String> {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "leasehold", "-d", "leasehold"]);
    psql.args(["-p", &port.to_string(), "-c", "select pg_backend_pid()"]).env("PGPASSWORD", password);
    let output = psql.output().expect("psql starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn postgres_lets_the_role_in_with_its_password_alone() {
    let postgres = Postgres::start();
    ask_as_role(postgres.port(), "secret").expect("let in");
    let refused = ask_as_role(postgres.port(), "wrong").expect_err("not let in");
    assert!(refused.contains("password authentication failed"), "{refused}");
    assert_eq!(
        postgres.url(),
        format!("postgres://leasehold:secret@127.0.0.1:{}/leasehold", postgres.port())
    );
}

/// A session that asks what it is told and prints what it gets.
fn session(program: &str, arguments: &[&str]) -> (std::process::Child, impl FnMut(&str) -> String + use<>) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let ask = move |statement: &str| {
        writeln!(input, "{statement}").and_then(|()| input.flush()).expect("a pipe");
        let mut line = String::new();
        output.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    };
    (child, ask)
}

fn postgres_pauses_with_all_its_sessions() {
    let postgres = Postgres::start();
    let port = postgres.port().to_string();
    let (mut psql, mut ask) =
        session("psql", &["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
    assert_eq!(ask("select 1;"), "1");
    postgres.pause();
    postgres.try_sql("postgres", "select 1", ms(100)).expect_err("paused");
    let asked = thread::spawn(move || ask("select 2;"));
    thread::sleep(ms(50));
    assert!(!asked.is_finished(), "an open session is paused too");
    postgres.resume();
    assert_eq!(asked.join().expect("an answer"), "2");
    psql.kill().and_then(|()| psql.wait()).expect("a child");
    assert_eq!(postgres.sql("select 3"), "3");
}

fn postgres_restarts_with_and_without_its_data() {
    for fsync in ["on", "off"] {
        let postgres = Postgres::start_with(&[&format!("fsync={fsync}")]);
        let port = postgres.port();
        postgres.query("create table x as select 1 as n");
        postgres.pause();
        postgres.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "killed");
        postgres.restart();
        assert_eq!(postgres.port(), port);
        assert_eq!(postgres.query("select n from x"), "1");
        postgres.restart_empty();
        postgres.fresh_database();
        assert_eq!(postgres.query("select to_regclass('x') is null"), "t");
    }
}

fn postgres_can_be_stopped_in_order() {
    let postgres = Postgres::start();
    postgres.query("create table x as select 1 as n");
    postgres.stop();
    assert!(!postgres.runs());
    assert!(postgres.log().contains("database system is shut down"), "{}", postgres.log());
    postgres.restart();
    assert_eq!(postgres.query("select n from x"), "1");
}

fn a_session_of_postgres_dies_with_the_test() {
    let program = std::env::current_exe().expect("this binary");
    let mut parent = Command::new(program);
    let mut parent =
        parent.arg("postgres").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
    let mut line = String::new();
    BufReader::new(parent.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    let mut words = line.split_whitespace();
    let home = words.next().expect("a directory").to_owned();
    let pids: Vec<u32> = words.map(|pid| pid.parse().expect("a process")).collect();
    // Workers come and go; the server itself and its writers stay.
    assert!(pids.iter().filter(|pid| !dead(**pid)).count() > 3, "{line}");
    parent.kill().expect("a child");
    parent.wait().expect("a child");
    servers::until("all are dead", || pids.iter().all(|pid| dead(*pid)));
    // What a process that is killed can not do.
    std::fs::remove_dir_all(home).expect("removed");
}

/// Starts a server, says which processes it has and where, and waits to be killed.
pub(crate) fn child() {
    let postgres = Postgres::start();
    let pids: Vec<String> = postgres.pids().iter().map(u32::to_string).collect();
    println!("{} {}", postgres.dir().parent().expect("a home").display(), pids.join(" "));
    std::io::stdout().flush().expect("a pipe");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
}

fn a_dropped_postgres_leaves_nothing() {
    let postgres = Postgres::start();
    let (pids, dir) = (postgres.pids(), postgres.dir());
    drop(postgres);
    assert!(pids.into_iter().all(dead));
    assert!(!dir.parent().expect("a home").exists());
}

fn a_standby_follows_and_is_promoted() {
    let primary = Postgres::start();
    primary.query("create table x as select 1 as n");
    let standby = primary.start_standby(primary.port());
    assert_eq!(standby.query("select n from x"), "1");
    let refused = standby.try_sql("leasehold", "update x set n = 2", LIMIT).expect_err("a standby");
    assert!(refused.contains("read-only"), "{refused}");
    primary.kill();
    standby.promote();
    standby.query("update x set n = 2");
    assert_eq!(standby.query("select n from x"), "2");
}

fn a_standby_behind_a_stalled_line_misses_what_came_after() {
    let primary = Postgres::start();
    primary.query("create table x as select 1 as n");
    let proxy = Proxy::start(primary.port());
    let standby = primary.start_standby(proxy.port());
    proxy.stall();
    primary.query("update x set n = 2");
    standby.promote();
    assert_eq!(standby.query("select n from x"), "1");
}

fn pgbouncer_shares_sessions() {
    let postgres = Postgres::start();
    let pooler = PgBouncer::start(&postgres);
    assert_eq!(pooler.url(), Postgres::url_at(pooler.port()));
    let ask = || ask_as_role(pooler.port(), "secret").expect("let in");
    assert_eq!(ask(), ask(), "both had the same session");
    ask_as_role(pooler.port(), "wrong").expect_err("not let in");
}

fn a_paused_pgbouncer_answers_later() {
    let postgres = Postgres::start();
    let pooler = PgBouncer::start(&postgres);
    pooler.pause();
    let port = pooler.port();
    let asked = thread::spawn(move || ask_as_role(port, "secret"));
    thread::sleep(ms(100));
    assert!(!asked.is_finished());
    pooler.resume();
    asked.join().expect("no panic").expect("let in");
}

fn mariadb_starts_alone() {
    let [one, two] = [MariaDb::start(), MariaDb::start()];
    one.query("create table x (n int)");
    assert_eq!(two.query("show tables"), "");
    assert_eq!(one.sql("select @@datadir"), format!("{}/", one.dir().display()));
    one.fresh_database();
    assert_eq!(one.query("show tables"), "");
}

fn mariadb_takes_arguments() {
    let mariadb = MariaDb::start_with(&["--innodb-flush-log-at-trx-commit=1", "--max-connections=17"]);
    assert_eq!(mariadb.sql("select @@innodb_flush_log_at_trx_commit, @@max_connections"), "1\t17");
}

fn mariadb_says_why_it_can_not_start() {
    let said = MariaDb::try_start_with(&["--no-such-option=1"]).err().expect("it can not start");
    assert!(said.contains("no-such-option"), "{said}");
}

fn mariadb_lets_the_user_in_with_its_password_alone() {
    let mariadb = MariaDb::start();
    let port = mariadb.port();
    let ask = |password: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-u", "leasehold", "-P", &port.to_string()]);
        let output = client.args([&format!("-p{password}"), "-e", "select 1", "leasehold"]).output();
        output.expect("mariadb starts").status.success()
    };
    assert!(ask("secret") && !ask("wrong"));
    assert_eq!(mariadb.url(), format!("mysql://leasehold:secret@127.0.0.1:{port}/leasehold"));
}

fn mariadb_pauses() {
    let mariadb = MariaDb::start();
    let port = mariadb.port().to_string();
    let (mut client, mut ask) = session(
        "mariadb",
        &["--no-defaults", "--batch", "-N", "-n", "-h", "127.0.0.1", "-u", "root", "-P", &port],
    );
    assert_eq!(ask("select 1;"), "1");
    mariadb.pause();
    mariadb.try_sql("", "select 1", ms(100)).expect_err("paused");
    let asked = thread::spawn(move || ask("select 2;"));
    thread::sleep(ms(50));
    assert!(!asked.is_finished(), "paused");
    mariadb.resume();
    assert_eq!(asked.join().expect("an answer"), "2");
    client.kill().and_then(|()| client.wait()).expect("a child");
    assert_eq!(mariadb.sql("select 3"), "3");
}

fn mariadb_restarts_with_and_without_its_data() {
    for flush in ["1", "2"] {
        let mariadb = MariaDb::start_with(&[&format!("--innodb-flush-log-at-trx-commit={flush}")]);
        let port = mariadb.port();
        mariadb.query("create table x as select 1 as n");
        mariadb.restart();
        assert_eq!(mariadb.port(), port);
        assert_eq!(mariadb.query("select n from x"), "1");
        mariadb.restart_empty();
        mariadb.fresh_database();
        assert_eq!(mariadb.query("show tables"), "");
    }
}

fn mariadb_can_be_stopped_in_order() {
    let mariadb = MariaDb::start();
    mariadb.query("create table x as select 1 as n");
    mariadb.stop();
    assert!(mariadb.log().contains("Shutdown complete"), "{}", mariadb.log());
    mariadb.restart();
    assert_eq!(mariadb.query("select n from x"), "1");
}

fn a_dropped_mariadb_leaves_nothing() {
    let mariadb = MariaDb::start();
    let (pid, dir) = (mariadb.pid(), mariadb.dir());
    drop(mariadb);
    assert_eq!(servers::state(pid), None, "waited for");
    assert!(!dir.parent().expect("a home").exists());
}

fn what_is_idle_in_a_pool_is_dropped_at_the_end() {
    static POOL: Pool<MariaDb> = Pool::new();
    let mariadb = POOL.take(MariaDb::start);
    let pid = mariadb.pid();
    drop(mariadb);
    assert_eq!(POOL.take(|| unreachable!("one is idle")).pid(), pid);
    servers::drop_idle();
    assert_eq!(servers::state(pid), None, "waited for");
}
