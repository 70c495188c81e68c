//! A line to a server on which what passes is changed or held up.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Bytes that pass.
pub(crate) struct Passing<'a> {
    /// They come from the server.
    pub(crate) is_reply: bool,
    pub(crate) bytes: &'a mut [u8],
}

/// The port of a line to a server. `hand` may change what passes, and says how long it is held up.
pub(crate) async fn line<H>(to: u16, hand: H) -> u16
where
    H: Fn(Passing<'_>) -> Duration + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", to)).await.expect("the server");
            client.set_nodelay(true).expect("a socket");
            server.set_nodelay(true).expect("a socket");
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, false, hand.clone()));
            tokio::spawn(carry(from_server, to_client, true, hand.clone()));
        }
    });
    port
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_reply: bool,
    hand: impl Fn(Passing<'_>) -> Duration,
) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else { return };
        let held_up = hand(Passing { is_reply, bytes: &mut bytes[..length] });
        tokio::time::sleep(held_up).await;
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
