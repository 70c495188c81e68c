//! PgBouncer before a PostgreSQL server, in transaction mode: a client's next statement may run in
//! another session.

use std::fs;
use std::process::Command;

use super::postgres::asks_for_password;
use super::process::User;
use super::server::{Place, Program, Server, own};
use super::{Postgres, not_installed};

/// A pooler of one's own.
pub(crate) type PgBouncer = Server<PgBouncerProgram>;

/// What a pooler is told when it starts.
pub(crate) struct PgBouncerProgram {
    /// The port of the server behind it.
    to: u16,
    /// `name=value`.
    settings: Vec<String>,
}

impl Program for PgBouncerProgram {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn user(&self) -> User {
        User::NotRoot
    }

    fn create_data(&self, place: &Place) {
        let file = |name: &str, text: String| {
            fs::write(place.data().join(name), text).expect("a file");
        };
        file("users.txt", "\"leasehold\" \"secret\"\n\"postgres\" \"\"\n".to_owned());
        let port = place.port();
        let usual = [
            "listen_addr=127.0.0.1".to_owned(),
            format!("listen_port={port}"),
            "unix_socket_dir=".to_owned(),
            "pool_mode=transaction".to_owned(),
            "auth_type=scram-sha-256".to_owned(),
            "auth_file=users.txt".to_owned(),
            "max_client_conn=1000".to_owned(),
            // Fewer than the clients of a case have connections, so that they share.
            "default_pool_size=4".to_owned(),
            // A server that was restarted is asked again soon.
            "server_login_retry=0.1".to_owned(),
        ];
        let settings = [&usual[..], &self.settings].concat().join("\n");
        let to = self.to;
        file(
            "pgbouncer.ini",
            format!("[databases]\n* = host=127.0.0.1 port={to}\n[pgbouncer]\n{settings}\n"),
        );
        own(&place.data(), self.user());
    }

    fn arguments(&self, _: &Place, command: &mut Command) {
        command.arg("pgbouncer.ini");
    }

    fn answers(&self, place: &Place) -> bool {
        asks_for_password(place.port())
    }
}

impl PgBouncer {
    /// What must be installed first, beside the server.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["pgbouncer"])
    }

    /// A pooler before a server.
    pub(crate) fn start(to: &Postgres) -> PgBouncer {
        PgBouncer::start_with(to, &[])
    }

    /// A pooler with more settings (`name=value`), which win over those that every pooler gets.
    pub(crate) fn start_with(to: &Postgres, settings: &[&str]) -> PgBouncer {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let pooler = Server::create(PgBouncerProgram { to: to.port(), settings });
        pooler.run();
        pooler
    }

    pub(crate) fn url(&self) -> String {
        Postgres::url_at(self.port())
    }
}
