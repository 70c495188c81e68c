//! What one client tells another, through its session.

use serde::{Deserialize, Serialize};

use super::found::Known;
use crate::claim::{Grant, OwnerId};
use crate::engine::table::row::{decode, encode};
use crate::name::{Family, Name};

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Letter {
    /// It is this owner's turn: these tokens of the name are its own. What is known of the name was
    /// written together with the letter.
    Granted { owner: OwnerId, token: u64, tokens: u32, family: u8, name: String, known: Option<Box<Known>> },
    /// This owner should ask again.
    Wake(OwnerId),
    /// This owner's claim was taken away.
    Broken(OwnerId),
}

impl Letter {
    pub(crate) fn granted(owner: OwnerId, grant: Grant, name: &Name, known: Option<Known>) -> Letter {
        let family = Family::ALL.iter().position(|family| *family == name.family()).unwrap_or_default();
        Letter::Granted {
            owner,
            token: grant.token,
            tokens: grant.tokens,
            family: family as u8,
            name: name.as_str().to_owned(),
            known: known.map(Box::new),
        }
    }
}

/// The name in a letter.
pub(crate) fn name_of(family: u8, text: &str) -> Option<Name> {
    Name::new(*Family::ALL.get(usize::from(family))?, text).ok()
}

pub(crate) fn write(letters: &[Letter]) -> postcard::Result<Vec<u8>> {
    encode(&letters)
}

/// The letters in the value of a key. What can not be read says nothing: who waits for it asks
/// again in time.
pub(crate) fn read(value: &[u8]) -> Vec<Letter> {
    if value.is_empty() {
        return Vec::new();
    }
    decode(value).unwrap_or_default()
}
