//! Versions of etcd whose locks have known faults.

/// What is known of a version, if there is something.
fn known_fault(version: &str) -> Option<&'static str> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (first, second) = match parts {
        (3, 4, patch) => (patch < 31, patch < 38),
        (3, 5, patch) => (patch < 13, patch < 23),
        (3, 6, patch) => (false, patch < 5),
        (major, minor, _) => ((major, minor) < (3, 4), (major, minor) < (3, 4)),
    };
    if first {
        Some("a former leader may end the leases of clients that are alive (etcd issue 15247)")
    } else if second {
        Some("a lease that was revoked may be reported as alive")
    } else {
        None
    }
}

/// Warns of a server whose leases have known faults, once per process.
pub(super) fn warn_of_version(server: &str, version: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if let Some(fault) = known_fault(version) {
        ONCE.call_once(|| {
            tracing::warn!(
                target: "leasehold",
                "etcd {version} at `{server}` has a known fault: {fault}; use 3.5.23, 3.6.5 or later"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::known_fault;

    #[test]
    fn versions_with_faults_are_known() {
        for (version, has_fault) in [
            ("3.4.23", true),
            ("3.4.38", false),
            ("3.5.12", true),
            ("3.5.22", true),
            ("3.5.23", false),
            ("3.6.4", true),
            ("3.6.5", false),
            ("3.7.3", false),
            ("3.3.27", true),
            ("4.0.0-alpha", false),
        ] {
            assert_eq!(known_fault(version).is_some(), has_fault, "{version}");
        }
    }
}
