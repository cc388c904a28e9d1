//! What a session knows, without input and output: who is attached, what is kept, what is wanted.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use node_proto::grant::PtyAccess;
use node_tunnel::{
    Refusal,
    frame::{CloseReason, Frame},
    pieces::Pieces,
};
use tokio::time::Instant;

use crate::ring::Ring;

/// The most that one `Data` frame to a client holds: with its headers it is one frame of HTTP/2 and one record of TLS.
const PIECE: usize = 16 * 1024 - 64;

pub(crate) type AttachmentId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Watcher,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Closed(CloseReason),
}

impl End {
    fn frame(self) -> Frame {
        match self {
            Self::Exited(status) => Frame::Exit { status },
            Self::Closed(reason) => Frame::Close { reason },
        }
    }
}

/// What came is not allowed by the protocol of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("byte {acknowledged} is acknowledged, and {sent} were sent")]
    AckBeyondSent { acknowledged: u64, sent: u64 },
    #[error("a terminal of {columns} columns and {rows} rows")]
    Size { columns: u16, rows: u16 },
}

/// What an attachment sends next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Frame(Frame),
    /// The last one.
    Last(Frame),
    Wait,
}

/// What the task of a session does next.
pub(crate) struct Plan {
    /// So many bytes of output may be read.
    pub room: usize,
    pub input: Option<Input>,
    pub resize: Option<(u16, u16)>,
    pub end: Option<CloseReason>,
    /// When the plan changes by itself.
    pub until: Option<Instant>,
}

/// The next typed bytes.
pub(crate) struct Input {
    pub bytes: Bytes,
    /// Changes when the queue is emptied: what was taken of an earlier one is not counted.
    generation: u64,
}

/// Whether output that was not acknowledged may be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// It may not: a writer is attached.
    Attached,
    /// It may not until then: the writer was cut off.
    Until(Instant),
    /// It may.
    Free,
}

/// Where an attachment is in the output.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    sent: u64,
    acknowledged: u64,
}

pub(crate) struct State {
    ring: Ring,
    grace: Duration,
    most_attached: usize,
    hold: Hold,
    /// The writer has all bytes before this one.
    acknowledged: u64,
    writer: Option<AttachmentId>,
    attached: HashMap<AttachmentId, Position>,
    next_id: AttachmentId,
    input: Pieces,
    generation: u64,
    /// Typed bytes of the writer that the PTY took and whose window is not released yet.
    consumed: usize,
    /// The writer's window is full of typed bytes: no acknowledgement can come.
    window_full: bool,
    resize: Option<(u16, u16)>,
    end_wanted: Option<CloseReason>,
    end: Option<End>,
    processes_gone: bool,
}

impl State {
    pub fn new(ring: usize, grace: Duration, most_attached: usize) -> Self {
        Self {
            ring: Ring::new(ring),
            grace,
            most_attached,
            hold: Hold::Free,
            acknowledged: 0,
            writer: None,
            attached: HashMap::new(),
            next_id: 0,
            input: Pieces::default(),
            generation: 0,
            consumed: 0,
            window_full: false,
            resize: None,
            end_wanted: None,
            end: None,
            processes_gone: false,
        }
    }

    pub fn produced(&self) -> u64 {
        self.ring.produced()
    }

    pub fn attached(&self) -> usize {
        self.attached.len()
    }

    pub fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    // ---- attachments

    /// One more stream. Who joins an ended session reads what is kept, whatever it asked for.
    pub fn join(&mut self, access: PtyAccess) -> Result<(AttachmentId, Role), Refusal> {
        let role = match access {
            PtyAccess::Write | PtyAccess::TakeOver if self.end.is_none() => Role::Writer,
            _ => Role::Watcher,
        };
        let occupied = role == Role::Writer && self.writer.is_some();
        if occupied && access == PtyAccess::Write {
            return Err(Refusal("writer_attached"));
        }
        // The writer that is replaced leaves.
        if self.attached.len() >= self.most_attached.saturating_add(usize::from(occupied)) {
            return Err(Refusal("too_many_attached"));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.attached.insert(id, Position::default());
        if role == Role::Writer {
            self.discard_input();
            (self.consumed, self.window_full) = (0, false);
            if self.hold == Hold::Free {
                // Any of it may be asked for.
                self.acknowledged = self.ring.oldest();
            }
            (self.writer, self.hold) = (Some(id), Hold::Attached);
        }
        Ok((id, role))
    }

    /// A stream has ended. One that ended on purpose needs nothing kept.
    pub fn leave(&mut self, id: AttachmentId, on_purpose: bool, now: Instant) {
        self.attached.remove(&id);
        if self.writer == Some(id) {
            self.writer = None;
            self.window_full = false;
            self.hold = if on_purpose { Hold::Free } else { Hold::Until(now + self.grace) };
        }
    }

    /// The client has all bytes before `received`. Answers with which byte it goes on.
    pub fn begin(&mut self, id: AttachmentId, received: u64) -> Result<u64, Violation> {
        let produced = self.ring.produced();
        if received > produced {
            return Err(Violation::AckBeyondSent { acknowledged: received, sent: produced });
        }
        let start = received.max(self.ring.oldest());
        if let Some(position) = self.attached.get_mut(&id) {
            *position = Position { sent: start, acknowledged: start };
        }
        if self.writer == Some(id) {
            self.acknowledged = start;
        }
        Ok(start)
    }

    pub fn acknowledge(&mut self, id: AttachmentId, sequence: u64) -> Result<(), Violation> {
        let Some(position) = self.attached.get_mut(&id) else { return Ok(()) };
        if sequence > position.sent {
            return Err(Violation::AckBeyondSent { acknowledged: sequence, sent: position.sent });
        }
        position.acknowledged = position.acknowledged.max(sequence);
        if self.writer == Some(id) {
            self.acknowledged = position.acknowledged;
        }
        Ok(())
    }

    pub fn next_output(&mut self, id: AttachmentId, role: Role) -> Next {
        if role == Role::Writer && self.writer != Some(id) {
            return Next::Last(Frame::Close { reason: CloseReason::TakenOver });
        }
        let Some(position) = self.attached.get_mut(&id) else { return Next::Wait };
        if position.sent < self.ring.oldest() {
            position.sent = self.ring.oldest();
            return Next::Frame(Frame::Ack { sequence: position.sent });
        }
        let bytes = self.ring.read(position.sent, PIECE);
        if !bytes.is_empty() {
            position.sent += bytes.len() as u64;
            return Next::Frame(Frame::Data(bytes));
        }
        self.end.map_or(Next::Wait, |end| Next::Last(end.frame()))
    }

    /// Whether a stream has nothing more to expect but its last frames.
    pub fn is_closing(&self, id: AttachmentId, role: Role) -> bool {
        self.end.is_some() || (role == Role::Writer && self.writer != Some(id))
    }

    // ---- input

    /// Queues what was typed. Answers whether it was: only what the writer types goes to the program.
    pub fn type_input(&mut self, id: AttachmentId, bytes: Bytes) -> bool {
        let typed = self.writer == Some(id) && self.end.is_none();
        if typed && !bytes.is_empty() {
            self.input.push(bytes);
        }
        typed
    }

    pub fn resize(&mut self, id: AttachmentId, columns: u16, rows: u16) -> Result<(), Violation> {
        const SIZES: std::ops::RangeInclusive<u16> = 1..=1000;
        if !SIZES.contains(&columns) || !SIZES.contains(&rows) {
            return Err(Violation::Size { columns, rows });
        }
        if self.writer == Some(id) {
            self.resize = Some((columns, rows));
        }
        Ok(())
    }

    /// How many typed bytes the PTY has taken since this was asked.
    pub fn consumed_input(&mut self, id: AttachmentId) -> usize {
        if self.writer == Some(id) { std::mem::take(&mut self.consumed) } else { 0 }
    }

    pub fn set_window_full(&mut self, id: AttachmentId, full: bool) {
        if self.writer == Some(id) {
            self.window_full = full;
        }
    }

    // ---- the task of the session

    pub fn plan(&mut self, now: Instant) -> Plan {
        if matches!(self.hold, Hold::Until(until) if until <= now) {
            self.hold = Hold::Free;
        }
        let room = match self.hold {
            Hold::Free => self.ring.size(),
            _ => self.ring.room(self.first_needed()),
        };
        let until = match self.hold {
            Hold::Until(until) => Some(until),
            _ => None,
        };
        let generation = self.generation;
        let input = self.input.front().map(|bytes| Input { bytes: bytes.clone(), generation });
        Plan { room, input, resize: self.resize.take(), end: self.end_wanted, until }
    }

    /// The first byte that must not be overwritten while output is held.
    fn first_needed(&self) -> u64 {
        let sent = self.writer.filter(|_| self.window_full).and_then(|writer| self.attached.get(&writer));
        sent.map_or(self.acknowledged, |position| position.sent.max(self.acknowledged))
    }

    pub fn push_output(&mut self, bytes: &[u8]) {
        self.ring.push(bytes);
    }

    /// The PTY took so many bytes of it.
    pub fn input_taken(&mut self, input: &Input, count: usize) {
        if input.generation != self.generation {
            return;
        }
        self.input.advance(count);
        self.consumed += count;
    }

    /// Nothing will take it.
    pub fn discard_input(&mut self) {
        self.consumed += self.input.clear();
        self.generation += 1;
    }

    pub fn want_end(&mut self, reason: CloseReason) {
        self.end_wanted.get_or_insert(reason);
    }

    /// No more output comes. The first end counts.
    pub fn set_end(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.discard_input();
    }

    pub fn set_processes_gone(&mut self) {
        self.processes_gone = true;
    }

    pub fn has_exited(&self) -> bool {
        matches!(self.end, Some(End::Exited(_)))
    }

    pub fn has_no_processes(&self) -> bool {
        self.processes_gone
    }
}

#[cfg(test)]
mod tests;
