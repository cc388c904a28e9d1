//! The last bytes of an output, with their numbers.

use std::collections::VecDeque;

use bytes::{BufMut as _, Bytes, BytesMut};

/// Keeps the last `kept` bytes of all that were pushed, and before them what somebody still needs, up to `size` in all. The
/// first byte of an output has the number 0. Memory is taken as output comes.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    kept: usize,
    size: usize,
    produced: u64,
}

impl Ring {
    pub fn new(kept: usize, size: usize) -> Self {
        Self { bytes: VecDeque::new(), kept, size: size.max(kept), produced: 0 }
    }

    pub const fn size(&self) -> usize {
        self.size
    }

    /// How many bytes were pushed ever: the number of the next one.
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// The number of the oldest byte that is kept.
    pub fn oldest(&self) -> u64 {
        self.produced - self.bytes.len() as u64
    }

    /// How many bytes can be pushed without overwriting one from `first_needed` on.
    pub fn room(&self, first_needed: u64) -> usize {
        let needed = self.produced.saturating_sub(first_needed.max(self.oldest()));
        self.size.saturating_sub(usize::try_from(needed).unwrap_or(usize::MAX))
    }

    /// Appends, and drops the oldest bytes: those before `first_needed` that are not kept, and any where there is no room.
    pub fn push(&mut self, bytes: &[u8], first_needed: u64) {
        let no_room = (self.bytes.len() + bytes.len()).saturating_sub(self.size);
        self.produced += bytes.len() as u64;
        self.bytes.drain(..no_room.min(self.bytes.len()));
        self.bytes.extend(&bytes[bytes.len().saturating_sub(self.size)..]);
        let not_kept = self.bytes.len().saturating_sub(self.kept);
        let not_needed = usize::try_from(first_needed.saturating_sub(self.oldest())).unwrap_or(usize::MAX);
        self.bytes.drain(..not_kept.min(not_needed));
    }

    /// Gives memory back that a burst of output took.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to(self.kept);
    }

    /// At most `most` bytes from a number on. Nothing where they are not kept or not produced.
    pub fn read(&self, from: u64, most: usize) -> Bytes {
        let Some(start) = from.checked_sub(self.oldest()).and_then(|start| usize::try_from(start).ok())
        else {
            return Bytes::new();
        };
        let start = start.min(self.bytes.len());
        let end = start.saturating_add(most).min(self.bytes.len());
        let (first, second) = self.bytes.as_slices();
        let split = first.len();
        let mut out = BytesMut::with_capacity(end - start);
        out.put_slice(&first[start.min(split)..end.min(split)]);
        out.put_slice(&second[start.saturating_sub(split)..end.saturating_sub(split)]);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// As many as fit beside what is not acknowledged, at most so many.
        PushHeld(usize),
        /// Also over what is not acknowledged.
        PushFree(usize),
        /// So many bytes further, as far as they were produced.
        Acknowledge(u64),
        /// From so many bytes before the end.
        Read { back: u64, most: usize },
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..40usize).prop_map(Step::PushHeld),
            (0..40usize).prop_map(Step::PushFree),
            (0..40u64).prop_map(Step::Acknowledge),
            (0..100u64, 0..50usize).prop_map(|(back, most)| Step::Read { back, most }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_pushed(
            kept in 1..64usize,
            more in 0..64usize,
            steps in prop::collection::vec(steps(), 0..200),
        ) {
            let (size, mut ring) = (kept + more, Ring::new(kept, kept + more));
            let (mut all, mut acknowledged) = (Vec::<u8>::new(), 0_u64);
            for step in steps {
                let push = |count: usize, ring: &mut Ring, all: &mut Vec<u8>| {
                    let new: Vec<u8> = (all.len()..all.len() + count).map(|n| (n * 31 % 251) as u8).collect();
                    ring.push(&new, acknowledged);
                    all.extend(new);
                };
                match step {
                    Step::PushHeld(count) => {
                        let count = count.min(ring.room(acknowledged));
                        let needed_from = acknowledged.max(ring.oldest());
                        push(count, &mut ring, &mut all);
                        prop_assert!(ring.oldest() <= needed_from, "an unacknowledged byte was overwritten");
                    }
                    Step::PushFree(count) => push(count, &mut ring, &mut all),
                    Step::Acknowledge(count) => acknowledged = (acknowledged + count).min(all.len() as u64),
                    Step::Read { back, most } => {
                        let from = (all.len() as u64).saturating_sub(back);
                        let read = ring.read(from, most);
                        if from < ring.oldest() {
                            prop_assert!(read.is_empty());
                        } else {
                            let from = from as usize;
                            prop_assert_eq!(&read[..], &all[from..(from + most).min(all.len())]);
                        }
                    }
                }
                prop_assert_eq!(ring.produced(), all.len() as u64);
                prop_assert!(ring.bytes.len() <= size);
                prop_assert!(ring.bytes.len() >= all.len().min(kept));
                prop_assert!(ring.room(acknowledged) <= size);
            }
        }
    }

    #[test]
    fn a_full_ring_has_room_for_what_was_acknowledged_and_for_no_more() {
        let mut ring = Ring::new(8, 8);
        ring.push(b"01234567", 0);
        assert_eq!((ring.room(0), ring.room(3), ring.room(8)), (0, 3, 8));
        ring.push(b"abc", 3);
        assert_eq!((ring.oldest(), ring.room(3), ring.room(0)), (3, 0, 0));
        assert_eq!(ring.read(3, 100), "34567abc");
        assert_eq!(ring.read(9, 1), "b");
        assert!(
            ring.read(2, 100).is_empty() && ring.read(11, 100).is_empty() && ring.read(900, 1).is_empty()
        );
    }

    #[test]
    fn what_is_needed_is_held_beyond_what_is_kept_and_dropped_when_it_is_not_needed_any_more() {
        let mut ring = Ring::new(4, 10);
        ring.push(b"0123456789", 0);
        assert_eq!((ring.oldest(), ring.room(0), ring.room(7)), (0, 0, 7));
        ring.push(b"ab", 7);
        assert_eq!((ring.oldest(), ring.read(7, 100)), (7, Bytes::from_static(b"789ab")));
        ring.push(b"c", 12);
        assert_eq!(ring.oldest(), 9, "the last four stay");
    }
}
