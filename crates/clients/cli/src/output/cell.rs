//! A JSON value as a piece of text.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{relative, view::View};

/// The value at a dotted path.
pub fn at<'a>(row: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(row, |value, name| &value[name])
}

/// Exactly, for CSV and single values.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(text).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// For a table: a dash for nothing, words for truth, fractions to two digits, never JSON. With limited width, an id
/// is its tail and a time is relative.
pub fn short(value: &Value, view: &View, tail: usize) -> String {
    shown(value, view, tail, false)
}

/// The same in a column of accounts, where a time is a date whatever the width is.
pub fn dated(value: &Value, view: &View, tail: usize) -> String {
    shown(value, view, tail, true)
}

fn shown(value: &Value, view: &View, tail: usize, exact: bool) -> String {
    let shown = match value {
        Value::Bool(truth) => if *truth { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Value::Array(items) => joined(items.iter().map(|item| shown(item, view, tail, exact))),
        Value::Object(fields) => {
            joined(fields.iter().map(|(name, value)| format!("{name}={}", shown(value, view, tail, exact))))
        }
        Value::String(text) => match (id_digits(text), time(text)) {
            (Some(digits), _) if view.is_compact() => digits[digits.len().saturating_sub(tail)..].to_owned(),
            (_, Some(at)) if view.is_compact() && exact => at.format("%Y-%m-%d %H:%M").to_string(),
            (_, Some(at)) if view.is_compact() => relative(view.now, at),
            (_, Some(_)) => to_the_second(text),
            _ => printable(text),
        },
        Value::Null | Value::Number(_) => text(value),
    };
    if shown.is_empty() { "-".to_owned() } else { shown }
}

/// For the page of one thing: whole ids, and times as they are with the distance from now.
pub fn whole(value: &Value, view: &View) -> String {
    let exact = View { width: None, ..*view };
    let shown = short(value, &exact, usize::MAX);
    match value.as_str().and_then(time) {
        Some(at) => format!("{shown} ({})", relative(view.now, at)),
        None => shown,
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// The digits of an id such as `node_0193…`, after its prefix.
pub fn id_digits(text: &str) -> Option<&str> {
    let (prefix, digits) = text.rsplit_once('_')?;
    let lower = |b: u8| b.is_ascii_lowercase() || b == b'_';
    let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    (!prefix.is_empty() && prefix.bytes().all(lower) && digits.len() == 32 && digits.bytes().all(hex))
        .then_some(digits)
}

fn time(text: &str) -> Option<DateTime<Utc>> {
    let like_a_time = text.len() >= 20 && text.as_bytes().first().is_some_and(u8::is_ascii_digit);
    like_a_time.then(|| DateTime::parse_from_rfc3339(text).ok()).flatten().map(|at| at.to_utc())
}

/// `2026-01-02T03:04:05.678901Z` without its fraction.
fn to_the_second(text: &str) -> String {
    let (head, tail) = text.split_at_checked(19).unwrap_or((text, ""));
    let zone = tail.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    format!("{head}{zone}")
}

/// `1 GPU`, `2 GPUs`.
pub fn counted(number: impl Into<i64>, what: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Removes control characters: text from the server must not send escape sequences to the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "node_0193b3a000007000800000000000c0de";

    #[test]
    fn nested_values_are_found_and_missing_ones_are_empty() {
        let row = json!({ "a": { "b": 1 }, "roles": ["x", "y"], "o": { "k": true } });
        assert_eq!(text(at(&row, "a.b")), "1");
        assert_eq!(text(at(&row, "a.c.d")), "");
        assert_eq!(text(at(&row, "roles")), "x, y");
        assert_eq!(text(at(&row, "o")), r#"{"k":true}"#);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "GPU")), ["0 GPUs", "1 GPU", "2 GPUs"]);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{7}"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn times_lose_their_fraction_and_are_relative_where_width_is_limited() {
        let (all, narrow) = (View::limited(None), View::limited(Some(80)));
        assert_eq!(short(&json!("2024-10-04T03:04:05.678901Z"), &all, 8), "2024-10-04T03:04:05Z");
        assert_eq!(short(&json!("2024-10-03T22:00:00Z"), &narrow, 8), "2h ago");
        assert_eq!(short(&json!("not a time"), &narrow, 8), "not a time");
        assert_eq!(short(&Value::Null, &narrow, 8), "-");
        assert_eq!(whole(&json!("2024-10-03T22:00:00.5Z"), &narrow), "2024-10-03T22:00:00Z (119m ago)");
    }

    #[test]
    fn ids_are_tails_where_width_is_limited_and_whole_elsewhere() {
        assert_eq!(short(&json!(ID), &View::limited(Some(80)), 6), "00c0de");
        assert_eq!(short(&json!(ID), &View::limited(None), 6), ID);
        assert_eq!(whole(&json!(ID), &View::limited(Some(80))), ID);
        assert_eq!(short(&json!("not_an_id"), &View::limited(Some(80)), 6), "not_an_id");
    }

    #[test]
    fn a_cell_is_never_json() {
        let view = View::limited(Some(80));
        let value = json!({ "list": [1, { "deep": null }, { "on": true }] });
        assert_eq!(short(&value, &view, 8), "list=1, deep=-, on=yes");
    }

    #[test]
    fn fractions_in_tables_are_rounded_and_whole_numbers_are_not() {
        let view = View::limited(Some(80));
        let shown = [json!(1.0 / 60.0), json!(12), json!(-0.5)].map(|value| short(&value, &view, 8));
        assert_eq!(shown, ["0.02", "12", "-0.50"]);
        assert_eq!(text(&json!(1.0 / 60.0)), "0.016666666666666666");
    }
}
