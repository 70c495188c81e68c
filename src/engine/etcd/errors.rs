//! What the servers say when something is wrong, and what it means.

use tonic::{Code, Status};

use super::promises::ENGINE;
pub(super) use crate::engine::sessions::{Attempt, Failure};
use crate::error::Error;

/// The error for a caller that can not do anything about a failure.
pub(super) fn error(failure: Failure) -> Error {
    failure.into_error(ENGINE)
}

pub(super) fn unavailable(what: String) -> Error {
    Error::Unavailable { engine: ENGINE, what, source: None }
}

fn refused(what: String, status: &Status) -> Error {
    Error::Engine { engine: ENGINE, what, source: Some(Box::new(status.clone())) }
}

/// What a server's answer means.
pub(super) fn failure(server: &str, status: &Status) -> Failure {
    let said = status.message();
    let away =
        |what: String| Error::Unavailable { engine: ENGINE, what, source: Some(Box::new(status.clone())) };
    if said.contains("requested lease not found") {
        return Failure::SessionEnded;
    }
    if said.contains("database space exceeded") {
        return Failure::Failed(away(format!(
            "`{server}` has run out of space (the alarm NOSPACE) and takes no writes; compact, defragment \
             and then run `etcdctl alarm disarm`"
        )));
    }
    if said.contains("no leader") {
        return Failure::Unanswered(away(format!(
            "`{server}` has no leader: less than a majority of the members is up, or they elect one now"
        )));
    }
    match status.code() {
        Code::PermissionDenied => Failure::Failed(refused(
            format!(
                "the user may not use these keys at `{server}`: {said}; grant its role `readwrite` on the \
                 prefix of the URL"
            ),
            status,
        )),
        Code::InvalidArgument if said.contains("user ID or password") => {
            Failure::Failed(refused(format!("`{server}` refuses the user and the password: {said}"), status))
        }
        Code::InvalidArgument if said.contains("user name is empty") => Failure::Failed(refused(
            format!(
                "`{server}` wants a user and a password; they are written `etcd://USER:PASSWORD@{server}`"
            ),
            status,
        )),
        Code::FailedPrecondition if said.contains("authentication is not enabled") => {
            Failure::Failed(refused(
                format!("`{server}` has no users (authentication is not enabled): leave them out of the URL"),
                status,
            ))
        }
        Code::Unimplemented => Failure::Failed(refused(
            format!("`{server}` answers, but not as the client port of an etcd server does: {said}"),
            status,
        )),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange
            if said.contains("etcdserver") =>
        {
            Failure::Failed(refused(format!("`{server}` refuses a request: {said}"), status))
        }
        _ => Failure::Unanswered(away(format!(
            "`{server}` does not answer: {}{}",
            causes(status),
            hint(status)
        ))),
    }
}

/// True if a connection on which this was said is of no use any more: it is broken, or the member
/// behind it is cut off from the others.
pub(super) fn is_broken(status: &Status) -> bool {
    let said = status.message();
    if said.contains("etcdserver: ") {
        return ["no leader", "server stopped", "request timed out", "invalid auth token"]
            .iter()
            .any(|reason| said.contains(reason));
    }
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Unauthenticated)
        || std::error::Error::source(status).is_some()
}

/// What is said, with its causes, each once.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let first = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut text = first;
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !said.is_empty() && !text.contains(&said) {
            text = if text.is_empty() { said } else { format!("{text}: {said}") };
        }
        cause = next.source();
    }
    text
}

/// What may be wrong with the scheme of the URL.
pub(super) fn hint(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let said = causes(error);
    if ["corrupt message", "InvalidContentType", "handshake eof"].iter().any(|words| said.contains(words)) {
        "; it may not speak TLS: then the URL starts with `etcd://`"
    } else if ["frame", "h2 protocol error", "broken pipe", "connection closed", "stream closed"]
        .iter()
        .any(|words| said.to_lowercase().contains(words))
    {
        "; if it speaks TLS, the URL starts with `etcds://`"
    } else {
        ""
    }
}
