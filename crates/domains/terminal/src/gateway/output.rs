//! What a node sends of a session, made into messages for its client.

use axum::extract::ws::{Message, close_code};
use bytes::Bytes;
use kernel::ids::TerminalSessionId;
use node_tunnel::frame::{CloseReason, Decoder, Frame};

use super::{
    farewell::{End, Farewell, lost, unavailable},
    tape::{Tape, Unavailable},
};
use crate::model::{message::ServerMessage, session::Access};

/// What a node sends, made into messages for the client.
pub struct Output<'a> {
    decoder: Decoder,
    ready: (TerminalSessionId, Access),
    is_ready: bool,
    tape: Option<&'a Tape>,
    printed: metrics::Counter,
}

impl<'a> Output<'a> {
    pub fn new(ready: (TerminalSessionId, Access), tape: Option<&'a Tape>) -> Self {
        let printed = metrics::counter!("terminal_bytes_total", "direction" => "out");
        Self { decoder: Decoder::default(), ready, is_ready: false, tape, printed }
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
                Ok(Some(frame)) => record(self.tape, frame).await,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "a node sent what is no frame");
                    return Err((End::Attachment, lost()));
                }
            };
            let frame = frame.map_err(|error| (End::Attachment, unavailable(error)))?;
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
