//! Messages on a stream: each has its length before it.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The largest answer: that of a listing.
const LARGEST: usize = 256 << 20;

/// Puts a message to others that are to be sent.
pub(super) fn frame(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(message);
}

pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> std::io::Result<()> {
    let mut out = Vec::with_capacity(message.len() + 4);
    frame(&mut out, message);
    stream.write_all(&out).await?;
    stream.flush().await
}

pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    Frames::default().next(stream).await
}

/// Messages as they come in. A read that is dropped half way goes on where it was.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > LARGEST {
                    return Err(std::io::Error::other("it does not speak as a ZooKeeper server does"));
                }
                if rest.len() >= length {
                    let message = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return Ok(message);
                }
            }
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
