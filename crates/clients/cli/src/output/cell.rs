//! A JSON value as a piece of text.

use serde_json::Value;

/// The value at a dotted path.
pub fn at<'a>(row: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(row, |value, name| &value[name])
}

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

/// For a table: a dash for nothing, times to the second, fractions to two digits.
pub fn short(value: &Value) -> String {
    if let Some(number) = value.as_f64().filter(|_| value.is_f64()) {
        return format!("{number:.2}");
    }
    let text = printable(&text(value));
    if text.is_empty() {
        return "-".to_owned();
    }
    to_the_second(&text).unwrap_or(text)
}

/// `2026-01-02T03:04:05.678901Z` without its fraction.
fn to_the_second(text: &str) -> Option<String> {
    chrono::DateTime::parse_from_rfc3339(text).ok()?;
    let (head, tail) = (text.get(..19)?, text.get(19..)?);
    let zone = tail.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    Some(format!("{head}{zone}"))
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
    fn times_in_tables_lose_their_fraction() {
        assert_eq!(short(&json!("2026-01-02T03:04:05.678901Z")), "2026-01-02T03:04:05Z");
        assert_eq!(short(&json!("2026-01-02T03:04:05Z")), "2026-01-02T03:04:05Z");
        assert_eq!(short(&json!("not a time")), "not a time");
        assert_eq!(short(&Value::Null), "-");
    }

    #[test]
    fn fractions_in_tables_are_rounded_and_whole_numbers_are_not() {
        assert_eq!(
            [json!(1.0 / 60.0), json!(12), json!(-0.5)].map(|value| short(&value)),
            ["0.02", "12", "-0.50"]
        );
        assert_eq!(text(&json!(1.0 / 60.0)), "0.016666666666666666");
    }
}
