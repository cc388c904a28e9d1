//! Bytes in a queue, in pieces that are neither tiny nor large.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

/// No piece is longer.
pub const PIECE: usize = 16 * 1024;
/// What is shorter is joined with what comes next: a queue of single bytes would cost a hundred times their number.
const SMALL: usize = 1024;

/// The caller bounds how many bytes are in it; the number of pieces is then bounded too.
#[derive(Debug, Default)]
pub struct Pieces {
    whole: VecDeque<Bytes>,
    /// Behind them: what came in small pieces.
    joined: BytesMut,
    length: usize,
}

impl Pieces {
    /// Bytes in all pieces.
    pub const fn len(&self) -> usize {
        self.length
    }

    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn push(&mut self, mut bytes: Bytes) {
        self.length += bytes.len();
        let is_small = bytes.len() < SMALL;
        if !is_small || self.joined.len() + bytes.len() > PIECE {
            self.close_joined();
        }
        if is_small {
            self.joined.extend_from_slice(&bytes);
            return;
        }
        while !bytes.is_empty() {
            self.whole.push_back(bytes.split_to(bytes.len().min(PIECE)));
        }
    }

    fn close_joined(&mut self) {
        if !self.joined.is_empty() {
            self.whole.push_back(self.joined.split().freeze());
        }
    }

    /// The first piece, which stays.
    pub fn front(&mut self) -> Option<&Bytes> {
        if self.whole.is_empty() {
            self.close_joined();
        }
        self.whole.front()
    }

    /// So many bytes of the first piece were taken.
    pub fn advance(&mut self, count: usize) {
        let Some(front) = self.whole.front_mut() else { return };
        let count = count.min(front.len());
        front.advance(count);
        self.length -= count;
        if front.is_empty() {
            self.whole.pop_front();
        }
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        self.front()?;
        let piece = self.whole.pop_front()?;
        self.length -= piece.len();
        Some(piece)
    }

    /// Answers how many bytes there were.
    pub fn clear(&mut self) -> usize {
        std::mem::take(self).length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in_however_they_were_cut(
            lengths in prop::collection::vec(0..40_000_usize, 0..20),
            taken in prop::collection::vec(1..20_000_usize, 0..40),
        ) {
            let (mut pieces, mut all, mut out) = (Pieces::default(), Vec::new(), Vec::new());
            let mut taken = taken.into_iter();
            for length in lengths {
                let bytes: Vec<u8> = (all.len()..all.len() + length).map(|n| (n * 31 % 251) as u8).collect();
                all.extend_from_slice(&bytes);
                pieces.push(bytes.into());
                if let (Some(front), Some(count)) = (pieces.front().cloned(), taken.next()) {
                    prop_assert!(!front.is_empty() && front.len() <= PIECE);
                    out.extend_from_slice(&front[..count.min(front.len())]);
                    pieces.advance(count);
                }
                prop_assert_eq!(pieces.len(), all.len() - out.len());
            }
            while let Some(piece) = pieces.pop() {
                out.extend_from_slice(&piece);
            }
            prop_assert_eq!(out, all);
            prop_assert!(pieces.is_empty());
        }
    }

    #[test]
    fn single_bytes_are_joined() {
        let mut pieces = Pieces::default();
        for _ in 0..65_536 {
            pieces.push(Bytes::from_static(b"x"));
        }
        assert_eq!(pieces.whole.len(), 65_536 / PIECE - 1);
        assert_eq!(pieces.clear(), 65_536);
        assert!(pieces.is_empty());
    }
}
