//! Certificates for servers that speak TLS.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Certificates by an authority of their own.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    /// An authority, a server `127.0.0.1`, another one that is elsewhere, and a client.
    pub(crate) fn make() -> Certificates {
        let dir = TempDir::with_prefix("leasehold-tls-").expect("a directory");
        let made = Certificates(dir);
        for authority in ["ca", "other-ca"] {
            made.request(authority, &["-x509", "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE"]);
        }
        let by_authority = |name: &str, alternative: &str| {
            let alternative = format!("subjectAltName={alternative}");
            let authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-x509", "-days", "2"];
            let extensions = ["-addext", "basicConstraints=CA:FALSE", "-addext", &alternative];
            made.request(name, &[&authority[..], &extensions[..]].concat());
        };
        by_authority("server", "IP:127.0.0.1,DNS:localhost");
        by_authority("elsewhere", "DNS:elsewhere.invalid");
        by_authority("client", "DNS:client");
        made
    }

    /// A key, and a certificate for it.
    fn request(&self, name: &str, more: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-subj", &format!("/CN={name}"), "-keyout", &format!("{name}.key")]);
        openssl.args(["-out", &format!("{name}.crt")]).args(more);
        let ended = openssl.current_dir(self.0.path()).stdin(Stdio::null()).output().expect("openssl starts");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }
}
