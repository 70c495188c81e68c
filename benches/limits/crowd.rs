//! Eight processes of eight tasks on one name, and a proof that they were kept apart.
//!
//! Each section adds one to a number in a plain file, by reading and writing it with no protection
//! but the lock, and appends its token to a log. When a hundred thousand have been counted, the
//! number, the tokens and the times must all tell the same story.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::Plan;
use crate::kit::{self, Result};

const PROCESSES: usize = 8;
const TASKS: usize = 8;

/// One section: its token, when it was granted and when it was over, and how long its task had
/// waited for it.
///
/// Times are in nanoseconds since the machine started.
struct Section {
    token: u64,
    granted: u64,
    ended: u64,
    waited: u64,
}

pub(crate) fn run(plan: Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let counter = dir.path().join("counter");
    std::fs::write(&counter, 0_u64.to_le_bytes())?;
    let children: Vec<Vec<String>> = (0..PROCESSES)
        .map(|index| {
            let (dir, sections) = (dir.path().display().to_string(), plan.sections.to_string());
            vec!["--child-crowd".into(), dir, index.to_string(), sections]
        })
        .collect();
    println!("\nfile, {PROCESSES} processes × {TASKS} tasks on one name");
    let mut all = Vec::new();
    let mut per_process = Vec::new();
    for (index, lines) in kit::together(&children)?.iter().enumerate() {
        let sections = lines.iter().map(|line| Section::parse(line)).collect::<Result<Vec<_>>>()?;
        check_log(&log_path(dir.path(), index), &sections)?;
        per_process.push(sections.len() as f64);
        all.extend(sections);
    }
    all.sort_unstable_by_key(|section| section.token);
    check_counts(&counter, &all, plan.sections)?;
    check_order(&all)?;

    let first = all.iter().map(|section| section.granted).min().unwrap_or(0);
    let last = all.iter().map(|section| section.ended).max().unwrap_or(0);
    let elapsed = Duration::from_nanos(last - first);
    let mut waits: Vec<u64> = all.iter().map(|section| section.waited).collect();
    waits.sort_unstable();
    let wait = |part: f64| Duration::from_nanos(waits[((waits.len() - 1) as f64 * part) as usize]);
    println!(
        "  {} sections in {elapsed:.1?}: {:.1} µs each; none lost, none overlapping, tokens in the order of the grants",
        kit::thousands(all.len() as f64),
        elapsed.as_secs_f64() * 1e6 / all.len() as f64,
    );
    println!("  sections per process {}, spread {:.2}", kit::range(&per_process), kit::spread(&per_process));
    println!("  wait: half {:.2?}, 99 % {:.2?}, longest {:.2?}", wait(0.5), wait(0.99), wait(1.0));
    Ok(())
}

/// The number in the file and the number of sections are what was asked for.
fn check_counts(counter: &Path, all: &[Section], asked: u64) -> Result<()> {
    let counted = read_counter(&File::open(counter)?)?;
    if counted != asked || all.len() as u64 != asked {
        let found = all.len();
        return Err(
            format!("{asked} sections were asked for, {found} were held, {counted} were counted").into()
        );
    }
    Ok(())
}

/// Sorted by token, no section starts before the one before it is over.
fn check_order(all: &[Section]) -> Result<()> {
    for pair in all.windows(2) {
        let [before, after] = pair else { continue };
        if before.token == after.token {
            return Err(format!("token {} was given twice", after.token).into());
        }
        if after.granted < before.ended {
            let early = before.ended - after.granted;
            return Err(format!(
                "token {} was held {early} ns before {} was over",
                after.token, before.token
            )
            .into());
        }
    }
    Ok(())
}

/// The log of a process has the tokens of its sections, in order.
fn check_log(path: &Path, sections: &[Section]) -> Result<()> {
    let log = std::fs::read(path)?;
    let logged: Vec<u64> = log.as_chunks::<8>().0.iter().map(|token| u64::from_le_bytes(*token)).collect();
    let mut held: Vec<u64> = sections.iter().map(|section| section.token).collect();
    held.sort_unstable();
    if logged == held {
        Ok(())
    } else {
        Err(format!("`{}` is not the log of its process", path.display()).into())
    }
}

fn log_path(dir: &Path, process: usize) -> PathBuf {
    dir.join(format!("log-{process}"))
}

fn read_counter(file: &File) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

/// One of the processes: `DIR INDEX SECTIONS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [dir, index, sections] = arguments else { return Err("DIR INDEX SECTIONS".into()) };
    let (dir, sections) = (Path::new(dir), sections.parse()?);
    let files = Arc::new(Files {
        counter: OpenOptions::new().read(true).write(true).open(dir.join("counter"))?,
        log: OpenOptions::new().append(true).create(true).open(log_path(dir, index.parse()?))?,
    });
    let done = kit::two_threads()?.block_on(async {
        let client = leasehold::connect(&format!("file:{}", dir.join("store").display())).await?;
        let mutex = client.mutex("stock/42")?;
        kit::ready()?;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(take_part(mutex.clone(), Arc::clone(&files), sections)))
            .collect();
        let mut done = Vec::new();
        for task in tasks {
            done.extend(task.await??);
        }
        client.close().await?;
        kit::Result::Ok(done)
    })?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for Section { token, granted, ended, waited } in done {
        writeln!(out, "{token} {granted} {ended} {waited}")?;
    }
    Ok(out.flush()?)
}

/// What the lock protects.
struct Files {
    counter: File,
    log: File,
}

/// Takes sections until enough have been counted.
async fn take_part(mutex: Mutex, files: Arc<Files>, enough: u64) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    loop {
        let asked = now();
        let guard = mutex.lock().await?;
        let granted = now();
        let count = read_counter(&files.counter)?;
        if count >= enough {
            guard.release().await?;
            return Ok(sections);
        }
        let token = guard.token().get();
        files.counter.write_all_at(&(count + 1).to_le_bytes(), 0)?;
        (&files.log).write_all(&token.to_le_bytes())?;
        let ended = now();
        guard.release().await?;
        sections.push(Section { token, granted, ended, waited: granted - asked });
    }
}

/// Nanoseconds since the machine started: the same for all processes.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

impl Section {
    fn parse(line: &str) -> Result<Section> {
        let numbers =
            line.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
        let [token, granted, ended, waited] = numbers[..] else {
            return Err(format!("bad line `{line}`").into());
        };
        Ok(Section { token, granted, ended, waited })
    }
}
