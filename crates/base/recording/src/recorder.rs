//! The writer: output of a session in, chunks out.

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use kernel::{hex::Hex, ids::TerminalSessionId};

use crate::{
    chunk::{Chunk, EVENTS_BYTES_MAX, GAPS_LISTED_MAX, Gap, Header, SEQUENCE_MAX, Tail, digest, no_digest},
    event::{Event, file_header, write_line},
    seal::Statement,
    utf8::Decoder,
};

/// Output of one event. JSON makes at most six bytes of one, so that an event is small beside a chunk.
const EVENT_OUTPUT_BYTES: usize = 16 * 1024;
/// Stands for bytes that are no text.
const REPLACEMENT: &str = "\u{fffd}";
/// A reason is a few words; what is longer is cut.
const REASON_CHARACTERS_MAX: usize = 200;

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// When a chunk is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of a chunk, 256 KiB at most; a single event that is larger has a chunk of its own.
    pub chunk_bytes: usize,
    /// From the first event of a chunk until it is due: what a crash of the gateway can leave unstored.
    pub chunk_age: TimeDelta,
}

impl Default for Limits {
    fn default() -> Self {
        Self { chunk_bytes: EVENTS_BYTES_MAX, chunk_age: TimeDelta::seconds(5) }
    }
}

/// Records one session. Its chunks must be stored in the order in which it gives them.
#[derive(Debug)]
pub struct Recorder {
    session: TerminalSessionId,
    started: DateTime<Utc>,
    limits: Limits,
    /// Of the chunk that is being written.
    index: u64,
    previous: Hex,
    first_sequence: u64,
    body: Vec<u8>,
    /// Goes into the header of the first chunk.
    expires_at: Option<DateTime<Utc>>,
    /// Whether the chunk that was written last ends the recording.
    is_closed: bool,
    /// When the first event of this chunk was; nothing while it is empty.
    opened: Option<DateTime<Utc>>,
    /// The first byte of output that is in no event and no gap.
    end_sequence: u64,
    /// Times in the file do not go backwards, even when the clock of the next gateway is behind.
    last_micros: u64,
    decoder: Decoder,
    typed: Decoder,
    gaps: Vec<Gap>,
}

/// The end of a recording.
#[derive(Debug)]
pub struct Finished {
    /// The chunks that were not given yet. They are stored before the seal.
    pub chunks: Vec<Chunk>,
    pub statement: Statement,
}

impl Recorder {
    pub fn new(session: TerminalSessionId, size: Size, started: DateTime<Utc>) -> Self {
        let started = started.trunc_subsecs(6);
        Self {
            session,
            started,
            limits: Limits::default(),
            index: 0,
            previous: no_digest(),
            first_sequence: 0,
            body: file_header(size.columns, size.rows, started).into_bytes(),
            expires_at: None,
            is_closed: false,
            opened: Some(started),
            end_sequence: 0,
            last_micros: 0,
            decoder: Decoder::default(),
            typed: Decoder::default(),
            gaps: Vec::new(),
        }
    }

    /// Goes on after the last chunk that was stored. Ask the node for output from [`Self::next_sequence`] on.
    pub fn resume(tail: Tail) -> Self {
        let Tail { header, digest, last_micros, is_closed } = tail;
        Self {
            session: header.session_id,
            started: header.started_at,
            limits: Limits::default(),
            index: header.index + 1,
            previous: digest,
            first_sequence: header.end_sequence,
            body: Vec::new(),
            expires_at: None,
            is_closed,
            opened: None,
            end_sequence: header.end_sequence,
            last_micros,
            decoder: Decoder::default(),
            typed: Decoder::default(),
            gaps: header.gaps,
        }
    }

    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = Limits { chunk_bytes: limits.chunk_bytes.min(EVENTS_BYTES_MAX), ..limits };
        self
    }

    /// The recording is kept until then: its first chunk says so.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: DateTime<Utc>) -> Self {
        self.expires_at = Some(expires_at.trunc_subsecs(6));
        self
    }

    /// The byte of output that is expected next.
    pub fn next_sequence(&self) -> u64 {
        self.end_sequence.saturating_add(self.decoder.held_bytes())
    }

    /// Output whose first byte is byte `sequence` of all output of the session. What was recorded already is skipped;
    /// what is missing before it is a gap. Nothing is recorded from [`SEQUENCE_MAX`] on.
    pub fn output(&mut self, at: DateTime<Utc>, sequence: u64, bytes: &[u8]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let room = usize::try_from(SEQUENCE_MAX.saturating_sub(sequence)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        // A whole output that was recorded is not news, and an empty one neither.
        let known = usize::try_from(self.next_sequence().saturating_sub(sequence)).unwrap_or(usize::MAX);
        let Some(news) = bytes.get(known..).filter(|news| !news.is_empty()) else { return chunks };
        self.gap_until(at, sequence, &mut chunks);
        for piece in news.chunks(EVENT_OUTPUT_BYTES) {
            let (text, bytes) = self.decoder.decode(piece);
            self.text(at, 'o', &text, &mut chunks);
            self.end_sequence = self.end_sequence.saturating_add(bytes);
        }
        chunks.extend(self.chunk_if_due(at));
        chunks
    }

    /// What was typed. It has no sequence: nodes do not keep it.
    pub fn input(&mut self, at: DateTime<Utc>, bytes: &[u8]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for piece in bytes.chunks(EVENT_OUTPUT_BYTES) {
            let (text, _) = self.typed.decode(piece);
            self.text(at, 'i', &text, &mut chunks);
        }
        chunks.extend(self.chunk_if_due(at));
        chunks
    }

    /// Says that what was typed shortly before may be missing, because another gateway goes on here.
    pub fn resumed(&mut self, at: DateTime<Utc>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        self.event(at, &Event::Resumed, &mut chunks);
        chunks
    }

    pub fn resized(&mut self, at: DateTime<Utc>, columns: u16, rows: u16) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        self.event(at, &Event::Resize { columns, rows }, &mut chunks);
        chunks.extend(self.chunk_if_due(at));
        chunks
    }

    /// When [`Self::chunk_if_due`] gives a chunk if nothing more happens; nothing while there is nothing to store.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        self.opened.map(|opened| opened + self.limits.chunk_age)
    }

    /// The chunk that is being written, when it is old or large enough. One that was begun later than now is due as well: the
    /// clock was set back, and nobody can tell how old it is.
    pub fn chunk_if_due(&mut self, now: DateTime<Utc>) -> Option<Chunk> {
        let is_old = self.due_at().is_some_and(|due| due <= now);
        let is_from_later = self.opened.is_some_and(|opened| now < opened);
        let is_due = is_old || is_from_later || self.body.len() >= self.limits.chunk_bytes;
        is_due.then(|| self.flush()).flatten()
    }

    /// The chunk that is being written, however young; nothing when it is empty. For a gateway that stops.
    pub fn flush(&mut self) -> Option<Chunk> {
        self.opened.take()?;
        let sequences = self.first_sequence..self.end_sequence;
        let previous = std::mem::replace(&mut self.previous, no_digest());
        let header =
            Header::new(self.session, self.index, previous, sequences, self.started, self.gaps.clone())
                .with_expiry(self.expires_at.take());
        let line = header.line();
        // Not emptied but given away: a session that is quiet after a burst holds no memory of it.
        let body = std::mem::take(&mut self.body);
        let mut bytes = Vec::with_capacity(line.len() + 1 + body.len());
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        bytes.extend_from_slice(&body);
        let chunk =
            Chunk { index: self.index, end_sequence: self.end_sequence, digest: digest(&bytes), bytes };
        self.index += 1;
        self.previous = chunk.digest.clone();
        self.first_sequence = self.end_sequence;
        Some(chunk)
    }

    /// Ends the recording: its last event says that nobody writes after it. `final_sequence` is how many bytes the session printed, as the node says; without it the
    /// recording is not called complete, because nobody knows what came after the last recorded byte.
    pub fn finish(mut self, ended_at: DateTime<Utc>, final_sequence: Option<u64>, reason: &str) -> Finished {
        let mut chunks = Vec::new();
        self.give_up_character(ended_at, &mut chunks);
        if self.typed.give_up().is_some() {
            self.text(ended_at, 'i', REPLACEMENT, &mut chunks);
        }
        self.gap_until(ended_at, final_sequence.unwrap_or_default(), &mut chunks);
        if !self.is_closed {
            self.event(ended_at, &Event::Closed, &mut chunks);
        }
        chunks.extend(self.flush());
        let statement = Statement {
            session_id: self.session,
            chunks: self.index,
            head: self.previous,
            end_sequence: self.end_sequence,
            ended_at: ended_at.trunc_subsecs(6),
            reason: reason.chars().take(REASON_CHARACTERS_MAX).collect(),
            complete: self.gaps.is_empty() && final_sequence == Some(self.end_sequence),
            gaps: self.gaps,
            tampering: None,
        };
        Finished { chunks, statement }
    }

    /// Marks what is missing between the last byte that came and byte `to`.
    fn gap_until(&mut self, at: DateTime<Utc>, to: u64, chunks: &mut Vec<Chunk>) {
        let to = to.min(SEQUENCE_MAX);
        if to <= self.next_sequence() {
            return;
        }
        self.give_up_character(at, chunks);
        let gap = Gap { from: self.end_sequence, to };
        self.event(at, &Event::Gap { bytes: gap.to.saturating_sub(gap.from) }, chunks);
        self.end_sequence = to;
        if self.gaps.len() < GAPS_LISTED_MAX {
            self.gaps.push(gap);
        }
    }

    /// The rest of a character does not come any more.
    fn give_up_character(&mut self, at: DateTime<Utc>, chunks: &mut Vec<Chunk>) {
        if let Some(bytes) = self.decoder.give_up() {
            self.text(at, 'o', REPLACEMENT, chunks);
            self.end_sequence = self.end_sequence.saturating_add(bytes);
        }
    }

    fn text(&mut self, at: DateTime<Utc>, code: char, text: &str, chunks: &mut Vec<Chunk>) {
        if !text.is_empty() {
            self.add(at, chunks, |body, micros| write_line(body, micros, code, text));
        }
    }

    fn event(&mut self, at: DateTime<Utc>, event: &Event, chunks: &mut Vec<Chunk>) {
        self.add(at, chunks, |body, micros| event.write(body, micros));
    }

    /// Adds a line, after the chunk before it when both do not fit into one. The caller counts it afterwards: it is
    /// not in a chunk that this closes.
    fn add(&mut self, at: DateTime<Utc>, chunks: &mut Vec<Chunk>, write: impl FnOnce(&mut Vec<u8>, u64)) {
        let since_start =
            (at - self.started).num_microseconds().and_then(|micros| u64::try_from(micros).ok());
        self.last_micros = self.last_micros.max(since_start.unwrap_or_default());
        let before = self.body.len();
        write(&mut self.body, self.last_micros);
        if before > 0 && self.body.len() > self.limits.chunk_bytes {
            let line = self.body.split_off(before);
            chunks.extend(self.flush());
            self.body = line;
        }
        self.opened.get_or_insert(at);
    }
}
