//! What may be shown of a URL.
//!
//! An error shows the scheme of a URL, and its hosts if it is certain that they are hosts. It never
//! shows a user, a password or a path. A password that was written wrongly can end up anywhere:
//! with a `/`, `?`, `#`, `,` or `@` in it, its rest is read as a host, a path or an option. So an
//! option is shown only if there is no login in the URL, and no place where one could begin.
//!
//! One case is out of reach: a password that is a number and was written without its host
//! (`redis://user:1234`) looks like a port.
//!
//! Here is what a scheme and a host look like, for every build. `url/secrets.rs` applies it to
//! URLs.

/// True if this can only be the scheme of a URL.
pub(crate) fn is_scheme(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-'))
}

/// True if this can only be a host, perhaps with a port. An empty text is one too.
pub(crate) fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let ipv6 = text.starts_with('[');
    let letter = |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_') || ipv6 && letter == ':'
    };
    host.chars().all(letter) && (port.is_empty() || port.parse::<u16>().is_ok())
}
