//! Streams that follow something: what happened, then what happens, as server-sent events.
//!
//! A stream looks ([`Followed::look`]), sends what is new, and waits ([`Followed::wait`]) without a connection to the
//! database while nothing happens. It sends a heartbeat when it was silent, and ends after some minutes, so that no client
//! keeps one connection for ever; the client comes again with the last id that it saw. The pipeline authorizes its
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
const COME_AGAIN: Duration = Duration::from_secs(1);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Streams of one kind that one process keeps open.
const MOST_STREAMS: usize = 2048;

/// The streams of one kind that are open, by caller. Cheap to clone.
#[derive(Clone)]
pub struct Streams {
    open: Arc<Mutex<HashMap<Uuid, usize>>>,
    most_of_one: usize,
    /// What a caller with too many reads, and what to do instead.
    refusal: (&'static str, &'static str),
}

/// A stream's place among those that are open, given back when the stream is gone.
pub struct Seat {
    streams: Streams,
    caller: Uuid,
}

impl Streams {
    pub fn new(most_of_one: usize, refusal: (&'static str, &'static str)) -> Self {
        Self { open: Arc::default(), most_of_one, refusal }
    }

    pub fn seat(&self, caller: Uuid) -> Result<Seat, Problem> {
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&caller).copied().unwrap_or(0));
        if all >= MOST_STREAMS || own >= self.most_of_one {
            let (text, suggestion) = self.refusal;
            let problem = Problem::new(Code::RateLimitExceeded, text).detail("limit", self.most_of_one);
            return Err(problem.suggest(suggestion).retry_after(5));
        }
        *open.entry(caller).or_default() += 1;
        drop(open);
        Ok(Seat { streams: self.clone(), caller })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, usize>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Seat {
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

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Something: look again once it was sent.
    Something,
    /// Nothing: wait.
    Nothing,
    /// Nothing more will come. What was found is sent, then the stream ends.
    Over,
}

/// What a stream follows.
#[async_trait]
pub trait Followed: Send + 'static {
    /// Adds frames for what is new since the last look.
    async fn look(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<Looked, Failure>;
    /// Until there may be something new, or the time is over.
    async fn wait(&mut self, deadline: Instant);
}

struct Following<F> {
    followed: F,
    frames: VecDeque<SseFrame>,
    over: bool,
    ends_at: Instant,
    next_heartbeat: Instant,
    _seat: Seat,
}

/// Follows until it is over, or the stream's time is.
pub fn follow(seat: Seat, followed: impl Followed) -> Sse {
    let now = Instant::now();
    let following = Following {
        followed,
        frames: VecDeque::from([SseFrame::retry_after(COME_AGAIN)]),
        over: false,
        ends_at: now + LIFETIME,
        next_heartbeat: now + HEARTBEAT,
        _seat: seat,
    };
    let frames = stream::try_unfold(following, async |mut following| {
        let frame = following.next().await?;
        Ok(frame.map(|frame| (frame, following)))
    });
    Sse(frames.boxed())
}

impl<F: Followed> Following<F> {
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
            match self.followed.look(&mut self.frames).await? {
                Looked::Something => {}
                Looked::Nothing => self.followed.wait(self.ends_at.min(self.next_heartbeat)).await,
                Looked::Over => self.over = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: (&str, &str) = ("Too many.", "Close one.");

    /// Finds one thing at each of the first looks, then nothing, or the end.
    struct Counted {
        left: i64,
        then: Looked,
    }

    #[async_trait]
    impl Followed for Counted {
        async fn look(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<Looked, Failure> {
            if self.left == 0 {
                return Ok(self.then);
            }
            self.left -= 1;
            frames.push_back(SseFrame::event(self.left, "thing", &self.left)?);
            Ok(Looked::Something)
        }

        async fn wait(&mut self, deadline: Instant) {
            tokio::time::sleep_until(deadline).await;
        }
    }

    async fn frames(left: i64, then: Looked) -> Vec<SseFrame> {
        let seat = Streams::new(1, REFUSAL).seat(Uuid::nil()).unwrap();
        follow(seat, Counted { left, then }).0.map(Result::unwrap).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_what_it_follows_does() {
        let began = Instant::now();
        let frames = frames(2, Looked::Over).await;
        let event = |n: i64| SseFrame::event(n, "thing", &n).unwrap();
        assert_eq!(frames, [SseFrame::retry_after(COME_AGAIN), event(1), event(0)]);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_has_heartbeats_and_ends_after_its_time() {
        let began = Instant::now();
        let frames = frames(0, Looked::Nothing).await;
        let beats = frames.iter().filter(|frame| **frame == SseFrame::heartbeat()).count();
        assert_eq!((frames.len(), beats), (20, 19));
        assert_eq!(began.elapsed(), LIFETIME);
    }

    #[test]
    fn a_caller_has_so_many_streams_and_gets_places_back() {
        const MOST: usize = 16;
        let (streams, caller) = (Streams::new(MOST, REFUSAL), Uuid::from_u128(1));
        let mut seats: Vec<Seat> = (0..MOST).map(|_| streams.seat(caller).unwrap()).collect();
        assert_eq!(streams.seat(caller).map(drop).unwrap_err().code, Code::RateLimitExceeded);
        assert!(streams.seat(Uuid::from_u128(2)).is_ok());
        seats.pop();
        assert!(streams.seat(caller).is_ok());
        drop(seats);
        assert!(streams.lock().is_empty());
    }
}
