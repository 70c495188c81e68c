//! Directories, formats and clients that do not fit, and are refused.

use std::fs;
use std::process::Stdio;

use leasehold::Error;
use tokio::process::Command;

use super::{boot_dir, dir, refused};
use crate::bench::Ground;
use crate::{Case, cases};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "store",
        [
            a_foreign_directory_is_refused_and_untouched,
            a_newer_format_is_refused,
            a_damaged_mark_is_refused,
            a_file_in_place_of_the_directory_is_refused,
            a_client_in_another_time_is_refused,
            an_unknown_option_is_refused
        ]
    )
    .cases
}

async fn a_foreign_directory_is_refused_and_untouched(ground: Ground) {
    fs::create_dir(dir(&ground)).expect("a directory");
    fs::write(dir(&ground).join("precious"), b"data").expect("a file");
    let error = refused(&ground).await;
    assert!(
        matches!(error, Error::Engine { .. }) && error.to_string().contains("not a store of leasehold"),
        "{error}"
    );
    assert_eq!(fs::read_dir(dir(&ground)).expect("the directory").count(), 1);
}

async fn a_newer_format_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    fs::write(dir(&ground).join("format"), "leasehold file store\nformat 7\nshare private\n")
        .expect("written");
    let error = refused(&ground).await;
    assert!(error.to_string().contains("format 7") && error.to_string().contains("format 1"), "{error}");
}

async fn a_damaged_mark_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    for mark in [
        b"leasehold file store\n".as_slice(),
        b"",
        b"\xff\xfe",
        b"leasehold file store\nformat 1\nshare moon\n",
    ] {
        fs::write(dir(&ground).join("format"), mark).expect("written");
        assert!(matches!(refused(&ground).await, Error::Engine { .. }));
    }
    fs::write(dir(&ground).join("format"), "leasehold file store\nformat 1\nshare private\n")
        .expect("written");
    fs::write(dir(&ground).join("floor"), "many\n").expect("written");
    fs::remove_dir_all(boot_dir(&dir(&ground))).expect("a new boot");
    let error = refused(&ground).await;
    assert!(error.to_string().contains("damaged") && error.to_string().contains("floor"), "{error}");
}

async fn a_file_in_place_of_the_directory_is_refused(ground: Ground) {
    fs::write(dir(&ground), b"").expect("a file");
    let error = refused(&ground).await;
    assert!(
        matches!(error, Error::Invalid { .. }) && error.to_string().contains("not a directory"),
        "{error}"
    );
}

async fn a_client_in_another_time_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    let program = std::env::current_exe().expect("this binary");
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--time", "--boottime", "1000"])
        .arg(program)
        .args(["child", ground.url()]);
    let output = command.stdin(Stdio::null()).output().await.expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("refused") && said.contains("time namespace"), "{said}");
}

async fn an_unknown_option_is_refused(ground: Ground) {
    let error =
        leasehold::connect(&format!("{}?shared=yes", ground.url())).await.expect_err("no such option");
    assert!(error.to_string().contains("share=group"), "{error}");
}
