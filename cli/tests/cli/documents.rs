//! Completions and the manual page.

use super::*;

#[test]
fn the_manual_has_every_command_and_every_code() {
    let page = Bench::new().leasehold(["man"]).gives(0).stdout;
    let words = [
        "RUN",
        "HOLD",
        "ELECT",
        "LIMIT",
        "ONCE",
        "LS",
        "SHOW",
        "BREAK",
        "WATCH",
        "EXIT CODES",
        "LEASEHOLD_TOKEN",
        "\n\\&76 ",
        "\n\\&127 ",
    ];
    for words in words.into_iter().chain(["redis://10.0.0.7/", "EXAMPLES"]) {
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
    assert_eq!(bench.leasehold(["-V"]).gives(0).stdout.lines().count(), 1);
    let version = bench.leasehold(["--version"]).gives(0).stdout;
    assert!(version.starts_with("leasehold ") && version.contains("\nengines: "), "{version}");
    #[cfg(feature = "redis-tls")]
    for engine in ["file:", "redis:", "rediss:", "redis+sentinel:", "redis+cluster:", "redlock:"] {
        assert!(version.contains(engine), "{version}");
    }
    for help in [bench.leasehold(["--help"]), bench.leasehold(["run", "--help"])] {
        assert!(help.stdout.contains("--on redis://10.0.0.7/"), "{help:?}");
    }
    let help = bench.leasehold(["run", "--help"]).gives(0).stdout;
    assert!(help.contains("Exit codes:") && help.contains("--exit-if-busy"), "{help}");
    assert_eq!(help, bench.leasehold(["help", "run"]).gives(0).stdout);
}
