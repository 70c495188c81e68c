//! Ports of this machine that nobody else is given.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use tokio::net::TcpSocket;

/// A free port of 127.0.0.1, kept for one server even while that is down.
///
/// A socket that is bound and does not listen holds the number: nobody else is given it, and who
/// connects is refused. A server that asks for the number with SO_REUSEADDR, as servers do, gets it
/// nevertheless.
pub(crate) struct Port {
    number: u16,
    _held: TcpSocket,
}

impl Port {
    pub(super) fn reserve() -> Port {
        let held = bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        Port { number: held.local_addr().expect("bound").port(), _held: held }
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

/// A socket of this machine that shares its port with those that do not listen.
pub(super) fn bind(address: SocketAddrV4) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.into())?;
    Ok(socket)
}
