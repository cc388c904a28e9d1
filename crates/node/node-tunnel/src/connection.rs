//! What both ends of a tunnel have in common: sizes, pings, and when it ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use h2::{Ping, PingPong};
use node_proto::contract::TunnelClass;
use tokio::{sync::Notify, time::Instant};

/// Sizes and times of a tunnel. Both ends use the same one.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// How much a stream may have on its way in one direction.
    pub window: u32,
    /// The largest frame that is taken.
    pub frame: u32,
    pub most_streams: u32,
    /// A tunnel that had no stream for so long is closed.
    pub idle: Duration,
    /// A ping is sent so often, and must be answered before the next one.
    pub ping_every: Duration,
    /// A stream must be opened or refused within this time.
    pub open_within: Duration,
}

impl Profile {
    /// For terminals and logs: small windows, so that what is typed is not behind much that was printed.
    pub const INTERACTIVE: Self = Self {
        window: 64 * 1024,
        frame: 16 * 1024,
        most_streams: 1024,
        idle: Duration::from_secs(600),
        ping_every: Duration::from_secs(15),
        open_within: Duration::from_secs(10),
    };
    /// For TCP: windows that fill a long way, and fewer, larger frames.
    pub const BULK: Self = Self { window: 256 * 1024, frame: 64 * 1024, ..Self::INTERACTIVE };

    /// How tunnels of a class are, and what they offer in the handshake.
    pub const fn for_class(class: TunnelClass) -> Option<(Self, &'static [u8])> {
        match class {
            TunnelClass::Interactive => Some((Self::INTERACTIVE, crate::ALPN)),
            TunnelClass::Bulk => Some((Self::BULK, crate::ALPN_BULK)),
            TunnelClass::Unknown => None,
        }
    }

    /// The class that a handshake agreed on.
    pub fn class(alpn: Option<&[u8]>) -> Option<TunnelClass> {
        let offers =
            |class: &TunnelClass| Self::for_class(*class).is_some_and(|(_, offered)| Some(offered) == alpn);
        [TunnelClass::Interactive, TunnelClass::Bulk].into_iter().find(offers)
    }

    /// All streams together, so that one that stalls leaves the others their windows.
    pub(crate) fn connection_window(&self) -> u32 {
        const MOST: u32 = (1 << 31) - 1;
        self.window.saturating_mul(self.most_streams).min(MOST)
    }
}

/// Why a tunnel ended.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the tunnel is broken: {0}")]
    Broken(#[from] h2::Error),
    #[error("the other end did not answer in time")]
    NoAnswer,
}

/// Counts the open streams of a tunnel.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<StreamsInner>);

#[derive(Default)]
struct StreamsInner {
    open: AtomicUsize,
    changed: Notify,
}

/// One open stream.
pub(crate) struct StreamGuard(Streams);

impl Streams {
    pub fn add(&self) -> StreamGuard {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.changed.notify_one();
        StreamGuard(self.clone())
    }

    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Ends when no stream was open for so long.
    pub async fn idle(&self, limit: Duration) {
        loop {
            if self.open() > 0 {
                self.0.changed.notified().await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(limit) => return,
                () = self.0.changed.notified() => {}
            }
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.open.fetch_sub(1, Ordering::Relaxed);
        inner.changed.notify_one();
    }
}

/// Ends when a ping was not answered before the next one was due.
pub(crate) async fn unanswered(mut pings: PingPong, every: Duration) -> TunnelError {
    let mut next = Instant::now() + every;
    loop {
        tokio::time::sleep_until(next).await;
        next += every;
        match tokio::time::timeout_at(next, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return TunnelError::NoAnswer,
        }
    }
}
