//! One checker for everything that contends.
//!
//! A section is what one worker saw: when it asked, when it was granted, when it let go, under
//! which token. Tokens give the order away, so checking is a sort.

/// One use of a name. Times are in microseconds of one clock that all workers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) worker: u64,
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) released: u64,
    pub(crate) token: u64,
    pub(crate) weight: u32,
}

impl Section {
    pub(crate) fn to_line(self) -> String {
        let Section { worker, asked, granted, released, token, weight } = self;
        format!("section {worker} {asked} {granted} {released} {token} {weight}")
    }

    pub(crate) fn from_line(line: &str) -> Option<Section> {
        let mut numbers = line.strip_prefix("section ")?.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Section {
            worker: next()?,
            asked: next()?,
            granted: next()?,
            released: next()?,
            token: next()?,
            weight: u32::try_from(next()?).ok()?,
        })
    }
}

/// What must hold of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How much can be held at the same time.
    pub(crate) capacity: u64,
    /// A token is lower than one of a section that was over so many microseconds before this one
    /// was asked for. Those who share a name pass their claims on inside their process, with tokens
    /// that were reserved before.
    pub(crate) rising_beyond: u64,
    /// Granted in the order of asking, where one asked at least this many microseconds before the
    /// other.
    pub(crate) fifo_beyond: Option<u64>,
}

/// What a history shows, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) sections: usize,
    pub(crate) workers: usize,
    pub(crate) fewest: usize,
    pub(crate) most: usize,
    pub(crate) longest_wait: u64,
}

/// Checks a history; the error names what is wrong.
pub(crate) fn check(sections: &[Section], rules: Rules) -> Result<Summary, String> {
    let mut by_token = sections.to_vec();
    by_token.sort_unstable_by_key(|section| section.token);
    for pair in by_token.windows(2) {
        let [before, after] = pair else { continue };
        if before.token == after.token {
            return Err(format!("token {} was given twice: {before:?} {after:?}", before.token));
        }
        // A grant that was over before another was asked for must have the lower token.
        if after.released + rules.rising_beyond < before.asked {
            return Err(format!("tokens went back: {after:?} was over before {before:?} was asked for"));
        }
        if let Some(slack) = rules.fifo_beyond
            && after.asked + slack < before.asked
        {
            return Err(format!("not first come, first served: {after:?} asked before {before:?}"));
        }
    }

    // At one instant, releases come before grants: a hand-over is not an overlap. A section that
    // ended within the microsecond of its grant stands between the two, its grant first.
    let mut edges = Vec::with_capacity(sections.len() * 2);
    for section in sections {
        let Section { granted, released, token, .. } = *section;
        let (release, grant) = if granted == released { (1, 1) } else { (0, 2) };
        edges.push(((granted, grant, token, false), section));
        edges.push(((released, release, token, true), section));
    }
    edges.sort_unstable_by_key(|(order, _)| *order);
    let mut holders: Vec<&Section> = Vec::new();
    for ((time, _, _, is_release), section) in edges {
        if is_release {
            holders.retain(|holder| *holder != section);
        } else {
            holders.push(section);
        }
        let held: u64 = holders.iter().map(|holder| u64::from(holder.weight)).sum();
        if held > rules.capacity {
            return Err(format!("{held} of {} held at {time}: {holders:?}", rules.capacity));
        }
    }

    let mut per_worker = std::collections::BTreeMap::<u64, usize>::new();
    sections.iter().for_each(|section| *per_worker.entry(section.worker).or_default() += 1);
    Ok(Summary {
        sections: sections.len(),
        workers: per_worker.len(),
        fewest: per_worker.values().copied().min().unwrap_or(0),
        most: per_worker.values().copied().max().unwrap_or(0),
        longest_wait: sections
            .iter()
            .map(|section| section.granted.saturating_sub(section.asked))
            .max()
            .unwrap_or(0),
    })
}

/// Checks the checker: a history with one fault is refused for that fault.
pub(crate) async fn the_checker_finds_what_is_wrong(_: crate::bench::Ground) {
    let section = |worker, asked, granted, released, token| Section {
        worker,
        asked,
        granted,
        released,
        token,
        weight: 1,
    };
    let rules = Rules { capacity: 1, rising_beyond: 0, fifo_beyond: Some(0) };
    let good = [section(1, 0, 1, 5, 10), section(2, 2, 5, 9, 11), section(1, 6, 10, 12, 15)];
    assert_eq!(check(&good, rules).expect("a good history").longest_wait, 4);

    let overlap = [section(1, 0, 1, 5, 10), section(2, 2, 4, 9, 11)];
    assert!(check(&overlap, rules).expect_err("an overlap").contains("2 of 1"));
    let instant = [section(1, 0, 1, 5, 10), section(2, 2, 5, 5, 11), section(1, 5, 5, 9, 12)];
    check(&instant, rules).expect("a section may take less than a microsecond");
    let inside = [section(1, 0, 1, 5, 10), section(2, 2, 4, 4, 11)];
    assert!(check(&inside, rules).expect_err("a short overlap").contains("2 of 1"));
    let twice = [section(1, 0, 1, 5, 10), section(2, 2, 5, 9, 10)];
    assert!(check(&twice, rules).expect_err("a token twice").contains("twice"));
    let back = [section(1, 0, 1, 5, 11), section(2, 6, 7, 9, 10)];
    assert!(check(&back, rules).expect_err("a token back").contains("went back"));
    let jumped = [section(1, 0, 9, 12, 12), section(2, 2, 3, 8, 11)];
    assert!(check(&jumped, rules).expect_err("a queue jumper").contains("first come"));
    let lines: Vec<_> = good.iter().map(|section| Section::from_line(&section.to_line())).collect();
    assert_eq!(lines, good.map(Some));
}
