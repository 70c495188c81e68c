//! The same in a MariaDB database.

use super::servers::MariaDb;
use super::working_day::{Families, a_working_day};
use super::*;

#[test]
fn a_database_serves_an_operator() {
    let server = MariaDb::start();
    a_working_day(&Bench::on(server.url()), Families::All);
}

#[test]
fn a_command_ends_with_its_leasehold() {
    let server = MariaDb::start();
    let bench = Bench::on(server.url());
    killed::ends_with_its_leasehold(&bench, &["--lease", "3s"]);
    killed::without_a_supervisor(&bench, &[]);
    losing::all_end(&bench);
}

#[test]
fn runs_inside_runs_are_recognised() {
    let server = MariaDb::start();
    nested::would_wait_for_itself(&Bench::on(server.url()));
}

#[test]
fn a_wrong_password_and_a_missing_database_are_said() {
    let server = MariaDb::start();
    let ran = Bench::on(server.url().replace("secret", "canary")).leasehold(["run", "a", "--", "true"]);
    let ran = ran.gives(69);
    assert!(ran.stderr.contains("does not accept the user or the password"), "{ran:?}");
    assert!(!ran.stderr.contains("canary"), "{ran:?}");
    server.sql("grant all privileges on nothing.* to leasehold@'%'");
    let url = server.url();
    let url = format!("{}nothing", url.strip_suffix("leasehold").unwrap());
    Bench::on(url).leasehold(["run", "a", "--", "true"]).gives(69).says("there is no database `nothing`");
}

#[test]
fn a_dead_server_is_said_at_once() {
    let server = MariaDb::start();
    server.kill();
    gone::is_said_at_once(&Bench::on(server.url()));
}

#[test]
fn a_server_that_stops_takes_the_command_with_it_in_time() {
    let server = MariaDb::start();
    let bench = Bench::on(server.url());
    gone::takes_the_command_with_it(&bench, "2s", Duration::from_secs(3), || server.kill());
}

#[test]
fn the_migration_makes_what_a_user_without_rights_needs() {
    let server = MariaDb::start();
    server.sql("create user app@'%' identified by 'secret'");
    server.sql("grant select, insert, update, delete on leasehold.* to app@'%'");
    let bench = Bench::on(server.url().replace("leasehold:secret", "app:secret"));
    bench.leasehold(["run", "a", "--", "true"]).gives(69).says("leasehold sql mysql");
    let printed = bench.leasehold(["sql", "mysql"]).gives(0);
    server.query(&printed.stdout);
    server.query(&printed.stdout);
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    let other = bench.leasehold(["sql", "mysql", "--table", "t"]).gives(0);
    assert!(other.stdout.contains("`t_names`"), "{other:?}");
    bench.leasehold(["sql", "mysql", "--schema", "s"]).gives(64).says("run the statements in it");
}
