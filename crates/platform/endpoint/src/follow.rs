//! Streams of server-sent events: first the past events of a source, then new ones.
//!
//! A stream reads new frames ([`StreamSource::read_new`]), sends them, and waits ([`StreamSource::wait`]) without a database
//! connection while there are none. It sends a heartbeat when it was idle, and ends after some minutes, so that no client
//! keeps one connection forever; the client reconnects with the last id that it saw. The pipeline authorizes its
//! caller again every second (`reauthorize`). Each caller has a bounded number of streams.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use kernel::{Code, Failure, Problem};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Sse, SseFrame};

const LIFETIME: Duration = Duration::from_secs(5 * 60);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Streams of one kind that one process keeps open.
const MOST_STREAMS: usize = 2048;

/// The number of open streams of one kind, by caller. Cheap to clone.
#[derive(Clone)]
pub struct Streams {
    open: Arc<Mutex<HashMap<Uuid, usize>>>,
    most_of_one: usize,
    /// The error and its suggestion for a caller with too many streams.
    refusal: (&'static str, &'static str),
}

/// Counts a stream as open until it is dropped.
pub struct StreamGuard {
    streams: Streams,
    caller: Uuid,
}

impl Streams {
    pub fn new(most_of_one: usize, refusal: (&'static str, &'static str)) -> Self {
        Self { open: Arc::default(), most_of_one, refusal }
    }

    pub fn stream_open(&self, caller: Uuid) -> Result<StreamGuard, Problem> {
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&caller).copied().unwrap_or(0));
        if all >= MOST_STREAMS || own >= self.most_of_one {
            let (text, suggestion) = self.refusal;
            let problem = Problem::new(Code::RateLimitExceeded, text).detail("limit", self.most_of_one);
            return Err(problem.suggest(suggestion).retry_after(5));
        }
        *open.entry(caller).or_default() += 1;
        drop(open);
        Ok(StreamGuard { streams: self.clone(), caller })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, usize>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

/// The result of one read of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// New frames: read again once they were sent.
    New,
    /// No new frames: wait.
    Idle,
    /// The last frames: they are sent, then the stream ends.
    Ended,
}

/// A source of frames.
#[async_trait]
pub trait StreamSource: Send + 'static {
    /// Appends the frames that are new since the last read.
    async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure>;
    /// Waits until there may be new frames, or until the deadline.
    async fn wait(&mut self, deadline: Instant);
}

struct SourceStream<F> {
    source: F,
    frames: VecDeque<SseFrame>,
    over: bool,
    ends_at: Instant,
    next_heartbeat: Instant,
    _guard: StreamGuard,
}

/// Streams until the source or the lifetime of the stream has ended.
pub fn follow(guard: StreamGuard, source: impl StreamSource) -> Sse {
    let now = Instant::now();
    let state = SourceStream {
        source,
        frames: VecDeque::from([SseFrame::retry_after(RECONNECT_DELAY)]),
        over: false,
        ends_at: now + LIFETIME,
        next_heartbeat: now + HEARTBEAT,
        _guard: guard,
    };
    let frames = stream::try_unfold(state, async |mut state| {
        let frame = state.next().await?;
        Ok(frame.map(|frame| (frame, state)))
    });
    Sse(frames.boxed())
}

impl<F: StreamSource> SourceStream<F> {
    async fn next(&mut self) -> Result<Option<SseFrame>, Failure> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.next_heartbeat = Instant::now() + HEARTBEAT;
                return Ok(Some(frame));
            }
            let now = Instant::now();
            if self.over || now >= self.ends_at {
                return Ok(None);
            }
            if now >= self.next_heartbeat {
                self.frames.push_back(SseFrame::heartbeat());
                continue;
            }
            match self.source.read_new(&mut self.frames).await? {
                SourceState::New => {}
                SourceState::Idle => self.source.wait(self.ends_at.min(self.next_heartbeat)).await,
                SourceState::Ended => self.over = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: (&str, &str) = ("Too many.", "Close one.");

    /// One new frame at each of the first reads, then `then`.
    struct Counted {
        left: i64,
        then: SourceState,
    }

    #[async_trait]
    impl StreamSource for Counted {
        async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure> {
            if self.left == 0 {
                return Ok(self.then);
            }
            self.left -= 1;
            frames.push_back(SseFrame::event(self.left, "thing", &self.left)?);
            Ok(SourceState::New)
        }

        async fn wait(&mut self, deadline: Instant) {
            tokio::time::sleep_until(deadline).await;
        }
    }

    async fn frames(left: i64, then: SourceState) -> Vec<SseFrame> {
        let guard = Streams::new(1, REFUSAL).stream_open(Uuid::nil()).unwrap();
        follow(guard, Counted { left, then }).0.map(Result::unwrap).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_with_its_source() {
        let began = Instant::now();
        let frames = frames(2, SourceState::Ended).await;
        let event = |n: i64| SseFrame::event(n, "thing", &n).unwrap();
        assert_eq!(frames, [SseFrame::retry_after(RECONNECT_DELAY), event(1), event(0)]);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_sends_heartbeats_and_ends_after_its_lifetime() {
        let began = Instant::now();
        let frames = frames(0, SourceState::Idle).await;
        let beats = frames.iter().filter(|frame| **frame == SseFrame::heartbeat()).count();
        assert_eq!((frames.len(), beats), (20, 19));
        assert_eq!(began.elapsed(), LIFETIME);
    }

    #[test]
    fn streams_of_a_caller_are_limited_until_one_is_dropped() {
        const MOST: usize = 16;
        let (streams, caller) = (Streams::new(MOST, REFUSAL), Uuid::from_u128(1));
        let mut guards: Vec<StreamGuard> = (0..MOST).map(|_| streams.stream_open(caller).unwrap()).collect();
        assert_eq!(streams.stream_open(caller).map(drop).unwrap_err().code, Code::RateLimitExceeded);
        assert!(streams.stream_open(Uuid::from_u128(2)).is_ok());
        guards.pop();
        assert!(streams.stream_open(caller).is_ok());
        drop(guards);
        assert!(streams.lock().is_empty());
    }
}
