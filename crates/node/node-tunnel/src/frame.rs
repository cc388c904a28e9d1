//! Frames of a terminal: one byte of type, three of length, then the content.
//!
//! **How a stream goes.** The gateway begins with an [`Frame::Ack`]: how many bytes of the session's output the client has
//! already (none: 0). The node answers with an `Ack`: the number of the byte that comes next, which is the same, or a later one
//! when what is between was not kept. Then both send: the gateway what is typed, sizes, and an `Ack` for what the client has
//! taken; the node what is printed, and as its last frame an `Exit` or a `Close`. A gateway that records sends the `Ack` when the
//! output is stored too; before that it sends a `Recorded` when it has recorded it, and a `Received` when the client has it.
//!
//! **Newer frames.** A frame whose type is not known is skipped: what a newer gateway or agent says beyond this is lost and
//! breaks nothing. So a new type of frame must be one whose loss does no harm. The length of a known type never changes.

use bytes::{Buf, BufMut as _, Bytes, BytesMut};

/// The longest content of a frame.
pub const LONGEST: usize = 64 * 1024;
const HEADER: usize = 4;
/// The longest content of a frame that holds no data.
const LONGEST_CONTROL: usize = 8;
/// This type and those above it are not known here.
const FIRST_UNKNOWN: u8 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// What was typed or printed.
    Data(Bytes),
    /// The size of the terminal.
    Resize { columns: u16, rows: u16 },
    /// Output up to this byte of the session was received, and need not be kept.
    Ack { sequence: u64 },
    /// Output up to this byte of the session was received by the client, and is still needed.
    Received { sequence: u64 },
    /// Output up to this byte of the session is in the gateway's recording: others may be shown it.
    Recorded { sequence: u64 },
    /// The program has ended, with this status; the signal that ended it is above 128.
    Exit { status: i32 },
    /// The node ends this attachment, and says why.
    Close { reason: CloseReason },
    /// Whoever is attached leaves on purpose: the program goes on, and what it prints is kept as far as there is room.
    Detach,
}

/// Why a node ends an attachment while the program has no status to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Somebody else writes now.
    TakenOver,
    /// The time to live of the session is over.
    Expired,
    /// Nothing happened in it for too long.
    Idle,
    /// Somebody ended it.
    Ended,
    /// The agent stops.
    Stopping,
}

impl CloseReason {
    pub const ALL: [Self; 5] = [Self::TakenOver, Self::Expired, Self::Idle, Self::Ended, Self::Stopping];

    const fn byte(self) -> u8 {
        match self {
            Self::TakenOver => 1,
            Self::Expired => 2,
            Self::Idle => 3,
            Self::Ended => 4,
            Self::Stopping => 5,
        }
    }

    /// As clients and records are told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TakenOver => "taken_over",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Ended => "ended",
            Self::Stopping => "node_stopping",
        }
    }
}

/// What came is not in frames; nothing after it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame of type {kind} has not {length} bytes")]
    WrongLength { kind: u8, length: usize },
    #[error("the reason {0} of an end is not known")]
    UnknownReason(u8),
}

impl Frame {
    const fn kind(&self) -> u8 {
        match self {
            Self::Data(_) => 0,
            Self::Resize { .. } => 1,
            Self::Ack { .. } => 2,
            Self::Exit { .. } => 3,
            Self::Close { .. } => 4,
            Self::Detach => 5,
            Self::Received { .. } => 6,
            Self::Recorded { .. } => 7,
        }
    }

    /// The frame as it is sent.
    pub fn encoded(&self) -> Bytes {
        let content = if let Self::Data(data) = self { data.len() } else { LONGEST_CONTROL };
        let mut out = BytesMut::with_capacity(HEADER * (1 + content / LONGEST) + content);
        self.encode(&mut out);
        out.freeze()
    }

    /// Appends the frame. Data that is longer than a frame becomes several.
    pub fn encode(&self, out: &mut BytesMut) {
        let header = |out: &mut BytesMut, length: usize| {
            out.put_u8(self.kind());
            out.put_uint(length as u64, 3);
        };
        match self {
            Self::Data(data) => {
                for part in data.chunks(LONGEST) {
                    header(out, part.len());
                    out.put_slice(part);
                }
            }
            Self::Resize { columns, rows } => {
                header(out, 4);
                out.put_u16(*columns);
                out.put_u16(*rows);
            }
            Self::Ack { sequence } | Self::Received { sequence } | Self::Recorded { sequence } => {
                header(out, 8);
                out.put_u64(*sequence);
            }
            Self::Exit { status } => {
                header(out, 4);
                out.put_i32(*status);
            }
            Self::Close { reason } => {
                header(out, 1);
                out.put_u8(reason.byte());
            }
            Self::Detach => header(out, 0),
        }
    }
}

/// Reads frames out of bytes that come in any pieces. What comes in whole frames is not copied. Of a frame whose type is not
/// known, nothing is kept.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The last piece, when nothing was left of those before it.
    whole: Bytes,
    /// Pieces that were joined, because a frame went beyond one.
    joined: BytesMut,
    /// So many bytes that come next are of a frame whose type is not known.
    to_skip: usize,
    skipped: usize,
}

impl Decoder {
    pub fn push(&mut self, mut bytes: Bytes) {
        // There are none before them: otherwise they would have been skipped already.
        self.skip_from(&mut bytes);
        if bytes.is_empty() {
            return;
        }
        if self.joined.is_empty() && self.whole.is_empty() {
            self.whole = bytes;
            return;
        }
        if !self.whole.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.whole));
        }
        self.joined.extend_from_slice(&bytes);
    }

    /// How many bytes of frames whose type is not known were skipped since this was asked.
    pub fn take_skipped(&mut self) -> usize {
        std::mem::take(&mut self.skipped)
    }

    fn skip_from(&mut self, bytes: &mut impl Buf) {
        let count = self.to_skip.min(bytes.remaining());
        bytes.advance(count);
        self.to_skip -= count;
        self.skipped += count;
    }

    fn skip(&mut self, count: usize) {
        self.to_skip += count;
        let (mut whole, mut joined) = (std::mem::take(&mut self.whole), std::mem::take(&mut self.joined));
        // One of both is empty.
        self.skip_from(&mut joined);
        self.skip_from(&mut whole);
        (self.whole, self.joined) = (whole, joined);
    }

    /// The next whole frame, if it is there.
    pub fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let (kind, length) = loop {
            let pending = if self.joined.is_empty() { &self.whole[..] } else { &self.joined[..] };
            let Some(mut header) = pending.get(..HEADER) else { return Ok(None) };
            let (kind, length) = (header.get_u8(), usize::try_from(header.get_uint(3)).unwrap_or(usize::MAX));
            if length > LONGEST {
                return Err(FrameError::TooLong(length));
            }
            // Refused by its header: what cannot be a frame is not waited for.
            match (kind, length) {
                (0, _) | (1 | 3, 4) | (2 | 6 | 7, 8) | (4, 1) | (5, 0) => {}
                (FIRST_UNKNOWN.., _) => {
                    self.skip(HEADER + length);
                    continue;
                }
                _ => return Err(FrameError::WrongLength { kind, length }),
            }
            if pending.len() < HEADER + length {
                return Ok(None);
            }
            break (kind, length);
        };
        let mut content = if self.joined.is_empty() {
            self.whole.split_to(HEADER + length)
        } else {
            self.joined.split_to(HEADER + length).freeze()
        };
        content.advance(HEADER);
        Ok(Some(match kind {
            0 => Frame::Data(content),
            1 => Frame::Resize { columns: content.get_u16(), rows: content.get_u16() },
            2 => Frame::Ack { sequence: content.get_u64() },
            3 => Frame::Exit { status: content.get_i32() },
            4 => {
                let byte = content.get_u8();
                let reason = CloseReason::ALL.into_iter().find(|reason| reason.byte() == byte);
                Frame::Close { reason: reason.ok_or(FrameError::UnknownReason(byte))? }
            }
            6 => Frame::Received { sequence: content.get_u64() },
            7 => Frame::Recorded { sequence: content.get_u64() },
            _ => Frame::Detach,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..300).prop_map(|data| Frame::Data(data.into())),
            any::<(u16, u16)>().prop_map(|(columns, rows)| Frame::Resize { columns, rows }),
            any::<u64>().prop_map(|sequence| Frame::Ack { sequence }),
            any::<u64>().prop_map(|sequence| Frame::Received { sequence }),
            any::<u64>().prop_map(|sequence| Frame::Recorded { sequence }),
            any::<i32>().prop_map(|status| Frame::Exit { status }),
            prop::sample::select(&CloseReason::ALL[..]).prop_map(|reason| Frame::Close { reason }),
            Just(Frame::Detach),
        ]
    }

    /// One of a type that is not known.
    fn unknown_frame() -> impl Strategy<Value = Vec<u8>> {
        let content = prop::collection::vec(any::<u8>(), 0..300);
        (FIRST_UNKNOWN..=u8::MAX, content).prop_map(|(kind, content)| {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            [&[kind], &length[1..], &content].concat()
        })
    }

    proptest! {
        #[test]
        fn frames_are_read_back_however_their_bytes_are_cut(
            frames in prop::collection::vec((frames(), prop::option::of(unknown_frame())), 0..20),
            cut in 1..50usize,
        ) {
            let mut bytes = BytesMut::new();
            let mut unknown_bytes = 0;
            for (frame, unknown) in &frames {
                frame.encode(&mut bytes);
                let unknown = unknown.as_deref().unwrap_or_default();
                bytes.extend_from_slice(unknown);
                unknown_bytes += unknown.len();
            }
            let (mut decoder, mut read, mut skipped) = (Decoder::default(), Vec::new(), 0);
            for piece in bytes.chunks(cut) {
                decoder.push(Bytes::copy_from_slice(piece));
                while let Some(frame) = decoder.frame().unwrap() {
                    read.push(frame);
                }
                skipped += decoder.take_skipped();
            }
            prop_assert_eq!(read, frames.into_iter().map(|(frame, _)| frame).collect::<Vec<_>>());
            prop_assert_eq!(skipped, unknown_bytes);
            prop_assert_eq!(decoder.whole.len() + decoder.joined.len(), 0);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic_or_wait_for_more_than_a_frame(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(Bytes::copy_from_slice(&bytes));
            while let Ok(Some(_)) = decoder.frame() {}
            prop_assert!(decoder.whole.len() + decoder.joined.len() <= bytes.len());
        }
    }

    #[test]
    fn long_data_is_cut_into_frames_and_a_frame_that_is_too_long_is_refused_by_its_header() {
        let mut bytes = BytesMut::new();
        Frame::Data(vec![7; LONGEST + 1].into()).encode(&mut bytes);
        assert_eq!(bytes.len(), LONGEST + 1 + 2 * HEADER);
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[0, 1, 0, 1]));
        assert_eq!(decoder.frame(), Err(FrameError::TooLong(LONGEST + 1)));
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[1, 0, 0, 5]));
        assert_eq!(decoder.frame(), Err(FrameError::WrongLength { kind: 1, length: 5 }));
    }

    #[test]
    fn of_a_frame_that_is_not_known_nothing_is_kept_however_long_it_is() {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[200, 1, 0, 0]));
        for _ in 0..LONGEST / 1024 {
            assert_eq!(decoder.frame(), Ok(None));
            decoder.push(vec![0; 1024].into());
            assert_eq!(decoder.whole.len() + decoder.joined.len(), 0);
        }
        assert_eq!((decoder.take_skipped(), decoder.take_skipped()), (HEADER + LONGEST, 0));
        decoder.push(Frame::Detach.encoded());
        assert_eq!(decoder.frame(), Ok(Some(Frame::Detach)));
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[200, 1, 0, 1]));
        assert_eq!(decoder.frame(), Err(FrameError::TooLong(LONGEST + 1)));
    }
}
