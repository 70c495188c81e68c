//! Where a name is kept: its keys, all in one slot of a cluster.
//!
//! A lock's own key K is the prefix and the name, whose braces are escaped. What else is kept of a
//! name stands beside K: at `{K}:WHAT`, or at `K{WHAT}` if the prefix has a hash tag. A brace after
//! the prefix is written for no name, so no name's own key is where another's are kept. Raw keys
//! are not escaped; those that look like one of ours are refused.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// How names become keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Before every name.
    pub(crate) prefix: String,
    /// Names are keys as they are.
    pub(crate) raw: bool,
    /// Of names that were used lately.
    known: Mutex<HashMap<Name, Arc<NameKeys>>>,
}

/// The keys of one name, in the order of every script.
#[derive(Debug)]
pub(crate) struct NameKeys {
    /// The last to ask had to wait: it is not worth trying whether the name is free.
    pub(crate) crowded: AtomicBool,
    /// The last grant was that of a free lock: giving it back is likely to be simple.
    pub(crate) plain: AtomicBool,
    pub(crate) holder: String,
    pub(crate) token: String,
    pub(crate) state: String,
    pub(crate) ends: String,
    pub(crate) queue: String,
    pub(crate) log: String,
}

impl NameKeys {
    pub(crate) fn all(&self) -> [&str; 6] {
        [&self.holder, &self.token, &self.state, &self.ends, &self.queue, &self.log]
    }
}

impl Keys {
    /// Names with something before them.
    pub(crate) fn with_prefix(prefix: impl Into<String>) -> Result<Keys> {
        let prefix = prefix.into();
        if is_odd(&prefix) {
            return Err(Error::invalid(
                "`prefix=` has braces without a hash tag; a cluster could not keep the keys of a name together. It looks like \
                 `prefix=app:` or `prefix={app}:`",
            ));
        }
        Ok(Keys { prefix, raw: false, known: Mutex::default() })
    }

    /// Names as they are.
    pub(crate) fn raw() -> Keys {
        Keys { prefix: String::new(), raw: true, known: Mutex::default() }
    }

    /// The key that strangers know.
    fn holder(&self, name: &Name) -> Result<String> {
        let text = name.as_str();
        if text.is_empty() && self.prefix.is_empty() {
            return Err(Error::invalid("an empty name needs a `prefix=`; its key would be empty"));
        }
        if self.raw {
            if is_odd(text) {
                return Err(Error::invalid(format!(
                    "the raw key `{text}` has braces without a hash tag; its other keys could not be kept beside it"
                )));
            }
            if name.family() == Family::Lock
                && let Some(other) = stands_beside(text, is_ours)
            {
                return Err(Error::invalid(format!(
                    "the raw key `{text}` is where leasehold keeps what belongs to `{other}`; use another name"
                )));
            }
            return Ok(text.to_owned());
        }
        Ok(format!("{}{}", self.prefix, escape(text)))
    }

    pub(crate) fn of(&self, name: &Name) -> Result<Arc<NameKeys>> {
        // To make them anew takes as long as all the rest that is done for a call.
        const MOST_KNOWN: usize = 4096;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = known.get(name) {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(self.make(name)?);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(name.clone(), Arc::clone(&keys));
        Ok(keys)
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
            plain: AtomicBool::new(false),
        })
    }

    /// The key of a cell. Cells whose names have the same hash tag are in the same slot.
    pub(crate) fn cell(&self, name: &Name) -> Result<String> {
        let holder = self.holder(name)?;
        match tag(name.as_str()) {
            Some(tag) if !self.raw && self::tag(&self.prefix).is_none() => {
                Ok(format!("{{{}{}}}:cell:{}", self.prefix, escape(tag), escape(name.as_str())))
            }
            _ => Ok(beside(&holder, "cell")),
        }
    }

    /// The patterns that find the names of a family that start with `prefix`.
    pub(crate) fn patterns(&self, family: Family, prefix: &str) -> Vec<String> {
        let start = if self.raw { prefix.to_owned() } else { format!("{}{}", self.prefix, escape(prefix)) };
        let start = glob(&start);
        let tagged = tag(&self.prefix).is_some();
        let mut patterns = Vec::new();
        if !tagged {
            patterns.push(format!("{{{start}*}}:{family}:state"));
        }
        if tagged || self.raw {
            patterns.push(format!("{start}*{{{family}:state}}"));
        }
        if family == Family::Lock {
            patterns.push(format!("{start}*"));
        }
        patterns
    }

    /// The patterns that find cells whose names start with `prefix`.
    pub(crate) fn cell_patterns(&self, prefix: &str) -> Vec<String> {
        let (start, escaped) = (glob(&self.prefix), glob(&escape(prefix)));
        if self.raw {
            let prefix = glob(prefix);
            vec![format!("{{{prefix}*}}:cell"), format!("{prefix}*{{cell}}")]
        } else if tag(&self.prefix).is_some() {
            vec![format!("{start}{escaped}*{{cell}}")]
        } else {
            vec![format!("{{{start}*}}:cell:{escaped}*"), format!("{{{start}{escaped}*}}:cell")]
        }
    }

    /// The name of the cell that has this key, if it is one of ours.
    pub(crate) fn cell_name(&self, key: &str) -> Option<Name> {
        let by_tag = || key.strip_prefix('{')?.split_once("}:cell:").map(|(_, escaped)| unescape(escaped));
        let text = match stands_beside(key, |what| what == "cell") {
            Some(holder) if self.raw => holder.to_owned(),
            Some(holder) => unescape(holder.strip_prefix(&self.prefix)?),
            None => by_tag()?,
        };
        let name = Name::new(Family::Cell, text).ok()?;
        self.cell(&name).is_ok_and(|own| own == key).then_some(name)
    }

    /// The name that a key belongs to, if it is one of ours.
    pub(crate) fn name(&self, family: Family, key: &str) -> Option<Name> {
        let state = format!("{family}:state");
        let holder = match stands_beside(key, |what| what == state) {
            Some(holder) => holder,
            None if family == Family::Lock => key,
            None => return None,
        };
        let text = if self.raw {
            holder.to_owned()
        } else {
            let escaped = holder.strip_prefix(&self.prefix)?;
            if escaped.contains(['{', '}']) {
                return None;
            }
            unescape(escaped)
        };
        let name = Name::new(family, text).ok()?;
        // What else is kept of a raw name.
        self.holder(&name).ok()?;
        Some(name)
    }
}

/// The key of what belongs to a key, in the same slot.
pub(crate) fn beside(key: &str, what: &str) -> String {
    if tag(key).is_some() { format!("{key}{{{what}}}") } else { format!("{{{key}}}:{what}") }
}

/// The key that another one stands beside, if that is what [`beside`] makes of it for something of
/// a kind.
fn stands_beside(key: &str, is: impl Fn(&str) -> bool) -> Option<&str> {
    if let Some((tagged, what)) = key.strip_suffix('}').and_then(|key| key.rsplit_once('{')) {
        return (tag(tagged).is_some() && is(what)).then_some(tagged);
    }
    let (inner, what) = key.strip_prefix('{')?.split_once("}:")?;
    (!inner.contains(['{', '}']) && is(what)).then_some(inner)
}

/// What is kept beside the key of a name.
fn is_ours(what: &str) -> bool {
    const PARTS: [&str; 6] = ["token", "state", "ends", "queue", "log", "holder"];
    let of_a_name = |(family, part): (&str, &str)| {
        let names = Family::ALL.iter().any(|known| known.word() == family) && PARTS.contains(&part);
        names || family == "redlock" && (PARTS.contains(&part) || part.starts_with("gone:"))
    };
    what == "cell" || what.starts_with("cell:") || what.split_once(':').is_some_and(of_a_name)
}

/// True if a key has braces that decide nothing: what belongs to it would be in another slot.
fn is_odd(key: &str) -> bool {
    tag(key).is_none() && key.contains(['{', '}'])
}

/// The part of a key that decides its slot, if it is not the whole key.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Braces, which would decide the slot of a key, and how they are written in one.
const BRACES: [(&str, &str); 2] = [("{", "%7B"), ("}", "%7D")];

/// Writes a name without braces. Other names stay as they are, for others to find, but for those
/// that look escaped.
fn escape(text: &str) -> String {
    let plain = text.replace("%25", "%2525");
    let plain = BRACES.iter().fold(plain, |text, (_, code)| text.replace(code, &code.replace('%', "%25")));
    BRACES.iter().fold(plain, |text, (brace, code)| text.replace(brace, code))
}

fn unescape(text: &str) -> String {
    let named = BRACES.iter().fold(text.to_owned(), |text, (brace, code)| text.replace(code, brace));
    named.replace("%25", "%")
}

/// Text that stands for itself in a pattern.
fn glob(text: &str) -> String {
    let special = ['\\', '*', '?', '[', ']', '^'];
    special.into_iter().fold(text.to_owned(), |text, letter| text.replace(letter, &format!("\\{letter}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> Keys {
        Keys::with_prefix(prefix).expect("a prefix")
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
        assert_eq!(keys("{app}:").of(&lock("x")).expect("keys").state, "{app}:x{lock:state}");
        let latch = Name::new(Family::Cell, "x").expect("a name");
        assert_eq!(keys("lock:").cell(&latch).expect("a key"), "{lock:x}:cell");
        assert_eq!(keys("{app}:").cell(&latch).expect("a key"), "{app}:x{cell}");
        let tagged = Name::new(Family::Cell, "{u7}/day").expect("a name");
        assert_eq!(keys("lock:").cell(&tagged).expect("a key"), "{lock:u7}:cell:%7Bu7%7D/day");
        assert_eq!(keys("{app}:").cell(&tagged).expect("a key"), "{app}:%7Bu7%7D/day{cell}");
        assert_eq!(Keys::raw().cell(&tagged).expect("a key"), "{u7}/day{cell}");
        let raw = Keys::raw();
        assert_eq!(raw.of(&lock("user:7")).expect("keys").state, "{user:7}:lock:state");
        assert_eq!(raw.of(&lock("user:{7}:lock")).expect("keys").state, "user:{7}:lock{lock:state}");
    }

    /// Names that look like something of another's.
    const TEXTS: [&str; 23] = [
        "",
        "x",
        "50%",
        "%7B",
        "{",
        "}{",
        "a{b}c%25",
        "é%7Bé",
        "*?[x]",
        "x:lock:state",
        "x:lock:token",
        "x{lock:state}",
        "x{lock:token}",
        "{x}:lock:state",
        "a}:lock:state",
        "x:semaphore:holder",
        "x{semaphore:holder}",
        "x:cell",
        "x{cell}",
        "{x}",
        "{x}y",
        "y{x}",
        "x:cell:%7Bx%7D",
    ];
    const FAMILIES: [Family; 3] = [Family::Lock, Family::Semaphore, Family::Election];
    const PREFIXES: [&str; 6] = ["lock:", "", "{app}:", "a:{b}{", "{a}{b}}", "%7B:"];

    #[test]
    fn cells_come_back_from_keys() {
        for keys in PREFIXES.map(keys).into_iter().chain([Keys::raw()]) {
            for text in TEXTS {
                let name = Name::new(Family::Cell, text).expect("a name");
                let Ok(key) = keys.cell(&name) else { continue };
                assert_eq!(keys.cell_name(&key), Some(name), "{} {text}", keys.prefix);
                assert_eq!(keys.cell_name(&beside(&key, "lock:state")), None, "{} {text}", keys.prefix);
            }
        }
    }

    #[test]
    fn names_come_back_from_keys() {
        for prefix in PREFIXES {
            let keys = keys(prefix);
            for (text, family) in TEXTS.iter().flat_map(|text| FAMILIES.map(|family| (text, family))) {
                let name = Name::new(family, *text).expect("a name");
                if text.is_empty() && prefix.is_empty() {
                    continue;
                }
                let found = keys.of(&name).expect("keys");
                assert_eq!(keys.name(family, &found.state), Some(name.clone()), "{prefix} {text}");
                if family == Family::Lock {
                    assert_eq!(keys.name(family, &found.holder), Some(name), "{prefix} {text}");
                }
                for key in [&found.token, &found.ends, &found.queue, &found.log] {
                    for family in FAMILIES {
                        assert_eq!(keys.name(family, key), None, "{prefix} {text}: {key}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_two_names_have_a_key_in_common() {
        for keys in PREFIXES.map(keys).into_iter().chain([Keys::raw()]) {
            let mut all = std::collections::BTreeMap::new();
            for (text, family) in TEXTS.iter().flat_map(|text| FAMILIES.map(|family| (text, family))) {
                let name = Name::new(family, *text).expect("a name");
                let Ok(found) = keys.of(&name) else { continue };
                let latch = Name::new(Family::Cell, *text).expect("a name");
                let other = all.insert(keys.cell(&latch).expect("a key"), latch.clone());
                assert!(other.is_none_or(|other| other == latch), "{:?} {text}", keys.prefix);
                for key in found.all() {
                    let other = all.insert(key.to_owned(), name.clone());
                    assert_eq!(other, None, "{:?} at {key}", keys.prefix);
                }
            }
        }
    }

    #[test]
    fn all_keys_of_a_name_are_in_one_slot() {
        let slot = |key: &str| tag(key).unwrap_or(key).to_owned();
        for keys in PREFIXES.map(keys).into_iter().chain([Keys::raw()]) {
            for text in TEXTS {
                let Ok(found) = keys.of(&lock(text)) else { continue };
                for key in found.all() {
                    assert_eq!(slot(key), slot(&found.holder), "{:?} {text}", keys.prefix);
                }
            }
        }
    }

    #[test]
    fn prefixes_that_a_cluster_can_not_keep_together_are_refused() {
        for prefix in ["{", "}", "{}", "{}:{a}", "a}b", "{app:", "}{", "app}:"] {
            let error = Keys::with_prefix(prefix).expect_err(prefix).to_string();
            assert!(error.contains("hash tag"), "{error}");
        }
    }

    #[test]
    fn raw_keys_are_refused_where_something_else_is_kept() {
        let raw = Keys::raw();
        for text in
            ["x", "x:lock:state", "{x}", "{x}:y", "{x}:lock", "a{x}b{c}", "{x}:lock:states", "{x}{y:state}"]
        {
            raw.of(&lock(text)).expect(text);
        }
        for text in [
            "{x}:lock:state",
            "{x}:semaphore:holder",
            "{x}:cell",
            "{x}:cell:y",
            "a{x}{lock:token}",
            "{x}:redlock:gone:1",
        ] {
            let error = raw.of(&lock(text)).expect_err(text).to_string();
            assert!(error.contains("belongs to"), "{error}");
            // Only the key of a lock is the name itself.
            raw.of(&Name::new(Family::Semaphore, text).expect("a name")).expect(text);
        }
        for text in ["a}b", "{}", "{a", "a}:lock:state"] {
            assert!(raw.of(&lock(text)).expect_err(text).to_string().contains("hash tag"));
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
