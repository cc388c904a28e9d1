//! What a node sends of a session, made into messages for its client.

use axum::extract::ws::{Message, close_code};
use bytes::Bytes;
use kernel::ids::TerminalSessionId;
use node_tunnel::frame::{CloseReason, Decoder, Frame};

use super::{
    farewell::{End, Farewell, node_protocol_error, unavailable},
    position::OutputPosition,
    tape::{Tape, Unavailable},
};
use crate::model::{message::ServerMessage, session::Access};

/// What a node sends, made into messages for the client.
pub struct Output<'a> {
    decoder: Decoder,
    ready: (TerminalSessionId, Access),
    is_ready: bool,
    position: OutputPosition,
    tape: Option<&'a Tape>,
    printed: metrics::Counter,
}

impl<'a> Output<'a> {
    /// `from`: with which byte the node was asked to go on.
    pub fn new(ready: (TerminalSessionId, Access), from: u64, tape: Option<&'a Tape>) -> Self {
        let printed = metrics::counter!("terminal_bytes_total", "direction" => "out");
        let position = OutputPosition::new(from);
        Self { decoder: Decoder::default(), ready, is_ready: false, position, tape, printed }
    }

    /// The client's messages say that it is attached.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// An error is the end, after these messages.
    pub async fn read(
        &mut self,
        bytes: Bytes,
        messages: &mut Vec<Message>,
    ) -> Result<(), (End, Option<Farewell>)> {
        self.decoder.push(bytes);
        loop {
            let frame = match self.decoder.frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.broken_off(&error)),
            };
            self.position.follow(&frame).map_err(|error| self.broken_off(&error))?;
            let recorded = record(self.tape, frame).await;
            let frame = recorded.map_err(|error| (End::Attachment, unavailable(error)))?;
            if let Frame::Data(bytes) = &frame {
                self.printed.increment(bytes.len() as u64);
            }
            match frame_read(frame, self.ready, &mut self.is_ready) {
                Said::Message(message) => messages.push(message),
                Said::End(end, message) => {
                    return Err((end, Some(Farewell { message: Some(message), code: close_code::NORMAL })));
                }
                Said::Nothing => {}
            }
        }
    }

    fn broken_off(&self, error: &dyn std::error::Error) -> (End, Option<Farewell>) {
        let session_id = self.ready.0;
        tracing::warn!(%session_id, %error, "a node broke the protocol of terminals; its attachment is broken off");
        (End::Attachment, node_protocol_error())
    }
}

/// Records what the node sent, and leaves what the client does not have.
async fn record(tape: Option<&Tape>, frame: Frame) -> Result<Frame, Unavailable> {
    let Some(tape) = tape else { return Ok(frame) };
    match frame {
        Frame::Data(mut bytes) => {
            let known = tape.output(&bytes).await?;
            Ok(Frame::Data(bytes.split_off(known.min(bytes.len()))))
        }
        Frame::Ack { sequence } => {
            tape.set_position(sequence);
            Ok(Frame::Ack { sequence: sequence.max(tape.client_has()) })
        }
        other => Ok(other),
    }
}

enum Said {
    Message(Message),
    End(End, ServerMessage),
    Nothing,
}

fn frame_read(frame: Frame, (session_id, access): (TerminalSessionId, Access), is_ready: &mut bool) -> Said {
    let closed = |reason: &'static str, exit_status| {
        let message = ServerMessage::SessionClosed { reason, exit_status };
        let end = match reason {
            "taken_over" => End::TakenOver,
            _ => End::Session { reason, exit_status },
        };
        Said::End(end, message)
    };
    match frame {
        Frame::Data(bytes) if bytes.is_empty() => Said::Nothing,
        Frame::Data(bytes) => Said::Message(Message::Binary(bytes)),
        Frame::Ack { sequence } => {
            let message = if *is_ready {
                ServerMessage::Skipped { sequence }
            } else {
                *is_ready = true;
                ServerMessage::SessionReady { session_id, sequence, access }
            };
            Said::Message(Message::Text(message.text().into()))
        }
        Frame::Exit { status } => closed("exited", Some(status)),
        Frame::Close { reason: CloseReason::TakenOver } => closed(CloseReason::TakenOver.name(), None),
        Frame::Close { reason } => closed(reason.name(), None),
        Frame::Resize { .. } | Frame::Received { .. } | Frame::Recorded { .. } | Frame::Detach => {
            Said::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::Ambient;

    use super::*;

    async fn refusal(frames: &[Frame]) -> Option<&'static str> {
        let mut output = Output::new((Ambient::system().id(), Access::Write), 10, None);
        let mut messages = Vec::new();
        for frame in frames {
            if let Err((end, farewell)) = output.read(frame.encoded(), &mut messages).await {
                assert_eq!(end, End::Attachment, "its session goes on, as far as the node says");
                return match farewell?.message? {
                    ServerMessage::SessionError { code, retryable: false, .. } => Some(code),
                    _ => None,
                };
            }
        }
        assert_eq!(messages.len(), frames.len());
        None
    }

    #[tokio::test]
    async fn a_node_that_numbers_its_output_as_no_node_does_is_broken_off() {
        let (begin, data) = (Frame::Ack { sequence: 10 }, Frame::Data(Bytes::from_static(b"output")));
        let beyond = Frame::Ack { sequence: u64::MAX };
        let broken = Some("node_protocol_error");
        assert_eq!(
            refusal(&[begin.clone(), data.clone(), Frame::Ack { sequence: 20 }, data.clone()]).await,
            None
        );
        assert_eq!(refusal(std::slice::from_ref(&data)).await, broken);
        assert_eq!(refusal(std::slice::from_ref(&beyond)).await, broken);
        assert_eq!(refusal(&[begin.clone(), data.clone(), begin]).await, broken);
        assert_eq!(refusal(&[Frame::Ack { sequence: 9 }]).await, broken);
        assert_eq!(refusal(&[Frame::Ack { sequence: 10 }, data, beyond]).await, broken);
    }
}
