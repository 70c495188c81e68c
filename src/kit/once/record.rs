//! The record of a submission.

use crate::claim::Micros;
use crate::engine::ReplaceSql;

/// The hash of what was submitted.
pub(super) type Fingerprint = [u8; 16];

/// What is known of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Who runs it, or ran it.
    pub(super) owner: u128,
    /// Greater than that of anybody who ran it before.
    pub(super) token: u64,
    /// Of what was submitted: the same key with something else is refused.
    pub(super) fingerprint: Fingerprint,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs until this time; after that it is not known whether it has had its effect.
    Running { until: Micros },
    /// It has had its effect, and this is the result.
    Done { result: Vec<u8> },
}

const RUNNING: u8 = 0x61;
const DONE: u8 = 0x62;

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (tag, rest) = match &self.state {
            State::Running { until } => (RUNNING, until.to_be_bytes().to_vec()),
            State::Done { result } => (DONE, result.clone()),
        };
        let mut bytes = Vec::with_capacity(41 + rest.len());
        bytes.push(tag);
        bytes.extend_from_slice(&self.owner.to_be_bytes());
        bytes.extend_from_slice(&self.token.to_be_bytes());
        bytes.extend_from_slice(&self.fingerprint);
        bytes.extend_from_slice(&rest);
        bytes
    }

    /// What the record of a run that goes on starts with, and no other.
    pub(super) fn start_of_run(owner: u128, token: u64) -> Vec<u8> {
        let state = State::Running { until: 0 };
        let mut bytes = Record { owner, token, fingerprint: [0; 16], state }.encode();
        bytes.truncate(ReplaceSql::COMPARED);
        bytes
    }

    /// `None` if the bytes are not a record.
    pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
        let (tag, bytes) = bytes.split_first()?;
        let (owner, bytes) = bytes.split_first_chunk::<16>()?;
        let (token, bytes) = bytes.split_first_chunk::<8>()?;
        let (fingerprint, rest) = bytes.split_first_chunk::<16>()?;
        let state = match *tag {
            RUNNING => State::Running { until: u64::from_be_bytes(rest.try_into().ok()?) },
            DONE => State::Done { result: rest.to_vec() },
            _ => return None,
        };
        let (owner, token) = (u128::from_be_bytes(*owner), u64::from_be_bytes(*token));
        Some(Record { owner, token, fingerprint: *fingerprint, state })
    }
}
