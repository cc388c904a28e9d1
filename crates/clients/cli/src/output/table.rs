//! Lists, and the pages of one thing.

use std::collections::{HashMap, HashSet};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets,
};
use serde_json::Value;

use super::{
    cell,
    fit::{self, Extent},
    mood::Mood,
    view::View,
};

/// Title and path, in the order of their importance.
type Column = (&'static str, &'static str);
/// An id is shown with at least this many digits.
const TAIL: usize = 6;

fn table(view: &View) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.force_no_tty();
    if view.colour {
        table.enforce_styling();
    }
    if let Some(width) = view.width.and_then(|width| u16::try_from(width).ok()) {
        table.set_width(width);
    }
    table
}

/// The left margin is the caller's; two characters between columns, none at the end of a line.
fn rendered(mut table: Table) -> String {
    let gap = u16::try_from(fit::GAP).unwrap_or(2);
    for column in table.column_iter_mut() {
        column.set_padding((0, gap));
    }
    table.lines().map(|line| format!("{}\n", without_margin(&line))).collect()
}

/// Without the spaces at the end, which would wrap a line that fills the terminal. Colour may end after them.
fn without_margin(line: &str) -> String {
    const RESET: &str = "\u{1b}[0m";
    let bare = line.trim_end();
    match bare.strip_suffix(RESET) {
        Some(inner) if inner.ends_with(' ') => format!("{}{RESET}", inner.trim_end()),
        _ => bare.to_owned(),
    }
}

pub fn list(rows: &[Value], columns: &[Column], headers: bool, view: &View) -> String {
    if rows.is_empty() && !headers {
        return String::new();
    }
    let tail = tail_of(rows, columns);
    let columns: Vec<Column> = columns.iter().copied().filter(|(_, path)| shown(rows, path, view)).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|(_, path)| text(path, cell::at(row, path), view, tail)).collect())
        .collect();
    let extents: Vec<Extent> = columns
        .iter()
        .enumerate()
        .map(|(index, (title, _))| {
            let title = headers.then_some(*title).into_iter();
            let cells = cells.iter().filter_map(|row| row.get(index).map(String::as_str));
            let measured = Extent::measure(cells, display_width);
            let title = title.map(display_width).max().unwrap_or(0);
            Extent { natural: measured.natural.max(title), least: measured.least.max(title) }
        })
        .collect();
    let widths = fit::columns(&extents, view.width);
    let mut table = table(view);
    // Widths are decided here; the margin after the last column does not count.
    table.set_width(u16::MAX);
    if headers {
        let titles = columns.iter().take(widths.len());
        table.set_header(titles.map(|(title, _)| Cell::new(title).add_attribute(Attribute::Bold)));
    }
    for row in &cells {
        let shown = row.iter().zip(&columns).take(widths.len());
        table.add_row(shown.map(|(text, (_, path))| painted(path, text)));
    }
    for (index, width) in widths.iter().enumerate() {
        let numeric = rows.iter().any(|row| !cell::at(row, columns[index].1).is_null())
            && rows.iter().all(|row| is_amount(cell::at(row, columns[index].1)));
        if let (Some(column), Ok(width)) =
            (table.column_mut(index), u16::try_from(width.saturating_add(fit::GAP)))
        {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            if numeric {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    rendered(table)
}

/// With limited width, a column without any value is left out; the first one never is.
fn shown(rows: &[Value], path: &str, view: &View) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    !view.is_compact() || rows.is_empty() || rows.iter().any(|row| !empty(cell::at(row, path)))
}

/// A number, or an amount of money: `12.50 USD`.
fn is_amount(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) => true,
        Value::String(text) => text.split_once(' ').is_some_and(|(number, currency)| {
            currency.len() == 3
                && currency.bytes().all(|b| b.is_ascii_uppercase())
                && number.bytes().all(|b| b.is_ascii_digit() || b"-+.,".contains(&b))
        }),
        _ => false,
    }
}

fn text(path: &str, value: &Value, view: &View, tail: usize) -> String {
    let accounts = matches!(
        path,
        "period_start" | "window_start" | "window_end" | "posted_at" | "paid_at" | "valid_from"
    );
    let text = if accounts { cell::dated(value, view, tail) } else { cell::short(value, view, tail) };
    match Mood::of_cell(path, &text).filter(|_| view.symbols) {
        Some(mood) if text != "-" => format!("{} {text}", mood.symbol()),
        _ => text,
    }
}

fn painted(path: &str, text: &str) -> Cell {
    let word = text.split_once(' ').filter(|(symbol, _)| !symbol.is_ascii()).map_or(text, |(_, word)| word);
    let cell = Cell::new(text);
    match Mood::of_cell(path, word).and_then(Mood::colour) {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

/// As a terminal counts.
fn display_width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// How many digits tell all ids of a list apart, for each kind of them.
fn tail_of(rows: &[Value], columns: &[Column]) -> usize {
    let mut ids: HashMap<&str, HashSet<&str>> = HashMap::new();
    for text in
        columns.iter().flat_map(|(_, path)| rows.iter().filter_map(move |row| cell::at(row, path).as_str()))
    {
        if let Some(digits) = cell::id_digits(text) {
            let prefix = text.strip_suffix(digits).unwrap_or_default();
            ids.entry(prefix).or_default().insert(digits);
        }
    }
    let told_apart = |length: usize| {
        ids.values().all(|ids| {
            let tails: HashSet<&str> = ids.iter().map(|id| &id[id.len() - length..]).collect();
            tails.len() == ids.len()
        })
    };
    (TAIL..32).find(|length| told_apart(*length)).unwrap_or(32)
}

/// Named lines; one without text is left out.
pub fn page(lines: &[(&'static str, String)], view: &View) -> String {
    let mut table = table(view);
    for (name, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        table.add_row([Cell::new(name).add_attribute(Attribute::Bold), Cell::new(cell::printable(text))]);
    }
    rendered(table)
}

/// Fields for programs: a page for people does without them. The currency stands with each amount.
const MACHINERY: &[&str] = &["version", "updated_at", "currency", "correlation_id"];

/// One thing: a line for each plain field, the named ones first, then a section for each field with parts.
pub fn item(row: &Value, columns: &[Column], view: &View) -> String {
    let mut seen = HashSet::new();
    let named = columns.iter().map(|(_, path)| *path);
    let others = row.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let others = others.filter(|name| !MACHINERY.contains(name));
    let fields: Vec<(&str, &Value)> = named
        .chain(others)
        .filter(|path| seen.insert(path.to_owned()))
        .map(|path| (path, cell::at(row, path)))
        .filter(|(_, value)| !value.is_null())
        .collect();
    // A field of which a part is named is shown by that part.
    let in_parts = |path: &str| columns.iter().any(|(_, other)| other.starts_with(&format!("{path}.")));
    let fields: Vec<(&str, &Value)> = fields.into_iter().filter(|(path, _)| !in_parts(path)).collect();
    sections(&fields, view, 0)
}

fn sections(fields: &[(&str, &Value)], view: &View, depth: usize) -> String {
    let has_parts = |value: &Value| match value {
        Value::Object(parts) => !parts.is_empty(),
        Value::Array(items) => items.iter().any(Value::is_object),
        _ => false,
    };
    let (parts, plain): (Vec<_>, Vec<_>) = fields.iter().partition(|(_, value)| has_parts(value));
    let margin = "  ".repeat(depth);
    let narrow = View { width: view.width.map(|width| width.saturating_sub(margin.len())), ..*view };
    let mut lines = table(&narrow);
    for (name, value) in plain {
        lines.add_row([
            Cell::new(titled(name)).add_attribute(Attribute::Bold),
            painted(name, &cell::whole(value, view)),
        ]);
    }
    let mut text = indented(&rendered(lines), &margin);
    for (name, value) in parts {
        text.push_str(&format!("\n{margin}{}\n", titled(name)));
        text.push_str(&match value {
            Value::Object(inner) => {
                let inner: Vec<(&str, &Value)> = inner
                    .iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(name, value)| (name.as_str(), value))
                    .collect();
                sections(&inner, view, depth + 1)
            }
            Value::Array(items) => {
                let margin = "  ".repeat(depth + 1);
                let narrow =
                    View { width: view.width.map(|width| width.saturating_sub(margin.len())), ..*view };
                indented(&rows(items, &narrow), &margin)
            }
            _ => String::new(),
        });
    }
    text
}

/// Things in a list within a thing: a table with a column for each of their fields.
fn rows(items: &[Value], view: &View) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in items.iter().filter_map(Value::as_object).flatten().map(|(name, _)| name.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let first = ["name", "hostname", "slug", "code", "kind", "state", "id"];
    names.sort_by_key(|name| first.iter().position(|other| other == name).unwrap_or(first.len()));
    let mut table = table(view);
    table.set_header(
        names.iter().map(|name| Cell::new(titled(name).to_uppercase()).add_attribute(Attribute::Bold)),
    );
    for item in items {
        table.add_row(names.iter().map(|name| painted(name, &cell::short(&item[*name], view, TAIL))));
    }
    rendered(table)
}

fn indented(text: &str, margin: &str) -> String {
    text.lines().map(|line| format!("{margin}{line}\n")).collect()
}

/// `state_changed_at` as `state changed`.
fn titled(name: &str) -> String {
    name.strip_suffix("_at").unwrap_or(name).replace(['_', '.'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: &[Column] = &[("NAME", "name"), ("ID", "id")];

    fn lines(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    fn id(number: u128) -> String {
        format!("org_{number:032x}")
    }

    #[test]
    fn a_list_has_a_line_for_each_row_and_a_header_unless_unwanted() {
        let rows = [json!({"id": "one", "name": "a"}), json!({"name": "b"})];
        let view = View::limited(None);
        assert_eq!(lines(&list(&rows, COLUMNS, true, &view)), [["NAME", "ID"], ["a", "one"], ["b", "-"]]);
        assert_eq!(list(&rows, COLUMNS, false, &view).lines().count(), 2);
        assert_eq!(list(&[], COLUMNS, false, &view), "");
    }

    #[test]
    fn ids_of_a_list_are_as_long_as_it_takes_to_tell_them_apart() {
        let rows =
            [json!({"name": "a", "id": id(0x11_234_567)}), json!({"name": "b", "id": id(0x21_234_567)})];
        let text = list(&rows, COLUMNS, true, &View::limited(Some(80)));
        assert_eq!(lines(&text), [["NAME", "ID"], ["a", "11234567"], ["b", "21234567"]]);
        let text = list(&rows[..1], COLUMNS, false, &View::limited(Some(80)));
        assert_eq!(lines(&text), [["a", "234567"]]);
    }

    #[test]
    fn numbers_and_amounts_stand_at_the_right() {
        let rows = [json!({"name": "a", "id": "5.00 USD"}), json!({"name": "b", "id": "125.00 USD"})];
        let text = list(&rows, COLUMNS, false, &View::limited(None));
        assert_eq!(text, "a    5.00 USD\nb  125.00 USD\n");
    }

    #[test]
    fn a_column_without_a_value_is_left_out_where_width_is_limited() {
        let rows = [json!({"name": "a"}), json!({"name": "b"})];
        assert_eq!(list(&rows, COLUMNS, true, &View::limited(Some(80))), "NAME\na\nb\n");
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        let rows = [json!({"name": "the quick brown fox jumps over the lazy dog", "id": "x"})];
        let text = list(&rows, COLUMNS, false, &View::limited(Some(37)));
        assert_eq!(text, "the quick brown fox jumps over the  x\nlazy dog\n");
    }

    #[test]
    fn an_item_shows_every_field_and_its_parts_as_sections() {
        let row = json!({
            "zone": "b", "id": "org_1", "gone": null, "price": { "unit": "hour" },
            "slots": [{ "state": "available", "index": 0 }, { "state": "in_use", "index": 1 }],
        });
        let text = item(&row, COLUMNS, &View::limited(Some(80)));
        let expected = "id    org_1\nzone  b\n\nprice\n  unit  hour\n\nslots\n  STATE      INDEX\n  \
                        available  0\n  in_use     1\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn states_have_symbols_and_colours_at_a_terminal_only() {
        let rows = [json!({"state": "active"})];
        let plain = View::limited(Some(80));
        let columns: &[Column] = &[("STATE", "state")];
        assert_eq!(list(&rows, columns, false, &plain), "active\n");
        assert_eq!(list(&rows, columns, false, &View { symbols: true, ..plain }), "● active\n");
        let painted = list(&rows, columns, false, &View { symbols: true, colour: true, ..plain });
        assert!(painted.contains("\u{1b}[") && painted.contains("● active"), "{painted:?}");
        // Nothing stands behind the last column, in colour neither.
        let painted = list(&rows, columns, true, &View { symbols: true, colour: true, ..plain });
        assert!(painted.lines().all(|line| !line.contains(" \u{1b}[0m")), "{painted:?}");
    }
}
