//! Logs on demand: what operators follow through a tunnel.
//!
//! **Sources.** `agent` is what the agent ships to the control plane (`session::Log`), from a ring of its last lines. `kernel`
//! is the log of the machine's kernel ([`kernel`]), read from the device for as long as somebody follows it. All text is
//! redacted on the node before it is kept or sent.
//!
//! **What it promises.** A reader never slows down what it reads: it has a place in a log that is bounded anyway, and when it
//! comes too late for lines it is told how many. What is open is bounded in number and time, and a reader that takes nothing
//! for minutes is let go.

pub mod kernel;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use node_proto::{
    grant::{Grant, Owner, Target},
    log_stream::{AGENT, KERNEL, LogItem, MOST_RECENT_LINES},
};
use node_tunnel::{Attached, Handler, Refusal, Sender, Stream, StreamError};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::kernel::{KernelLines, KernelLog};
use crate::session::{Log, Place};

/// The node has no log of this name.
pub const NO_SUCH_LOG: Refusal = Refusal("no_such_log");
/// The log is there and cannot be read.
pub const UNAVAILABLE: Refusal = Refusal("log_unavailable");
/// As many follow logs of this node as may.
pub const TOO_MANY_READERS: Refusal = Refusal("too_many_readers");

const MOST_READERS: usize = 8;
/// What one reader has in memory here, besides the window of its stream.
const BATCH_BYTES: usize = 16 * 1024;
const ITEMS_AT_ONCE: usize = 64;
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// A reader that takes nothing for so long is let go.
const STALL: Duration = Duration::from_secs(300);
/// However long somebody reads: a gateway ends it earlier.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// The logs of one node.
pub struct LogStreams {
    log: Log,
    kernel: Option<KernelLog>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl LogStreams {
    /// Without `kernel` there is only the agent's.
    pub fn new(log: Log, kernel: Option<KernelLog>) -> Self {
        let places = Arc::new(Semaphore::new(MOST_READERS));
        Self { log, kernel, places, stop: CancellationToken::new() }
    }

    /// Ends all streams.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    async fn open(&self, source: &str, lines: usize) -> Result<Lines, Refusal> {
        match (source, &self.kernel) {
            (AGENT, _) => Ok(Lines::Agent(AgentLines::new(self.log.clone(), lines))),
            (KERNEL, Some(kernel)) => Ok(Lines::Kernel(kernel.open(lines).await.map_err(|error| {
                tracing::warn!(%error, "the kernel log cannot be followed");
                UNAVAILABLE
            })?)),
            _ => Err(NO_SUCH_LOG),
        }
    }
}

#[async_trait]
impl Handler for LogStreams {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        let (Owner::Node, Target::Log { source, lines }) = (grant.owner, &grant.target) else {
            return Err(NO_SUCH_LOG);
        };
        let place = self.places.clone().try_acquire_owned().map_err(|_| TOO_MANY_READERS)?;
        let most = usize::try_from(*lines).unwrap_or(usize::MAX).min(MOST_RECENT_LINES);
        let lines = self.open(source, most).await?;
        Ok(Box::new(Following { lines, stop: self.stop.clone(), _place: place }))
    }
}

/// Where a reader is in what it follows.
enum Lines {
    Agent(AgentLines),
    Kernel(KernelLines),
}

impl Lines {
    /// What there is now, bounded.
    async fn take(&mut self) -> std::io::Result<Vec<LogItem>> {
        match self {
            Self::Agent(lines) => Ok(lines.take()),
            Self::Kernel(lines) => lines.take().await,
        }
    }

    /// Ends when there may be more.
    async fn changed(&mut self) {
        match self {
            Self::Agent(lines) => lines.place.changed().await,
            Self::Kernel(lines) => lines.changed().await,
        }
    }
}

struct AgentLines {
    log: Log,
    place: Place,
    /// The number of the first line that was logged after the reader came; none when it is live.
    live_at: Option<u64>,
}

impl AgentLines {
    fn new(log: Log, lines: usize) -> Self {
        let place = log.recent().follow(lines as u64);
        let live_at = Some(log.recent().next());
        Self { log, place, live_at }
    }

    fn take(&mut self) -> Vec<LogItem> {
        let read = self.log.recent().read(&mut self.place, BATCH_BYTES);
        let mut items = Vec::new();
        if read.dropped > 0 {
            items.push(LogItem::Dropped { lines: read.dropped });
        }
        items.extend(read.lines.into_iter().map(|line| LogItem::Line(line.into())));
        if self.live_at.is_some_and(|at| self.place.number() >= at) {
            self.live_at = None;
            items.push(LogItem::Live);
        }
        items
    }
}

struct Following {
    lines: Lines,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

#[async_trait]
impl Attached for Following {
    async fn run(mut self: Box<Self>, mut stream: Stream) {
        let stop = self.stop.clone();
        let following = timeout(LONGEST, self.follow(&mut stream.sender));
        let ended = stop.run_until_cancelled(following).await;
        // A reader that broke off knows; to others it is said that this is the end, so that they come again.
        if !matches!(ended, Some(Ok(Err(_)))) {
            let _ = stream.sender.finish();
        }
    }
}

impl Following {
    /// Until the reader has gone, or takes nothing.
    async fn follow(&mut self, sender: &mut Sender) -> Result<(), StreamError> {
        // Looking for lines and finding none is no sign of life.
        let mut silent_until = Instant::now() + KEEP_ALIVE;
        loop {
            let items = self.lines.take().await?;
            let items = if items.is_empty() {
                tokio::select! {
                    () = self.lines.changed() => continue,
                    () = sender.closed() => return Err(StreamError::Closed),
                    () = tokio::time::sleep_until(silent_until) => vec![LogItem::KeepAlive],
                }
            } else {
                items
            };
            for items in items.chunks(ITEMS_AT_ONCE) {
                let bytes: Vec<u8> = items.iter().flat_map(LogItem::encode).collect();
                match timeout(STALL, sender.send(Bytes::from(bytes))).await {
                    Ok(sent) => sent?,
                    Err(_) => return Err(StreamError::Closed),
                }
            }
            silent_until = Instant::now() + KEEP_ALIVE;
        }
    }
}
