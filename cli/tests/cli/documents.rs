//! Completions and the manual page.

use super::*;

#[test]
fn the_manual_has_every_command_and_every_code() {
    let page = Bench::new().leasehold(["man"]).gives(0).stdout;
    for words in [
        "RUN",
        "LIMIT",
        "ONCE",
        "LS",
        "SHOW",
        "BREAK",
        "WATCH",
        "EXIT CODES",
        "LEASEHOLD_TOKEN",
        "\n76 ",
        "\n127 ",
    ] {
        assert!(page.contains(words), "no `{words}` in the manual");
    }
}

#[test]
fn completions_are_there_for_every_shell() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = bench.leasehold(["completions", shell]).gives(0).stdout;
        assert!(script.contains("leasehold") && script.contains("no-wait"), "{shell}: {script}");
    }
}

#[test]
fn help_and_version_are_answers_and_not_errors() {
    let bench = Bench::new();
    assert!(bench.leasehold(["--version"]).gives(0).stdout.starts_with("leasehold "));
    let help = bench.leasehold(["run", "--help"]).gives(0).stdout;
    assert!(help.contains("Exit codes:") && help.contains("--exit-if-busy"), "{help}");
    assert_eq!(help, bench.leasehold(["help", "run"]).gives(0).stdout);
}
