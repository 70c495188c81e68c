//! As much of an HTTP client as the load generator and the tests need: one connection that is kept,
//! and responses that say how long they are.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;

use crate::Result;

pub(crate) struct Connection {
    stream: BufStream<TcpStream>,
}

/// The status of a response, and its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// It was given before, to the same request.
    pub(crate) replayed: bool,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufStream::new(stream) })
    }

    /// Sends a request. `fields` are lines with their ends.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &str,
        body: &str,
    ) -> Result<Response> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("not HTTP")?;
        let (mut length, mut replayed) = (0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match &*name.to_ascii_lowercase() {
                "content-length" => length = value.trim().parse()?,
                "idempotent-replayed" => replayed = true,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(Response { status, replayed, body })
    }
}
