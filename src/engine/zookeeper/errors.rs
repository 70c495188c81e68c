//! What the servers say when something is wrong, and what it means.

use super::promises::ENGINE;
use super::url::NO_SASL;
use super::wire::Said;
use crate::engine::sessions::Failure;
use crate::error::Error;

pub(super) fn unavailable(what: String) -> Error {
    Error::Unavailable { engine: ENGINE, what, source: None }
}

fn refused(what: String, said: &Said) -> Error {
    Error::Engine { engine: ENGINE, what, source: Some(Box::new(said.clone())) }
}

/// What an error means for a request that its caller has no answer of its own to.
pub(super) fn failure(server: &str, said: &Said) -> Failure {
    let away =
        |what: String| Error::Unavailable { engine: ENGINE, what, source: Some(Box::new(said.clone())) };
    match said {
        Said::Expired => Failure::SessionEnded,
        Said::NoAuth => Failure::Failed(refused(
            format!(
                "`{server}` does not let this user use the nodes below the path of the URL: they belong to \
                 another user, or the password is another one; users are written \
                 `zookeeper://USER:PASSWORD@{server}`"
            ),
            said,
        )),
        Said::AuthFailed => {
            Failure::Failed(refused(format!("`{server}` refuses the user and the password"), said))
        }
        Said::NeedsSasl => Failure::Failed(Error::Unsupported {
            engine: ENGINE,
            what: format!("is not let in by `{server}`, which wants SASL, and {NO_SASL}"),
        }),
        Said::InvalidAcl => Failure::Failed(refused(
            format!("`{server}` does not accept nodes of this user; is the user known to it?"),
            said,
        )),
        Said::Quota => Failure::Failed(away(format!(
            "the nodes below the path of the URL have reached their quota at `{server}`, which takes no \
             more of them"
        ))),
        Said::Unimplemented => Failure::Failed(refused(
            format!("`{server}` is older than ZooKeeper 3.6, which is needed for watches that stay"),
            said,
        )),
        Said::Garbled(_) | Said::Other(_) => {
            let what = format!("`{server}` and this client misunderstand each other: {said}");
            Failure::Failed(refused(what, said))
        }
        Said::ReadOnly => Failure::Unanswered(away(format!(
            "`{server}` can only be read: less than a majority of the servers is up"
        ))),
        Said::Throttled => Failure::Unanswered(away(format!("`{server}` has too much to do"))),
        Said::NotEmpty | Said::NoChildren => Failure::Failed(refused(
            format!("the nodes at `{server}` are not as this engine makes them: {said}"),
            said,
        )),
        Said::Lost(_) | Said::NoNode | Said::NodeExists | Said::BadVersion => {
            Failure::Unanswered(away(format!("`{server}` does not answer: {said}")))
        }
    }
}

/// True if there is another state than the one that the request was for.
pub(super) fn is_conflict(said: &Said) -> bool {
    matches!(said, Said::BadVersion | Said::NoNode | Said::NodeExists | Said::NotEmpty)
}
