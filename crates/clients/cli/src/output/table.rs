//! Tables that fit the terminal.

use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Table, presets};
use serde_json::Value;

use super::{Columns, cell, colour};

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !colour() {
        // This also resets the width, which is still needed when only colour is disabled.
        let width = table.width();
        table.force_no_tty();
        if let Some(width) = width {
            table.set_width(width);
        }
    }
    table
}

fn rendered(mut table: Table) -> String {
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

pub fn list(rows: &[Value], columns: Columns, headers: bool) -> String {
    if rows.is_empty() && !headers {
        return String::new();
    }
    let mut table = table();
    if headers {
        let title = |(title, _): &(&'static str, _)| Cell::new(title).add_attribute(Attribute::Bold);
        table.set_header(columns.iter().map(title));
    }
    for row in rows {
        table.add_row(columns.iter().map(|(_, path)| cell::short(cell::at(row, path))));
    }
    // Ids are there to be copied: never broken over lines.
    for (index, (_, path)) in columns.iter().enumerate() {
        if (*path == "id" || path.ends_with("_id"))
            && let Some(column) = table.column_mut(index)
        {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    rendered(table)
}

/// One thing, a line for each of its fields: the named ones first.
pub fn item(row: &Value, columns: Columns) -> String {
    let mut table = table();
    let named = columns.iter().map(|(_, path)| *path);
    let others = row.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let mut seen = Vec::new();
    for path in named.chain(others) {
        let value = cell::at(row, path);
        if value.is_null() || seen.contains(&path) {
            continue;
        }
        seen.push(path);
        table.add_row([Cell::new(path).add_attribute(Attribute::Bold), Cell::new(cell::short(value))]);
    }
    rendered(table)
}

/// Named lines; one without text is left out.
pub fn page(lines: &[(&'static str, String)]) -> String {
    let mut table = table();
    for (name, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        table.add_row([Cell::new(name).add_attribute(Attribute::Bold), Cell::new(cell::printable(text))]);
    }
    rendered(table)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: Columns = &[("ID", "id"), ("NAME", "name")];

    #[test]
    fn a_list_has_a_line_for_each_row_and_a_header_unless_unwanted() {
        let rows = [json!({"id": "org_1", "name": "a"}), json!({"id": "org_2"})];
        let text = list(&rows, COLUMNS, true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["ID", "NAME"], ["org_1", "a"], ["org_2", "-"]]);
        assert_eq!(list(&rows, COLUMNS, false).lines().count(), 2);
        assert_eq!(list(&[], COLUMNS, false), "");
    }

    #[test]
    fn an_item_shows_every_field_it_has() {
        let text = item(&json!({"zone": "b", "id": "org_1", "gone": null}), COLUMNS);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["id", "org_1"], ["zone", "b"]]);
    }
}
