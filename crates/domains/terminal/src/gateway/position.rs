//! Where a node is in the output of a session, as far as it is believed.
//!
//! A node numbers the bytes that it sends, and a node may be in the hands of whoever is root on it. What it says of itself is
//! its own harm; numbers that cannot be are refused before anything is recorded of them, so that no recording ends with a
//! number that nothing can store, or seems to have been changed by somebody else.

use node_tunnel::frame::Frame;
use recording::SEQUENCE_MAX;

/// What no node says that keeps to the protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    #[error("output came before the node said with which byte it goes on")]
    NotBegun,
    #[error("the node goes on with byte {to}, but byte {next} is the next")]
    Backwards { next: u64, to: u64 },
    #[error("the node goes beyond byte {SEQUENCE_MAX}, which no session reaches")]
    TooLarge,
}

pub struct OutputPosition {
    /// The byte that the node sends next, or a later one.
    next: u64,
    has_begun: bool,
}

impl OutputPosition {
    /// `from`: what the node was asked for. It goes on there, or later when it has not kept so much.
    pub fn new(from: u64) -> Self {
        Self { next: from, has_begun: false }
    }

    /// Must be asked before anything is done with a frame.
    pub fn follow(&mut self, frame: &Frame) -> Result<(), PositionError> {
        match frame {
            Frame::Ack { sequence } => self.go_on(*sequence),
            Frame::Data(bytes) => self.advance(bytes.len()),
            _ => Ok(()),
        }
    }

    fn go_on(&mut self, sequence: u64) -> Result<(), PositionError> {
        if sequence > SEQUENCE_MAX {
            return Err(PositionError::TooLarge);
        }
        if sequence < self.next {
            return Err(PositionError::Backwards { next: self.next, to: sequence });
        }
        (self.next, self.has_begun) = (sequence, true);
        Ok(())
    }

    fn advance(&mut self, bytes: usize) -> Result<(), PositionError> {
        if !self.has_begun {
            return Err(PositionError::NotBegun);
        }
        let next = u64::try_from(bytes).ok().and_then(|bytes| self.next.checked_add(bytes));
        self.next = next.filter(|next| *next <= SEQUENCE_MAX).ok_or(PositionError::TooLarge)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn ack(sequence: u64) -> Frame {
        Frame::Ack { sequence }
    }

    fn data() -> Frame {
        Frame::Data(Bytes::from_static(b"four"))
    }

    #[test]
    fn a_node_goes_on_where_it_was_asked_to_and_may_skip() {
        let mut position = OutputPosition::new(10);
        for frame in [ack(10), data(), ack(14), data(), ack(1000), data(), Frame::Exit { status: 0 }] {
            assert_eq!(position.follow(&frame), Ok(()), "{frame:?}");
        }
        assert_eq!(position.follow(&ack(1003)), Err(PositionError::Backwards { next: 1004, to: 1003 }));
        let mut not_kept = OutputPosition::new(10);
        assert_eq!(not_kept.follow(&ack(5000)), Ok(()));
    }

    #[test]
    fn a_node_begins_before_it_sends_and_not_before_what_it_was_asked_for() {
        assert_eq!(OutputPosition::new(0).follow(&data()), Err(PositionError::NotBegun));
        let backwards = PositionError::Backwards { next: 10, to: 9 };
        assert_eq!(OutputPosition::new(10).follow(&ack(9)), Err(backwards));
    }

    #[test]
    fn no_byte_has_a_number_that_no_session_reaches() {
        for sequence in [SEQUENCE_MAX + 1, i64::MAX.unsigned_abs(), u64::MAX] {
            assert_eq!(OutputPosition::new(0).follow(&ack(sequence)), Err(PositionError::TooLarge));
        }
        let mut position = OutputPosition::new(0);
        assert_eq!(position.follow(&ack(SEQUENCE_MAX - 4)), Ok(()));
        assert_eq!(position.follow(&data()), Ok(()));
        assert_eq!(position.follow(&data()), Err(PositionError::TooLarge));
        // A client that says that it has more than there is learns it from the node.
        let mut ahead = OutputPosition::new(u64::MAX);
        assert_eq!(ahead.follow(&ack(u64::MAX)), Err(PositionError::TooLarge));
    }
}
