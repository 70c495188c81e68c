//! etcd: one server, or the members of a cluster.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::port::Port;
use super::process::{find, output};
use super::proxy::Proxy;
use super::server::{Place, Program, Server};
use super::tls::Certificates;
use super::{LIMIT, not_installed, until_within};

/// A server of one's own.
pub(crate) type Etcd = Server<EtcdProgram>;

/// What a server is told when it starts.
pub(crate) struct EtcdProgram {
    name: String,
    peer: Port,
    /// Where the others reach it, if not there.
    reached_at: Option<u16>,
    /// All members, `NAME=URL`.
    members: String,
    arguments: Vec<String>,
    alone: bool,
    /// Clients speak TLS.
    encrypted: bool,
    fsync: Fsync,
}

/// Whether a server waits for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    On,
    /// Killed processes lose nothing without it, and the machine does not crash.
    Off,
}

impl Program for EtcdProgram {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn arguments(&self, place: &Place, command: &mut Command) {
        let scheme = if self.encrypted { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{}", place.port());
        let peer = format!("http://127.0.0.1:{}", self.peer.number());
        command.args(["--name", &self.name, "--data-dir"]).arg(place.data().join("member-data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        let reached_at = format!("http://127.0.0.1:{}", self.reached_at.unwrap_or(self.peer.number()));
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &reached_at]);
        command.args(["--initial-cluster", &self.members, "--initial-cluster-state", "new"]);
        command.args(["--log-level", "warn"]);
        if self.fsync == Fsync::Off {
            command.arg("--unsafe-no-fsync");
        }
        if self.alone {
            // It elects itself at once, and leases may be shorter.
            command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        }
        command.args(&self.arguments);
    }

    fn answers(&self, place: &Place) -> bool {
        if self.encrypted {
            // It listens once it serves.
            return TcpStream::connect(("127.0.0.1", place.port())).is_ok();
        }
        // A member alone can not serve; the others may be started after it.
        if self.alone {
            is_healthy(place.port())
        } else {
            TcpStream::connect(("127.0.0.1", self.peer.number())).is_ok()
        }
    }
}

/// Whether a member has a leader and takes requests.
fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(r#""health":"true""#))
}

impl Etcd {
    /// What must be installed first.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["etcd", "etcdctl", "setpriv"])
    }

    /// A server that answers.
    pub(crate) fn start() -> Etcd {
        Etcd::start_with(&[])
    }

    /// A server with more arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Etcd {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Etcd::start_alone(arguments, false, Fsync::Off)
    }

    /// A server that waits for its disk, or does not.
    pub(crate) fn start_syncing(fsync: Fsync) -> Etcd {
        Etcd::start_alone(Vec::new(), false, fsync)
    }

    /// A server that speaks TLS with clients that have a certificate; `name` is the one it shows.
    pub(crate) fn start_tls(certificates: &Certificates, name: &str) -> Etcd {
        let file = |option: &str, file: &str| format!("--{option}={}", certificates.path(file).display());
        let arguments = vec![
            file("cert-file", &format!("{name}.crt")),
            file("key-file", &format!("{name}.key")),
            file("trusted-ca-file", "ca.crt"),
            "--client-cert-auth".to_owned(),
        ];
        Etcd::start_alone(arguments, true, Fsync::Off)
    }

    fn start_alone(arguments: Vec<String>, encrypted: bool, fsync: Fsync) -> Etcd {
        let peer = Port::reserve();
        let members = format!("m0=http://127.0.0.1:{}", peer.number());
        let name = "m0".to_owned();
        let server = Server::create(EtcdProgram {
            name,
            peer,
            reached_at: None,
            members,
            arguments,
            alone: true,
            encrypted,
            fsync,
        });
        server.run();
        server
    }

    /// The port at which members talk to each other.
    pub(crate) fn peer_port(&self) -> u16 {
        self.program().peer.number()
    }

    /// Whether clients are served at the port at which members talk to each other, too, as they are
    /// by version 3.4.
    pub(crate) fn serves_clients_everywhere(&self) -> bool {
        self.ctl(&["version"]).contains("version: 3.4.")
    }

    /// Whether it has a leader and takes requests.
    pub(crate) fn is_healthy(&self) -> bool {
        is_healthy(self.port())
    }

    /// Its own number as a member and that of the leader, if it answers.
    fn status(&self) -> Option<(u64, u64)> {
        let status = self.try_ctl(&["endpoint", "status", "-w", "json"]).ok()?;
        let number = |field: &str| {
            let (_, rest) = status.split_once(&format!("\"{field}\":"))?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        Some((number("member_id")?, number("leader")?))
    }

    /// What `etcdctl` prints.
    #[track_caller]
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// What `etcdctl` prints, or what went wrong.
    pub(crate) fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        output(self.ctl_command(arguments), 3 * LIMIT)
    }

    /// `etcdctl`, told where this server is.
    pub(crate) fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(find("etcdctl").expect("installed"));
        command.env("ETCDCTL_API", "3");
        command.args(["--endpoints", &format!("127.0.0.1:{}", self.port())]).args(arguments);
        command
    }
}

/// The members of a cluster.
pub(crate) struct EtcdCluster {
    pub(crate) members: Vec<Etcd>,
}

impl EtcdCluster {
    /// A cluster that has a leader.
    pub(crate) fn start(count: usize) -> EtcdCluster {
        EtcdCluster::start_syncing(count, Fsync::Off)
    }

    /// A cluster whose members wait for their disks, or do not.
    pub(crate) fn start_syncing(count: usize, fsync: Fsync) -> EtcdCluster {
        let peers: Vec<Port> = (0..count).map(|_| Port::reserve()).collect();
        let ports: Vec<u16> = peers.iter().map(Port::number).collect();
        EtcdCluster::start_behind(peers, &ports, fsync)
    }

    /// A cluster whose members reach each other at these ports.
    fn start_behind(peers: Vec<Port>, reached_at: &[u16], fsync: Fsync) -> EtcdCluster {
        let urls = reached_at.iter().enumerate();
        let urls: Vec<String> = urls.map(|(n, port)| format!("m{n}=http://127.0.0.1:{port}")).collect();
        let members: Vec<Etcd> = peers
            .into_iter()
            .enumerate()
            .map(|(n, peer)| {
                Server::create(EtcdProgram {
                    name: format!("m{n}"),
                    peer,
                    reached_at: Some(reached_at[n]),
                    members: urls.join(","),
                    arguments: Vec::new(),
                    alone: false,
                    encrypted: false,
                    fsync,
                })
            })
            .collect();
        thread::scope(|scope| members.iter().for_each(|member| drop(scope.spawn(|| member.run()))));
        let cluster = EtcdCluster { members };
        cluster.wait_until_healthy();
        cluster
    }

    pub(crate) fn wait_until_healthy(&self) {
        until_within(6 * LIMIT, "all members are healthy", || self.members.iter().all(Etcd::is_healthy));
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> &Etcd {
        let mut leader = None;
        until_within(3 * LIMIT, "somebody leads", || {
            leader = self.members.iter().find(|member| {
                let status = if member.runs() { member.status() } else { None };
                status.is_some_and(|(id, leader)| id == leader)
            });
            leader.is_some()
        });
        leader.expect("waited for")
    }

    /// `HOST:PORT` of all members.
    pub(crate) fn hosts(&self) -> String {
        let hosts = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port()));
        hosts.collect::<Vec<_>>().join(",")
    }
}

/// A cluster whose members can be cut off from each other.
pub(crate) struct Divided {
    cluster: EtcdCluster,
    /// What leads to each member.
    lines: Vec<Proxy>,
    /// What each member says who it is, when it talks to another.
    names: Vec<&'static str>,
}

impl Divided {
    /// A cluster that has a leader.
    pub(crate) fn start(count: usize) -> Divided {
        let peers: Vec<Port> = (0..count).map(|_| Port::reserve()).collect();
        let lines: Vec<Proxy> = peers.iter().map(|peer| Proxy::start(peer.number())).collect();
        let ports: Vec<u16> = lines.iter().map(Proxy::port).collect();
        let cluster = EtcdCluster::start_behind(peers, &ports, Fsync::Off);
        let name = |member: &Etcd| -> &'static str {
            let (id, _) = member.status().expect("a healthy member");
            format!("X-Server-From: {id:x}").leak()
        };
        let names = cluster.members.iter().map(name).collect();
        Divided { cluster, lines, names }
    }

    /// The number of the member that leads.
    pub(crate) fn leader(&self) -> usize {
        let leader = self.cluster.leader().port();
        self.cluster.members.iter().position(|member| member.port() == leader).expect("a member")
    }

    /// `HOST:PORT` of some members.
    pub(crate) fn hosts(&self, members: &[usize]) -> String {
        let hosts =
            members.iter().map(|&member| format!("127.0.0.1:{}", self.cluster.members[member].port()));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Cuts one member off from all others. Clients still reach it.
    pub(crate) fn cut_off(&self, member: usize) {
        for (number, line) in self.lines.iter().enumerate() {
            if number == member {
                line.cut();
            } else {
                // What the others say among themselves passes. A member that asks says who it is.
                line.stall_requests_from(self.names[member]);
                line.reset();
            }
        }
    }

    /// Everybody reaches everybody.
    pub(crate) fn heal(&self) {
        self.lines.iter().for_each(Proxy::pass);
        self.lines.iter().for_each(Proxy::reset);
        self.cluster.wait_until_healthy();
    }
}
