//! An ensemble whose members can be cut off from each other.

use std::net::Ipv4Addr;

use super::super::port::Port;
use super::super::proxy::Proxy;
use super::{Ensemble, ZooKeeper};

/// An ensemble with a line from each member to each other one.
///
/// Members tell each other where they are. They know each other by names of hosts, which mean
/// something else to each of them: `m2` is 127.0.1.2 for the member 1, and a proxy listens there.
pub(crate) struct DividedEnsemble {
    ensemble: Ensemble,
    lines: Vec<Line>,
}

/// What leads from one member to another.
struct Line {
    from: usize,
    to: usize,
    proxy: Proxy,
}

/// How a member is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Its connections are reset, and new ones are refused.
    Loudly,
    /// What is said to it and by it does not arrive.
    Silently,
}

impl DividedEnsemble {
    /// An ensemble that has a leader.
    pub(crate) fn start(count: usize) -> DividedEnsemble {
        let ports: Vec<(Port, Port)> = (0..count).map(|_| (Port::reserve(), Port::reserve())).collect();
        let numbers: Vec<(u16, u16)> =
            ports.iter().map(|(peer, election)| (peer.number(), election.number())).collect();
        let mut lines = Vec::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let (peer, election) = numbers[to];
                for port in [peer, election] {
                    let proxy = Proxy::start_beside(address(from, to), port);
                    lines.push(Line { from, to, proxy });
                }
            }
        }
        let members = numbers
            .iter()
            .enumerate()
            .map(|(number, (peer, election))| format!("server.{0}=m{0}:{peer}:{election}", number + 1));
        let members = members.collect::<Vec<_>>().join("\n");
        let member = |(number, ports)| {
            let host = |other: usize| format!("{} m{}\n", address(number, other), other + 1);
            let hosts: String = (0..count).map(host).collect();
            ZooKeeper::member_that_knows(hosts, number + 1, ports, members.clone())
        };
        let members = ports.into_iter().enumerate().map(member).collect();
        DividedEnsemble { ensemble: Ensemble { members }.run(), lines }
    }

    /// The number of the member that leads.
    pub(crate) fn leader(&self) -> usize {
        let leader = self.ensemble.leader().port();
        self.ensemble.members.iter().position(|member| member.port() == leader).expect("a member")
    }

    pub(crate) fn member(&self, number: usize) -> &ZooKeeper {
        &self.ensemble.members[number]
    }

    /// `HOST:PORT` of some members.
    pub(crate) fn hosts(&self, members: &[usize]) -> String {
        let hosts = members.iter().map(|member| format!("127.0.0.1:{}", self.member(*member).port()));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Cuts one member off from all others. Clients still reach it.
    pub(crate) fn cut_off(&self, member: usize, how: Cut) {
        for line in self.lines.iter().filter(|line| line.from == member || line.to == member) {
            match how {
                Cut::Loudly => line.proxy.cut(),
                Cut::Silently => line.proxy.stall(),
            }
        }
    }

    /// Everybody reaches everybody.
    pub(crate) fn heal(&self) {
        for line in &self.lines {
            line.proxy.pass();
        }
        self.ensemble.wait_until_it_serves();
    }
}

/// Where one member reaches another; itself where it is.
fn address(from: usize, to: usize) -> Ipv4Addr {
    if from == to {
        return Ipv4Addr::LOCALHOST;
    }
    let number = |member: usize| u8::try_from(member + 1).expect("few members");
    Ipv4Addr::new(127, 0, number(from), number(to))
}
