//! The statements, with the names of the tables in them.

/// The names of the tables, quoted.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub(super) names: String,
    pub(super) queue: String,
    pub(super) cells: String,
    pub(super) format: String,
}

/// Every statement, as it is sent.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) take: String,
    pub(super) give_back: String,
    pub(super) read_name: String,
    pub(super) update_name: String,
    pub(super) insert_name: String,
    pub(super) update_name_and_queue: String,
    pub(super) insert_name_and_queue: String,
    pub(super) touch_waiter: String,
    pub(super) delete_waiters: String,
    pub(super) read_names: String,
    pub(super) write_names: String,
    pub(super) list_names: String,
    pub(super) sweep_names: String,
    pub(super) sweep_cells: String,
    pub(super) read_cells: String,
    pub(super) list_cells: String,
    pub(super) reserve_cells: String,
    pub(super) insert_cell: String,
    pub(super) write_cells: String,
    pub(super) read_format: String,
    pub(super) verify: String,
    pub(super) replace_cell: String,
    pub(super) add_cell: String,
}

/// The server's clock in microseconds. Not `now()`, which is when the transaction began.
pub(super) const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";

/// The setting by which a session of the server shows for which connection it was started.
pub(super) const MARK: &str = "leasehold.session";

/// Nobody waits long for a row that somebody else has locked: requests on other names wait behind
/// it.
const LOCKS: &str = "set_config('lock_timeout', '30ms', true)";

/// On disk, and where the administrator says so with the standbys, before it is answered.
const FLUSHED: &str = "set_config('synchronous_commit', \
     case current_setting('synchronous_commit') when 'off' then 'on' \
     else current_setting('synchronous_commit') end, true)";

const SOON: &str = "set_config('synchronous_commit', 'off', true)";

/// As the parameter says.
const DURABILITY: &str = "set_config('synchronous_commit', \
     case when not $12 then 'off' when current_setting('synchronous_commit') = 'off' then 'on' \
     else current_setting('synchronous_commit') end, true)";

impl Tables {
    /// Tables that start with `prefix`, in a schema or where the search path finds them.
    pub(super) fn new(schema: Option<&str>, prefix: &str) -> Tables {
        let schema = schema.map(|schema| format!("{}.", quoted(schema))).unwrap_or_default();
        let table = |name: &str| format!("{schema}{}", quoted(&format!("{prefix}_{name}")));
        Tables {
            names: table("names"),
            queue: table("queue"),
            cells: table("cells"),
            format: table("format"),
        }
    }

    pub(super) fn all(&self) -> [&str; 4] {
        [&self.names, &self.queue, &self.cells, &self.format]
    }

    /// Puts the names into a text.
    pub(super) fn fill(&self, text: &str) -> String {
        let text = text.replace(":names", &self.names).replace(":queue", &self.queue);
        text.replace(":cells", &self.cells).replace(":format", &self.format)
    }

    fn statement(&self, text: &str) -> String {
        self.fill(&with_settings(text).replace(":durability", DURABILITY))
    }
}

/// Puts the time and settings into a text, and leaves out lines that are comments.
pub(super) fn with_settings(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    let text = lines.join("\n").replace(":now", NOW).replace(":locks", LOCKS);
    text.replace(":flushed", FLUSHED).replace(":soon", SOON)
}

/// An identifier in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Statements {
        let statement = |text: &str| tables.statement(text);
        let update_name = statement(include_str!("update_name.sql"));
        let insert_name = statement(include_str!("insert_name.sql"));
        let queue = statement(include_str!("queue.sql"));
        Statements {
            take: statement(include_str!("take.sql")),
            give_back: statement(include_str!("give_back.sql")),
            read_name: statement(include_str!("read_name.sql")),
            update_name_and_queue: queue.replace(":write", &update_name),
            insert_name_and_queue: queue.replace(":write", &insert_name),
            update_name,
            insert_name,
            touch_waiter: statement(include_str!("touch_waiter.sql")),
            delete_waiters: statement(include_str!("delete_waiters.sql")),
            read_names: statement(include_str!("read_names.sql")),
            write_names: statement(include_str!("write_names.sql")),
            list_names: statement(include_str!("list_names.sql")),
            sweep_names: statement(include_str!("sweep_names.sql")),
            sweep_cells: statement(include_str!("sweep_cells.sql")),
            read_cells: statement(include_str!("read_cells.sql")),
            list_cells: statement(include_str!("list_cells.sql")),
            reserve_cells: statement(include_str!("reserve_cells.sql")),
            insert_cell: statement(include_str!("insert_cell.sql")),
            write_cells: statement(include_str!("write_cells.sql")),
            verify: statement(include_str!("verify.sql")),
            replace_cell: statement(include_str!("replace_cell.sql")),
            add_cell: statement(include_str!("add_cell.sql")),
            read_format: statement("select format from :format order by format desc limit 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let tables = Tables::new(Some("a schema"), "it\"s");
        let statements = format!("{:?}", Statements::new(&tables));
        for word in [
            ":names",
            ":queue",
            ":cells",
            ":format",
            ":now",
            ":locks",
            ":flushed",
            ":soon",
            ":durability",
            ":write",
        ] {
            assert!(!statements.contains(word), "{word} in {statements}");
        }
        assert_eq!(tables.names, r#""a schema"."it""s_names""#);
    }
}
