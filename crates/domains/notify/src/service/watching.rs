//! Streams of notifications: woken by the database, never holding a connection while nothing happens.

use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use endpoint::{SourceState, Sse, SseFrame, StreamSource, Streams};
use kernel::{Failure, ids::UserId};
use pg::{Permit, ReadTx, Watch};
use tokio::time::Instant;

use crate::{CHANNEL, Notify, store};

/// A notification whose wake-up was lost is found after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const BATCH: i64 = 100;
/// Streams that one person may have open.
const MOST_STREAMS_OF_ONE: usize = 8;

/// The streams of notifications that are open.
pub(crate) fn streams() -> Streams {
    let suggestion = "Close a stream, or list the notifications instead.";
    Streams::new(MOST_STREAMS_OF_ONE, ("Too many notification streams are open.", suggestion))
}

/// Where the stream of one person has come to.
struct NotificationSource {
    notify: Notify,
    permit: Permit,
    user: UserId,
    after: i64,
    watch: Watch,
}

/// The notifications after a number, then each as it is made. Without a number, only those to come.
pub async fn follow(
    notify: &Notify,
    mut tx: ReadTx,
    user: UserId,
    after: Option<i64>,
) -> Result<Sse, Failure> {
    let guard = notify.streams.stream_open(user.uuid())?;
    let watch = Watch::new(notify.wake.as_ref(), CHANNEL, user.uuid().to_string(), LOOK_AGAIN);
    let after = match after {
        Some(after) => after,
        None => store::notices::last_seq(tx.conn(), user).await?,
    };
    let permit = tx.permit().clone();
    Ok(endpoint::follow(guard, NotificationSource { notify: notify.clone(), permit, user, after, watch }))
}

#[async_trait]
impl StreamSource for NotificationSource {
    async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure> {
        let mut tx = self.notify.db.read(&self.permit).await?;
        let found = store::notices::after(tx.conn(), self.user, self.after, BATCH).await?;
        drop(tx);
        for notification in &found {
            self.after = notification.seq;
            frames.push_back(SseFrame::event(notification.seq, "notification", notification)?);
        }
        Ok(if found.is_empty() { SourceState::Idle } else { SourceState::New })
    }

    async fn wait(&mut self, deadline: Instant) {
        self.watch.wait_for_change(deadline).await;
    }
}
