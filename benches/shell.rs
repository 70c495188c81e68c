//! What `leasehold run` costs a shell script, beside flock(1).
//!
//! ```text
//! cargo install-static
//! cargo bench -p leasehold --bench shell                 # a quarter of a minute
//! cargo bench -p leasehold --bench shell -- --quick --leasehold PATH
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use kit::{Goal, Result};

mod kit;

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shell: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps this program and all that it starts on one core: where a child lands decides more than
/// what it does.
fn pin() -> Result<()> {
    let here = rustix::thread::sched_getcpu();
    let mut core = rustix::thread::CpuSet::new();
    core.set(here);
    rustix::thread::sched_setaffinity(None, &core)?;
    Ok(())
}

fn run(arguments: &[String]) -> Result<()> {
    let leasehold = match kit::value_after(arguments, "--leasehold") {
        Some(path) => PathBuf::from(path),
        None => beside_this_program()?,
    };
    pin()?;
    let rounds = if arguments.iter().any(|argument| argument == "--quick") { 200 } else { 2_000 };
    let dir = tempfile::tempdir()?;
    // Installed, as it will be used: a program that the linker has just written is kept in memory
    // in small pieces, which costs each start a third of a millisecond until the machine reads it
    // anew.
    let installed = dir.path().join("leasehold");
    std::fs::copy(&leasehold, &installed)?;
    let mut commands = [
        command(Path::new("true"), &[]),
        command(Path::new("flock"), &[&dir.path().join("file").display().to_string(), "true"]),
        command(
            &installed,
            &["run", "--on", &format!("file:{}", dir.path().join("store").display()), "x", "--", "true"],
        ),
    ];
    let mut times: [Vec<f64>; 3] = Default::default();
    for command in &mut commands {
        microseconds(command)?;
    }
    for _ in 0..rounds {
        for (command, times) in commands.iter_mut().zip(&mut times) {
            times.push(microseconds(command)?);
        }
    }
    let over = |times: &[f64], base: &[f64]| {
        kit::median(times.iter().zip(base).map(|(time, base)| time - base).collect())
    };
    let (flock, ours) = (over(&times[1], &times[0]), over(&times[2], &times[0]));
    println!("\nshell, median of {rounds} runs in turns");
    println!("  true                            {:>6.0} µs", kit::median(times[0].clone()));
    println!("  flock FILE true                 {flock:>6.0} µs over `true`");
    println!("  leasehold run NAME -- true      {ours:>6.0} µs over `true`");
    kit::verdict("leasehold / flock, over `true`", Goal::AtMost(1.5), ours / flock);
    Ok(())
}

/// The command-line program of the same build.
fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    // This is TARGET/release/deps/shell-HASH.
    let target = program.ancestors().nth(3).ok_or("this program is not in a target directory")?;
    let found = target.join("x86_64-unknown-linux-gnu/release/leasehold");
    if !found.exists() {
        return Err(format!(
            "no `{}`: `cargo install-static` makes it, or give `--leasehold PATH`",
            found.display()
        )
        .into());
    }
    Ok(found)
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn microseconds(command: &mut Command) -> Result<f64> {
    let started = Instant::now();
    let status = command.status()?;
    let elapsed = started.elapsed();
    if status.success() {
        Ok(elapsed.as_secs_f64() * 1e6)
    } else {
        Err(format!("`{}` ended with {status}", command.get_program().display()).into())
    }
}
