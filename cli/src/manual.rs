//! `leasehold man` and `leasehold completions`.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::{Args, Completions};
use crate::exit::{EXAMPLES, Failure};

pub(crate) fn completions(args: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "leasehold", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Prints one page with all commands.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut page = Vec::new();
    let mut command = Args::command();
    command.build();
    let whole = Man::new(command.clone());
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        section(part, &mut page)?;
    }
    tables(EXAMPLES, "SH", &mut page)?;
    io::stdout().write_all(&page)?;
    Ok(0)
}

/// One command, as a section of the page.
fn section(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(page, ".SH \"LEASEHOLD {}\"", command.get_name().to_uppercase())?;
    let usage = command.clone().render_usage().to_string();
    writeln!(page, "{}", roff(usage.trim_start_matches("Usage: ")))?;
    let mut text = Vec::new();
    let man = Man::new(command.clone());
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    for line in String::from_utf8_lossy(&text).lines() {
        // The headings of a page of its own are sub-headings here.
        match line.strip_prefix(".SH ") {
            Some(heading) => writeln!(page, ".SS {heading}")?,
            None => writeln!(page, "{line}")?,
        }
    }
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    tables(&text, "SS", page)
}

/// What stands below the options, line by line as it is. A line that ends in a colon is a heading.
fn tables(text: &str, heading_macro: &str, page: &mut Vec<u8>) -> io::Result<()> {
    for line in text.lines() {
        match line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            Some(heading) => writeln!(page, ".{heading_macro} \"{}\"\n.nf", roff(&heading.to_uppercase()))?,
            None if line.is_empty() => writeln!(page, ".fi\n.PP")?,
            // The indentation of the help, less that of the page. A dot or a quote would be a
            // macro.
            None => writeln!(page, "\\&{}", roff(line.strip_prefix("  ").unwrap_or(line)))?,
        }
    }
    if !text.is_empty() {
        writeln!(page, ".fi")?;
    }
    Ok(())
}

/// Text as it is, in roff.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
