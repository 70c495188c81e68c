//! A line between clients and a server, with faults that can be switched on and off at any time.
//!
//! It runs on a thread of its own, so that it works while the runtime of a test is blocked or its
//! time is paused. A fault is in force when the call that sets it returns, and replaces the one
//! before.
//!
//! Between two machines bytes and the end of a connection travel the same way; so here, whatever is
//! held back, an end or a reset is held back behind the bytes that were sent before it. What a
//! client asked before it gave up arrives late, not never.
//!
//! What it can not do is to leave a connection half made: while it stalls, a client still connects,
//! and then hears nothing. A server that is down shows as a connection that is reset as soon as it
//! is made, not as one that is refused. And while another thread starts a process, for a
//! millisecond, the news of a reset may be late; no byte passes meanwhile.

use std::future;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as blocking};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::port::{Port, bind};

/// A proxy before a server. Dropped, it resets its connections and refuses new ones.
pub(crate) struct Proxy {
    address: SocketAddrV4,
    _port: Option<Port>,
    to: Arc<AtomicU16>,
    round_trips: Arc<AtomicU64>,
    /// Taken when the proxy is dropped, which ends the thread.
    orders: Option<mpsc::UnboundedSender<(Order, blocking::Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
enum Order {
    Set(Fault),
    StallOpen,
    Reset,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Cut,
    Stall {
        requests: bool,
        replies: bool,
    },
    /// Of the connections that were made before.
    StallOpen(Instant),
    /// From the first of these bytes on.
    StallFrom(&'static str),
    Delay(Duration),
}

impl Proxy {
    /// A proxy before the server at a port of this machine, with no fault.
    pub(crate) fn start(to: u16) -> Proxy {
        let port = Port::reserve();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.number());
        Proxy::listen_at(address, to, Some(port))
    }

    /// The same at the server's own port of another address of this machine, such as 127.0.1.2, for
    /// programs that know each other by host names.
    pub(super) fn start_beside(host: Ipv4Addr, to: u16) -> Proxy {
        Proxy::listen_at(SocketAddrV4::new(host, to), to, None)
    }

    fn listen_at(address: SocketAddrV4, to: u16, port: Option<Port>) -> Proxy {
        let (orders, queue) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (to, round_trips) = (Arc::new(AtomicU16::new(to)), Arc::default());
        let (target, counted) = (Arc::clone(&to), Arc::clone(&round_trips));
        let run = move || runtime.block_on(serve(address, &target, &counted, queue));
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(run).expect("a thread");
        let (orders, thread) = (Some(orders), Some(thread));
        let proxy = Proxy { address, _port: port, to, round_trips, orders, thread };
        // The answer says that it listens.
        proxy.pass();
        proxy
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// How often a client has said something since the server had last said something to it, over
    /// all connections so far.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// No fault: what was held back is delivered in order, and what comes is delivered at once.
    pub(crate) fn pass(&self) {
        self.order(Order::Set(Fault::None));
    }

    /// Resets every connection now, with all that was held back, and refuses new ones: a client
    /// sees "connection reset", then "connection refused", until another fault is set.
    pub(crate) fn cut(&self) {
        self.order(Order::Set(Fault::Cut));
    }

    /// Holds back everything: connections stay open, and a client hears nothing. What it asks
    /// reaches the server when the fault is over, even if the client has given up by then.
    pub(crate) fn stall(&self) {
        self.order(Order::Set(Fault::Stall { requests: true, replies: true }));
    }

    /// Holds back what clients say: the server does nothing for them until the fault is over.
    pub(crate) fn stall_requests(&self) {
        self.order(Order::Set(Fault::Stall { requests: true, replies: false }));
    }

    /// Holds back what the server says: it does what it is asked, and the client does not learn of
    /// it.
    pub(crate) fn stall_replies(&self) {
        self.order(Order::Set(Fault::Stall { requests: false, replies: true }));
    }

    /// Holds back everything on the connections that there are; new ones work. What was said on the
    /// old ones arrives after what is said on the new ones, as when a network has lost packets and
    /// their sender takes its time to repeat them.
    pub(crate) fn stall_open(&self) {
        self.order(Order::StallOpen);
    }

    /// Holds back what clients say from the first such bytes on, in the middle of a request if they
    /// are there.
    pub(crate) fn stall_requests_from(&self, bytes: &'static str) {
        self.order(Order::Set(Fault::StallFrom(bytes)));
    }

    /// Delivers everything later, each way: a client waits twice as long for each answer, and loses
    /// no throughput.
    pub(crate) fn delay(&self, each_way: Duration) {
        self.order(Order::Set(Fault::Delay(each_way)));
    }

    /// Resets every connection once, with all that was held back: a client sees "connection reset"
    /// and can connect again at once. The fault that is set stays.
    pub(crate) fn reset(&self) {
        self.order(Order::Reset);
    }

    /// Resets every connection once; new ones lead to another server, as when an address moves.
    pub(crate) fn move_to(&self, port: u16) {
        self.to.store(port, Ordering::Relaxed);
        self.reset();
    }

    fn order(&self, order: Order) {
        let (done, wait) = blocking::channel();
        self.orders.as_ref().expect("taken only by drop").send((order, done)).expect("the proxy runs");
        wait.recv().expect("the proxy runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || thread::panicking(), "the proxy has panicked");
    }
}

/// What the connections look at.
#[derive(Clone, Copy)]
struct State {
    fault: Fault,
    resets: u64,
}

async fn serve(
    address: SocketAddrV4,
    to: &AtomicU16,
    round_trips: &Arc<AtomicU64>,
    mut orders: mpsc::UnboundedReceiver<(Order, blocking::Sender<()>)>,
) {
    let (state, _) = watch::channel(State { fault: Fault::None, resets: 0 });
    let mut listener = Some(listen(address));
    let mut connections = JoinSet::new();
    let carry = |client, made| {
        let to = to.load(Ordering::Relaxed);
        connection(client, to, state.subscribe(), made, Arc::clone(round_trips))
    };
    loop {
        tokio::select! {
            client = accept(listener.as_ref()) => {
                connections.spawn(carry(client, Made::now(&state)));
            }
            Some(_) = connections.join_next() => {}
            order = orders.recv() => {
                let reset = matches!(order, None | Some((Order::Reset | Order::Set(Fault::Cut), _)));
                let of_old = reset || matches!(order, Some((Order::StallOpen, _)));
                if of_old && let Some(open) = listener.take() {
                    // Those that have connected and were not accepted yet are connections, too.
                    let open = open.into_std().expect("a listener");
                    while let Ok((client, _)) = open.accept() {
                        client.set_nonblocking(true).expect("a socket");
                        let client = TcpStream::from_std(client).expect("a socket");
                        connections.spawn(carry(client, Made::now(&state)));
                    }
                    listener = Some(TcpListener::from_std(open).expect("a listener"));
                }
                match order {
                    None | Some((Order::Set(Fault::Cut), _)) => listener.take().into_iter().for_each(close),
                    Some((Order::Set(_) | Order::StallOpen, _)) if listener.is_none() => {
                        listener = Some(listen(address));
                    }
                    Some(_) => {}
                }
                state.send_modify(|state| {
                    state.resets += u64::from(reset);
                    match order {
                        Some((Order::Set(fault), _)) => state.fault = fault,
                        Some((Order::StallOpen, _)) => state.fault = Fault::StallOpen(Instant::now()),
                        None | Some((Order::Reset, _)) => {}
                    }
                });
                while reset && connections.join_next().await.is_some() {}
                let Some((_, done)) = order else { return };
                // Nobody waits if the test has panicked.
                done.send(()).unwrap_or(());
            }
        }
    }
}

fn listen(address: SocketAddrV4) -> TcpListener {
    bind(address).and_then(|socket| socket.listen(1024)).expect("the port is ours")
}

fn close(listener: TcpListener) {
    // A process that was just forked elsewhere has every descriptor of this one until it runs its
    // program. To close ours would leave the port open that long.
    let socket = std::net::TcpStream::from(OwnedFd::from(listener.into_std().expect("a listener")));
    socket.shutdown(Shutdown::Both).expect("it listens");
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return future::pending().await };
    listener.accept().await.expect("a connection").0
}

/// When a connection was made.
#[derive(Clone, Copy)]
struct Made {
    at: Instant,
    after_resets: u64,
}

impl Made {
    fn now(state: &watch::Sender<State>) -> Made {
        Made { at: Instant::now(), after_resets: state.borrow().resets }
    }
}

/// What travels one way.
enum Parcel {
    Bytes(Vec<u8>),
    End,
    Reset,
}

type Sender = mpsc::UnboundedSender<(Instant, Parcel)>;
type Receiver = mpsc::UnboundedReceiver<(Instant, Parcel)>;

/// Carries one connection until both sides have ended it, one is gone, or it is reset from outside.
async fn connection(
    mut client: TcpStream,
    to: u16,
    state: watch::Receiver<State>,
    made: Made,
    round_trips: Arc<AtomicU64>,
) {
    let mut resetting = state.clone();
    let mut server = None;
    let carried = async {
        let server = server.insert(TcpStream::connect(("127.0.0.1", to)).await?);
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (requests, requested) = mpsc::unbounded_channel();
        let (replies, replied) = mpsc::unbounded_channel();
        // Whether the server has been asked something since it answered.
        let asked = AtomicBool::new(false);
        let asks = || {
            if !asked.swap(true, Ordering::Relaxed) {
                round_trips.fetch_add(1, Ordering::Relaxed);
            }
        };
        let answers = || asked.store(false, Ordering::Relaxed);
        tokio::try_join!(
            collect(from_client, requests.clone(), asks),
            collect(from_server, replies.clone(), answers),
            deliver(requested, to_server, replies, state.clone(), (requests_pass, made.at)),
            deliver(replied, to_client, requests, state.clone(), (replies_pass, made.at)),
        )
    };
    let whole = tokio::select! {
        // First of all, so that nothing slips through that a fault set at the same time would let
        // pass.
        biased;
        _ = resetting.wait_for(|state| state.resets != made.after_resets) => false,
        carried = carried => carried.is_ok(),
    };
    if !whole {
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            // Fails on a connection that is gone already.
            stream.set_zero_linger().unwrap_or(());
        }
    }
}

/// Reads one way, whatever the fault: what is held back is held here.
async fn collect(mut from: ReadHalf<'_>, queue: Sender, note: impl Fn()) -> io::Result<()> {
    loop {
        let mut bytes = Vec::with_capacity(16 << 10);
        let parcel = match from.read_buf(&mut bytes).await {
            Ok(0) => Parcel::End,
            Ok(_) => {
                note();
                Parcel::Bytes(bytes)
            }
            Err(_) => Parcel::Reset,
        };
        let last = !matches!(parcel, Parcel::Bytes(_));
        // Nobody listens if the other side is gone, which it was told.
        if queue.send((Instant::now(), parcel)).is_err() || last {
            return Ok(());
        }
    }
}

/// When something may go on its way, by the fault; `None` as long as the fault lasts. Given when
/// the connection was made and when the thing came.
type Passes = fn(Fault, Instant, Instant) -> Option<Instant>;

fn requests_pass(fault: Fault, made: Instant, came: Instant) -> Option<Instant> {
    match fault {
        Fault::Stall { requests: true, .. } => None,
        // What may pass is split off first.
        Fault::StallFrom(_) => None,
        fault => passes(fault, made, came),
    }
}

fn replies_pass(fault: Fault, made: Instant, came: Instant) -> Option<Instant> {
    match fault {
        Fault::Stall { replies: true, .. } => None,
        fault => passes(fault, made, came),
    }
}

fn passes(fault: Fault, made: Instant, came: Instant) -> Option<Instant> {
    match fault {
        Fault::Cut => None,
        Fault::StallOpen(since) if made <= since => None,
        Fault::Delay(delay) => Some(came + delay),
        Fault::None | Fault::Stall { .. } | Fault::StallOpen(_) | Fault::StallFrom(_) => Some(came),
    }
}

/// Writes one way, when the fault lets it pass. An error means that the connection is to be reset.
async fn deliver(
    mut queue: Receiver,
    mut to: WriteHalf<'_>,
    back: Sender,
    mut state: watch::Receiver<State>,
    (passes, made): (Passes, Instant),
) -> io::Result<()> {
    while let Some((came, mut parcel)) = queue.recv().await {
        loop {
            let fault = state.borrow_and_update().fault;
            if let (Fault::StallFrom(word), Parcel::Bytes(bytes)) = (fault, &mut parcel) {
                let found = bytes.windows(word.len()).position(|window| window == word.as_bytes());
                let rest = bytes.split_off(found.unwrap_or(bytes.len()));
                to.write_all(bytes).await?;
                *bytes = rest;
                if bytes.is_empty() {
                    break;
                }
            }
            let at = passes(fault, made, came);
            if at.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            let wait = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                changed = state.changed() => changed.map_err(io::Error::other)?,
            }
        }
        let written = match parcel {
            Parcel::Bytes(bytes) => to.write_all(&bytes).await,
            // The other way may go on.
            Parcel::End => return to.shutdown().await,
            Parcel::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        if let Err(error) = written {
            // The news that this side is gone travels back, behind what it had still said.
            return back.send((Instant::now(), Parcel::Reset)).map_err(|_| error);
        }
    }
    Ok(())
}
