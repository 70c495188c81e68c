//! What we require of a server and a session.

use std::collections::HashMap;

use mysql_async::{Conn, Row};

use super::errors::{Blame, read_only};
use super::packet::run;
use super::promises::ENGINE;
use super::rows::last;
use super::url::IDLE_SECONDS;
use crate::error::{Error, Result};

/// Checks a server, and makes a session what all statements count on.
pub(super) async fn prepare(connection: &mut Conn, blame: &Blame, for_batches: bool) -> Result<()> {
    // One packet. `show` needs no rights, and what a server does not have is left out. A
    // transaction of ours is idle only if a client is stopped between an error and its rollback;
    // MariaDB can end that one. A batch must not wait for a row that somebody has locked; MySQL
    // knows no shorter wait than a second.
    let wait = if for_batches { "/*M! , innodb_lock_wait_timeout = 0 */" } else { "" };
    let asked = format!(
        "set session transaction isolation level read committed; \
         set session autocommit = 1, sql_mode = 'STRICT_ALL_TABLES', innodb_lock_wait_timeout = 1, \
         lock_wait_timeout = 2, wait_timeout = {IDLE_SECONDS} /*M! , idle_transaction_timeout = 5 */ {wait}; \
         show variables where variable_name in ('version', 'read_only', 'super_read_only', \
         'innodb_read_only', 'wsrep_on', 'wsrep_provider', 'group_replication_group_name', \
         'group_replication_single_primary_mode', 'innodb_flush_log_at_trx_commit')"
    );
    let answers = run(connection, &asked).await.map_err(|error| blame.unreachable(error))?;
    Variables(last(answers).into_iter().filter_map(variable).collect()).check(&blame.server)
}

fn variable(row: Row) -> Option<(String, String)> {
    let (name, value): (String, String) = mysql_async::from_row_opt(row).ok()?;
    Some((name.to_ascii_lowercase(), value))
}

/// The variables of a server that matter.
struct Variables(HashMap<String, String>);

impl Variables {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1")
    }

    fn is_mariadb(&self) -> bool {
        self.get("version").contains("MariaDB")
    }

    /// Refuses a server on which a claim would not be one.
    fn check(&self, server: &str) -> Result<()> {
        let unsupported = |what: String| Err(Error::Unsupported { engine: ENGINE, what });
        let version = self.get("version");
        if version.contains("TiDB") {
            return unsupported(format!(
                "`{server}` is TiDB ({version}), which this engine was not made for"
            ));
        }
        if self.is_on("wsrep_on") && !matches!(self.get("wsrep_provider"), "" | "none") {
            return unsupported(format!(
                "`{server}` belongs to a Galera cluster, whose nodes each have a clock and may lose what was \
                 committed; use a server with one primary"
            ));
        }
        let grouped = !self.get("group_replication_group_name").is_empty();
        if grouped && !self.is_on("group_replication_single_primary_mode") {
            return unsupported(format!(
                "`{server}` belongs to a group with several primaries, each with a clock of its own; use \
                 single-primary mode"
            ));
        }
        let (least, enough) = if self.is_mariadb() { ("10.6", (10, 6)) } else { ("8.0.1", (8, 0)) };
        if number(version) < enough || version.starts_with("8.0.0") {
            return unsupported(format!("`{server}` has version {version}; {least} or later is needed"));
        }
        if ["read_only", "super_read_only", "innodb_read_only"].iter().any(|name| self.is_on(name)) {
            return Err(Error::Unavailable { engine: ENGINE, what: read_only(server), source: None });
        }
        if self.get("innodb_flush_log_at_trx_commit") != "1" {
            tracing::debug!(
                target: "leasehold",
                server,
                "a crash of its machine can lose grants: innodb_flush_log_at_trx_commit is not 1"
            );
        }
        Ok(())
    }
}

/// The first two numbers of a version.
fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(variables: &[(&str, &str)]) -> Result<()> {
        let usual = [("version", "10.11.6-MariaDB"), ("innodb_flush_log_at_trx_commit", "1")];
        let all = usual.iter().chain(variables);
        let found = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Variables(found).check("h")
    }

    #[test]
    fn a_server_that_can_not_keep_a_claim_is_refused() {
        server(&[]).expect("a usual one");
        server(&[("version", "8.4.3")]).expect("a usual one");
        server(&[("wsrep_on", "OFF"), ("wsrep_provider", "/usr/lib/x.so")]).expect("not in a cluster");
        for (variables, words) in [
            (&[("wsrep_on", "ON"), ("wsrep_provider", "/usr/lib/x.so")][..], "Galera"),
            (
                &[
                    ("version", "8.0.36"),
                    ("group_replication_group_name", "6b"),
                    ("group_replication_single_primary_mode", "OFF"),
                ],
                "several primaries",
            ),
            (&[("version", "8.0.11-TiDB-v8.1.0")], "TiDB"),
            (&[("version", "10.5.23-MariaDB")], "10.6 or later"),
            (&[("version", "5.7.44")], "8.0.1 or later"),
        ] {
            let error = server(variables).expect_err(words);
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let replica = server(&[("read_only", "ON")]).expect_err("a replica");
        assert!(replica.is_retryable() && replica.to_string().contains("name the primary"), "{replica}");
    }
}
