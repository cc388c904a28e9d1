//! Parser of server-sent events.

use crate::failure::{Exit, Failure, Result};

/// The API sends no longer lines.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub event: String,
    pub data: String,
}

/// Assembles chunks to frames.
#[derive(Default)]
pub struct Frames {
    rest: Vec<u8>,
    frame: Frame,
}

impl Frames {
    /// The frames that this chunk completes. Comments and frames without data are skipped.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Frame>> {
        self.rest.extend_from_slice(piece);
        let mut frames = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let frame = std::mem::take(&mut self.frame);
                frames.extend((!frame.data.is_empty()).then_some(frame));
            } else {
                self.line(line);
            }
        }
        if self.rest.len() + self.frame.data.len() > LONGEST {
            return Err(Failure::new(Exit::Server, "the server sent an event that exceeds the size limit"));
        }
        Ok(frames)
    }

    fn line(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.frame.event),
            "data" => {
                if !self.frame.data.is_empty() {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let wire = "retry: 1000\n\nid: 1\nevent: allocation\ndata: {\"ä\":1}\n\n: still here\n\n\
                    event: end\r\ndata: a\r\ndata: b\r\n\r\n";
        let expected = vec![frame("allocation", "{\"ä\":1}"), frame("end", "a\nb")];
        for size in 1..wire.len() {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in wire.as_bytes().chunks(size) {
                got.extend(frames.feed(piece).unwrap());
            }
            assert_eq!(got, expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        assert!(Frames::default().feed(&vec![b'x'; LONGEST + 1]).is_err());
    }
}
