//! ZooKeeper: one server, or the members of an ensemble.

mod divided;

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use self::divided::{Cut, DividedEnsemble};
use super::clock::Clock;
use super::disk::Disk;
use super::etcd::Fsync;
use super::port::Port;
use super::process::{find, output};
use super::server::{Place, Program, Server};
use super::tls::Certificates;
use super::{LIMIT, not_installed, until_within};

/// A server of one's own.
pub(crate) type ZooKeeper = Server<ZooKeeperProgram>;

/// What a server is told when it starts.
pub(crate) struct ZooKeeperProgram {
    id: usize,
    /// Where this member talks to the others, and where it elects; none for a server alone.
    peer: Option<(Port, Port)>,
    /// All members, as the configuration names them.
    members: String,
    /// The names of hosts that it knows, and no others; all of the machine if none is given.
    hosts: Option<String>,
    /// More lines of the configuration.
    lines: Vec<String>,
    /// Clients speak TLS.
    encrypted: bool,
    /// Killed processes lose nothing without it, and the machine does not crash.
    fsync: Fsync,
}

/// Where the programs of the server and its clients are: `tests/interop/install.sh` has put them
/// there. `LEASEHOLD_ZOOKEEPER` names the class path of another version.
pub(crate) fn class_path() -> Option<String> {
    if let Ok(path) = env::var("LEASEHOLD_ZOOKEEPER") {
        return Some(path);
    }
    let program = env::current_exe().ok()?;
    // target/debug/deps/TEST, or the program of a benchmark, which has a target of its own.
    let places = ["interop/zookeeper/target", "target/interop/zookeeper/target"];
    let mut dirs = program.ancestors().flat_map(|dir| places.map(|place| dir.join(place)));
    let jars: PathBuf = dirs.find(|jars| jars.join("stranger.jar").is_file())?;
    Some(format!("{0}/stranger.jar:{0}/classpath/*", jars.display()))
}

impl Program for ZooKeeperProgram {
    fn name(&self) -> &'static str {
        "java"
    }

    fn arguments(&self, place: &Place, command: &mut Command) {
        let data = place.data().join("nodes");
        fs::create_dir_all(&data).expect("a directory");
        let mut lines = vec![
            // The leader ends sessions at its ticks.
            "tickTime=250".to_owned(),
            "maxSessionTimeout=40000".to_owned(),
            "initLimit=80".to_owned(),
            "syncLimit=12".to_owned(),
            format!("dataDir={}", data.display()),
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            "maxClientCnxns=0".to_owned(),
        ];
        if self.peer.is_some() {
            fs::write(data.join("myid"), self.id.to_string()).expect("a file");
            lines.push(self.members.clone());
        }
        let port = if self.encrypted { "secureClientPort" } else { "clientPort" };
        lines.push(format!("{port}={}", place.port()));
        lines.push(format!("{port}Address=127.0.0.1"));
        lines.extend(self.lines.iter().cloned());
        let file = place.data().join("zoo.cfg");
        fs::write(&file, lines.join("\n")).expect("a file");
        // A small process that starts fast.
        command.args(["-Xmx160m", "-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        if self.fsync == Fsync::Off {
            command.arg("-Dzookeeper.forceSync=no");
        }
        if let Some(hosts) = &self.hosts {
            let file = place.data().join("hosts");
            fs::write(&file, hosts).expect("a file");
            command.arg(format!("-Djdk.net.hosts.file={}", file.display()));
        }
        command.arg("-Dznode.container.checkIntervalMs=1000");
        command.args(["-cp", &class_path().expect("installed")]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
    }

    fn answers(&self, place: &Place) -> bool {
        match &self.peer {
            // It listens once it serves.
            None if self.encrypted => TcpStream::connect(("127.0.0.1", place.port())).is_ok(),
            None => mode(place.port()).is_some(),
            // A member alone can not serve; the others may be started after it.
            Some((_, election)) => TcpStream::connect(("127.0.0.1", election.number())).is_ok(),
        }
    }
}

/// What a server says to one of its four-letter words.
fn ask(port: u16, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether a server is alone, leads or follows; none if it does not serve.
fn mode(port: u16) -> Option<String> {
    let answer = ask(port, "srvr").ok()?;
    let (_, rest) = answer.split_once("Mode: ")?;
    Some(rest.lines().next()?.to_owned())
}

impl ZooKeeper {
    /// What must be installed first.
    pub(crate) fn missing() -> Option<String> {
        let programs = not_installed(&["java", "setpriv"]);
        let jars = || class_path().is_none().then(|| "tests/interop/install.sh, zookeeper".to_owned());
        programs.or_else(jars)
    }

    /// A server that answers.
    pub(crate) fn start() -> ZooKeeper {
        ZooKeeper::start_with(&[])
    }

    /// A server with more lines in its configuration.
    pub(crate) fn start_with(lines: &[&str]) -> ZooKeeper {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        ZooKeeper::start_alone(lines, false)
    }

    /// A server that speaks TLS with clients that have a certificate; `name` is the one it shows.
    pub(crate) fn start_tls(certificates: &Certificates, name: &str) -> ZooKeeper {
        // It wants its key and its certificate in one file.
        let own = certificates.path(&format!("{name}.pem"));
        let read = |file: String| fs::read_to_string(certificates.path(&file)).expect("a file");
        let both = [read(format!("{name}.key")), read(format!("{name}.crt"))].concat();
        fs::write(&own, both).expect("a file");
        let trusted = certificates.path("trusted.pem");
        fs::write(&trusted, read("ca.crt".to_owned())).expect("a file");
        let lines = vec![
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            format!("ssl.keyStore.location={}", own.display()),
            format!("ssl.trustStore.location={}", trusted.display()),
        ];
        ZooKeeper::start_alone(lines, true)
    }

    /// A server whose wall clock is told the time.
    pub(crate) fn start_with_clock() -> (ZooKeeper, Clock) {
        let mut server = ZooKeeper::alone(Vec::new(), false);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let clock = Clock::freeze(&mut server, u64::try_from(now.as_micros()).expect("some years"));
        server.run();
        (server, clock)
    }

    fn start_alone(lines: Vec<String>, encrypted: bool) -> ZooKeeper {
        let server = ZooKeeper::alone(lines, encrypted);
        server.run();
        server
    }

    /// A server that is not running yet.
    fn alone(lines: Vec<String>, encrypted: bool) -> ZooKeeper {
        let (id, peer, members, hosts, fsync) = (0, None, String::new(), None, Fsync::Off);
        Server::create(ZooKeeperProgram { id, peer, members, hosts, lines, encrypted, fsync })
    }

    /// A member that is not running yet.
    fn member(id: usize, peer: (Port, Port), members: String, fsync: Fsync) -> ZooKeeper {
        let (peer, hosts, lines, encrypted) = (Some(peer), None, Vec::new(), false);
        Server::create(ZooKeeperProgram { id, peer, members, hosts, lines, encrypted, fsync })
    }

    /// The same, which knows some names of hosts, and no others.
    fn member_that_knows(hosts: String, id: usize, peer: (Port, Port), members: String) -> ZooKeeper {
        // It may take one for its leader that does not hear it, and waits for it so long.
        let lines = vec!["initLimit=24".to_owned()];
        let (peer, hosts, encrypted, fsync) = (Some(peer), Some(hosts), false, Fsync::Off);
        Server::create(ZooKeeperProgram { id, peer, members, hosts, lines, encrypted, fsync })
    }

    /// Whether it takes requests.
    pub(crate) fn serves(&self) -> bool {
        mode(self.port()).is_some()
    }

    /// What it says to one of its four-letter words.
    pub(crate) fn ask(&self, word: &str) -> String {
        ask(self.port(), word).expect("it answers")
    }

    /// What its own client prints.
    #[track_caller]
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        self.try_cli(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// What its own client prints, or what went wrong.
    pub(crate) fn try_cli(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(find("java").expect("installed"));
        command.args(["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]);
        command.args(["-cp", &class_path().expect("installed"), "org.apache.zookeeper.ZooKeeperMain"]);
        command.args(["-server", &format!("127.0.0.1:{}", self.port())]).args(arguments);
        output(command, 6 * LIMIT)
    }

    /// The ports at which members talk to each other and elect.
    pub(crate) fn peer_ports(&self) -> Option<(u16, u16)> {
        self.program().peer.as_ref().map(|(peer, election)| (peer.number(), election.number()))
    }
}

/// The members of an ensemble.
pub(crate) struct Ensemble {
    pub(crate) members: Vec<ZooKeeper>,
}

impl Ensemble {
    /// An ensemble that has a leader.
    pub(crate) fn start(count: usize) -> Ensemble {
        Ensemble::prepare(count, Fsync::Off).run()
    }

    /// An ensemble whose members wait for their disks, which can be slow.
    pub(crate) fn start_on_disks(count: usize) -> (Ensemble, Vec<Disk>) {
        let mut ensemble = Ensemble::prepare(count, Fsync::On);
        let disks = ensemble.members.iter_mut().map(Disk::put_under).collect();
        (ensemble.run(), disks)
    }

    /// Members that are not running yet.
    fn prepare(count: usize, fsync: Fsync) -> Ensemble {
        let ports: Vec<(Port, Port)> = (0..count).map(|_| (Port::reserve(), Port::reserve())).collect();
        let lines = ports.iter().enumerate().map(|(number, (peer, election))| {
            format!("server.{}=127.0.0.1:{}:{}", number + 1, peer.number(), election.number())
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        let member = |(number, ports)| ZooKeeper::member(number + 1, ports, lines.clone(), fsync);
        Ensemble { members: ports.into_iter().enumerate().map(member).collect() }
    }

    /// Starts all members, and waits until one of them leads.
    fn run(self) -> Ensemble {
        thread::scope(|scope| self.members.iter().for_each(|member| drop(scope.spawn(|| member.run()))));
        self.wait_until_it_serves();
        self
    }

    pub(crate) fn wait_until_it_serves(&self) {
        until_within(6 * LIMIT, "all members serve", || self.members.iter().all(ZooKeeper::serves));
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> &ZooKeeper {
        let mut leader = None;
        until_within(3 * LIMIT, "somebody leads", || {
            let leads =
                |member: &&ZooKeeper| member.runs() && mode(member.port()).as_deref() == Some("leader");
            leader = self.members.iter().find(leads);
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
