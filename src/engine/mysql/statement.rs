//! Statements as text, with their values in them.
//!
//! Several statements go to the server in one packet, which parameters of prepared statements do
//! not allow. So values are written into the text. They are numbers and bytes only, and bytes are
//! written in hexadecimal: there is nothing to escape.

use std::fmt::Write as _;

/// The names of the tables, quoted.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) prefix: String,
    names: String,
    queue: String,
    cells: String,
    pub(super) format: String,
}

/// What the names of the tables start with, unless the URL says otherwise.
pub(super) const PREFIX: &str = "leasehold";

/// The server's clock in microseconds: when the statement began. UTC, whatever the time zone of the
/// session.
const NOW: &str = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";

impl Tables {
    /// Tables that start with `prefix`.
    pub(super) fn new(prefix: &str) -> Tables {
        let table = |name: &str| format!("`{prefix}_{name}`");
        Tables {
            prefix: prefix.to_owned(),
            names: table("names"),
            queue: table("queue"),
            cells: table("cells"),
            format: table("format"),
        }
    }

    /// The names of all tables.
    pub(super) fn all(&self) -> [&str; 4] {
        [&self.names, &self.queue, &self.cells, &self.format]
    }

    /// Puts the names of the tables into a text.
    pub(super) fn fill(&self, text: &str) -> String {
        self.statement(text, &[])
    }

    /// A statement: `:names` and the like become the names of tables, `:now` the time, `$1` a
    /// value. Lines that are comments are left out.
    pub(super) fn statement(&self, text: &str, values: &[Value<'_>]) -> String {
        let mut out = String::with_capacity(2 * text.len() + values.iter().map(Value::length).sum::<usize>());
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            let mut rest = line;
            while let Some(at) = rest.find([':', '$']) {
                let (before, mark) = rest.split_at(at);
                out.push_str(before);
                let end =
                    mark[1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(mark.len(), |end| end + 1);
                let (word, after) = mark.split_at(end);
                match word {
                    ":names" => out.push_str(&self.names),
                    ":queue" => out.push_str(&self.queue),
                    ":cells" => out.push_str(&self.cells),
                    ":format" => out.push_str(&self.format),
                    ":now" => out.push_str(NOW),
                    _ => match value(word, values) {
                        Some(value) => value.write(&mut out),
                        // No statement has such a word; the server would refuse it.
                        None => out.push_str(word),
                    },
                }
                rest = after;
            }
            out.push_str(rest);
            out.push('\n');
        }
        out
    }
}

/// True if this can start the names of tables.
pub(super) fn is_prefix(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.len() <= 40 && text.chars().all(letters)
}

/// The value that `$1` stands for.
fn value<'a>(word: &str, values: &'a [Value<'a>]) -> Option<&'a Value<'a>> {
    let number: usize = word.strip_prefix('$')?.parse().ok()?;
    values.get(number.checked_sub(1)?)
}

/// A value in a statement.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Int(i64),
    Bytes(&'a [u8]),
    /// A text, compared as the column is that it is compared with.
    Text(&'a str),
    /// For `in (…)`. Never empty.
    List(Vec<Value<'a>>),
    /// A table of values, for `from (…) w`: names of columns, and rows. Never empty.
    Table(&'a [&'static str], Vec<Vec<Value<'a>>>),
}

impl From<u64> for Value<'_> {
    /// Numbers are microseconds and tokens, which stay far below the limit.
    fn from(number: u64) -> Self {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl Value<'_> {
    /// About how many bytes it takes.
    pub(super) fn length(&self) -> usize {
        match self {
            Value::Null | Value::Int(_) => 20,
            Value::Bytes(bytes) => 2 * bytes.len() + 3,
            Value::Text(text) => 2 * text.len() + 30,
            Value::List(values) => values.iter().map(Value::length).sum(),
            Value::Table(_, rows) => rows.iter().flatten().map(|value| value.length() + 2).sum(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            // Writing to a text never fails.
            Value::Int(number) => drop(write!(out, "{number}")),
            Value::Text(text) => {
                out.push_str("convert(");
                Value::Bytes(text.as_bytes()).write(out);
                out.push_str(" using utf8mb4)");
            }
            Value::Bytes(bytes) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.push_str("x'");
                for byte in *bytes {
                    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                    out.push(char::from(DIGITS[usize::from(byte & 15)]));
                }
                out.push('\'');
            }
            Value::List(values) => {
                for (number, value) in values.iter().enumerate() {
                    out.push_str(if number == 0 { "" } else { ", " });
                    value.write(out);
                }
            }
            Value::Table(columns, rows) => {
                for (number, row) in rows.iter().enumerate() {
                    out.push_str(if number == 0 { "select " } else { " union all select " });
                    for (place, value) in row.iter().enumerate() {
                        out.push_str(if place == 0 { "" } else { ", " });
                        value.write(out);
                        // The first row names the columns.
                        if let Some(column) = columns.get(place).filter(|_| number == 0) {
                            out.push_str(" as ");
                            out.push_str(column);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_into_the_text() {
        let tables = Tables::new("app");
        let values = [
            Value::from(&b"a'\0"[..]),
            Value::from(-3_i64),
            Value::from(None::<u64>),
            Value::List(vec![Value::from(1_u64), Value::from(&b""[..])]),
            Value::Table(
                &["a", "b"],
                vec![vec![1_u64.into(), Value::Null], vec![2_u64.into(), b"x"[..].into()]],
            ),
        ];
        let text = "-- What $1 is for.\nselect $1, $2,$3 from :names n where n.x in ($4)\nand ($5) '1:2' $11 :nowhere";
        assert_eq!(
            tables.statement(text, &values),
            "select x'612700', -3,null from `app_names` n where n.x in (1, x'')\n\
             and (select 1 as a, null as b union all select 2, x'78') '1:2' $11 :nowhere\n"
        );
    }
}
