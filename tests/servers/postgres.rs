//! A PostgreSQL server.
//!
//! Nothing waits for the disk unless the settings say so (`fsync=on`). A server that is killed
//! loses nothing by that; a machine would. The superuser is `postgres` and needs no password on
//! this machine. The role `leasehold` has the password `secret` and owns the database `leasehold`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::disk::Disk;
use super::process::{User, find, output};
use super::server::{Place, Program, Server, own};
use super::{Certificates, LIMIT, not_installed, template, until};

/// A server of one's own.
pub(crate) type Postgres = Server<PostgresProgram>;

/// What a server is told when it starts.
pub(crate) struct PostgresProgram {
    /// `name=value`.
    settings: Vec<String>,
    /// The port of the primary that this is a standby of.
    standby_of: Option<u16>,
}

/// Who may connect: the superuser without a password, everyone else with one.
const ACCESS: &str = "\
local all all trust
host all postgres 127.0.0.1/32 trust
host replication postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
";

const ROLE: &str = "create role leasehold login password 'secret'\n";

impl PostgresProgram {
    fn create_template(data: &Path) {
        let mut init = User::NotRoot.command("initdb");
        init.arg("-D").arg(data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        // Small files are copied fast.
        init.args(["--no-sync", "--no-instructions", "--wal-segsize=1"]);
        output(init, 6 * LIMIT).unwrap_or_else(|error| panic!("initdb: {error}"));
        fs::write(data.join("pg_hba.conf"), ACCESS).expect("a file");
        let mut single = User::NotRoot.command("sh");
        single.args(["-c", r#"printf %s "$2" | "$0" --single -F -D "$1" postgres"#]);
        single.arg(find("postgres").expect("installed")).arg(data).arg(ROLE);
        output(single, 6 * LIMIT).unwrap_or_else(|error| panic!("postgres --single: {error}"));
    }
}

impl Program for PostgresProgram {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn user(&self) -> User {
        User::NotRoot
    }

    fn has_workers(&self) -> bool {
        true
    }

    fn create_data(&self, place: &Place) {
        let data = place.data();
        if let Some(port) = self.standby_of {
            let mut copy = self.user().command("pg_basebackup");
            copy.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port.to_string()]);
            copy.args(["-c", "fast", "-X", "stream", "--no-sync", "-R", "-D"]).arg(&data);
            output(copy, 6 * LIMIT).unwrap_or_else(|error| panic!("pg_basebackup: {error}"));
        } else {
            template::fill(&data, self.user(), "postgres", "postgres", PostgresProgram::create_template);
        }
        // What the server demands.
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("ours");
    }

    fn arguments(&self, place: &Place, command: &mut Command) {
        command.arg("-D").arg(place.data());
        command.args(["-h", "127.0.0.1", "-p", &place.port().to_string()]).arg("-k").arg(place.home());
        let usual = ["fsync=off", "full_page_writes=off", "shared_buffers=16MB", "timezone=UTC"];
        for setting in usual.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
    }

    fn answers(&self, place: &Place) -> bool {
        asks_for_password(place.port())
    }
}

/// Whether a server, or a pooler, takes connections. One that still starts answers with an error.
pub(super) fn asks_for_password(port: u16) -> bool {
    let ask = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let parameters = b"\0\x03\0\0user\0leasehold\0database\0leasehold\0\0";
        let length = u32::try_from(parameters.len() + 4).expect("short");
        stream.write_all(&[&length.to_be_bytes(), &parameters[..]].concat())?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        Ok(kind[0])
    };
    ask().is_ok_and(|kind| kind == b'R')
}

impl Postgres {
    /// What must be installed first.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["postgres", "initdb", "pg_basebackup", "psql", "setpriv"])
    }

    /// A server that answers.
    pub(crate) fn start() -> Postgres {
        Postgres::start_with(&[])
    }

    /// A server with more settings (`name=value`), which win over those that every server gets.
    #[track_caller]
    pub(crate) fn start_with(settings: &[&str]) -> Postgres {
        Postgres::try_start_with(settings).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server with more settings, or what it said before it ended.
    pub(crate) fn try_start_with(settings: &[&str]) -> Result<Postgres, String> {
        let postgres = Postgres::prepare(settings, None);
        postgres.try_run()?;
        postgres.fresh_database();
        Ok(postgres)
    }

    /// A server on a disk that can be full.
    pub(crate) fn start_on_disk() -> (Postgres, Disk) {
        let mut server = Postgres::prepare(&[], None);
        let disk = Disk::put_under(&mut server);
        server.run();
        server.fresh_database();
        (server, disk)
    }

    /// A server that also speaks TLS; `name` is the certificate that it shows.
    pub(crate) fn start_tls(certificates: &Certificates, name: &str) -> Postgres {
        let postgres = Postgres::prepare(
            &["ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key", "ssl_ca_file=../ca.crt"],
            None,
        );
        for (from, to) in [(format!("{name}.crt"), "server.crt"), (format!("{name}.key"), "server.key")] {
            postgres.give(&certificates.path(&from), to);
        }
        postgres.give(&certificates.path("ca.crt"), "ca.crt");
        postgres.run();
        postgres.fresh_database();
        postgres
    }

    /// A copy of this server that follows it, asynchronously, over a port: that of this server or
    /// of a proxy before it.
    pub(crate) fn start_standby(&self, over: u16) -> Postgres {
        let standby = Postgres::prepare(&[], Some(over));
        standby.run();
        standby.catch_up_with(self);
        standby
    }

    fn prepare(settings: &[&str], standby_of: Option<u16>) -> Postgres {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Server::create(PostgresProgram { settings, standby_of })
    }

    /// Copies a file to where the server finds it, readable to no other.
    fn give(&self, from: &Path, name: &str) {
        let to = self.home().join(name);
        fs::copy(from, &to).expect("a file");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("ours");
        own(&to, User::NotRoot);
    }

    /// Waits until a standby has replayed all that its primary has written so far.
    fn catch_up_with(&self, primary: &Postgres) {
        let written = primary.sql("select pg_current_wal_lsn()");
        let replayed = format!("select coalesce(pg_last_wal_replay_lsn() >= '{written}', false)");
        until("the standby is in step", || self.sql(&replayed) == "t");
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.sql("select pg_promote(true, 10)"), "t");
        until("the standby is the primary", || self.sql("select pg_is_in_recovery()") == "f");
    }

    /// Ends the server as an administrator does: clients are told, and data is written.
    pub(crate) fn stop(&self) {
        self.end(Signal::INT);
    }

    /// Makes the database `leasehold` an empty one. Whoever is connected to it is thrown out.
    pub(crate) fn fresh_database(&self) {
        self.sql("drop database if exists leasehold with (force)");
        self.sql("create database leasehold owner leasehold");
    }

    pub(crate) fn url(&self) -> String {
        Postgres::url_at(self.port())
    }

    /// The URL of the database `leasehold` at a port: that of a server, a proxy or a pooler.
    pub(crate) fn url_at(port: u16) -> String {
        format!("postgres://leasehold:secret@127.0.0.1:{port}/leasehold")
    }

    /// What a statement gives, run by the superuser in the database `postgres`: a line per row,
    /// columns divided by `|`.
    #[track_caller]
    pub(crate) fn sql(&self, statement: &str) -> String {
        self.try_sql("postgres", statement, 3 * LIMIT).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The same in the database `leasehold`.
    #[track_caller]
    pub(crate) fn query(&self, statement: &str) -> String {
        self.try_sql("leasehold", statement, 3 * LIMIT).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// What `pgbench` says, run by the superuser in the database `postgres`.
    pub(crate) fn pgbench(&self, arguments: &[&str], limit: Duration) -> Result<String, String> {
        let mut pgbench = Command::new(find("pgbench").ok_or("pgbench is missing")?);
        pgbench.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port().to_string()]);
        pgbench.args(arguments).arg("postgres");
        output(pgbench, limit)
    }

    /// The same in any database, or what went wrong.
    pub(crate) fn try_sql(&self, database: &str, statement: &str, limit: Duration) -> Result<String, String> {
        let mut psql = Command::new(find("psql").expect("installed"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        psql.args(["-p", &self.port().to_string(), "-d", database, "-c", statement]);
        output(psql, limit)
    }
}
