//! What became of each occurrence: what nodes wrote down, beside what the record of the task says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::kit::schedule::Outcome;
use leasehold::{Client, Clock as _, SystemClock};

use crate::Result;

pub(crate) struct Judge {
    client: Client,
    /// Missed and lost instants, in seconds: the history only has the last ones.
    missed: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    decided: u64,
    /// When a node was hurt in the middle of its work, in microseconds since boot.
    hurt: Vec<u64>,
}

/// What a node wrote down: an instant, the token, when it was, and how late.
#[derive(Clone, Copy, Debug)]
struct Start {
    instant: u64,
    token: u64,
    at: u64,
    late: u64,
}

impl Start {
    fn read(line: &str) -> Option<Start> {
        let mut words = line.strip_prefix("start ")?.split(' ').map(str::parse);
        let mut number = || words.next()?.ok();
        Some(Start { instant: number()?, token: number()?, at: number()?, late: number()? })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Judge {
    pub(crate) async fn new(url: &str) -> Result<Judge> {
        let client = leasehold::connect(url).await?;
        let (missed, lost) = (BTreeSet::new(), BTreeSet::new());
        Ok(Judge { client, missed, lost, decided: 0, hurt: Vec::new() })
    }

    pub(crate) fn note(&mut self, hurt: Option<u64>) {
        self.hurt.extend(hurt);
    }

    /// Reads the record of the task.
    pub(crate) async fn look(&mut self) -> Result<()> {
        let Some(status) = self.client.schedule("tick").status().await? else { return Ok(()) };
        for past in status.history {
            let instants = seconds(past.scheduled)..=seconds(past.last);
            self.decided = self.decided.max(*instants.end());
            match past.outcome {
                Outcome::Missed { .. } => self.missed.extend(instants),
                Outcome::Lost => self.lost.extend(instants),
                _ => {}
            }
        }
        Ok(())
    }

    /// Says what happened; false if it must not have.
    pub(crate) fn verdict(&self, dir: &Path, hurts: &str) -> Result<bool> {
        let mut starts: Vec<Start> = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "log") {
                starts.extend(fs::read_to_string(path)?.lines().filter_map(Start::read));
            }
        }
        starts.sort_by_key(|start| (start.instant, start.token));
        let (Some(first), Some(last)) = (starts.first(), starts.last()) else {
            println!("nothing ran at all");
            return Ok(false);
        };
        let mut runs: BTreeMap<u64, u32> = BTreeMap::new();
        starts.iter().for_each(|start| *runs.entry(start.instant).or_default() += 1);
        let all = first.instant..=last.instant.max(self.decided);
        let ran = |instant: &u64| runs.contains_key(instant);
        let listed = |instant: &u64| self.missed.contains(instant) || self.lost.contains(instant);
        let twice: Vec<u64> =
            runs.iter().filter(|(_, count)| **count > 1).map(|(instant, _)| *instant).collect();
        let nowhere: Vec<u64> = all.clone().filter(|instant| !ran(instant) && !listed(instant)).collect();
        let both: Vec<u64> = self.missed.iter().filter(|instant| ran(instant)).copied().collect();
        let tokens_back = starts.windows(2).filter(|pair| pair[1].token <= pair[0].token).count();

        let mut late: Vec<u64> = starts.iter().map(|start| start.late).collect();
        late.sort_unstable();
        let mut recovery: Vec<Duration> =
            self.hurt.iter().filter_map(|hurt| recovered(&starts, *hurt)).collect();
        recovery.sort_unstable();
        println!("{hurts}");
        println!(
            "{} occurrences: {} ran, {} missed by policy, {} lost half way",
            all.count(),
            runs.len(),
            self.missed.len(),
            self.lost.len()
        );
        println!("started late by: median {} ms, most {} ms", late[late.len() / 2], late[late.len() - 1]);
        if let (Some(middle), Some(most)) = (recovery.get(recovery.len() / 2), recovery.last()) {
            println!(
                "a node was hurt in the middle of its work {} times; the next occurrence started after: \
                 median {middle:.1?}, most {most:.1?}",
                recovery.len()
            );
        }
        println!("started twice: {}  neither ran nor listed: {}", twice.len(), nowhere.len());
        println!("ran and listed as missed: {}  tokens that went back: {tokens_back}", both.len());
        let sound = twice.is_empty() && nowhere.is_empty() && both.is_empty() && tokens_back == 0;
        if !sound {
            println!("BROKEN: twice {twice:?}, nowhere {nowhere:?}, both {both:?}");
        }
        Ok(sound)
    }
}

/// The node that started something within the last moment.
pub(crate) fn who_works<'a>(logs: impl Iterator<Item = &'a Path>) -> Option<usize> {
    let now = SystemClock.now().as_micros();
    let just = |log: &Path| {
        let text = fs::read_to_string(log).unwrap_or_default();
        let last = text.lines().rev().find_map(Start::read);
        // It may have been written since.
        last.is_some_and(|start| now.saturating_sub(start.at) < 100_000)
    };
    logs.enumerate().find(|(_, log)| just(log)).map(|(number, _)| number)
}

/// How long after a node was hurt anything was started again.
fn recovered(starts: &[Start], hurt: u64) -> Option<Duration> {
    let next = starts.iter().map(|start| start.at).filter(|at| *at > hurt).min()?;
    Some(Duration::from_micros(next - hurt))
}
