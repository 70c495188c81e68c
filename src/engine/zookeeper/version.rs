//! Versions of ZooKeeper that have lost what was agreed on.

use std::sync::Once;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to say its version.
const LIMIT: Duration = Duration::from_millis(500);

/// What is known of a version, if there is something.
fn known_fault(version: &str) -> Option<&'static str> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match parts {
        (3, 9, 3) => Some(
            "a server that was behind and then leads may pass on less than was agreed on (ZOOKEEPER-4925)",
        ),
        (3, 9, 0..=2) | (3, 8, 0..=4) | (3, 0..=7, _) | (0..=2, ..) => Some(
            "a server that ends while it catches up may lose what was agreed on (ZOOKEEPER-4785, \
             ZOOKEEPER-4712)",
        ),
        _ => None,
    }
}

/// What a server calls its version, if it says so: `Zookeeper version: 3.9.4-7246445, built on …`.
fn version_in(answer: &str) -> Option<&str> {
    let (_, rest) = answer.split_once("ookeeper version: ")?;
    rest.split([',', '-', ' ', '\n']).next().filter(|version| version.starts_with(char::is_numeric))
}

/// Warns of a server that may lose what was agreed on, once per process. Says nothing if the server
/// does not tell its version.
pub(super) async fn warn_of_version((name, port): (&str, u16)) {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return;
    }
    let ask = async {
        let mut stream = TcpStream::connect((name, port)).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    let answer = timeout(LIMIT, ask).await.ok().flatten();
    ONCE.call_once(|| {
        let version = answer.as_deref().and_then(version_in);
        if let Some((version, fault)) = version.and_then(|version| Some((version, known_fault(version)?))) {
            tracing::warn!(
                target: "leasehold",
                "ZooKeeper {version} at `{name}:{port}` has a known fault: {fault}; use 3.9.4 or later"
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_faults_are_known() {
        for (version, has_fault) in [
            ("3.6.4", true),
            ("3.8.0", true),
            ("3.8.4", true),
            ("3.8.5", false),
            ("3.9.1", true),
            ("3.9.3", true),
            ("3.9.4", false),
            ("3.10.0", false),
            ("4.0.0-SNAPSHOT", false),
        ] {
            assert_eq!(known_fault(version).is_some(), has_fault, "{version}");
        }
    }

    #[test]
    fn a_version_is_found_in_what_a_server_says() {
        let said =
            "Zookeeper version: 3.9.4-7246445ec281f3dbf53dc54e970c914f39713903, built on 2025\nLatency";
        assert_eq!(version_in(said), Some("3.9.4"));
        assert_eq!(version_in("Zookeeper version: 3.8.0-11+deb12u2, built on"), Some("3.8.0"));
        assert_eq!(version_in("srvr is not executed because it is not in the whitelist."), None);
    }
}
