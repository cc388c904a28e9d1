//! Fewer, larger reads from a socket under TLS.
//!
//! TLS reads a socket 4 KiB at a time, whatever has come. [`ReadAhead`] reads 64 KiB at a time where so much has come, and costs an
//! idle connection no memory: the buffer is made when a read was filled to its end, and freed when the socket has no more.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

const AHEAD: usize = 64 * 1024;

/// A socket whose reads are made ahead. Writes pass through.
#[derive(Debug)]
pub struct ReadAhead<S> {
    socket: S,
    /// What was read and not asked for yet.
    ahead: BytesMut,
    /// The last read got all that it asked for: there is probably more.
    is_busy: bool,
}

impl<S> ReadAhead<S> {
    pub fn new(socket: S) -> Self {
        Self { socket, ahead: BytesMut::new(), is_busy: false }
    }

    pub const fn get_ref(&self) -> &S {
        &self.socket
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ahead.reserve(AHEAD);
        let read = poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.ahead);
        if read.is_pending() {
            (self.ahead, self.is_busy) = (BytesMut::new(), false);
        }
        ready!(read)?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            if !self.is_busy {
                let asked = buf.remaining();
                ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
                self.is_busy = asked > 0 && buf.remaining() == 0;
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_fill(cx))?;
        }
        let count = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead[..count]);
        self.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_come_as_they_were_sent_and_an_idle_socket_has_no_buffer() {
        let (near, mut far) = tokio::io::duplex(256 * 1024);
        let mut near = ReadAhead::new(near);
        let sent: Vec<u8> = (0..200_000_u32).map(|n| (n * 31 % 251) as u8).collect();
        far.write_all(&sent).await.unwrap();
        let mut received = vec![0; sent.len()];
        for piece in received.chunks_mut(4096) {
            near.read_exact(piece).await.unwrap();
        }
        assert_eq!(received, sent);
        let mut more = [0; 4096];
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), near.read(&mut more));
        assert!(waiting.await.is_err(), "there is no more");
        assert_eq!(near.ahead.capacity(), 0);
        far.write_all(b"last").await.unwrap();
        drop(far);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"last");
    }
}
