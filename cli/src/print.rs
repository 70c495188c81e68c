//! Where output goes, and how names reach a terminal.

use std::borrow::Cow;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};

/// What stands out.
pub(crate) const STRONG: Style = Style::new().bold();
/// What stands back: headings and the like.
pub(crate) const FAINT: Style = Style::new().dimmed();
const WRONG: Style = AnsiColor::Red.on_default().bold();

/// Says on stderr what went wrong, in one line.
pub(crate) fn complain(message: &str) {
    say(WRONG, message);
}

/// Says on stderr what is going on, in one line: nothing is wrong.
pub(crate) fn remark(message: &str) {
    say(FAINT, message);
}

/// The only way for a message to get to stderr: whatever it quotes (names, labels, URLs, errors of
/// the library), no control character of it reaches the terminal.
fn say(style: Style, message: &str) {
    // If stderr is closed there is nobody to tell.
    writeln!(anstream::stderr(), "{style}leasehold:{style:#} {}", visible(message)).ok();
}

/// The same for a text of several lines that has no colours of its own.
pub(crate) fn complain_in_lines(text: &str) {
    let mut lines = text.lines();
    complain(lines.next().unwrap_or_default());
    for line in lines {
        writeln!(anstream::stderr(), "{}", visible(line)).ok();
    }
}

/// A name or a label as it can be shown: what would move the cursor, or forge a line, is escaped.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) {
        let escape = |c: char| if is_unsafe(c) { c.escape_default().to_string() } else { c.to_string() };
        return Cow::Owned(text.chars().map(escape).collect());
    }
    Cow::Borrowed(text)
}

/// Control characters, and those that turn the direction of the text around.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints one JSON document.
pub(crate) fn json(document: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, document).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// How many columns a text takes, near enough for a table.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_move_the_cursor() {
        assert_eq!(visible("stock/42 é"), "stock/42 é");
        assert_eq!(visible("a\n\u{1b}[2Jb\u{202e}"), r"a\n\u{1b}[2Jb\u{202e}");
    }
}
