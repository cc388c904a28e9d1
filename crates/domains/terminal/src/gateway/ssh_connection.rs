//! The client's side of an SSH connection: a WebSocket, and how long it may take its time.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, close_code};
use bytes::Bytes;
use futures_util::{
    FutureExt as _, Sink, SinkExt as _, StreamExt as _,
    stream::{self, SplitSink, SplitStream},
};
use metrics::Counter;
use node_tunnel::{Receiver, Sender, Stream, StreamError};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    admit::NOT_ACCEPTED,
    meter::{Wait, WaitsFor},
    revocation::MustEnd,
};
use crate::model::ssh::{SshClientMessage, SshServerMessage};

/// A client that takes nothing for so long, while there is something to take, and says nothing, is cut off. One that was
/// suspended may come back.
const STALL: Duration = Duration::from_secs(15 * 60);
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(95);
const FAREWELL: Duration = Duration::from_secs(2);
/// When one direction broke, what the other has on its way arrives in this time or is lost.
const DRAIN: Duration = Duration::from_secs(10);
/// What is there already goes to the client at once, up to so many bytes.
const AT_ONCE: usize = 128 * 1024;

/// How a connection ended, as the client is told. Nothing is said to one that is gone.
pub enum End {
    /// Both sides have sent all.
    Whole,
    ClientGone,
    /// The stream to the node broke: nothing can be sent to it, and what came before may still be on its way to the client.
    NodeLost,
    /// The token is for something else than it says.
    NotAccepted,
    Told(MustEnd),
}

/// The client's side.
pub struct Connection<S> {
    to_client: Mutex<SplitSink<S, Message>>,
    from_client: Mutex<SplitStream<S>>,
    /// So much waits for the client to take it.
    waiting: AtomicUsize,
    began: Instant,
    /// When the client was heard last, in seconds since it began.
    heard_at: AtomicU64,
    bytes_in: Counter,
    bytes_out: Counter,
    /// The machine has sent all.
    node_done: CancellationToken,
}

impl<S, E> Connection<S>
where
    S: stream::Stream<Item = Result<Message, E>> + Sink<Message>,
{
    pub fn new(socket: S) -> Self {
        let (to_client, from_client) = socket.split();
        Self {
            to_client: Mutex::new(to_client),
            from_client: Mutex::new(from_client),
            waiting: AtomicUsize::new(0),
            began: Instant::now(),
            heard_at: AtomicU64::new(0),
            bytes_in: metrics::counter!("ssh_bytes_total", "direction" => "in"),
            bytes_out: metrics::counter!("ssh_bytes_total", "direction" => "out"),
            node_done: CancellationToken::new(),
        }
    }

    pub async fn run(&self, stream: Stream) -> End {
        tokio::select! {
            end = self.carry(stream) => end,
            end = self.ping_client() => end,
        }
    }

    /// Until both directions have ended, or one of them broke and the other has nothing on its way any more.
    async fn carry(&self, stream: Stream) -> End {
        let (reading, writing) = (self.read_client(stream.sender), self.write_client(stream.receiver));
        tokio::pin!(reading, writing);
        tokio::select! {
            read = &mut reading => match read {
                Ok(_sender) => writing.await.err().unwrap_or(End::Whole),
                // What the machine said before is still to be shown.
                Err(End::NodeLost) => match timeout(DRAIN, writing).await {
                    Ok(Ok(())) => End::Whole,
                    Ok(Err(end)) => end,
                    Err(_) => End::NodeLost,
                },
                Err(end) => end,
            },
            written = &mut writing => match written {
                Ok(()) => match reading.await {
                    // The machine has sent all, and needs no more.
                    Ok(_) | Err(End::NodeLost) => End::Whole,
                    Err(end) => end,
                },
                // What the client said before is still to be done.
                Err(End::ClientGone) => {
                    let _ = timeout(DRAIN, reading).await;
                    End::ClientGone
                }
                Err(end) => end,
            },
        }
    }

    /// Sends to the node what the client sends, as fast as the node takes it.
    async fn read_client(&self, mut sender: Sender) -> Result<Sender, End> {
        let mut socket = self.from_client.lock().await;
        loop {
            match self.client_message(&mut socket).await? {
                Message::Binary(bytes) => {
                    self.bytes_in.increment(bytes.len() as u64);
                    sender.send(bytes).await.map_err(|error| node_lost(&error))?;
                }
                Message::Text(text) => match serde_json::from_str(&text) {
                    Ok(SshClientMessage::Eof) => {
                        sender.finish().map_err(|error| node_lost(&error))?;
                        break;
                    }
                    Err(_) => return Err(protocol_error("the message is not known here")),
                },
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return Err(End::ClientGone),
            }
        }
        // The other direction goes on; only a client that is gone ends it.
        loop {
            let message = tokio::select! {
                message = self.client_message(&mut socket) => message?,
                () = self.node_done.cancelled() => return Ok(sender),
            };
            match message {
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Text(_) => {
                    return Err(protocol_error("nothing comes after eof"));
                }
                Message::Close(_) => return Err(End::ClientGone),
            }
        }
    }

    /// The next message. One that takes its time because there is something for it to take is not silent.
    async fn client_message(&self, socket: &mut SplitStream<S>) -> Result<Message, End> {
        loop {
            match timeout(SILENCE, socket.next()).await {
                Ok(Some(Ok(message))) => {
                    self.heard_at.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
                    return Ok(message);
                }
                Ok(Some(Err(_)) | None) => return Err(End::ClientGone),
                Err(_) if self.waiting.load(Ordering::Relaxed) > 0 => {}
                Err(_) => return Err(End::ClientGone),
            }
        }
    }

    /// Sends to the client what the node sends, as fast as the client takes it.
    async fn write_client(&self, mut receiver: Receiver) -> Result<(), End> {
        self.send([text(&SshServerMessage::Ready)]).await?;
        while let Some(bytes) = receiver.next().await.map_err(|error| node_lost(&error))? {
            self.pass_on(&mut receiver, bytes).await?;
        }
        self.send([text(&SshServerMessage::Eof)]).await?;
        self.node_done.cancel();
        Ok(())
    }

    /// So that a client that is gone is found while nothing is sent.
    async fn ping_client(&self) -> End {
        loop {
            tokio::time::sleep(PING_EVERY).await;
            if let Err(end) = self.send([Message::Ping(Bytes::new())]).await {
                return end;
            }
        }
    }

    /// With all that is there already: many small writes would cost more than one.
    async fn pass_on(&self, receiver: &mut Receiver, first: Bytes) -> Result<(), End> {
        let mut pieces = vec![first];
        let mut count = pieces[0].len();
        while count < AT_ONCE {
            // What is not bytes comes again.
            let Some(Ok(Some(bytes))) = receiver.next().now_or_never() else { break };
            count += bytes.len();
            pieces.push(bytes);
        }
        self.bytes_out.increment(count as u64);
        self.send(pieces.into_iter().map(Message::Binary)).await?;
        // A stream that is over has no window to give back; what it still holds is read.
        let _ = receiver.consumed(count);
        Ok(())
    }

    async fn send(&self, messages: impl IntoIterator<Item = Message>) -> Result<(), End> {
        let _wait = Wait::begin(WaitsFor::SshClient);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sending = async {
            let mut sink = self.to_client.lock().await;
            for message in messages {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        tokio::pin!(sending);
        let sent = loop {
            match timeout(STALL, &mut sending).await {
                Ok(sent) => break sent.is_ok(),
                // It is there, and does not read: somebody has suspended ssh.
                Err(_) if self.was_heard_lately() => {}
                Err(_) => break false,
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if sent { Ok(()) } else { Err(End::ClientGone) }
    }

    fn was_heard_lately(&self) -> bool {
        let heard_at = Duration::from_secs(self.heard_at.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(heard_at) < SILENCE
    }

    pub async fn say_farewell(&self, end: End) {
        let (message, code) = match end {
            End::ClientGone => return,
            End::Whole => (None, close_code::NORMAL),
            End::NotAccepted => (None, NOT_ACCEPTED),
            End::NodeLost => early_end(LOST, "the connection to the machine is lost".to_owned(), true),
            End::Told(MustEnd { code, message, retryable, .. }) => early_end(code, message, retryable),
        };
        let reason = message.as_ref().map_or("", |(reason, _)| *reason);
        let saying = async {
            let mut sink = self.to_client.lock().await;
            if let Some((_, message)) = &message {
                sink.send(text(message)).await?;
            }
            sink.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
            sink.close().await
        };
        let _ = timeout(FAREWELL, saying).await;
    }
}

fn text(message: &SshServerMessage) -> Message {
    Message::Text(message.text().into())
}

pub const LOST: &str = "tunnel_lost";

/// The code of an early end, which stands in the close frame too; the message before it; and the code of the close frame.
fn early_end(
    code: &'static str,
    message: String,
    retryable: bool,
) -> (Option<(&'static str, SshServerMessage)>, u16) {
    let error = SshServerMessage::SessionError { code, message, retryable };
    (Some((code, error)), if retryable { close_code::AGAIN } else { close_code::POLICY })
}

fn node_lost(error: &StreamError) -> End {
    tracing::debug!(%error, "an SSH connection broke off");
    End::NodeLost
}

fn protocol_error(message: &str) -> End {
    End::Told(MustEnd::new("protocol", message))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::sync::mpsc;

    use super::*;

    /// The socket of a client that takes nothing: somebody has suspended its ssh. What it says is sent by a test.
    struct Suspended(mpsc::UnboundedReceiver<Message>);

    impl stream::Stream for Suspended {
        type Item = Result<Message, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(cx).map(|message| message.map(Ok))
        }
    }

    impl Sink<Message> for Suspended {
        type Error = Infallible;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Pending
        }

        fn start_send(self: Pin<&mut Self>, _: Message) -> Result<(), Infallible> {
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_client_is_kept_while_its_proxy_speaks_and_for_a_while_after() {
        let (says, heard) = mpsc::unbounded_channel();
        let connection = Connection::new(Suspended(heard));
        let sending = connection.send([Message::Binary(Bytes::from_static(b"printed"))]);
        let reading = async {
            let mut socket = connection.from_client.lock().await;
            while connection.client_message(&mut socket).await.is_ok() {}
        };
        tokio::pin!(sending, reading);
        // Its proxy pings by itself.
        let speaking = async {
            let until = Instant::now() + 3 * STALL;
            while Instant::now() < until {
                tokio::time::sleep(PING_EVERY).await;
                says.send(Message::Ping(Bytes::new())).unwrap();
            }
        };
        tokio::select! {
            _ = &mut sending => panic!("it was cut off while its proxy spoke"),
            () = &mut reading => panic!("it was taken for silent"),
            () = speaking => {}
        }
        let spoke_last = Instant::now();
        tokio::select! {
            () = &mut reading => panic!("it was taken for silent while there was something for it to take"),
            sent = &mut sending => assert!(matches!(sent, Err(End::ClientGone))),
        }
        assert!((SILENCE..=2 * STALL).contains(&spoke_last.elapsed()), "{:?}", spoke_last.elapsed());
        // Nothing waits for it any more.
        reading.await;
    }
}
