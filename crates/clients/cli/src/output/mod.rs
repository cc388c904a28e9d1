//! Results in the requested format.
//!
//! A result is JSON: one object or a list of them, as the API gave it. `json` and `yaml` print all of it; `table`
//! and `csv` print the columns that the command names. Only results go to standard output.

mod cell;
mod fit;
mod mood;
mod table;
mod time;
mod view;

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{ErrorKind, IsTerminal as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use serde::Serialize;
use serde_json::Value;

pub use cell::{counted, printable};
pub use kernel::money::{decimal, minor, money};
pub use time::{relative, span};
pub use view::View;

use crate::{
    args::Format,
    failure::{Result, local},
};

/// Title and where its value is in an item: `name`, or `envelope.event_type`. In the order of their importance: where
/// the width is limited, the last ones are left out.
pub type Columns = &'static [(&'static str, &'static str)];

fn with_currency(columns: Columns) -> Vec<(&'static str, &'static str)> {
    let currency = ("CURRENCY", "currency");
    let more = (!columns.contains(&currency)).then_some(currency);
    columns.iter().copied().chain(more).collect()
}

pub struct Output {
    pub format: Format,
    headers: bool,
    view: View,
    /// Names of ids, for tables.
    names: RefCell<HashMap<String, String>>,
}

impl Output {
    pub fn new(format: Format, headers: bool, view: View) -> Self {
        Self { format, headers, view, names: RefCell::default() }
    }

    pub fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// Tables show the id by this name from now on.
    pub fn learn(&self, id: &str, name: &str) {
        self.names.borrow_mut().insert(id.to_owned(), name.to_owned());
    }

    /// How tables show an id.
    pub fn name_of(&self, id: &str) -> String {
        self.names.borrow().get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    /// The row with names for the ids that it refers to. Its own id stays.
    fn with_names(&self, mut row: Value) -> Value {
        let names = self.names.borrow();
        for (_, value) in row.as_object_mut().into_iter().flatten().filter(|(name, _)| *name != "id") {
            if let Some(name) = value.as_str().and_then(|id| names.get(id)) {
                *value = Value::String(name.clone());
            }
        }
        row
    }

    pub fn list<T: Serialize>(&self, items: &[T], columns: Columns) -> Result {
        let rows: Vec<Value> = items.iter().map(json).collect::<Result<_>>()?;
        match self.format {
            Format::Table => {
                let rows: Vec<Value> = rows.into_iter().map(|row| self.with_names(row)).collect();
                write(&table::list(&rows, columns, self.headers, &self.view))
            }
            Format::Csv => self.csv(&rows, columns),
            Format::Json | Format::Yaml => self.document(&Value::Array(rows)),
        }
    }

    pub fn item<T: Serialize>(&self, item: &T, columns: Columns) -> Result {
        let row = json(item)?;
        match self.format {
            Format::Table => write(&table::item(&self.with_names(row), columns, &self.view)),
            Format::Csv => self.csv(&[row], columns),
            Format::Json | Format::Yaml => self.document(&row),
        }
    }

    /// A list with amounts: `cost_minor` and `currency` are shown as `cost`. In tables that is `4.50 USD`, in CSV it is
    /// `4.50`, and the currency is a column of its own.
    pub fn priced<T: Serialize>(&self, items: &[T], columns: Columns) -> Result {
        let rows: Vec<Value> = items.iter().map(|item| self.with_prices(item)).collect::<Result<_>>()?;
        match self.format {
            Format::Csv => self.csv(&rows, &with_currency(columns)),
            _ => self.list(&rows, columns),
        }
    }

    /// The same of one item.
    pub fn priced_item<T: Serialize>(&self, item: &T, columns: Columns) -> Result {
        let row = self.with_prices(item)?;
        match self.format {
            Format::Csv => self.csv(&[row], &with_currency(columns)),
            _ => self.item(&row, columns),
        }
    }

    fn with_prices<T: Serialize>(&self, item: &T) -> Result<Value> {
        let mut row = json(item)?;
        if matches!(self.format, Format::Json | Format::Yaml) {
            return Ok(row);
        }
        if let Some(fields) = row.as_object_mut()
            && let Some(currency) = fields.get("currency").and_then(Value::as_str).map(str::to_owned)
        {
            let shown: Vec<(String, Value)> = fields
                .iter()
                .filter_map(|(name, value)| {
                    let name = name.strip_suffix("_minor")?;
                    let text = if self.is_table() { money } else { decimal };
                    Some((name.to_owned(), text(value.as_i64()?, &currency).into()))
                })
                .collect();
            // Tables show the formatted amounts only.
            fields.retain(|name, _| !name.ends_with("_minor"));
            fields.extend(shown);
        }
        Ok(row)
    }

    /// A page about one resource for people: named lines, and text below them. JSON and YAML print the resource itself.
    pub fn page<T: Serialize>(&self, item: &T, lines: &[(&'static str, String)], below: &str) -> Result {
        match self.format {
            Format::Table => {
                let lines = self.named_lines(lines);
                write(&format!("{}{}", table::page(&lines, &self.view), printable(below)))
            }
            Format::Csv => {
                let paths: Vec<(&'static str, &'static str)> =
                    lines.iter().map(|(name, _)| (*name, *name)).collect();
                let row = lines.iter().map(|(name, text)| ((*name).to_owned(), Value::String(text.clone())));
                self.csv(&[Value::Object(row.collect())], &paths)
            }
            Format::Json | Format::Yaml => self.document(&json(item)?),
        }
    }

    /// The lines with names for the ids that they refer to. Its own id stays.
    fn named_lines(&self, lines: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
        let names = self.names.borrow();
        let named = |(line, text): &(&'static str, String)| match names.get(text) {
            Some(name) if *line != "id" => (*line, name.clone()),
            _ => (*line, text.clone()),
        };
        lines.iter().map(named).collect()
    }

    /// A result that is a single value: as it is in a table or CSV, whole in JSON and YAML.
    pub fn value<T: Serialize>(&self, item: &T, path: &str) -> Result {
        let row = json(item)?;
        match self.format {
            Format::Table | Format::Csv => {
                write(&format!("{}\n", printable(&cell::text(cell::at(&row, path)))))
            }
            Format::Json | Format::Yaml => self.document(&row),
        }
    }

    fn document(&self, value: &Value) -> Result {
        let text = match self.format {
            Format::Yaml => serde_yaml_ng::to_string(value).map_err(local("the result cannot be printed"))?,
            _ => format!("{:#}\n", value),
        };
        write(&text)
    }

    fn csv(&self, rows: &[Value], columns: &[(&str, &str)]) -> Result {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let cannot = |error: csv::Error| local("the result cannot be printed")(error);
        if self.headers {
            writer.write_record(columns.iter().map(|(_, path)| path)).map_err(cannot)?;
        }
        for row in rows {
            writer
                .write_record(columns.iter().map(|(_, path)| cell::text(cell::at(row, path))))
                .map_err(cannot)?;
        }
        let bytes =
            writer.into_inner().map_err(|error| local("the result cannot be printed")(error.error()))?;
        write(&String::from_utf8_lossy(&bytes))
    }
}

fn json<T: Serialize>(item: &T) -> Result<Value> {
    serde_json::to_value(item).map_err(local("the result cannot be printed"))
}

/// To standard output. A closed pipe is not an error.
pub fn write(text: &str) -> Result {
    write_bytes(text.as_bytes())
}

pub fn write_bytes(bytes: &[u8]) -> Result {
    write_on(bytes).map(drop)
}

static CLEAR: AtomicBool = AtomicBool::new(false);

/// The next output starts on an empty screen. Not earlier, so that nothing flickers while the server is asked.
pub fn clear_before_next() {
    CLEAR.store(true, Ordering::Relaxed);
}

/// The same for endless output: false when the pipe was closed.
pub fn write_on(bytes: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    if CLEAR.swap(false, Ordering::Relaxed) {
        // Cursor to the top, and erase to the end of the screen.
        let _ = out.write_all(b"\x1b[H\x1b[2J");
    }
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(local("the output cannot be written")(error)),
    }
}

/// Text between words in lines that fit the terminal, each behind a margin. Whole where the width is not known.
pub fn wrapped(text: &str, margin: &str) -> String {
    let width = if std::io::stderr().is_terminal() { comfy_table::Table::new().width() } else { None };
    wrapped_to(text, margin, width.map(usize::from))
}

fn wrapped_to(text: &str, margin: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return format!("{margin}{text}") };
    let (mut lines, mut line) = (Vec::new(), margin.to_owned());
    for word in text.split(' ') {
        let filled = line.len() > margin.len();
        if filled && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, margin.to_owned()));
        } else if filled {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

/// A message for the user on standard error, not a result.
pub fn note(text: &str) {
    error_line(&printable(text));
}

/// A line on standard error. A terminal that is gone is not an error: nobody is there to read it.
pub fn error_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words_behind_its_margin() {
        assert_eq!(wrapped_to("one two three", "  ", Some(9)), "  one two\n  three");
        assert_eq!(wrapped_to("one two three", "  ", None), "  one two three");
        assert_eq!(wrapped_to("unbreakable", "  ", Some(4)), "  unbreakable");
    }
}
