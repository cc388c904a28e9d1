//! One stream to a session: frames in both directions.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use node_tunnel::{
    Attached, Profile, Receiver, Sender, Stream, StreamError,
    frame::{CloseReason, Decoder, Frame, FrameError},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    processes::END_WITHIN,
    session::{Seat, Session},
    state::{Next, Role, Violation},
};

/// The longest `Data` frame that a node takes: a longer one may not fit into the window.
pub const INPUT_FRAME: usize = 32 * 1024;
/// The most typed bytes that a sender should have on their way without their having been consumed. See the crate's page.
pub const INPUT_IN_FLIGHT: usize = 32 * 1024;

/// The first frame comes within this time.
const FIRST_FRAME: Duration = Duration::from_secs(10);
/// The last frames of a stream are taken within this time.
const CLOSE: Duration = Duration::from_secs(5);
/// After the last frame the other end closes its direction within this time, or the stream is reset.
const LINGER: Duration = Duration::from_secs(2);
/// The same where the other end records, and watchers wait for what it records: a gateway waits up to ten seconds for its storage
/// before it takes the last output, and says then that it is recorded.
const LINGER_RECORDED: Duration = Duration::from_secs(12);
/// With typed bytes for all of the window but this, no other frame comes through: HTTP/2 announces less room than there is.
const WINDOW_MARGIN: usize = 64;
/// Type and length of a frame.
const HEADER: usize = 4;

/// The longest time from the end of a session to the end of its streams, when its clients take what they are sent at once.
pub(crate) const STREAMS_END_WITHIN: Duration = CLOSE.saturating_add(LINGER_RECORDED);

#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("the first frame is not an acknowledgement, or came too late")]
    NoBeginning,
    #[error("a frame of this type does not come from a gateway")]
    WrongDirection,
    #[error("a frame of more than {INPUT_FRAME} typed bytes")]
    InputTooLong,
    #[error("the other end did not take the last frames in time")]
    TooSlow,
}

/// A stream that writes or watches.
pub(crate) struct Attachment {
    pub seat: Seat,
    /// How long the last output may take after the program has ended.
    pub grace: Duration,
    pub open: TaskTrackerToken,
}

#[async_trait]
impl Attached for Attachment {
    async fn run(self: Box<Self>, stream: Stream) {
        let Self { mut seat, grace, open: _open } = *self;
        let Stream { mut sender, receiver } = stream;
        let mut input = Input::new(receiver);
        let outcome = converse(&mut seat, grace, &mut sender, &mut input).await;
        let session_id = seat.session.id;
        let (has_ended, is_recorder) =
            seat.session.read(|state| (state.has_ended(), state.is_recorder(seat.id)));
        let linger = if has_ended && is_recorder { LINGER_RECORDED } else { LINGER };
        // Of the last output the gateway says now that it is recorded, which watchers wait for. In a session that goes on, the
        // place is free before the other end has closed.
        let last_seat = has_ended.then_some(seat);
        match outcome {
            Ok(()) => finish(sender, input, last_seat, linger).await,
            // Dropped, the stream is reset.
            Err(error) => tracing::debug!(%session_id, %error, "a terminal stream broke"),
        }
    }
}

/// Until the stream is to be finished.
async fn converse(
    seat: &mut Seat,
    grace: Duration,
    sender: &mut Sender,
    input: &mut Input,
) -> Result<(), AttachError> {
    let first = tokio::time::timeout(FIRST_FRAME, input.first_frame()).await;
    let Some(Frame::Ack { sequence }) = first.map_err(|_| AttachError::NoBeginning)?? else {
        return Err(AttachError::NoBeginning);
    };
    input.release(HEADER + 8)?;
    let (session, id, role) = (seat.session.clone(), seat.id, seat.role);
    let start = session.request(|state| state.begin(id, sequence))?;
    let ended = tokio::select! {
        // Input first: whoever detaches and closes at once has left on purpose, also while there is output.
        biased;
        read = read_input(seat, input) => read?,
        sent = send_output(seat, start, sender) => return sent,
        () = close_overdue(&session, id, role, grace) => return Err(AttachError::TooSlow),
    };
    seat.on_purpose = matches!(ended, InputEnd::Detached);
    Ok(())
}

async fn send_output(seat: &Seat, start: u64, sender: &mut Sender) -> Result<(), AttachError> {
    send(sender, &Frame::Ack { sequence: start }).await?;
    let mut output = seat.session.subscribe_output();
    loop {
        output.mark_unchanged();
        match seat.session.next_output(seat) {
            Next::Frame(frame) => send(sender, &frame).await?,
            Next::Last(frame) => return Ok(send(sender, &frame).await?),
            Next::Wait => {
                // It cannot be closed: the sender is in the session.
                let _ = output.changed().await;
            }
        }
    }
}

/// Ends when the other end should have taken its last frames.
async fn close_overdue(session: &Session, id: u64, role: Role, grace: Duration) {
    session.wait_until(|state| state.is_closing(id, role)).await;
    let (exited, awaits_record) =
        session.read(|state| (state.has_exited(), state.has_ended() && state.is_recorded()));
    // A watcher waits for the last seat of a gateway that records, and a gateway that waits for its storage takes nothing.
    let close = if awaits_record { CLOSE + LINGER_RECORDED } else { CLOSE };
    // All output is told before a status; the reason of a close does not wait for it as long.
    tokio::time::sleep(if exited { grace.max(close) } else { close }).await;
}

enum InputEnd {
    Detached,
    /// The other end has closed its direction.
    Closed,
}

async fn read_input(seat: &Seat, input: &mut Input) -> Result<InputEnd, AttachError> {
    let (session, id) = (&seat.session, seat.id);
    let mut taken = session.subscribe_input();
    let mut window_full = false;
    loop {
        taken.mark_unchanged();
        while let Some(frame) = input.frame()? {
            let released = match frame {
                Frame::Detach => return Ok(InputEnd::Detached),
                Frame::Data(bytes) => {
                    let length = bytes.len();
                    let queued = session.request(|state| state.type_input(id, bytes));
                    HEADER + if queued { 0 } else { length }
                }
                Frame::Resize { columns, rows } => {
                    session.request(|state| state.resize(id, columns, rows))?;
                    HEADER + 4
                }
                Frame::Ack { sequence } => {
                    session.note_progress(|state| state.acknowledge(id, sequence))?;
                    HEADER + 8
                }
                Frame::Received { sequence } => {
                    session.note_progress(|state| state.note_received(id, sequence))?;
                    HEADER + 8
                }
                Frame::Recorded { sequence } => {
                    session.note_progress(|state| state.note_recorded(id, sequence).map(|()| false))?;
                    HEADER + 8
                }
                Frame::Exit { .. } | Frame::Close { .. } => return Err(AttachError::WrongDirection),
            };
            input.release(released)?;
        }
        let consumed = session.update(|state| state.consumed_input(id));
        input.release(consumed)?;
        if window_full != input.is_window_full() {
            window_full = !window_full;
            session.request(|state| state.set_window_full(id, window_full));
        }
        tokio::select! {
            received = input.receive() => if !received? {
                return Ok(InputEnd::Closed);
            },
            _ = taken.changed() => {}
        }
    }
}

/// The frames of a receiver, and what is held of its window.
struct Input {
    receiver: Receiver,
    decoder: Decoder,
    /// Bytes that make no whole frame yet.
    partial: usize,
    /// Bytes that came and whose window was not released.
    unreleased: usize,
}

impl Input {
    fn new(receiver: Receiver) -> Self {
        Self { receiver, decoder: Decoder::default(), partial: 0, unreleased: 0 }
    }

    /// The next frame of what came, if it is whole.
    fn frame(&mut self) -> Result<Option<Frame>, AttachError> {
        let read = self.decoder.frame();
        // What is not known here is of no use to anybody: its share of the window is released at once.
        let skipped = self.decoder.take_skipped();
        self.partial = self.partial.saturating_sub(skipped);
        self.release(skipped)?;
        let Some(frame) = read? else {
            let too_long = self.partial > HEADER + INPUT_FRAME;
            return if too_long { Err(AttachError::InputTooLong) } else { Ok(None) };
        };
        let length = match &frame {
            Frame::Data(bytes) if bytes.len() > INPUT_FRAME => return Err(AttachError::InputTooLong),
            Frame::Data(bytes) => bytes.len(),
            Frame::Ack { .. } | Frame::Received { .. } | Frame::Recorded { .. } => 8,
            Frame::Resize { .. } | Frame::Exit { .. } => 4,
            Frame::Close { .. } => 1,
            Frame::Detach => 0,
        };
        self.partial = self.partial.saturating_sub(HEADER + length);
        Ok(Some(frame))
    }

    /// Waits for more bytes. Answers whether there are any: none at the end.
    async fn receive(&mut self) -> Result<bool, StreamError> {
        let Some(bytes) = self.receiver.next().await? else { return Ok(false) };
        self.partial += bytes.len();
        self.unreleased += bytes.len();
        self.decoder.push(bytes);
        // HTTP/2 announces released capacity when it is half of what the sender has left, and looks at that with each release
        // only: without this one, a sender may wait for capacity that was released long ago.
        self.receiver.consumed(0)?;
        Ok(true)
    }

    async fn first_frame(&mut self) -> Result<Option<Frame>, AttachError> {
        loop {
            let frame = self.frame()?;
            if frame.is_some() || !self.receive().await? {
                return Ok(frame);
            }
        }
    }

    fn release(&mut self, bytes: usize) -> Result<(), StreamError> {
        let bytes = bytes.min(self.unreleased);
        self.unreleased -= bytes;
        if bytes > 0 { self.receiver.consumed(bytes) } else { Ok(()) }
    }

    fn is_window_full(&self) -> bool {
        self.unreleased + WINDOW_MARGIN > Profile::INTERACTIVE.window as usize
    }
}

async fn send(sender: &mut Sender, frame: &Frame) -> Result<(), StreamError> {
    sender.send(frame.encoded()).await
}

/// Declares the end, and waits for the other end to do the same, so that it reads an end and not a reset.
/// `seat`: what comes meanwhile counts for its session.
async fn finish(mut sender: Sender, mut input: Input, seat: Option<Seat>, linger: Duration) {
    let lingering = async {
        sender.finish()?;
        if let Some(seat) = &seat {
            read_input(seat, &mut input).await?;
        }
        input.release(usize::MAX)?;
        while let Some(bytes) = input.receiver.next().await? {
            input.receiver.consumed(bytes.len())?;
        }
        Ok::<_, AttachError>(())
    };
    // Whoever does not close, or is not there any more, has been told all the same.
    let _ = tokio::time::timeout(linger, lingering).await;
}

/// A stream that ends a session. It sends nothing but the `Close`, when no process is left.
pub(crate) struct Ending {
    pub session: Arc<Session>,
    pub open: TaskTrackerToken,
}

#[async_trait]
impl Attached for Ending {
    async fn run(self: Box<Self>, stream: Stream) {
        let Self { session, open: _open } = *self;
        let Stream { mut sender, receiver } = stream;
        let ended = session.wait_until(|state| state.has_no_processes());
        if tokio::time::timeout(END_WITHIN, ended).await.is_err() {
            return;
        }
        let close = Frame::Close { reason: CloseReason::Ended };
        if let Ok(Ok(())) = tokio::time::timeout(CLOSE, send(&mut sender, &close)).await {
            finish(sender, Input::new(receiver), None, LINGER).await;
        }
    }
}

#[cfg(test)]
mod tests;
