//! What the state of a session is asked and answers.

use std::time::Duration;

use bytes::Bytes;
use node_proto::contract::TerminalEndReason;
use node_tunnel::frame::{CloseReason, Frame};
use tokio::time::Instant;

/// What does not change in the life of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Bytes of output that are kept for whoever attaches, and with those that the writer has not acknowledged.
    pub scrollback: usize,
    pub ring: usize,
    pub grace: Duration,
    pub most_attached: usize,
    /// Nobody sees output that a writer was not sent before: the gateway of a writer records it.
    pub recorded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Watcher,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Closed(CloseReason),
}

impl End {
    pub(super) fn frame(self) -> Frame {
        match self {
            Self::Exited(status) => Frame::Exit { status },
            Self::Closed(reason) => Frame::Close { reason },
        }
    }

    /// With the exit status, if there is one.
    pub(super) const fn reported(self) -> (TerminalEndReason, Option<i32>) {
        match self {
            Self::Exited(status) => (TerminalEndReason::Exited, Some(status)),
            Self::Closed(CloseReason::Expired) => (TerminalEndReason::Expired, None),
            Self::Closed(CloseReason::Idle) => (TerminalEndReason::Idle, None),
            Self::Closed(CloseReason::Stopping) => (TerminalEndReason::NodeStopping, None),
            Self::Closed(CloseReason::Ended | CloseReason::TakenOver) => (TerminalEndReason::Ended, None),
        }
    }
}

/// What came is not allowed by the protocol of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("byte {acknowledged} is acknowledged, and {sent} were sent")]
    AckBeyondSent { acknowledged: u64, sent: u64 },
    #[error("a terminal of {columns} columns and {rows} rows")]
    Size { columns: u16, rows: u16 },
}

/// What an attachment sends next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Frame(Frame),
    /// The last one.
    Last(Frame),
    Wait,
}

/// What the task of a session does next.
pub(crate) struct Plan {
    /// So many bytes of output may be read.
    pub room: usize,
    pub input: Option<Input>,
    pub resize: Option<(u16, u16)>,
    pub end: Option<CloseReason>,
    /// When the plan changes by itself.
    pub until: Option<Instant>,
}

/// The next typed bytes.
pub(crate) struct Input {
    pub bytes: Bytes,
    /// Changes when the queue is emptied: what was taken of an earlier one is not counted.
    pub(super) generation: u64,
}
