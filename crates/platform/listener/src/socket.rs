//! The socket under HTTP, TLS included: notes when it does not take what is written, and ends when the first bytes do
//! not come in time.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::{body::PIECE_BYTES, traffic::Traffic};

/// The preface of HTTP/2; by then the protocol is known and its own timeouts hold. Before, the HTTP implementation
/// waits for ever.
const LONGEST_PREFACE: usize = 24;

pub(crate) struct Socket<S> {
    stream: S,
    traffic: Arc<Traffic>,
    received: usize,
    /// Until the beginning of a request has come.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Taken since the socket was last full.
    taken: usize,
    is_blocked: bool,
}

impl<S> Socket<S> {
    pub fn new(stream: S, traffic: Arc<Traffic>, first_bytes: Duration) -> Self {
        let deadline = Some(Box::pin(tokio::time::sleep(first_bytes)));
        Self { stream, traffic, received: 0, deadline, taken: 0, is_blocked: false }
    }

    /// `offered` is how much there was to write. A socket that takes all of it is not full; one that takes a little
    /// now and then stays blocked until it took a piece.
    fn wrote(&mut self, outcome: &Poll<io::Result<usize>>, offered: usize) {
        match outcome {
            Poll::Pending => {
                if !self.is_blocked {
                    self.is_blocked = true;
                    self.taken = 0;
                    self.traffic.socket_blocked();
                }
            }
            Poll::Ready(Ok(bytes)) if self.is_blocked => {
                self.taken += bytes;
                if *bytes == offered || self.taken >= PIECE_BYTES {
                    self.moved();
                }
            }
            Poll::Ready(_) => {}
        }
    }

    fn moved(&mut self) {
        if self.is_blocked {
            self.is_blocked = false;
            self.traffic.socket_moved();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.deadline.is_some() {
            self.received += buf.filled().len() - before;
            if self.received >= LONGEST_PREFACE {
                self.deadline = None;
            }
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(&outcome, buf.len());
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(&outcome, bufs.iter().map(|buf| buf.len()).sum());
        outcome
    }

    /// HTTP flushes when it has written everything; under TLS there may still be records to send.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        match outcome {
            Poll::Pending => self.wrote(&Poll::Pending, 0),
            Poll::Ready(_) => self.moved(),
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        if outcome.is_pending() {
            self.wrote(&Poll::Pending, 0);
        }
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
