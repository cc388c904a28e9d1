//! What one attachment has sent and received, and what it must send next. No I/O: times come in, messages go out.
//!
//! Output is acknowledged when it is written to the local terminal, not when it arrives: a terminal that is slow slows the
//! program on the machine. Input is sent as far as the server's window allows; the rest waits here.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::protocol::{ACK_BYTES, ACK_DELAY, ClientMessage, INPUT_WINDOW_BYTES, MESSAGE_BYTES, Size};

/// Typed bytes that wait here at most; beyond them, the keyboard is not read.
const WAITING_INPUT_BYTES: usize = 1024 * 1024;
/// Silence after which the server is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Silence after that which means that the connection is lost.
const LOST_AFTER: Duration = Duration::from_secs(25);

/// The server does not do as the protocol says.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    Control(ClientMessage),
    Input(Vec<u8>),
}

pub struct Flow {
    /// Output bytes of the session that arrived, were written, and were acknowledged.
    received: u64,
    written: u64,
    acknowledged: u64,
    ack_due: Option<Instant>,
    /// Input bytes of this attachment that were sent, and that the server took.
    sent: u64,
    taken: u64,
    waiting: VecDeque<u8>,
    size: Option<Size>,
    received_at: Instant,
    /// Since when an answer is due, and whether it was asked for.
    asked: Option<(Instant, bool)>,
}

impl Flow {
    /// From the next output byte on.
    pub fn new(sequence: u64, now: Instant) -> Self {
        Self {
            received: sequence,
            written: sequence,
            acknowledged: sequence,
            ack_due: None,
            sent: 0,
            taken: 0,
            waiting: VecDeque::new(),
            size: None,
            received_at: now,
            asked: None,
        }
    }

    /// Anything arrived: the connection lives.
    pub fn server_seen(&mut self, now: Instant) {
        self.received_at = now;
        self.asked = None;
    }

    /// Output arrived: the number of the byte after it.
    pub fn output_received(&mut self, bytes: usize) -> u64 {
        self.received += bytes as u64;
        self.received
    }

    /// Output goes on at this byte: how many were left out.
    pub fn output_skipped(&mut self, sequence: u64) -> Result<u64, Violation> {
        let skipped = sequence.checked_sub(self.received).ok_or(Violation("it sends output twice"))?;
        self.received = sequence;
        Ok(skipped)
    }

    /// Output was written to the local terminal up to this byte.
    pub fn output_written(&mut self, sequence: u64, now: Instant) {
        if sequence > self.written {
            self.written = sequence;
            self.ack_due.get_or_insert(now + ACK_DELAY);
        }
    }

    pub fn input_typed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    /// Whether more may be typed.
    pub fn input_has_room(&self) -> bool {
        self.waiting.len() < WAITING_INPUT_BYTES
    }

    /// The server took so many bytes of this attachment.
    pub fn input_taken(&mut self, bytes: u64) -> Result<(), Violation> {
        if bytes > self.sent {
            return Err(Violation("it took more input than was sent"));
        }
        self.taken = self.taken.max(bytes);
        Ok(())
    }

    pub fn resized(&mut self, size: Size) {
        self.size = Some(size);
    }

    /// The next message, if one is due.
    pub fn message(&mut self, now: Instant) -> Option<Outgoing> {
        if let Some(size) = self.size.take() {
            return Some(Outgoing::Control(ClientMessage::Resize(size)));
        }
        let unacknowledged = self.written - self.acknowledged;
        if unacknowledged >= ACK_BYTES || self.ack_due.is_some_and(|due| due <= now) {
            self.acknowledged = self.written;
            self.ack_due = None;
            return Some(Outgoing::Control(ClientMessage::Ack { sequence: self.written }));
        }
        if self.asked.is_none() && now >= self.received_at + PING_AFTER {
            self.asked = Some((now, false));
        }
        if let Some((_, asked @ false)) = &mut self.asked {
            *asked = true;
            return Some(Outgoing::Control(ClientMessage::Ping));
        }
        let window = INPUT_WINDOW_BYTES - (self.sent - self.taken);
        let most = MESSAGE_BYTES.min(usize::try_from(window).unwrap_or(MESSAGE_BYTES));
        let bytes: Vec<u8> = self.waiting.drain(..self.waiting.len().min(most)).collect();
        self.sent += bytes.len() as u64;
        (!bytes.is_empty()).then_some(Outgoing::Input(bytes))
    }

    /// When time alone changes something.
    pub fn deadline(&self) -> Instant {
        let alive = match self.asked {
            Some((since, _)) => since + LOST_AFTER,
            None => self.received_at + PING_AFTER,
        };
        self.ack_due.map_or(alive, |due| due.min(alive))
    }

    /// Whether the server is silent for too long. Asking counts even where it could not be sent.
    pub fn is_lost(&mut self, now: Instant) -> bool {
        if self.asked.is_none() && now >= self.received_at + PING_AFTER {
            self.asked = Some((now, false));
        }
        self.asked.is_some_and(|(since, _)| now >= since + LOST_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ack(sequence: u64) -> Option<Outgoing> {
        Some(Outgoing::Control(ClientMessage::Ack { sequence }))
    }

    #[test]
    fn output_is_acknowledged_when_it_is_written_soon_or_after_enough_of_it() {
        let now = Instant::now();
        let mut flow = Flow::new(1_000, now);
        assert_eq!(flow.output_received(10), 1_010);
        assert_eq!((flow.message(now), flow.deadline()), (None, now + PING_AFTER));
        flow.output_written(1_004, now);
        assert_eq!((flow.message(now), flow.deadline()), (None, now + ACK_DELAY));
        flow.output_written(1_010, now + 40 * MS);
        assert_eq!(flow.message(now + ACK_DELAY - MS), None);
        assert_eq!(flow.message(now + ACK_DELAY), ack(1_010));
        assert_eq!(flow.message(now + ACK_DELAY), None);
        flow.output_received(100_000);
        flow.output_written(1_010 + ACK_BYTES - 1, now);
        assert_eq!(flow.message(now), None);
        flow.output_written(1_010 + ACK_BYTES, now);
        assert_eq!(flow.message(now), ack(1_010 + ACK_BYTES));
        assert_eq!(flow.message(now + ACK_DELAY), None, "nothing was written since");
    }

    #[test]
    fn acknowledgements_keep_the_promised_limits() {
        assert!(ACK_BYTES <= 32 * 1024 && ACK_DELAY < Duration::from_millis(100));
    }

    #[test]
    fn output_that_is_left_out_is_counted_and_none_comes_twice() {
        let now = Instant::now();
        let mut flow = Flow::new(5, now);
        assert_eq!(flow.output_received(10), 15);
        assert_eq!(flow.output_skipped(115), Ok(100));
        assert_eq!(flow.output_received(5), 120);
        flow.output_written(120, now);
        assert_eq!(flow.message(now + ACK_DELAY), ack(120));
        assert!(flow.output_skipped(119).is_err());
    }

    #[test]
    fn input_is_sent_in_pieces_as_far_as_the_window_allows() {
        let now = Instant::now();
        let mut flow = Flow::new(0, now);
        let typed: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        flow.input_typed(&typed);
        let mut sent = Vec::new();
        while let Some(Outgoing::Input(bytes)) = flow.message(now) {
            assert!(bytes.len() <= MESSAGE_BYTES);
            sent.extend(bytes);
        }
        assert_eq!(sent.len(), 65_536);
        assert_eq!(flow.input_taken(65_537), Err(Violation("it took more input than was sent")));
        flow.input_taken(10).unwrap();
        flow.input_taken(4).unwrap();
        let Some(Outgoing::Input(bytes)) = flow.message(now) else { panic!("ten bytes fit") };
        assert_eq!(bytes.len(), 10);
        sent.extend(bytes);
        flow.input_taken(65_546).unwrap();
        while let Some(Outgoing::Input(bytes)) = flow.message(now) {
            sent.extend(bytes);
        }
        assert_eq!(sent, typed);
    }

    #[test]
    fn what_waits_is_bounded_and_the_last_size_is_sent_once() {
        let now = Instant::now();
        let mut flow = Flow::new(0, now);
        flow.input_typed(&vec![0; WAITING_INPUT_BYTES - 1]);
        assert!(flow.input_has_room());
        flow.input_typed(&[0]);
        assert!(!flow.input_has_room());
        let (small, large) = (Size { columns: 10, rows: 5 }, Size { columns: 100, rows: 50 });
        flow.resized(small);
        flow.resized(large);
        assert_eq!(flow.message(now), Some(Outgoing::Control(ClientMessage::Resize(large))));
        assert!(matches!(flow.message(now), Some(Outgoing::Input(_))));
    }

    #[test]
    fn silence_is_asked_about_and_then_means_that_the_connection_is_lost() {
        let now = Instant::now();
        let mut flow = Flow::new(0, now);
        assert!(!flow.is_lost(now + PING_AFTER - MS));
        assert_eq!(flow.deadline(), now + PING_AFTER);
        let asked = now + PING_AFTER;
        assert!(!flow.is_lost(asked));
        assert_eq!(flow.message(asked), Some(Outgoing::Control(ClientMessage::Ping)));
        assert_eq!((flow.message(asked), flow.deadline()), (None, asked + LOST_AFTER));
        flow.server_seen(asked + MS);
        assert!(!flow.is_lost(asked + LOST_AFTER - MS));
        let mut stuck = Flow::new(0, now);
        // The program was stopped for an hour: the server is asked first.
        let hour = now + Duration::from_secs(3_600);
        assert!(!stuck.is_lost(hour));
        assert!(stuck.is_lost(hour + LOST_AFTER));
    }
}
