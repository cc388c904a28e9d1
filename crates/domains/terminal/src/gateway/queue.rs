//! What a client sent and the node has not taken: bounded input, and the newest of what replaces itself.

use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use node_tunnel::{frame::Frame, pieces::Pieces};
use tokio::sync::Notify;

use crate::model::message::INPUT_WINDOW;

#[derive(Default)]
struct State {
    input: Pieces,
    ack: Option<u64>,
    received: Option<u64>,
    recorded: Option<u64>,
    resize: Option<(u16, u16)>,
    detach: bool,
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// False when the client has more on its way than it may.
    #[must_use]
    pub fn push_input(&self, bytes: Bytes) -> bool {
        let mut state = self.lock();
        if state.input.len() + bytes.len() > INPUT_WINDOW {
            return false;
        }
        state.input.push(bytes);
        drop(state);
        self.changed.notify_one();
        true
    }

    pub fn push(&self, frame: Frame) {
        {
            let mut state = self.lock();
            match frame {
                Frame::Ack { sequence } => state.ack = state.ack.max(Some(sequence)),
                Frame::Received { sequence } => state.received = state.received.max(Some(sequence)),
                Frame::Recorded { sequence } => state.recorded = state.recorded.max(Some(sequence)),
                Frame::Resize { columns, rows } => state.resize = Some((columns, rows)),
                Frame::Detach => state.detach = true,
                Frame::Data(_) | Frame::Exit { .. } | Frame::Close { .. } => {}
            }
        }
        self.changed.notify_one();
    }

    /// What goes before input. A detach is the last.
    pub fn control(&self) -> Option<Frame> {
        let mut state = self.lock();
        if let Some(sequence) = state.ack.take() {
            // It says more than the others of what came before.
            state.received = state.received.filter(|received| *received > sequence);
            state.recorded = state.recorded.filter(|recorded| *recorded > sequence);
            return Some(Frame::Ack { sequence });
        }
        if let Some(sequence) = state.received.take() {
            state.recorded = state.recorded.filter(|recorded| *recorded > sequence);
            return Some(Frame::Received { sequence });
        }
        if let Some(sequence) = state.recorded.take() {
            return Some(Frame::Recorded { sequence });
        }
        if let Some((columns, rows)) = state.resize.take() {
            return Some(Frame::Resize { columns, rows });
        }
        (state.detach && state.input.is_empty()).then_some(Frame::Detach)
    }

    /// The length of the next piece of input.
    pub fn input_len(&self) -> Option<usize> {
        self.lock().input.front().map(Bytes::len)
    }

    pub fn take_input(&self) -> Option<Bytes> {
        self.lock().input.pop()
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use node_tunnel::pieces::PIECE;

    use super::*;

    #[test]
    fn input_is_bounded_and_comes_out_in_order_and_in_pieces() {
        let queue = Queue::default();
        assert!(queue.push_input(vec![1; 40_000].into()));
        assert!(!queue.push_input(vec![2; 40_000].into()));
        assert!(queue.push_input(vec![2; 20_000].into()));
        let mut all = Vec::new();
        while let Some(piece) = queue.take_input() {
            assert!(piece.len() <= PIECE);
            all.extend_from_slice(&piece);
        }
        assert_eq!(all, [vec![1; 40_000], vec![2; 20_000]].concat());
        assert!(queue.push_input(vec![3; INPUT_WINDOW].into()));
    }

    #[test]
    fn acknowledgements_and_sizes_replace_each_other_and_go_before_input_and_a_detach_after() {
        let queue = Queue::default();
        assert!(queue.push_input(Bytes::from_static(b"exit")));
        queue.push(Frame::Detach);
        for sequence in [5, 9, 7] {
            queue.push(Frame::Ack { sequence });
        }
        for sequence in [9, 12, 11] {
            queue.push(Frame::Received { sequence });
        }
        for sequence in [12, 14] {
            queue.push(Frame::Recorded { sequence });
        }
        queue.push(Frame::Resize { columns: 80, rows: 24 });
        queue.push(Frame::Resize { columns: 100, rows: 30 });
        assert_eq!(queue.control(), Some(Frame::Ack { sequence: 9 }));
        assert_eq!(queue.control(), Some(Frame::Received { sequence: 12 }));
        assert_eq!(queue.control(), Some(Frame::Recorded { sequence: 14 }));
        assert_eq!(queue.control(), Some(Frame::Resize { columns: 100, rows: 30 }));
        assert_eq!(queue.control(), None);
        assert_eq!(queue.take_input().as_deref(), Some(&b"exit"[..]));
        assert_eq!(queue.control(), Some(Frame::Detach));
    }
}
