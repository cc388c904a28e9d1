//! The lines of an asciicast v2 file that recordings have.

use std::io::Write as _;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::json_text::write_json_text;

const GAP_BEFORE: &str = "gap: ";
const GAP_AFTER: &str = " bytes lost";
const RESUMED: &str = "resumed: what was typed shortly before may be missing";
const CLOSED: &str = "closed";

/// One line after the first one of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Output(String),
    /// What was typed, where that is recorded.
    Input(String),
    Resize {
        columns: u16,
        rows: u16,
    },
    /// So many bytes of output are missing here.
    Gap {
        bytes: u64,
    },
    /// Another gateway goes on where one may have died. Nodes keep output, but not what was typed.
    Resumed,
    /// The last event of a recording. No chunk comes after the one that holds it.
    Closed,
}

/// The first line of the file.
pub(crate) fn file_header(columns: u16, rows: u16, started: DateTime<Utc>) -> String {
    json!({ "version": 2, "width": columns, "height": rows, "timestamp": started.timestamp() }).to_string()
        + "\n"
}

pub(crate) fn is_file_header(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|header| header["version"] == 2)
}

/// Appends a line with its end; `micros` since the session's start. This runs for every byte that is recorded: the text is
/// escaped straight into the chunk.
pub(crate) fn write_line(out: &mut Vec<u8>, micros: u64, code: char, text: &str) {
    // Writing to memory cannot fail.
    let _ = write!(out, "[{}.{:06},\"{code}\",", micros / 1_000_000, micros % 1_000_000);
    write_json_text(out, text);
    out.extend_from_slice(b"]\n");
}

impl Event {
    pub(crate) fn write(&self, out: &mut Vec<u8>, micros: u64) {
        match self {
            Self::Output(text) => write_line(out, micros, 'o', text),
            Self::Input(text) => write_line(out, micros, 'i', text),
            Self::Resize { columns, rows } => write_line(out, micros, 'r', &format!("{columns}x{rows}")),
            Self::Gap { bytes } => write_line(out, micros, 'm', &format!("{GAP_BEFORE}{bytes}{GAP_AFTER}")),
            Self::Resumed => write_line(out, micros, 'm', RESUMED),
            Self::Closed => write_line(out, micros, 'm', CLOSED),
        }
    }

    /// Reads a line of a recording, without its end, and when it was: microseconds since the session's start. Nothing for
    /// any other line, such as the first one of the file.
    pub fn parse(line: &[u8]) -> Option<(u64, Self)> {
        let (seconds, code, data): (f64, String, String) = serde_json::from_slice(line).ok()?;
        let micros = (seconds * 1e6).round() as u64;
        let event = match code.as_str() {
            "o" => Self::Output(data),
            "i" => Self::Input(data),
            "r" => {
                let (columns, rows) = data.split_once('x')?;
                Self::Resize { columns: columns.parse().ok()?, rows: rows.parse().ok()? }
            }
            "m" if data == RESUMED => Self::Resumed,
            "m" if data == CLOSED => Self::Closed,
            "m" => Self::Gap { bytes: data.strip_prefix(GAP_BEFORE)?.strip_suffix(GAP_AFTER)?.parse().ok()? },
            _ => return None,
        };
        // Another spelling of the same event is not what was written.
        let mut exact = Vec::with_capacity(line.len() + 1);
        event.write(&mut exact, micros);
        (exact.strip_suffix(b"\n") == Some(line)).then_some((micros, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_their_line() {
        for event in [
            Event::Output("\u{1b}[1mä\r\n\"\\\u{0}\u{7f}😀".to_owned()),
            Event::Input("sudo ls\r\u{3}".to_owned()),
            Event::Resumed,
            Event::Closed,
            Event::Resize { columns: 120, rows: 40 },
            Event::Gap { bytes: u64::MAX },
        ] {
            let mut line = Vec::new();
            event.write(&mut line, 12_000_345);
            let line = String::from_utf8(line).unwrap();
            assert!(line.starts_with("[12.000345,") && line.ends_with("]\n"), "{line}");
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Event::parse(line.trim_end_matches('\n').as_bytes()), Some((12_000_345, event)));
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            "[1.000000,\"o\"]",
            "[1,\"o\",\"x\"]",
            "[1.000000, \"o\",\"x\"]",
            "[1.0,\"o\",\"x\"]",
            "[-1.000000,\"o\",\"x\"]",
            "[1.000000,\"x\",\"x\"]",
            "[1.000000,\"r\",\"80\"]",
            "[1.000000,\"r\",\"080x24\"]",
            "[1.000000,\"m\",\"gap: some bytes lost\"]",
            "[1.000000,\"o\",\"\\u0078\"]",
        ] {
            assert_eq!(Event::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_first_line_is_that_of_version_2() {
        let line = file_header(80, 24, DateTime::from_timestamp(1_700_000_000, 5_000).unwrap());
        assert_eq!(line, "{\"version\":2,\"width\":80,\"height\":24,\"timestamp\":1700000000}\n");
        assert!(is_file_header(line.as_bytes()) && !is_file_header(b"{}") && !is_file_header(b"["));
    }
}
