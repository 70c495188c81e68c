//! Shared claims: many workers of one process on a semaphore and on a read-mostly lock, beside
//! Redisson; and two processes beside each other.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Options};

use crate::kit::{self, Goal, Result};
use crate::pin;
use crate::servers::Redis;

const PERMITS: u32 = 10;
const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_millis(1000);
/// A JVM compiles what it has run often enough.
const WARM_UP: Duration = Duration::from_secs(5);

/// What the workers of one round did.
pub(crate) struct Sample {
    pub(crate) rate: f64,
    spread: f64,
    longest: Duration,
}

impl Sample {
    fn new(counts: &[f64], longest: Duration, took: Duration) -> Sample {
        Sample { rate: counts.iter().sum::<f64>() / took.as_secs_f64(), spread: kit::spread(counts), longest }
    }
}

/// What is taken and given back.
#[derive(Clone, Copy)]
enum Kind {
    Mutex,
    Semaphore(u32),
    ReadMostly,
}

/// The same rule as in Peer.java: every tenth section writes, in no regular order.
fn writes(worker: usize, section: u64) -> bool {
    ((worker as u64 * 7919 + section).wrapping_mul(2_654_435_761) >> 16).is_multiple_of(10)
}

/// One worker, until `end`: its sections, and the longest wait.
async fn work(
    client: Client,
    kind: Kind,
    worker: usize,
    hold: Duration,
    end: Instant,
) -> Result<(f64, Duration)> {
    let mutex = client.mutex("mutex")?;
    let permits = if let Kind::Semaphore(permits) = kind { permits } else { 1 };
    let semaphore = client.semaphore(&format!("semaphore of {permits}"), permits)?;
    let rwlock = client.rwlock("rwlock")?;
    let (mut sections, mut longest) = (0, Duration::ZERO);
    loop {
        let before = Instant::now();
        if before >= end {
            return Ok((sections as f64, longest));
        }
        let mut granted = async || {
            longest = longest.max(before.elapsed());
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
        };
        match kind {
            Kind::Mutex => {
                let guard = mutex.lock().await?;
                granted().await;
                guard.release().await?;
            }
            Kind::Semaphore(_) => {
                let guard = semaphore.acquire().await?;
                granted().await;
                guard.release().await?;
            }
            Kind::ReadMostly if writes(worker, sections) => {
                let guard = rwlock.write().await?;
                granted().await;
                guard.release().await?;
            }
            Kind::ReadMostly => {
                let guard = rwlock.read().await?;
                granted().await;
                guard.release().await?;
            }
        }
        sections += 1;
    }
}

/// The sections of each worker, and the longest wait of all.
async fn crowd(
    client: &Client,
    kind: Kind,
    workers: usize,
    hold: Duration,
    end: Instant,
) -> Result<(Vec<f64>, Duration)> {
    let tasks: Vec<_> =
        (0..workers).map(|worker| tokio::spawn(work(client.clone(), kind, worker, hold, end))).collect();
    let (mut counts, mut longest) = (Vec::new(), Duration::ZERO);
    for task in tasks {
        let (count, wait) = task.await??;
        counts.push(count);
        longest = longest.max(wait);
    }
    Ok((counts, longest))
}

fn ours(url: &str, options: &Options, kind: Kind, workers: usize) -> Result<Sample> {
    kit::one_thread()?.block_on(async {
        let client = leasehold::connect_with(url, options.clone()).await?;
        let start = Instant::now();
        let (counts, longest) = crowd(&client, kind, workers, Duration::ZERO, start + SLICE).await?;
        Ok(Sample::new(&counts, longest, start.elapsed()))
    })
}

/// Redisson in a JVM of its own. Dropped, it ends.
pub(crate) struct Redisson {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Redisson {
    /// Builds and starts it; `None` where there is no Java.
    pub(crate) fn start(port: u16) -> Result<Option<Redisson>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("redisson");
        for (program, question) in [("java", "-version"), ("mvn", "--version")] {
            let asked =
                Command::new(program).arg(question).stdout(Stdio::null()).stderr(Stdio::null()).status();
            match asked {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    println!("\nno `{program}` here: Redisson is left out");
                    return Ok(None);
                }
                Err(error) => return Err(format!("{program}: {error}").into()),
            }
        }
        let (jar, libraries) = (folder.join("target/peer.jar"), folder.join("target/classpath"));
        if is_stale(&jar, &folder)? {
            println!("\nMaven builds benches/peers/redisson");
            let built = Command::new("mvn").args(["-q", "-B", "package"]).current_dir(&folder).status()?;
            if !built.success() {
                return Err("mvn package failed in benches/peers/redisson".into());
            }
        }
        let mut child = Command::new("java")
            .arg("-cp")
            .arg(format!("{}:{}/*", jar.display(), libraries.display()))
            .args(["Peer", &port.to_string(), &PERMITS.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = child.stdin.take().ok_or("no input")?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut redisson = Redisson { child, told, says };
        if redisson.line()? != "ready" {
            return Err("Redisson did not start".into());
        }
        Ok(Some(redisson))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    pub(crate) fn run(&mut self, kind: &str, workers: usize, slice: Duration) -> Result<Sample> {
        let start = Instant::now();
        writeln!(self.told, "{kind} {workers} {}", slice.as_millis())?;
        let line = self.line()?;
        let took = start.elapsed();
        match kit::numbers(&line)?.as_slice() {
            [longest, counts @ ..] if counts.len() == workers => {
                Ok(Sample::new(counts, Duration::from_secs_f64(longest / 1e3), took))
            }
            _ => Err(format!("Redisson said `{line}`").into()),
        }
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Whether something that `jar` is made of is newer.
fn is_stale(jar: &Path, folder: &Path) -> Result<bool> {
    if !jar.exists() {
        return Ok(true);
    }
    let built = jar.metadata()?.modified()?;
    let sources = ["pom.xml", "src/main/java/Peer.java"];
    let changed: Result<Vec<bool>> =
        sources.iter().map(|source| Ok(folder.join(source).metadata()?.modified()? > built)).collect();
    Ok(changed?.contains(&true))
}

/// One of those that are compared.
struct Contender {
    label: &'static str,
    who: Who,
    samples: Vec<Sample>,
}

enum Who {
    Leasehold(Options),
    /// By the word for what is taken.
    Redisson(&'static str),
}

impl Contender {
    fn new(label: &'static str, who: Who) -> Contender {
        Contender { label, who, samples: Vec::new() }
    }

    fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        kit::median(self.samples.iter().map(figure).collect())
    }

    /// How much faster it is than another, inside the same round.
    fn ratio(&self, other: &Contender) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        kit::median(pairs.map(|(one, other)| one.rate / other.rate).collect())
    }
}

/// Redisson's objects, by the word for them and by name.
type Theirs = &'static [(&'static str, &'static str)];

/// Workers of one process, ours with and without the hand-over, and Redisson's.
pub(crate) fn one_process(server: &Redis) -> Result<()> {
    const SEMAPHORES: Theirs = &[("semaphore", "RSemaphore"), ("expirable", "RPermitExpirableSemaphore")];
    const LOCKS: Theirs = &[("rwlock", "RReadWriteLock")];
    // A JVM has threads for its workers, its network and its garbage: it may use all cores.
    pin(&[0, 1])?;
    let mut redisson = Redisson::start(server.port())?;
    pin(&[1])?;
    println!("\na semaphore of {PERMITS}, 100 tasks of one process");
    race(server, &mut redisson, Kind::Semaphore(PERMITS), 100, SEMAPHORES)?;
    println!("\na read-write lock, 32 tasks of one process, 90 % readers");
    race(server, &mut redisson, Kind::ReadMostly, 32, LOCKS)
}

/// Lets them run in turns, in another order in each round, and prints what came of it.
fn race(
    server: &Redis,
    redisson: &mut Option<Redisson>,
    kind: Kind,
    workers: usize,
    theirs: Theirs,
) -> Result<()> {
    let url = server.url();
    let mut contenders = vec![
        Contender::new("leasehold", Who::Leasehold(Options::new())),
        Contender::new(
            "leasehold, hand-over off",
            Who::Leasehold(Options::new().hand_over(Duration::ZERO, 0)),
        ),
    ];
    if let Some(redisson) = redisson {
        for (word, label) in theirs {
            redisson.run(word, workers, WARM_UP)?;
            contenders.push(Contender::new(label, Who::Redisson(word)));
        }
    }
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..ROUNDS {
        let mut order: Vec<&mut Contender> = contenders.iter_mut().collect();
        for last in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(last, (random >> 33) as usize % (last + 1));
        }
        for contender in order {
            let sample = match (&contender.who, &mut *redisson) {
                (Who::Leasehold(options), _) => ours(&url, options, kind, workers)?,
                (Who::Redisson(word), Some(redisson)) => redisson.run(word, workers, SLICE)?,
                (Who::Redisson(_), None) => continue,
            };
            contender.samples.push(sample);
        }
    }
    for contender in &contenders {
        println!(
            "  {:<26} {:>9} sections/s, longest wait {:>6.1} ms, spread {:.2}",
            contender.label,
            kit::thousands(contender.median(|sample| sample.rate)),
            contender.median(|sample| sample.longest.as_secs_f64() * 1e3),
            contender.median(|sample| sample.spread),
        );
    }
    let (ours, off) = (&contenders[0], &contenders[1]);
    for their in &contenders[2..] {
        kit::verdict(&format!("leasehold / {}", their.label), Goal::AtLeast(5.0), ours.ratio(their));
    }
    // A tie counts: rounds differ by more than this.
    kit::verdict("leasehold / hand-over off", Goal::AtLeast(0.95), ours.ratio(off));
    kit::verdict("spread of leasehold", Goal::AtMost(1.1), ours.median(|sample| sample.spread));
    Ok(())
}

/// Two processes that want the same, with 16 tasks each.
pub(crate) fn two_processes(server: &Redis) -> Result<()> {
    pin(&[1])?;
    println!("\ntwo processes beside each other, 16 tasks each, sections of 1 ms");
    for (word, label) in
        [("mutex", "mutex"), ("semaphore", "semaphore of 4"), ("rwlock", "readers, every tenth a writer")]
    {
        let child = ["--beside", &server.url(), word].map(str::to_owned).to_vec();
        let mut unfair = Vec::new();
        for _ in 0..3 {
            let answers = kit::together(&[child.clone(), child.clone()])?;
            let numbers: Vec<Vec<f64>> =
                answers.iter().map(|lines| kit::numbers(&lines[0])).collect::<Result<_>>()?;
            let turns: Vec<f64> = numbers.iter().map(|numbers| numbers[1..].iter().sum()).collect();
            println!(
                "  {label:<30} {:>6} and {:>6} turns, longest wait {:>6.1} ms",
                kit::thousands(turns[0]),
                kit::thousands(turns[1]),
                numbers[0][0].max(numbers[1][0]),
            );
            unfair.push(kit::spread(&turns));
        }
        kit::verdict(&format!("{label}: one / other"), Goal::AtMost(2.0), kit::median(unfair));
    }
    Ok(())
}

/// One of the two: prints its longest wait in milliseconds, and the sections of each task.
pub(crate) fn beside(url: &str, word: &str) -> Result<()> {
    const TASKS: usize = 16;
    let kind = match word {
        "mutex" => Kind::Mutex,
        "semaphore" => Kind::Semaphore(4),
        _ => Kind::ReadMostly,
    };
    kit::one_thread()?.block_on(async {
        let client = leasehold::connect(url).await?;
        kit::ready()?;
        let end = Instant::now() + Duration::from_secs(3);
        let (counts, longest) = crowd(&client, kind, TASKS, Duration::from_millis(1), end).await?;
        let counts: Vec<String> = counts.iter().map(f64::to_string).collect();
        println!("{} {}", longest.as_secs_f64() * 1e3, counts.join(" "));
        Ok(())
    })
}
