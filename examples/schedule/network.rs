//! The line from a node to the server, which can be cut.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Result;

/// While it is cut, nothing gets through, and nobody is told; what was sent arrives when it is
/// mended.
pub(crate) struct Line(Arc<AtomicBool>);

impl Line {
    /// A line to the server of a URL, and the URL of its near end; `None` if there is no server.
    pub(crate) fn before(url: &str) -> Result<Option<(Line, String)>> {
        let Some(rest) = url.strip_prefix("redis://") else { return Ok(None) };
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (server, path) = (server.to_owned(), path.to_owned());
        let near = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("redis://{}/{path}", near.local_addr()?);
        let cut = Arc::new(AtomicBool::new(false));
        let line = Line(Arc::clone(&cut));
        thread::spawn(move || {
            for client in near.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                for (from, to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))] {
                    let cut = Arc::clone(&cut);
                    if let (Ok(from), Ok(to)) = (from, to) {
                        thread::spawn(move || carry(from, to, &cut));
                    }
                }
            }
        });
        Ok(Some((line, url)))
    }

    pub(crate) fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    from.set_nodelay(true).ok();
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        while cut.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    to.shutdown(std::net::Shutdown::Both).ok();
    from.shutdown(std::net::Shutdown::Both).ok();
}
