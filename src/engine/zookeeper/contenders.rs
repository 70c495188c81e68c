//! The nodes of those who contend for a raw name, as the clients of others write them.
//!
//! | client | node |
//! | --- | --- |
//! | Curator, `InterProcessMutex` | `_c_UUID-lock-0000000007` |
//! | Curator, `InterProcessReadWriteLock` | `_c_UUID-__READ__0000000007`, `_c_UUID-__WRIT__0000000008` |
//! | Curator, `LeaderLatch` | `_c_UUID-latch-0000000007` |
//! | Curator, `InterProcessSemaphoreV2` | `locks/_c_UUID-lock-0000000007`, `leases/_c_UUID-lease-0000000008` |
//! | kazoo, `Lock` and `Election`, `ReadLock` | `HEX__lock__0000000007`, `HEX__rlock__0000000007` |
//! | go-zookeeper, `Lock` | `_c_HEX-lock-0000000007` |
//!
//! Whoever has the lowest number holds the name, together with the readers after it.

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Read,
    All,
}

/// A node of somebody who contends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) node: String,
    pub(super) wants: Wants,
    number: i32,
}

const MARKS: [(&str, Wants); 7] = [
    ("lock-", Wants::All),
    ("__lock__", Wants::All),
    ("__WRIT__", Wants::All),
    ("__READ__", Wants::Read),
    ("__rlock__", Wants::Read),
    ("latch-", Wants::All),
    ("lease-", Wants::All),
];

impl Contender {
    /// Reads the name of a node; `None` if it is not that of a contender.
    pub(super) fn parse(node: &str) -> Option<Contender> {
        let (digits, wants) = MARKS.iter().find_map(|(mark, wants)| {
            let (_, digits) = node.rsplit_once(mark)?;
            Some((digits, *wants))
        })?;
        if digits.strip_prefix('-').unwrap_or(digits).len() != 10 {
            return None;
        }
        Some(Contender { node: node.to_owned(), wants, number: digits.parse().ok()? })
    }

    /// Whether it came before another. Numbers start again below zero after two thousand million.
    pub(super) fn is_before(&self, other: &Contender) -> bool {
        self.number.wrapping_sub(other.number) < 0
    }
}

/// All who contend, the first one first.
pub(super) fn in_order(children: &[String]) -> Vec<Contender> {
    let mut all: Vec<Contender> = children.iter().filter_map(|node| Contender::parse(node)).collect();
    let Some(from) = all.first().map(|contender| contender.number) else { return all };
    all.sort_by_key(|contender| contender.number.wrapping_sub(from));
    all
}

/// Whom somebody waits for: the last one before it who is in its way.
pub(super) fn waits_for<'a>(own: &Contender, all: &'a [Contender]) -> Option<&'a Contender> {
    let is_in_the_way =
        |other: &&Contender| other.is_before(own) && (own.wants == Wants::All || other.wants == Wants::All);
    all.iter().rfind(is_in_the_way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|&node| node.to_owned()).collect()
    }

    #[test]
    fn the_nodes_of_others_are_known() {
        let wants = |node: &str| Contender::parse(node).map(|contender| (contender.wants, contender.number));
        let uuid = "_c_9b8a3f0e-0000-4000-8000-000000000001";
        assert_eq!(wants(&format!("{uuid}-lock-0000000007")), Some((Wants::All, 7)));
        assert_eq!(wants("_c_0123456789abcdef0123456789abcdef-lock-0000000008"), Some((Wants::All, 8)));
        assert_eq!(wants("0123456789abcdef__lock__0000000009"), Some((Wants::All, 9)));
        assert_eq!(wants("0123456789abcdef__rlock__0000000009"), Some((Wants::Read, 9)));
        assert_eq!(wants(&format!("{uuid}-__READ__0000000003")), Some((Wants::Read, 3)));
        assert_eq!(wants(&format!("{uuid}-__WRIT__-2147483648")), Some((Wants::All, i32::MIN)));
        assert_eq!(wants(&format!("{uuid}-lock--2147483648")), Some((Wants::All, i32::MIN)));
        assert_eq!(wants(&format!("{uuid}-latch-0000000005")), Some((Wants::All, 5)));
        assert_eq!(wants(&format!("{uuid}-lease-0000000006")), Some((Wants::All, 6)));
        for other in
            ["locks", "lock-", "lock-12", "leases", "lock-00000000x1", "x-72057594037927936-0000000001"]
        {
            assert_eq!(wants(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_wrap_around() {
        let all = in_order(&children(&["c-lock--2147483647", "a-lock-2147483647", "b-lock--2147483648"]));
        let nodes: Vec<&str> = all.iter().map(|contender| &contender.node[..1]).collect();
        assert_eq!(nodes, ["a", "b", "c"]);
        assert_eq!(waits_for(&all[2], &all).map(|other| &other.node[..1]), Some("b"));
        assert_eq!(waits_for(&all[0], &all), None);
    }

    #[test]
    fn readers_wait_for_writers_only() {
        let all = in_order(&children(&[
            "a-__READ__0000000001",
            "b-__READ__0000000002",
            "c-__WRIT__0000000003",
            "d-__READ__0000000004",
            "e-__READ__0000000005",
        ]));
        let waits = |number: usize| waits_for(&all[number], &all).map(|other| &other.node[..1]);
        assert_eq!(
            [waits(0), waits(1), waits(2), waits(3), waits(4)],
            [None, None, Some("b"), Some("c"), Some("c")]
        );
    }
}
