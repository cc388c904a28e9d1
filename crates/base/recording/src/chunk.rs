//! Chunks: their header, their digest, and what a recorder needs of the last one to go on.

use chrono::{DateTime, Utc};
use kernel::{digest::sha256, hex::Hex, ids::TerminalSessionId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{content, event::Event, fault::Fault};

/// No chunk is larger, header included.
pub const CHUNK_BYTES_MAX: usize = EVENTS_BYTES_MAX + 16 * 1024;
/// What the events of a chunk take together at most. A header is less than 16 KiB: gaps that it lists are counted.
pub(crate) const EVENTS_BYTES_MAX: usize = 256 * 1024;
/// Gaps that headers and seals list. Later ones are still marked in the asciicast.
pub const GAPS_LISTED_MAX: usize = 100;
/// No session prints more bytes: a week at 10 GB/s would not be enough. Nodes say where output goes on, and a node may lie: this is
/// the largest number that JSON readers, browsers and the database all have exactly.
pub const SEQUENCE_MAX: u64 = 1 << 53;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Format {
    #[serde(rename = "gpuaas-recording/1")]
    V1,
}

/// Output that was lost: from this byte of the session's output until before that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

/// The first line of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    #[allow(dead_code, reason = "read to refuse other formats")]
    format: Format,
    pub session_id: TerminalSessionId,
    pub index: u64,
    /// SHA-256 of the whole previous chunk; zeros for the first.
    pub previous: Hex,
    /// The first byte of the session's output that this chunk covers.
    pub first_sequence: u64,
    /// The first byte that it does not cover.
    pub end_sequence: u64,
    /// When the session started: times of events count from here.
    pub started_at: DateTime<Utc>,
    /// The recording is kept until then; the first chunk says so, and no other.
    #[serde(default)]
    pub expires_at: Option<DateTime<Utc>>,
    /// All gaps of the recording so far, those of this chunk last; at most [`GAPS_LISTED_MAX`].
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// A chunk to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub index: u64,
    /// The first byte of the session's output that is not recorded yet when this chunk is stored.
    pub end_sequence: u64,
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`.
    pub digest: Hex,
}

/// What the first chunk has for the digest of the chunk before it.
pub(crate) fn no_digest() -> Hex {
    Hex(vec![0; 32])
}

pub(crate) fn digest(chunk: &[u8]) -> Hex {
    Hex(sha256(chunk).to_vec())
}

/// The part of a chunk that belongs to the asciicast file.
pub fn cast(chunk: &[u8]) -> &[u8] {
    split(chunk).map_or(&[], |(_, body)| body)
}

/// The first line without its end, and the rest.
fn split(chunk: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = chunk.iter().position(|byte| *byte == b'\n')?;
    Some((chunk.get(..end)?, chunk.get(end + 1..)?))
}

impl Header {
    pub(crate) fn new(
        session_id: TerminalSessionId,
        index: u64,
        previous: Hex,
        sequences: std::ops::Range<u64>,
        started_at: DateTime<Utc>,
        gaps: Vec<Gap>,
    ) -> Self {
        let std::ops::Range { start: first_sequence, end: end_sequence } = sequences;
        Self {
            format: Format::V1,
            session_id,
            index,
            previous,
            first_sequence,
            end_sequence,
            started_at,
            expires_at: None,
            gaps,
        }
    }

    #[must_use]
    pub(crate) fn with_expiry(mut self, expires_at: Option<DateTime<Utc>>) -> Self {
        self.expires_at = expires_at;
        self
    }

    /// The line, without its end.
    pub(crate) fn line(&self) -> String {
        let mut header = json!({
            "format": "gpuaas-recording/1",
            "session_id": self.session_id,
            "index": self.index,
            "previous": self.previous,
            "first_sequence": self.first_sequence,
            "end_sequence": self.end_sequence,
            "started_at": self.started_at,
        });
        if let Some(expires_at) = self.expires_at {
            header["expires_at"] = json!(expires_at);
        }
        if !self.gaps.is_empty() {
            header["gaps"] = json!(self.gaps);
        }
        header.to_string()
    }

    /// The header of a chunk and the rest of it; nothing when the first line is not exactly a header.
    pub fn parse(chunk: &[u8]) -> Option<(Self, &[u8])> {
        let (line, body) = split(chunk)?;
        let header: Self = serde_json::from_slice(line).ok()?;
        // Another spelling of the same values (the case of a digit) was not written by a recorder.
        let is_exact = header.line().as_bytes() == line;
        let is_sound = header.previous.0.len() == 32
            && header.first_sequence <= header.end_sequence
            && header.end_sequence <= SEQUENCE_MAX;
        (is_exact && is_sound).then_some((header, body))
    }
}

/// The end of what is stored of a recording, where another gateway goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    pub header: Header,
    /// SHA-256 of the whole last chunk.
    pub digest: Hex,
    /// When its last event was, in microseconds since the session's start.
    pub last_micros: u64,
    /// Whether nobody may write after it.
    pub is_closed: bool,
}

impl Tail {
    /// Reads the last chunk that is stored. The caller says which one it is: its name in the object storage.
    pub fn read(session: TerminalSessionId, index: u64, chunk: &[u8]) -> Result<Self, Fault> {
        Ok(Self::read_with_body(session, index, chunk)?.0)
    }

    fn read_with_body(session: TerminalSessionId, index: u64, chunk: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let (header, body) = Header::parse(chunk).ok_or(Fault::HeaderUnreadable { index })?;
        if header.session_id != session {
            return Err(Fault::SessionForeign { index, found: header.session_id });
        }
        if header.index != index {
            return Err(Fault::Reordered { position: index, found: header.index });
        }
        let lines = body.strip_suffix(b"\n").ok_or(Fault::Truncated { index })?;
        let last = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        // The only line of a first chunk without events has no time.
        let last = Event::parse(last);
        let last_micros = last.as_ref().map_or(0, |(micros, _)| *micros);
        let is_closed = last.is_some_and(|(_, event)| event == Event::Closed);
        Ok((Self { header, digest: digest(chunk), last_micros, is_closed }, body))
    }

    /// Reads the first chunk: nothing comes before it. It must hold what its header says.
    pub fn read_first(session: TerminalSessionId, chunk: &[u8]) -> Result<Self, Fault> {
        let (first, body) = Self::read_with_body(session, 0, chunk)?;
        if first.header.previous != no_digest() || first.header.first_sequence != 0 {
            return Err(Fault::Edited { index: 0 });
        }
        content::check(&first.header, body, None)?;
        Ok(first)
    }

    /// Reads the chunk that comes after this one: it must name the digest of this one, go on where it ends, and hold
    /// what its header says.
    pub fn read_next(&self, chunk: &[u8]) -> Result<Self, Fault> {
        let index = self.header.index + 1;
        let (next, body) = Self::read_with_body(self.header.session_id, index, chunk)?;
        if next.header.previous != self.digest {
            return Err(Fault::Edited { index });
        }
        if next.header.first_sequence != self.header.end_sequence {
            let (expected, found) = (self.header.end_sequence, next.header.first_sequence);
            return Err(Fault::SequenceBroken { index, expected, found });
        }
        if self.is_closed {
            return Err(Fault::AfterClose { index });
        }
        content::check(&next.header, body, Some(&self.header))?;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn header() -> Header {
        let session = TerminalSessionId::from(Uuid::from_u128(7));
        let started = DateTime::from_timestamp_micros(1_700_000_000_250_000).unwrap();
        Header::new(session, 3, Hex(vec![0xab; 32]), 10..20, started, Vec::new())
    }

    #[test]
    fn a_header_is_one_line_of_json() {
        let expected = format!(
            "{{\"format\":\"gpuaas-recording/1\",\"session_id\":\"term_{:032x}\",\"index\":3,\"previous\":\"{}\",\
             \"first_sequence\":10,\"end_sequence\":20,\"started_at\":\"2023-11-14T22:13:20.250Z\"}}",
            7,
            "ab".repeat(32)
        );
        assert_eq!(header().line(), expected);
        let chunk = expected + "\nbody\n";
        assert_eq!(Header::parse(chunk.as_bytes()), Some((header(), &b"body\n"[..])));
        assert_eq!(cast(chunk.as_bytes()), b"body\n");
    }

    #[test]
    fn gaps_are_listed_when_there_are_some() {
        let with_gap = Header { gaps: vec![Gap { from: 11, to: 15 }], ..header() };
        let line = with_gap.line();
        assert!(line.ends_with(",\"gaps\":[{\"from\":11,\"to\":15}]}"), "{line}");
        assert_eq!(Header::parse((line + "\n").as_bytes()), Some((with_gap, &b""[..])));
    }

    #[test]
    fn what_is_not_exactly_a_header_is_refused() {
        let line = header().line();
        for other in [
            String::new(),
            line.clone(),
            line.replace("recording/1", "recording/2") + "\n",
            line.replace("abab", "ABab") + "\n",
            line.replace("abab", "ab") + "\n",
            line.replace(":3,", ": 3,") + "\n",
            line.replace("\"end_sequence\":20", "\"end_sequence\":9") + "\n",
            line.replace("\"end_sequence\":20", &format!("\"end_sequence\":{}", SEQUENCE_MAX + 1)) + "\n",
            line.replace('}', ",\"gaps\":[]}") + "\n",
            line.replace('}', ",\"more\":1}") + "\n",
        ] {
            assert_eq!(Header::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(cast(line.as_bytes()), b"");
    }
}
