//! What a client is told of the input that the node has taken.
//!
//! A key is not answered before its echo: the client is told together with what is printed next, or soon, or when much was
//! taken.

use std::time::Duration;

use axum::extract::ws::Message;
use tokio::time::Instant;

use crate::model::message::{INPUT_WINDOW, ServerMessage};

/// The client is told within this time.
const AFTER: Duration = Duration::from_millis(20);
/// So many bytes are told at once: a client may have a window of them on their way.
const MUCH: u64 = INPUT_WINDOW as u64 / 4;

#[derive(Default)]
pub struct InputAck {
    taken: u64,
    told: u64,
    due_at: Option<Instant>,
}

impl InputAck {
    /// The node has taken so many bytes in all.
    pub fn note(&mut self, taken: u64) {
        self.taken = taken;
        let now = Instant::now();
        let due_at = if taken.saturating_sub(self.told) >= MUCH { now } else { now + AFTER };
        self.due_at = Some(self.due_at.map_or(due_at, |earlier| earlier.min(due_at)));
    }

    /// Ends when the client is to be told; never while there is nothing to tell.
    pub async fn due(&self) {
        match self.due_at {
            Some(due_at) => tokio::time::sleep_until(due_at).await,
            None => std::future::pending().await,
        }
    }

    /// The message, when it is due, or when another one is sent anyway.
    pub fn message(&mut self, is_sending: bool) -> Option<Message> {
        if !is_sending && self.due_at? > Instant::now() {
            return None;
        }
        self.due_at.take()?;
        self.told = self.taken;
        Some(Message::Text(ServerMessage::InputAck { bytes: self.taken }.text().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged_bytes(message: Option<Message>) -> Option<u64> {
        let text = message?.into_text().unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["bytes"].as_u64()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_told_with_what_is_printed_or_soon_and_much_at_once() {
        let mut ack = InputAck::default();
        assert_eq!(acknowledged_bytes(ack.message(true)), None, "there is nothing to tell");
        ack.note(1);
        assert_eq!(acknowledged_bytes(ack.message(false)), None);
        assert_eq!(acknowledged_bytes(ack.message(true)), Some(1));
        ack.note(2);
        tokio::time::timeout(2 * AFTER, ack.due()).await.unwrap();
        assert_eq!(acknowledged_bytes(ack.message(false)), Some(2));
        ack.note(2 + MUCH);
        assert_eq!(acknowledged_bytes(ack.message(false)), Some(2 + MUCH));
        assert_eq!(acknowledged_bytes(ack.message(true)), None, "once");
    }
}
