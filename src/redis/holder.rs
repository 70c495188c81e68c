//! The text at a lock's own key, and the messages about owners.
//!
//! `engine/redis/holder.lua` reads and writes the same text. Of `redlock:` it differs in its mark.

use std::sync::Arc;

use crate::claim::{Claim, Grant, Holder, OwnerId, Seat, WHOLE};
use crate::engine::Hint;

pub(crate) fn owner_text(owner: OwnerId) -> String {
    let mut text = String::with_capacity(32);
    push_owner(&mut text, owner);
    text
}

/// Every request has an owner in it; this takes a tenth of the time of `format!`.
fn push_owner(text: &mut String, owner: OwnerId) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in owner.0.to_be_bytes() {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// How the text of a lock of `redis:` starts, up to its token, if all that is known of the name
/// stands there and the owner has one token.
pub(crate) fn alone(owner: OwnerId) -> String {
    let mut text = String::with_capacity(48);
    text.push_str("leasehold/1 ");
    push_owner(&mut text, owner);
    text.push_str(" 1 ");
    text
}

/// How that text goes on after the token. `who` is [`who`].
pub(crate) fn after_token(lease: u64, since: u64, who: &str) -> String {
    let mut text = String::with_capacity(40 + who.len());
    for word in [" ", &lease.to_string(), " 0 ", &since.to_string(), " ", who] {
        text.push_str(word);
    }
    text
}

/// How the text ends: seat, process, host and label.
pub(crate) fn who(seat: Seat, holder: &Holder) -> String {
    format!("{seat} {} {} {}", holder.pid, host_text(&holder.host), holder.label)
}

pub(crate) fn owner(text: &[u8]) -> Option<OwnerId> {
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok().map(OwnerId)
}

/// A host name that is one word.
pub(crate) fn host_text(host: &str) -> String {
    let word = |letter: char| if letter.is_whitespace() || letter.is_control() { '_' } else { letter };
    if host.is_empty() { "-".into() } else { host.chars().map(word).collect() }
}

/// A message to a seat; what can not be understood wakes everybody.
pub(crate) fn hint(text: &[u8]) -> Hint {
    let mut words = text.split(|byte| *byte == b' ');
    let kind = words.next();
    let Some(owner) = words.next().and_then(owner) else { return Hint::WakeAll };
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    match kind {
        Some(b"w") => Hint::Wake(owner),
        Some(b"b") => Hint::Broken(owner),
        Some(b"g") => match (number(), number().map(u32::try_from), number().map(u32::try_from)) {
            (Some(token), Some(Ok(tokens)), Some(Ok(round))) => {
                Hint::Granted { owner, grant: Grant { token, tokens }, round }
            }
            _ => Hint::Wake(owner),
        },
        _ => Hint::WakeAll,
    }
}

/// A claim of which all that is known stands at the holder's key, after a mark if it is ours.
pub(crate) fn claim_at_holder(mark: &str, text: &[u8], expires: u64, now: u64) -> Claim {
    let text = String::from_utf8_lossy(text);
    let stranger = || Claim {
        owner: OwnerId(0),
        seat: 0,
        weight: WHOLE,
        token: 0,
        tokens: 1,
        lease: expires.saturating_sub(now),
        expires,
        lock_delay: 0,
        since: now,
        confirmed: true,
        holder: Arc::new(Holder {
            host: String::new(),
            pid: 0,
            label: format!(
                "a client that is not leasehold (`{}`)",
                text.chars().take(60).collect::<String>()
            ),
        }),
        value: Arc::default(),
    };
    let ours = || -> Option<Claim> {
        let mut words = text.strip_prefix(mark)?.get(1..)?.splitn(9, ' ');
        let owner = owner(words.next()?.as_bytes())?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (tokens, token, lease, lock_delay, since) =
            (number()?, number()?, number()?, number()?, number()?);
        let (seat, pid) = (number()?, u32::try_from(number()?).ok()?);
        let (host, label) = words.next()?.split_once(' ')?;
        let holder = Arc::new(Holder { host: host.to_owned(), pid, label: label.to_owned() });
        let tokens = u32::try_from(tokens).ok()?;
        Some(Claim { owner, seat, token, tokens, lease, lock_delay, since, holder, ..stranger() })
    };
    ours().unwrap_or_else(stranger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_written_with_all_their_digits() {
        for number in [0, 1, 0xab, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            assert_eq!(owner_text(OwnerId(number)), format!("{number:032x}"));
            assert_eq!(owner(owner_text(OwnerId(number)).as_bytes()), Some(OwnerId(number)));
        }
    }

    #[test]
    fn messages_are_understood() {
        let owner = OwnerId(0xab);
        let text = owner_text(owner);
        assert_eq!(hint(format!("w {text}").as_bytes()), Hint::Wake(owner));
        assert_eq!(hint(format!("b {text}").as_bytes()), Hint::Broken(owner));
        let granted = Hint::Granted { owner, grant: Grant { token: 7, tokens: 65 }, round: 3 };
        assert_eq!(hint(format!("g {text} 7 65 3").as_bytes()), granted);
        assert_eq!(hint(format!("g {text} 7").as_bytes()), Hint::Wake(owner));
        assert_eq!(hint(b"something newer"), Hint::WakeAll);
    }

    #[test]
    fn a_strangers_lock_is_shown_as_one() {
        let claim = claim_at_holder("leasehold/1", b"9f2c-uuid", 100, 40);
        assert_eq!((claim.token, claim.expires), (0, 100));
        assert!(claim.holder.label.contains("9f2c-uuid"));
    }
}
