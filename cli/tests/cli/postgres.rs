//! The same in a PostgreSQL database.

use super::servers::Postgres;
use super::working_day::{Families, a_working_day};
use super::*;

#[test]
fn a_database_serves_an_operator() {
    let server = Postgres::start();
    a_working_day(&Bench::on(server.url()), Families::All);
}

#[test]
fn a_command_ends_with_its_leasehold() {
    let server = Postgres::start();
    let bench = Bench::on(server.url());
    killed::ends_with_its_leasehold(&bench, &["--lease", "3s"]);
    killed::without_a_supervisor(&bench, &[]);
    losing::all_end(&bench);
}

#[test]
fn runs_inside_runs_are_recognised() {
    let server = Postgres::start();
    nested::would_wait_for_itself(&Bench::on(server.url()));
}

#[test]
fn a_wrong_password_and_a_missing_database_are_said() {
    let server = Postgres::start();
    let ran = Bench::on(server.url().replace("secret", "canary")).leasehold(["run", "a", "--", "true"]);
    let ran = ran.gives(69);
    assert!(ran.stderr.contains("does not let `leasehold` in"), "{ran:?}");
    assert!(!ran.stderr.contains("canary"), "{ran:?}");
    let url = server.url();
    let url = format!("{}nothing", url.strip_suffix("leasehold").unwrap());
    Bench::on(url).leasehold(["run", "a", "--", "true"]).gives(69).says("there is no database `nothing`");
}

#[test]
fn a_dead_server_is_said_at_once() {
    let server = Postgres::start();
    server.kill();
    gone::is_said_at_once(&Bench::on(server.url()));
}

#[test]
fn a_server_that_stops_takes_the_command_with_it_in_time() {
    let server = Postgres::start();
    let bench = Bench::on(server.url());
    gone::takes_the_command_with_it(&bench, "2s", Duration::from_secs(3), || server.stop());
}

#[test]
fn the_migration_makes_what_a_role_without_rights_needs() {
    let server = Postgres::start();
    server.query("create role app login password 'secret'");
    let bench = Bench::on(server.url().replace("leasehold:secret", "app:secret"));
    bench.leasehold(["run", "a", "--", "true"]).gives(69).says("leasehold sql postgres");
    let printed = bench.leasehold(["sql", "postgres"]).gives(0);
    server.query(&printed.stdout);
    server.query(&printed.stdout);
    bench.leasehold(["run", "a", "--", "true"]).gives(69).says("grant select, insert, update, delete");
    server.query(
        "grant select, insert, update, delete on leasehold_names, leasehold_queue, leasehold_cells to app",
    );
    server.query("grant select on leasehold_format to app");
    bench.leasehold(["run", "a", "--", "true"]).gives(0);
    let other = bench.leasehold(["sql", "postgres", "--schema", "s", "--table", "t"]).gives(0);
    assert!(other.stdout.contains(r#""s"."t_names""#), "{other:?}");
}
