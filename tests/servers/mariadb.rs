//! A MariaDB server.
//!
//! Nothing waits for the disk unless the arguments say so (`--innodb-flush-log-at-trx-commit=1`). A
//! server that is killed loses nothing by that; a machine would. `root` needs no password on this
//! machine. The user `leasehold` has the password `secret` and all rights in the database
//! `leasehold`.

use std::fs;
use std::io::Read as _;
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
pub(crate) type MariaDb = Server<MariaDbProgram>;

/// What a server is told when it starts.
pub(crate) struct MariaDbProgram {
    arguments: Vec<String>,
}

const USERS: &str = "\
flush privileges;
create user leasehold@'%' identified by 'secret';
grant all privileges on leasehold.* to leasehold@'%';
";

impl MariaDbProgram {
    fn create_template(data: &Path) {
        let users = data.with_extension("sql");
        fs::write(&users, USERS).expect("a file");
        own(&users, User::NotRoot);
        let mut init = User::NotRoot.command("mariadb-install-db");
        init.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        init.arg(format!("--extra-file={}", users.display()));
        init.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        // Small files are copied fast.
        init.args(["--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]);
        output(init, 6 * LIMIT).unwrap_or_else(|error| panic!("mariadb-install-db: {error}"));
    }
}

impl Program for MariaDbProgram {
    fn name(&self) -> &'static str {
        "mariadbd"
    }

    fn user(&self) -> User {
        User::NotRoot
    }

    fn create_data(&self, place: &Place) {
        let data = place.data();
        template::fill(&data, self.user(), "mariadbd", "mariadb", MariaDbProgram::create_template);
    }

    fn arguments(&self, place: &Place, command: &mut Command) {
        command.arg("--no-defaults").arg(format!("--datadir={}", place.data().display()));
        command.arg(format!("--socket={}", place.home().join("socket").display()));
        command.arg(format!("--pid-file={}", place.home().join("pid").display()));
        // A server that starts deletes the temporary tables of all others that keep theirs there.
        command.arg(format!("--tmpdir={}", place.home().display()));
        command.args(["--bind-address=127.0.0.1", &format!("--port={}", place.port())]);
        command.args(["--skip-name-resolve", "--skip-log-bin", "--innodb-buffer-pool-size=32M"]);
        command.args(["--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=2"]);
        // From 11.4 on a server makes itself a certificate when it starts, which takes seconds. One
        // that is given a certificate speaks TLS all the same: the last word counts.
        command.arg("--skip-ssl").args(&self.arguments);
    }

    /// A server that takes connections greets whoever comes.
    fn answers(&self, place: &Place) -> bool {
        let greet = || -> std::io::Result<u8> {
            let mut stream = TcpStream::connect(("127.0.0.1", place.port()))?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut start = [0; 5];
            stream.read_exact(&mut start)?;
            Ok(start[4])
        };
        const ERROR: u8 = 0xff;
        greet().is_ok_and(|kind| kind != ERROR)
    }
}

impl MariaDb {
    /// What must be installed first.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["mariadbd", "mariadb-install-db", "mariadb", "setpriv"])
    }

    /// A server that answers.
    pub(crate) fn start() -> MariaDb {
        MariaDb::start_with(&[])
    }

    /// A server with more arguments, which win over those that every server gets.
    #[track_caller]
    pub(crate) fn start_with(arguments: &[&str]) -> MariaDb {
        MariaDb::try_start_with(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server with more arguments, or what it said before it ended.
    pub(crate) fn try_start_with(arguments: &[&str]) -> Result<MariaDb, String> {
        let mariadb = MariaDb::prepare(arguments);
        mariadb.try_run()?;
        mariadb.fresh_database();
        Ok(mariadb)
    }

    /// A server on a disk that can be full.
    pub(crate) fn start_on_disk() -> (MariaDb, Disk) {
        let mut server = MariaDb::prepare(&[]);
        let disk = Disk::put_under(&mut server);
        server.run();
        server.fresh_database();
        (server, disk)
    }

    /// A server that also speaks TLS; `name` is the certificate that it shows.
    pub(crate) fn start_tls(certificates: &Certificates, name: &str) -> MariaDb {
        let mariadb =
            MariaDb::prepare(&["--ssl-cert=../server.crt", "--ssl-key=../server.key", "--ssl-ca=../ca.crt"]);
        for (from, to) in [(format!("{name}.crt"), "server.crt"), (format!("{name}.key"), "server.key")] {
            mariadb.give(&certificates.path(&from), to);
        }
        mariadb.give(&certificates.path("ca.crt"), "ca.crt");
        mariadb.run();
        mariadb.fresh_database();
        mariadb
    }

    /// A server that a replica can follow.
    pub(crate) fn start_primary() -> MariaDb {
        MariaDb::start_with(&["--server-id=1", "--log-bin=log", "--binlog-format=ROW"])
    }

    /// A copy of such a server that follows it, asynchronously, over a port: that of the server or
    /// of a proxy before it.
    pub(crate) fn start_replica(&self, over: u16) -> MariaDb {
        let replica =
            MariaDb::prepare(&["--server-id=2", "--log-bin=log", "--binlog-format=ROW", "--read-only"]);
        replica.run();
        // The same files at first, so all that there is since is in the log.
        replica.sql(&format!(
            "change master to master_host = '127.0.0.1', master_port = {over}, master_user = 'root', \
             master_use_gtid = slave_pos; start slave"
        ));
        let written = self.sql("select @@global.gtid_binlog_pos");
        until("the replica is in step", || replica.sql("select @@global.gtid_slave_pos") == written);
        replica
    }

    /// From now on a commit is answered when a replica has it.
    pub(crate) fn wait_for_replica(&self, replica: &MariaDb) {
        self.sql(
            "set global rpl_semi_sync_master_wait_point = AFTER_SYNC, \
             rpl_semi_sync_master_timeout = 3600000, rpl_semi_sync_master_enabled = 1",
        );
        replica.sql("set global rpl_semi_sync_slave_enabled = 1; stop slave; start slave");
        let clients = "show global status like 'Rpl_semi_sync_master_clients'";
        until("the replica counts", || self.sql(clients).ends_with("\t1"));
    }

    /// Makes a replica the primary.
    pub(crate) fn promote(&self) {
        self.sql("stop slave; reset slave all; set global read_only = 0");
    }

    fn prepare(arguments: &[&str]) -> MariaDb {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Server::create(MariaDbProgram { arguments })
    }

    /// Copies a file to where the server finds it, readable to no other.
    fn give(&self, from: &Path, name: &str) {
        let to = self.home().join(name);
        fs::copy(from, &to).expect("a file");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("ours");
        own(&to, User::NotRoot);
    }

    /// Ends the server as an administrator does: clients are told, and data is written.
    pub(crate) fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Makes the database `leasehold` an empty one.
    pub(crate) fn fresh_database(&self) {
        self.sql("drop database if exists leasehold; create database leasehold");
    }

    pub(crate) fn url(&self) -> String {
        MariaDb::url_at(self.port())
    }

    /// The URL of the database `leasehold` at a port: that of a server or a proxy.
    pub(crate) fn url_at(port: u16) -> String {
        format!("mysql://leasehold:secret@127.0.0.1:{port}/leasehold")
    }

    /// What statements give, run by `root`: a line per row, columns divided by tabs.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.try_sql("", statements, 3 * LIMIT).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// The same in the database `leasehold`.
    #[track_caller]
    pub(crate) fn query(&self, statements: &str) -> String {
        self.try_sql("leasehold", statements, 3 * LIMIT)
            .unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// The same in any database, or what went wrong.
    pub(crate) fn try_sql(
        &self,
        database: &str,
        statements: &str,
        limit: Duration,
    ) -> Result<String, String> {
        let mut client = Command::new(find("mariadb").expect("installed"));
        client.args(["--no-defaults", "--batch", "--skip-column-names", "-h", "127.0.0.1", "-u", "root"]);
        client.args(["-P", &self.port().to_string(), "-e", statements, database]);
        output(client, limit)
    }
}
