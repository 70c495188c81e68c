//! "Did you mean …?": the known word that is nearest to what was written.

/// The word that is nearest to `written`, if one is so near that a slip of the finger explains it.
///
/// A letter that is missing, wrong, too many or swapped with its neighbour is one slip. Words of up
/// to four letters may have one, longer ones two. Case does not count.
pub(crate) fn nearest<'a>(written: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let slips = |word: &str| strsim::osa_distance(&written, &word.to_lowercase());
    let near = words.into_iter().filter(|word| slips(word) <= if word.len() <= 4 { 1 } else { 2 });
    near.min_by_key(|word| slips(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let words = ["raw", "prefix", "wait", "eviction"];
        for (written, meant) in [
            ("prefx", Some("prefix")),
            ("perfix", Some("prefix")),
            ("PREFIX", Some("prefix")),
            ("waits", Some("wait")),
            ("evition", Some("eviction")),
            ("raw", Some("raw")),
            ("law", Some("raw")),
            ("wet", None),
            ("speed", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, words), meant, "{written}");
        }
    }
}
