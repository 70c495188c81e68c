//! What the pages show is what the cases run.

/// Expects that a source has the example of a page that starts with a line, whatever is indented
/// there.
pub(crate) fn shows(page: &str, first: &str, source: &str) {
    let lines = |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    let (_, example) = page.split_once(&format!("```rust,ignore\n{first}\n")).expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    assert!(lines(source).contains(&lines(example)), "nothing runs this:\n{example}");
}
