//! One stream: two directions with flow control that reaches from end to end.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::connection::StreamGuard;

/// A stream that broke: what came before it may not be all.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the stream is broken: {0}")]
    Broken(#[from] h2::Error),
    #[error("the other end has closed the stream")]
    Closed,
    #[error("the local end of the stream failed: {0}")]
    Local(#[from] std::io::Error),
}

/// Both directions. Dropped before its end, the stream is reset, and the other end learns that it is not whole.
pub struct Stream {
    pub sender: Sender,
    pub receiver: Receiver,
}

pub struct Sender {
    inner: SendStream<Bytes>,
    finished: bool,
    _open: std::sync::Arc<StreamGuard>,
}

pub struct Receiver {
    inner: RecvStream,
    _open: std::sync::Arc<StreamGuard>,
}

impl Stream {
    pub(crate) fn new(sender: SendStream<Bytes>, receiver: RecvStream, open: StreamGuard) -> Self {
        let open = std::sync::Arc::new(open);
        Self {
            sender: Sender { inner: sender, finished: false, _open: open.clone() },
            receiver: Receiver { inner: receiver, _open: open },
        }
    }
}

impl Receiver {
    /// The next bytes; nothing at the end that the sender declared. The far side may send no more than a window ahead of what
    /// was [`Receiver::consumed`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        match poll_fn(|cx| self.inner.poll_data(cx)).await {
            Some(bytes) => Ok(Some(bytes?)),
            None => Ok(None),
        }
    }

    /// So many bytes have left this side: the far one may send as many more.
    pub fn consumed(&mut self, bytes: usize) -> Result<(), StreamError> {
        Ok(self.inner.flow_control().release_capacity(bytes)?)
    }
}

impl Sender {
    /// Sends all of it, as fast as the other end takes it. Nothing is buffered beyond the window.
    pub async fn send(&mut self, mut bytes: Bytes) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            self.inner.reserve_capacity(bytes.len());
            let free = match self.inner.capacity() {
                0 => match poll_fn(|cx| self.inner.poll_capacity(cx)).await {
                    Some(free) => free?,
                    None => return Err(StreamError::Closed),
                },
                free => free,
            };
            let part = bytes.split_to(free.min(bytes.len()));
            if !part.is_empty() {
                self.inner.send_data(part, false)?;
            }
        }
        Ok(())
    }

    /// Waits until so many bytes can be sent at once; at most a window. Nothing is sent.
    pub async fn room(&mut self, bytes: usize) -> Result<(), StreamError> {
        loop {
            self.inner.reserve_capacity(bytes);
            if self.inner.capacity() >= bytes {
                return Ok(());
            }
            match poll_fn(|cx| self.inner.poll_capacity(cx)).await {
                Some(free) => drop(free?),
                None => return Err(StreamError::Closed),
            }
        }
    }

    /// Declares the end: the other side has received all of it when it reads this.
    pub fn finish(&mut self) -> Result<(), StreamError> {
        self.finished = true;
        Ok(self.inner.send_data(Bytes::new(), true)?)
    }

    /// Ends when the other side takes nothing any more.
    pub async fn closed(&mut self) {
        let _ = poll_fn(|cx| self.inner.poll_reset(cx)).await;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.finished {
            self.inner.send_reset(Reason::CANCEL);
        }
    }
}

/// Writes what comes until its end. Capacity is given back after the local end has taken the bytes. Answers how many they were.
pub async fn receive_into(
    receiver: &mut Receiver,
    local: &mut (impl AsyncWrite + Unpin),
) -> Result<u64, StreamError> {
    let mut total = 0;
    while let Some(bytes) = receiver.next().await? {
        local.write_all(&bytes).await?;
        local.flush().await?;
        receiver.consumed(bytes.len())?;
        total += bytes.len() as u64;
    }
    local.shutdown().await?;
    Ok(total)
}

/// Sends what the local end gives until its end, and declares the end. Answers how many bytes they were.
pub async fn send_from(
    local: &mut (impl AsyncRead + Unpin),
    sender: &mut Sender,
) -> Result<u64, StreamError> {
    const PIECE: usize = 64 * 1024;
    let mut total = 0;
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        buffer.reserve(PIECE);
        let count = local.read_buf(&mut buffer).await?;
        if count == 0 {
            sender.finish()?;
            return Ok(total);
        }
        sender.send(buffer.split().freeze()).await?;
        total += count as u64;
    }
}
