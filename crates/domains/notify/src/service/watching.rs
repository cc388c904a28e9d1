//! Streams of notifications: woken by the database, never holding a connection while nothing happens.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use endpoint::SseFrame;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kernel::{Code, Failure, Problem, ids::UserId};
use pg::{Notice, Permit, ReadTx, Wake};
use tokio::{sync::broadcast, time::Instant};

use crate::{CHANNEL, Notify, store};

/// A notification whose wake-up was lost is found after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this time: what its caller may see is then decided anew.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
const COME_AGAIN: Duration = Duration::from_secs(1);
const BATCH: i64 = 100;
/// Streams that one process keeps open, and one person.
const MOST_STREAMS: usize = 2048;
const MOST_STREAMS_OF_ONE: usize = 8;

/// The streams that are open, by person. Cheap to clone.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<HashMap<UserId, usize>>>);

/// A stream's place, given back when the stream is gone.
struct Seat(Streams, UserId);

impl Streams {
    fn seat(&self, user: UserId) -> Result<Seat, Problem> {
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&user).copied().unwrap_or(0));
        if all >= MOST_STREAMS || own >= MOST_STREAMS_OF_ONE {
            let text = "Too many streams of notifications are open.";
            let problem = Problem::new(Code::RateLimitExceeded, text).detail("limit", MOST_STREAMS_OF_ONE);
            return Err(problem.suggest("Close one, or list the notifications instead.").retry_after(5));
        }
        *open.entry(user).or_default() += 1;
        drop(open);
        Ok(Seat(self.clone(), user))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<UserId, usize>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.1);
            }
        }
    }
}

struct Following {
    notify: Notify,
    permit: Permit,
    user: UserId,
    after: i64,
    frames: VecDeque<SseFrame>,
    notices: Option<broadcast::Receiver<Notice>>,
    ends_at: Instant,
    next_heartbeat: Instant,
    _seat: Seat,
}

/// The notifications after a number, then each as it is made. Without a number, only those to come.
pub async fn follow(
    notify: &Notify,
    mut tx: ReadTx,
    user: UserId,
    after: Option<i64>,
) -> Result<BoxStream<'static, Result<SseFrame, Failure>>, Failure> {
    let seat = notify.streams.seat(user)?;
    let notices = notify.wake.as_ref().map(Wake::subscribe);
    let after = match after {
        Some(after) => after,
        None => store::notices::last_seq(tx.conn(), user).await?,
    };
    let now = Instant::now();
    let following = Following {
        notify: notify.clone(),
        permit: tx.permit().clone(),
        user,
        after,
        frames: VecDeque::from([SseFrame::retry_after(COME_AGAIN)]),
        notices,
        ends_at: now + LIFETIME,
        next_heartbeat: now + HEARTBEAT,
        _seat: seat,
    };
    Ok(stream::try_unfold(following, async |mut following| {
        let frame = following.next().await?;
        Ok(frame.map(|frame| (frame, following)))
    })
    .boxed())
}

impl Following {
    async fn next(&mut self) -> Result<Option<SseFrame>, Failure> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.next_heartbeat = Instant::now() + HEARTBEAT;
                return Ok(Some(frame));
            }
            let now = Instant::now();
            if now >= self.ends_at {
                return Ok(None);
            }
            if now >= self.next_heartbeat {
                self.frames.push_back(SseFrame::heartbeat());
                continue;
            }
            if !self.look().await? {
                self.wait().await;
            }
        }
    }

    /// Whether there was something.
    async fn look(&mut self) -> Result<bool, Failure> {
        let mut tx = self.notify.db.read(&self.permit).await?;
        let found = store::notices::after(tx.conn(), self.user, self.after, BATCH).await?;
        drop(tx);
        for notification in &found {
            self.after = notification.seq;
            self.frames.push_back(SseFrame::event(notification.seq, "notification", notification)?);
        }
        Ok(!found.is_empty())
    }

    /// Until there may be something, or it is time for a heartbeat or the end.
    async fn wait(&mut self) {
        let until = self.ends_at.min(self.next_heartbeat).min(Instant::now() + LOOK_AGAIN);
        let Some(notices) = &mut self.notices else { return tokio::time::sleep_until(until).await };
        let own = self.user.uuid().to_string();
        let told = async {
            loop {
                match notices.recv().await {
                    Ok(notice) if notice.channel == CHANNEL && notice.payload == own => return,
                    Ok(_) => {}
                    // Something was missed: look.
                    Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let _ = tokio::time::timeout_at(until, told).await;
    }
}
