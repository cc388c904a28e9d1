//! What a stream of log lines carries, from the node to whoever follows: one JSON document a line.
//!
//! Recent lines come first, oldest first; then [`LogItem::Live`]; then lines as they are logged. The node keeps no lines for a
//! reader that is too slow: it skips them and says how many. A line of a log that numbers its lines carries its number, so that a
//! reader which comes again tells lines that it has from new ones.

use serde::{Deserialize, Serialize};

use crate::contract::LogLine;

/// What the agent logs.
pub const AGENT: &str = "agent";
/// The log of the machine's kernel.
pub const KERNEL: &str = "kernel";
/// The most recent lines that a reader gets before it is live.
pub const MOST_RECENT_LINES: usize = 1000;
/// The longest line of a stream: a message of the longest kind, each byte of which may become six in JSON.
pub const LONGEST_ITEM: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LogItem {
    Line(StreamLine),
    /// So many lines are missing here.
    Dropped {
        lines: u64,
    },
    /// All recent lines were sent.
    Live,
    /// Nothing was logged for a while.
    KeepAlive,
    /// From a newer node.
    #[serde(other)]
    Unknown,
}

/// A line of a log, and where it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLine {
    #[serde(flatten)]
    pub line: LogLine,
    /// Absent for logs that do not number their lines, and from nodes that do not send it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<LinePosition>,
}

/// The same line has the same position however often it is read; its time may differ by what clocks are set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePosition {
    /// Numbers are of one boot of the machine.
    pub boot: String,
    pub number: u64,
}

impl From<LogLine> for StreamLine {
    fn from(line: LogLine) -> Self {
        Self { line, position: None }
    }
}

impl LogItem {
    /// With the line feed that ends it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// Finds items in pieces of a stream.
#[derive(Default)]
pub struct LogItems {
    /// The beginning of an item whose end has not come; never longer than [`LONGEST_ITEM`].
    begun: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node sent what is no log line")]
pub struct NoLogItem;

impl LogItems {
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<LogItem>, NoLogItem> {
        let mut items = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.begun.len() + piece.len() > LONGEST_ITEM {
                return Err(NoLogItem);
            }
            self.begun.extend_from_slice(piece);
            if self.begun.ends_with(b"\n") {
                items.push(serde_json::from_slice(&self.begun).map_err(|_| NoLogItem)?);
                self.begun.clear();
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{LOG_LINE_BYTES, LogLevel};

    fn line(message: &str) -> LogItem {
        let (at, source) = (chrono::DateTime::UNIX_EPOCH, "test".to_owned());
        let line = LogLine { at, level: LogLevel::Info, source, message: message.to_owned() };
        LogItem::Line(line.into())
    }

    #[test]
    fn items_arrive_whole_however_the_stream_is_cut() {
        let sent = vec![line("a\nb"), LogItem::Live, LogItem::Dropped { lines: 7 }, LogItem::KeepAlive];
        let bytes: Vec<u8> = sent.iter().flat_map(LogItem::encode).collect();
        for size in 1..bytes.len() {
            let mut items = LogItems::default();
            let got: Vec<LogItem> = bytes.chunks(size).flat_map(|piece| items.push(piece).unwrap()).collect();
            assert_eq!(got, sent, "in pieces of {size}");
        }
    }

    #[test]
    fn the_longest_line_fits_and_nothing_longer_is_kept() {
        let longest = line(&"\u{1}".repeat(LOG_LINE_BYTES)).encode();
        assert!(longest.len() < LONGEST_ITEM);
        assert_eq!(LogItems::default().push(&longest).unwrap().len(), 1);
        let mut items = LogItems::default();
        let result = (0..100).try_for_each(|_| items.push(&[b' '; 1000]).map(drop));
        assert_eq!(result, Err(NoLogItem));
        assert_eq!(LogItems::default().push(b"no json\n"), Err(NoLogItem));
    }

    #[test]
    fn a_line_has_a_position_only_where_the_log_has_numbers() {
        let without = line("a").encode();
        assert!(!String::from_utf8(without.clone()).unwrap().contains("position"));
        let LogItem::Line(mut numbered) = line("a") else { panic!("a line") };
        numbered.position = Some(LinePosition { boot: "b".to_owned(), number: u64::MAX });
        let numbered = LogItem::Line(numbered);
        let both = [without, numbered.encode()].concat();
        assert_eq!(LogItems::default().push(&both), Ok(vec![line("a"), numbered.clone()]));
        // A gateway that does not know positions reads the line all the same.
        let old: LogLine = serde_json::from_slice(&numbered.encode()).unwrap();
        assert_eq!(old.message, "a");
    }

    #[test]
    fn what_a_newer_node_sends_is_passed_over() {
        let got = LogItems::default().push(b"{\"kind\":\"level\",\"level\":\"debug\"}\n");
        assert_eq!(got, Ok(vec![LogItem::Unknown]));
    }
}
