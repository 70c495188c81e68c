//! How often a fail-over makes two holders, and whether the fence holds.
//!
//! ```text
//! cargo bench -p leasehold --features redis --bench failover              # 200 fail-overs of each kind
//! cargo bench -p leasehold --features redis --bench failover -- 20 wait=2 # or as many as you like, of one kind
//! ```
//!
//! Each time, a primary with two replicas behind sentinels is killed at the worst moment: right
//! after it has said that a lock is granted. In a quarter of the cases both replicas hear of
//! everything 0 to 5 ms late, in a quarter neither hears of the grant, and in the others one of
//! them does not. As soon as a replica has taken over, another client asks for the same lock. If it
//! gets it while the first one still believes that it holds it, there are two holders; both then
//! write to something that checks their tokens.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Fence, Guard, Standing, Token};
use servers::{Proxy, Redis};

#[path = "../tests/servers/mod.rs"]
mod servers;

const FAIL_OVERS: usize = 200;
const AT_ONCE: usize = 6;
const LEASE: Duration = Duration::from_secs(20);
const NAME: &str = "stock";

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(FAIL_OVERS);
    let only = std::env::args().find_map(|argument| argument.strip_prefix("wait=").map(str::to_owned));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("a primary is killed right after it granted a lock; {wanted} fail-overs of each kind");
    let mut fenced = true;
    for policy in
        ["none", "majority", "2"].into_iter().filter(|policy| only.as_ref().is_none_or(|only| only == policy))
    {
        let mut sum = Sum::default();
        let mut left = wanted;
        while left > 0 {
            let batch: Vec<_> =
                (0..left.min(AT_ONCE)).map(|at| runtime.spawn(fail_over(policy, left - at))).collect();
            left -= batch.len();
            for ended in batch {
                sum.add(&runtime.block_on(ended).expect("no panic"));
            }
        }
        sum.print(policy);
        fenced &= sum.refused == sum.two_holders && sum.tokens_fell == 0;
    }
    if fenced { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What came of one fail-over.
#[derive(Default)]
struct Outcome {
    /// The first client got the lock; otherwise it was told that too few replicas had heard of it.
    granted: bool,
    /// The second client got it although the first one had not lost it.
    two_holders: bool,
    /// The write of the first one, after that of the second, was refused.
    refused: bool,
    /// The second one's token was not the greater one.
    token_fell: bool,
    overlap: Duration,
    took: Duration,
}

#[derive(Default)]
struct Sum {
    all: usize,
    granted: usize,
    two_holders: usize,
    refused: usize,
    tokens_fell: usize,
    overlap: Duration,
    took: Duration,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.all += 1;
        self.granted += usize::from(outcome.granted);
        self.two_holders += usize::from(outcome.two_holders);
        self.refused += usize::from(outcome.two_holders && outcome.refused);
        self.tokens_fell += usize::from(outcome.token_fell);
        self.overlap = self.overlap.max(outcome.overlap);
        self.took += outcome.took;
    }

    fn print(&self, policy: &str) {
        let Sum { all, granted, two_holders, refused, tokens_fell, overlap, took } = self;
        let rate = *two_holders as f64 / *all as f64 * 100.0;
        let took = *took / u32::try_from(*all).unwrap_or(1);
        println!(
            "  wait={policy:<9} {all} fail-overs ({took:.1?} each), {granted} locks granted before; two holders {two_holders} times \
             ({rate:.1} %), for {overlap:.1?} at most; late writes refused {refused} of {two_holders}, tokens that fell {tokens_fell}"
        );
    }
}

/// A primary, two replicas that lag behind, and sentinels.
struct Fleet {
    primary: Redis,
    replicas: Vec<Redis>,
    sentinels: Vec<Redis>,
    /// From the primary to each replica.
    lines: Vec<Proxy>,
}

impl Fleet {
    fn start(number: usize) -> Fleet {
        let primary = Redis::start();
        let lines: Vec<Proxy> = (0..2).map(|_| Proxy::start(primary.port())).collect();
        let replica = |line: &Proxy| {
            let of = format!("127.0.0.1 {}", line.port());
            Redis::start_with(&["--replicaof", &of, "--repl-diskless-sync-delay", "0"])
        };
        let replicas: Vec<Redis> = lines.iter().map(replica).collect();
        for replica in &replicas {
            servers::until("a replica is in step", || {
                replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
        }
        servers::until("both replicas count", || {
            primary.command(&["INFO", "replication"]).text().matches("state=online").count() == 2
        });
        for (at, line) in lines.iter().enumerate() {
            // Always different, and the same in every run.
            line.delay(Duration::from_micros((number * 7919 + at * 104_729) as u64 % 5000));
        }
        let sentinels: Vec<Redis> = (0..3)
            .map(|_| {
                Redis::start_sentinel(&[
                    &format!("sentinel monitor {NAME} 127.0.0.1 {} 2", primary.port()),
                    &format!("sentinel down-after-milliseconds {NAME} 500"),
                    &format!("sentinel failover-timeout {NAME} 3000"),
                ])
            })
            .collect();
        for sentinel in &sentinels {
            servers::until("a sentinel knows the replicas", || {
                let facts = sentinel.command(&["SENTINEL", "MASTER", NAME]).texts();
                facts.windows(2).any(|fact| fact == ["num-slaves", "2"])
            });
        }
        Fleet { primary, replicas, sentinels, lines }
    }

    fn url(&self, policy: &str) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{NAME}?wait={policy}", hosts.join(","))
    }

    /// Kills the primary and has it replaced, without waiting for the sentinels to notice.
    fn replace(&self) {
        self.primary.kill();
        self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]);
    }
}

async fn fail_over(policy: &'static str, number: usize) -> Outcome {
    let fleet = tokio::task::spawn_blocking(move || Fleet::start(number)).await.expect("servers");
    let url = fleet.url(policy);
    let client = async || leasehold::connect(&url).await.expect("the servers are there");
    let (one, two) = (client().await, client().await);
    // The name is in use, and its counter has a past.
    for _ in 0..3 {
        lock(&one).await.expect("all is well").release().await.expect("held");
    }
    // What is on its way to a replica now does not arrive.
    for (at, line) in fleet.lines.iter().enumerate() {
        if number & (1 << at) != 0 {
            line.stall();
        }
    }
    let first = lock(&one).await;
    let started = Instant::now();
    let fleet = tokio::task::spawn_blocking(move || {
        fleet.replace();
        fleet
    });
    let (second, first_believed) = taken_over(&two, first.as_ref().ok()).await;
    let mut outcome = Outcome { granted: first.is_ok(), took: started.elapsed(), ..Outcome::default() };
    if let (Ok(first), Some(second)) = (&first, &second) {
        let (older, newer): (Token, Token) = (first.token(), second.token());
        outcome.token_fell = newer <= older;
        if first_believed {
            let fence = Fence::new();
            fence.admit(newer).expect("the first write");
            outcome.two_holders = true;
            outcome.refused = fence.admit(older).is_err();
            let granted = Instant::now();
            first.lost().await;
            outcome.overlap = granted.elapsed();
        }
    }
    drop((first, second));
    let fleet = fleet.await.expect("no panic");
    drop((one, two));
    tokio::task::spawn_blocking(move || drop((fleet.replicas, fleet.sentinels))).await.expect("no panic");
    outcome
}

async fn lock(client: &Client) -> Result<Guard, Error> {
    client.mutex("x").expect("a name").lease(LEASE).lock().await
}

/// Asks a replica that took over for the same lock. The guard, unless the replica knows that it is
/// held, and whether the first holder believed to hold it at that moment.
async fn taken_over(client: &Client, first: Option<&Guard>) -> (Option<Guard>, bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    let mutex = client.mutex("x").expect("a name").lease(LEASE);
    loop {
        let answer = mutex.try_lock().await;
        let believed = first.is_some_and(|first| first.standing() != Standing::Lost);
        match answer {
            Ok(Some(second)) => return (Some(second), believed),
            // Before the end this may be the word of the one that is being killed; afterwards it is
            // the replica's.
            Ok(None) if client_is_elsewhere(client).await => return (None, believed),
            Ok(None) => {}
            // With one server less there are too few copies for anybody.
            Err(error) if error.to_string().contains("replicas that are needed") => return (None, believed),
            // The sentinels find no replica that they trust, after both were cut off.
            Err(_) if Instant::now() > limit => return (None, believed),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// A lock that nobody wants is given by a server that lives: the old primary is dead by now.
async fn client_is_elsewhere(client: &Client) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = client.mutex("y").expect("a name").try_lock().await;
    other.is_ok_and(|other| other.is_some())
}
