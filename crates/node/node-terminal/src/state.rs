//! What a session knows, without input and output: who is attached, what is kept, what is wanted.

use std::collections::HashMap;

use bytes::Bytes;
use node_proto::{contract::TerminalEndReason, grant::PtyAccess};
use node_tunnel::{
    Refusal,
    frame::{CloseReason, Frame},
    pieces::Pieces,
};
use tokio::time::Instant;

pub(crate) use self::terms::{End, Input, Next, Plan, Role, Rules, Violation};
use crate::ring::Ring;

mod terms;

/// The most that one `Data` frame to a client holds: with its headers it is one frame of HTTP/2 and one record of TLS.
const PIECE: usize = 16 * 1024 - 64;

pub(crate) type AttachmentId = u64;

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
#[derive(Clone, Copy, Debug)]
struct Position {
    sent: u64,
    /// What it is sent is recorded before anybody sees it, if the session is: it asked to write.
    is_recorded: bool,
}

pub(crate) struct State {
    ring: Ring,
    rules: Rules,
    hold: Hold,
    /// All bytes before this one are in a recording, as far as gateways have said.
    recorded: u64,
    waits_for_room: bool,
    /// The writer has all bytes before this one, and they need not be kept.
    acknowledged: u64,
    /// The writer has all bytes before this one.
    seen: u64,
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
    pub fn new(rules: Rules) -> Self {
        Self {
            ring: Ring::new(rules.scrollback.min(rules.ring), rules.ring),
            rules,
            hold: Hold::Free,
            recorded: 0,
            waits_for_room: false,
            acknowledged: 0,
            seen: 0,
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
    /// `recorded`: from now on nobody sees what is not recorded, if they did before.
    pub fn join(&mut self, access: PtyAccess, recorded: bool) -> Result<(AttachmentId, Role), Refusal> {
        let role = match access {
            PtyAccess::Write | PtyAccess::TakeOver if self.end.is_none() => Role::Writer,
            _ => Role::Watcher,
        };
        let occupied = role == Role::Writer && self.writer.is_some();
        if occupied && access == PtyAccess::Write {
            return Err(Refusal("writer_attached"));
        }
        // The writer that is replaced leaves.
        if self.attached.len() >= self.rules.most_attached.saturating_add(usize::from(occupied)) {
            return Err(Refusal("too_many_attached"));
        }
        let id = self.next_id;
        self.next_id += 1;
        if recorded && !self.rules.recorded {
            (self.rules.recorded, self.recorded) = (true, self.ring.produced());
        }
        let is_recorded = access != PtyAccess::Watch;
        self.attached.insert(id, Position { sent: 0, is_recorded });
        if role == Role::Writer {
            self.discard_input();
            (self.consumed, self.window_full) = (0, false);
            if self.hold == Hold::Free {
                // Any of it may be asked for.
                (self.acknowledged, self.seen) = (self.ring.oldest(), self.ring.oldest());
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
            self.hold = if on_purpose { Hold::Free } else { Hold::Until(now + self.rules.grace) };
            self.ring.shrink();
        }
    }

    /// The client has all bytes before `received`. Answers with which byte it goes on.
    pub fn begin(&mut self, id: AttachmentId, received: u64) -> Result<u64, Violation> {
        let produced = self.ring.produced();
        if received > produced {
            return Err(Violation::AckBeyondSent { acknowledged: received, sent: produced });
        }
        let mut start = received.max(self.ring.oldest());
        if let Some(position) = self.attached.get_mut(&id) {
            if self.rules.recorded && !position.is_recorded {
                start = received.max(self.ring.oldest().min(self.recorded));
            }
            position.sent = start;
        }
        if self.writer == Some(id) {
            (self.acknowledged, self.seen) = (start, start);
        }
        Ok(start)
    }

    /// Answers whether the task waits for this.
    pub fn acknowledge(&mut self, id: AttachmentId, sequence: u64) -> Result<bool, Violation> {
        let waits = self.note_received(id, sequence)?;
        if self.writer == Some(id) {
            self.acknowledged = self.acknowledged.max(sequence);
        }
        Ok(waits)
    }

    /// The client has all bytes before this one; they are kept all the same. Answers whether the task waits for this.
    pub fn note_received(&mut self, id: AttachmentId, sequence: u64) -> Result<bool, Violation> {
        self.note_recorded(id, sequence)?;
        if self.writer == Some(id) {
            self.seen = self.seen.max(sequence);
        }
        Ok(self.waits_for_room)
    }

    /// The gateway of this attachment has recorded all bytes before this one.
    pub fn note_recorded(&mut self, id: AttachmentId, sequence: u64) -> Result<(), Violation> {
        let Some(Position { sent, is_recorded }) = self.attached.get(&id).copied() else { return Ok(()) };
        if sequence > sent {
            return Err(Violation::AckBeyondSent { acknowledged: sequence, sent });
        }
        if is_recorded {
            self.recorded = self.recorded.max(sequence);
        }
        Ok(())
    }

    /// Up to where watchers see the output, if there are any whom that limits.
    pub fn watchers_limit(&self) -> Option<u64> {
        (self.rules.recorded && self.attached.len() > 1).then_some(self.recorded)
    }

    pub fn next_output(&mut self, id: AttachmentId, role: Role) -> Next {
        if role == Role::Writer && self.writer != Some(id) {
            return Next::Last(Frame::Close { reason: CloseReason::TakenOver });
        }
        let Some(position) = self.attached.get(&id).copied() else { return Next::Wait };
        let is_limited = self.rules.recorded && !position.is_recorded;
        let visible = if is_limited { self.recorded } else { self.ring.produced() };
        let oldest = self.ring.oldest();
        if position.sent < oldest && oldest <= visible {
            self.set_sent(id, oldest);
            return Next::Frame(Frame::Ack { sequence: oldest });
        }
        let most = usize::try_from(visible.saturating_sub(position.sent)).unwrap_or(usize::MAX);
        let bytes = self.ring.read(position.sent, most.min(PIECE));
        if !bytes.is_empty() {
            self.set_sent(id, position.sent + bytes.len() as u64);
            return Next::Frame(Frame::Data(bytes));
        }
        if is_limited && visible < self.ring.produced() && self.has_recorder() {
            // The rest is about to be recorded.
            return Next::Wait;
        }
        self.end.map_or(Next::Wait, |end| Next::Last(end.frame()))
    }

    fn set_sent(&mut self, id: AttachmentId, sent: u64) {
        if let Some(position) = self.attached.get_mut(&id) {
            position.sent = sent;
        }
    }

    fn has_recorder(&self) -> bool {
        self.attached.values().any(|one| one.is_recorded)
    }

    /// Whether others see the output only when it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.rules.recorded
    }

    /// Whether watchers wait for what the gateway of this attachment records.
    pub fn is_recorder(&self, id: AttachmentId) -> bool {
        self.rules.recorded && self.attached.get(&id).is_some_and(|one| one.is_recorded)
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
            _ => self.ring.room(self.first_needed()).min(self.room_unseen()),
        };
        let until = match self.hold {
            Hold::Until(until) => Some(until),
            _ => None,
        };
        self.waits_for_room = room == 0;
        let generation = self.generation;
        let input = self.input.front().map(|bytes| Input { bytes: bytes.clone(), generation });
        Plan { room, input, resize: self.resize.take(), end: self.end_wanted, until }
    }

    /// The first byte that must not be overwritten while output is held.
    fn first_needed(&self) -> u64 {
        self.acknowledged.max(self.counts_as_acknowledged())
    }

    /// How much may be printed that the writer has not seen: what is typed waits behind it.
    fn room_unseen(&self) -> usize {
        let unseen = self.ring.produced().saturating_sub(self.seen.max(self.counts_as_acknowledged()));
        let most = self.rules.scrollback.min(self.rules.ring);
        most.saturating_sub(usize::try_from(unseen).unwrap_or(usize::MAX))
    }

    /// What was sent, while no acknowledgement can come.
    fn counts_as_acknowledged(&self) -> u64 {
        let writer = self.writer.filter(|_| self.window_full).and_then(|writer| self.attached.get(&writer));
        writer.map_or(0, |position| position.sent)
    }

    pub fn push_output(&mut self, bytes: &[u8]) {
        let first_needed = match self.hold {
            Hold::Free => self.ring.produced(),
            Hold::Attached | Hold::Until(_) => self.first_needed(),
        };
        self.ring.push(bytes, first_needed);
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

    pub fn end_reported(&self) -> Option<(TerminalEndReason, Option<i32>)> {
        self.end.map(End::reported)
    }

    pub fn has_ended(&self) -> bool {
        self.end.is_some()
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
