//! Submissions that must have an effect once, however often they are sent.
//!
//! A client that got no answer sends its request again, and the order is placed twice. With an
//! idempotency key the second request finds the record of the first: [`Once::run`] runs the effect
//! for the first caller, and gives everybody else its result, byte for byte.
//!
//! What it promises: at most one runs at a time, it is told before anybody else may run, and nobody
//! runs the effect a second time after it was recorded. If a process dies, or is cut off, between
//! the effect and its record, nobody can know whether the effect has happened: that is told as
//! [`Submission::Unknown`], and is not run again unless the caller says that it may.
//!
//! What it does not promise: that the effect happens exactly once. For that the record must be part
//! of the transaction that has the effect ([`Once::run_in_transaction`], on a database), or the
//! effect must check the token.

mod record;
mod recorder;
mod rule;
mod stored;
mod submit;

pub use self::recorder::{RecordSql, Recorder};
pub use self::stored::{Progress, StoredSubmission};
pub use self::submit::{Ending, IfRunning, IfUnknown, LONGEST_RESULT, Once, Submission};
