//! Files for an encrypted connection.

/// Files for an encrypted connection.
#[cfg_attr(not(feature = "mysql-tls"), allow(dead_code, reason = "a build without TLS refuses them"))]
#[derive(Clone, Debug, Default)]
pub(super) struct Certificates {
    /// Who may vouch for the server; the system's trusted certificates if none is given.
    pub(super) root: Option<String>,
    pub(super) own: Option<(String, String)>,
}
