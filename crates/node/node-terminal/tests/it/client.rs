//! A client of a terminal, as a gateway and a browser together are.

use bytes::{Bytes, BytesMut};
use node_tunnel::{
    Receiver, Sender, Stream, StreamError,
    frame::{Decoder, Frame},
};

use super::kit::SOON;

pub struct Client {
    pub sender: Sender,
    pub receiver: Receiver,
    decoder: Decoder,
    /// Where the node began.
    pub start: u64,
    /// All bytes before this one were received or cannot be had.
    pub received: u64,
    /// What was received from `start` on, without gaps unless there were jumps.
    pub output: Vec<u8>,
    /// Where `output` was continued after a gap: byte of the session, and place in `output`.
    pub jumps: Vec<(u64, usize)>,
    pub acknowledges: bool,
}

impl Client {
    /// Says what it has, and takes the answer.
    pub async fn begin(stream: Stream, received: u64) -> Self {
        let mut client = Self::without_beginning(stream);
        client.send(Frame::Ack { sequence: received }).await;
        let Some(Frame::Ack { sequence }) = client.frame().await.unwrap() else { panic!("no first ack") };
        (client.start, client.received) = (sequence, sequence);
        client.jumps.clear();
        client
    }

    pub fn without_beginning(stream: Stream) -> Self {
        Self {
            sender: stream.sender,
            receiver: stream.receiver,
            decoder: Decoder::default(),
            start: 0,
            received: 0,
            output: Vec::new(),
            jumps: Vec::new(),
            acknowledges: true,
        }
    }

    pub fn without_acks(mut self) -> Self {
        self.acknowledges = false;
        self
    }

    pub async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        tokio::time::timeout(SOON, self.sender.send(bytes.freeze())).await.unwrap().unwrap();
    }

    pub async fn type_text(&mut self, text: &str) {
        self.send(Frame::Data(Bytes::copy_from_slice(text.as_bytes()))).await;
    }

    pub async fn acknowledge(&mut self) {
        self.send(Frame::Ack { sequence: self.received }).await;
    }

    /// The next frame; nothing at the end.
    pub async fn frame(&mut self) -> Result<Option<Frame>, StreamError> {
        tokio::time::timeout(SOON, self.next_frame()).await.expect("a frame comes in time")
    }

    pub async fn next_frame(&mut self) -> Result<Option<Frame>, StreamError> {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                match &frame {
                    Frame::Data(bytes) => {
                        self.output.extend_from_slice(bytes);
                        self.received += bytes.len() as u64;
                    }
                    Frame::Ack { sequence } => {
                        self.jumps.push((*sequence, self.output.len()));
                        self.received = *sequence;
                    }
                    _ => {}
                }
                return Ok(Some(frame));
            }
            let Some(bytes) = self.receiver.next().await? else { return Ok(None) };
            self.receiver.consumed(bytes.len())?;
            self.decoder.push(bytes.clone());
        }
    }

    /// Reads until the output has so many bytes.
    pub async fn read_bytes(&mut self, count: usize) {
        while self.output.len() < count {
            let frame = self.frame().await.unwrap();
            assert!(matches!(frame, Some(Frame::Data(_) | Frame::Ack { .. })), "{frame:?}");
            if self.acknowledges {
                self.acknowledge().await;
            }
        }
    }

    /// Reads until the output has this text.
    pub async fn read_text(&mut self, text: &str) {
        while !self.text().contains(text) {
            self.read_bytes(self.output.len() + 1).await;
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads to the end. Answers the last frame.
    pub async fn finish(&mut self) -> Frame {
        let mut last = None;
        while let Some(frame) = self.frame().await.unwrap() {
            if matches!(frame, Frame::Data(_)) {
                if self.acknowledges {
                    self.acknowledge().await;
                }
                continue;
            }
            // The node has said its last word: this direction is closed too.
            if matches!(frame, Frame::Exit { .. } | Frame::Close { .. }) {
                assert!(last.is_none(), "a second last frame");
                self.sender.finish().unwrap();
                last = Some(frame);
            }
        }
        last.expect("a last frame")
    }
}
