//! Where a name is kept: its keys, all in one slot of a cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::clock::{Clock as _, Moment, SystemClock};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// How names become keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// Before every name.
    pub(super) prefix: String,
    /// Names are keys as they are.
    pub(super) raw: bool,
    known: Mutex<Known>,
}

/// The keys of names that were used lately.
#[derive(Debug, Default)]
struct Known {
    /// What most want who want one.
    last: Option<(Name, Arc<NameKeys>)>,
    by_name: HashMap<Name, Arc<NameKeys>>,
}

/// The keys of one name, in the order of every script.
#[derive(Debug)]
pub(super) struct NameKeys {
    /// Whoever asked last had to wait: it is not worth trying whether the name is free.
    pub(super) crowded: AtomicBool,
    /// When we last gave the counter of tokens a day to live, in microseconds on our clock; 0 is never.
    counted_at: AtomicU64,
    /// The last token that we took without asking, unless others may have had the name since; 0 is none.
    last: AtomicU64,
    /// Others had the name between the last two times that we did.
    shared: AtomicBool,
    pub(super) holder: String,
    pub(super) token: String,
    pub(super) state: String,
    pub(super) ends: String,
    pub(super) queue: String,
    pub(super) log: String,
}

impl NameKeys {
    /// Notes that the counter of tokens has a day to live.
    pub(super) fn counted(&self) {
        self.counted_at.store(SystemClock.now().as_micros().max(1), Ordering::Relaxed);
    }

    /// True if the counter is there, as far as we know. One that is gone counts from 1, and must be mended before its numbers are
    /// tokens.
    pub(super) fn has_counter(&self) -> bool {
        const SURE: Duration = Duration::from_secs(23 * 60 * 60);
        let counted_at = Moment::from_micros(self.counted_at.load(Ordering::Relaxed));
        counted_at.as_micros() > 0 && SystemClock.now().since(counted_at) < SURE
    }

    /// Notes the token of a lock that was taken without asking; 0 if it was not.
    pub(super) fn took(&self, token: u64) {
        let before = self.last.swap(token, Ordering::Relaxed);
        self.shared.store(before + 1 != token && before != 0 || token == 0, Ordering::Relaxed);
    }

    /// True if others want the name too, as far as we know: one of them is likely to wait.
    pub(super) fn is_shared(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0 || self.shared.load(Ordering::Relaxed)
    }

    pub(super) fn all(&self) -> [&str; 6] {
        [&self.holder, &self.token, &self.state, &self.ends, &self.queue, &self.log]
    }
}

impl Keys {
    /// Names with something before them.
    pub(super) fn with_prefix(prefix: impl Into<String>) -> Keys {
        Keys { prefix: prefix.into(), raw: false, known: Mutex::default() }
    }

    /// Names as they are.
    pub(super) fn raw() -> Keys {
        Keys { raw: true, ..Keys::with_prefix("") }
    }

    /// The key that strangers know.
    pub(super) fn holder(&self, name: &Name) -> Result<String> {
        let text = name.as_str();
        if self.raw {
            let odd = tag(text).is_none() && text.contains(['{', '}']);
            if odd {
                return Err(Error::invalid(format!(
                    "the raw key `{text}` has braces without a hash tag; its other keys could not be kept beside it"
                )));
            }
            return Ok(text.to_owned());
        }
        let mut key = String::with_capacity(self.prefix.len() + text.len());
        key.push_str(&self.prefix);
        escape(text, &mut key);
        Ok(key)
    }

    pub(super) fn of(&self, name: &Name) -> Result<Arc<NameKeys>> {
        // To make them anew takes as long as all the rest that is done for a call.
        const MOST_KNOWN: usize = 4096;
        let mut known = self.known();
        if let Some((last, keys)) = &known.last
            && last == name
        {
            return Ok(Arc::clone(keys));
        }
        let keys = match known.by_name.get(name) {
            Some(keys) => Arc::clone(keys),
            None => {
                let keys = Arc::new(self.make(name)?);
                if known.by_name.len() >= MOST_KNOWN {
                    known.by_name.clear();
                }
                known.by_name.insert(name.clone(), Arc::clone(&keys));
                keys
            }
        };
        known.last = Some((name.clone(), Arc::clone(&keys)));
        Ok(keys)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, name: &Name) -> Result<NameKeys> {
        let holder = self.holder(name)?;
        let side = |what: &str| beside(&holder, &format!("{}:{what}", name.family().word()));
        Ok(NameKeys {
            token: side("token"),
            state: side("state"),
            ends: side("ends"),
            queue: side("queue"),
            log: side("log"),
            holder: if name.family() == Family::Lock { holder } else { side("holder") },
            crowded: AtomicBool::new(false),
            counted_at: AtomicU64::new(0),
            last: AtomicU64::new(0),
            shared: AtomicBool::new(false),
        })
    }

    pub(super) fn cell(&self, name: &Name) -> Result<String> {
        Ok(beside(&self.holder(name)?, "cell"))
    }

    /// The patterns that find the names of a family that start with `prefix`.
    pub(super) fn patterns(&self, family: Family, prefix: &str) -> Vec<String> {
        let mut start = String::new();
        if self.raw {
            start.push_str(prefix);
        } else {
            start.push_str(&self.prefix);
            escape(prefix, &mut start);
        }
        let start = glob(&start);
        let mut patterns = vec![format!("{{{start}*}}:{family}:state")];
        if tag(&start).is_some() || self.raw {
            patterns.push(format!("{start}*:{family}:state"));
        }
        if family == Family::Lock {
            patterns.push(format!("{start}*"));
        }
        patterns
    }

    /// The name that a key belongs to, if it is one of ours.
    pub(super) fn name(&self, family: Family, key: &str) -> Option<Name> {
        let side = format!(":{family}:state");
        let holder = match key.strip_suffix(&side) {
            Some(tagged) => {
                tagged.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(tagged)
            }
            None if family == Family::Lock && !key.starts_with('{') => key,
            None => return None,
        };
        let text = if self.raw { holder.to_owned() } else { unescape(holder.strip_prefix(&self.prefix)?) };
        Name::new(family, text).ok()
    }
}

/// A key that lives in the same slot as `key`.
fn beside(key: &str, what: &str) -> String {
    if tag(key).is_some() { format!("{key}:{what}") } else { format!("{{{key}}}:{what}") }
}

/// The part of a key that decides its slot, if it is not the whole key.
pub(super) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

const ESCAPED: [(&str, char); 3] = [("%7B", '{'), ("%7D", '}'), ("%25", '%')];

/// Writes a name without braces, which would decide its slot. Other names stay as they are, for others to find.
fn escape(text: &str, key: &mut String) {
    for (at, letter) in text.char_indices() {
        let looks_escaped = || ESCAPED.iter().any(|(escaped, _)| text[at..].starts_with(escaped));
        match letter {
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            '%' if looks_escaped() => key.push_str("%25"),
            letter => key.push(letter),
        }
    }
}

fn unescape(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let escaped = ESCAPED.iter().find(|(escaped, _)| rest.starts_with(escaped));
        let (letter, length) =
            escaped.map_or((letter, letter.len_utf8()), |(escaped, letter)| (*letter, escaped.len()));
        name.push(letter);
        rest = &rest[length..];
    }
    name
}

/// Text that stands for itself in a pattern.
fn glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> Keys {
        Keys::with_prefix(prefix)
    }

    fn lock(text: &str) -> Name {
        Name::new(Family::Lock, text).expect("a name")
    }

    /// These are what servers contain: they never change.
    #[test]
    fn keys_are_pinned() {
        let found = keys("lock:").of(&lock("stock/42")).expect("keys");
        assert_eq!(found.holder, "lock:stock/42");
        assert_eq!(found.token, "{lock:stock/42}:lock:token");
        assert_eq!(found.queue, "{lock:stock/42}:lock:queue");
        let semaphore = Name::new(Family::Semaphore, "a{b}").expect("a name");
        assert_eq!(keys("lock:").of(&semaphore).expect("keys").state, "{lock:a%7Bb%7D}:semaphore:state");
        assert_eq!(keys("{app}:").of(&lock("x")).expect("keys").state, "{app}:x:lock:state");
        let raw = Keys::raw();
        assert_eq!(raw.of(&lock("user:{7}:lock")).expect("keys").state, "user:{7}:lock:lock:state");
        assert!(raw.of(&lock("a}b")).is_err());
    }

    #[test]
    fn names_come_back_from_keys() {
        for text in ["", "a", "50%", "%7B", "{", "}{", "a{b}c%25", "é%7Bé", "*?[x]"] {
            let keys = keys("lock:");
            let found = keys.of(&lock(text)).expect("keys");
            assert_eq!(keys.name(Family::Lock, &found.holder), Some(lock(text)), "{text}");
            assert_eq!(keys.name(Family::Lock, &found.state), Some(lock(text)), "{text}");
        }
    }

    #[test]
    fn different_names_have_different_keys() {
        let keys = keys("lock:");
        let texts = ["{", "%7B", "%257B", "%25", "%", "}"];
        let holders: std::collections::BTreeSet<_> =
            texts.iter().map(|text| keys.holder(&lock(text)).expect("a key")).collect();
        assert_eq!(holders.len(), texts.len());
    }
}
