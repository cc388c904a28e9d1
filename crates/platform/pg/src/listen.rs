//! Notifications: cache invalidations from other replicas, and wake-ups for workers.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::{sync::broadcast, time::Instant};

use crate::{Db, Roles, db::INVALIDATE_ALL};

/// Wakes whoever waits for work on a channel. A missed wake-up costs a polling interval, never work.
#[derive(Clone)]
pub struct Wake(broadcast::Sender<Notice>);

/// One notification: which channel, and what it says.
#[derive(Clone, Debug)]
pub struct Notice {
    pub channel: String,
    pub payload: String,
}

const CHANNELS: &[&str] = &[
    "gpuaas_invalidate",
    "gpuaas_outbox",
    "gpuaas_bus",
    "gpuaas_tasks",
    "gpuaas_logs",
    "gpuaas_sagas",
    "gpuaas_allocations",
    "gpuaas_billing",
    "gpuaas_webhooks",
    "gpuaas_notify",
];
/// Notices that a slow subscriber may fall behind before it misses some and has to look for itself.
const BACKLOG: usize = 4096;
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

impl Wake {
    pub fn subscribe(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }

    /// Waits for a notification on `channel`, or for `at_most`.
    pub async fn wait(receiver: &mut broadcast::Receiver<Notice>, channel: &str, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, heard(receiver, |notice| notice.channel == channel)).await;
    }
}

/// Until a notice that is `wanted` came, or may have come.
async fn heard(receiver: &mut broadcast::Receiver<Notice>, wanted: impl Fn(&Notice) -> bool) {
    loop {
        match receiver.recv().await {
            Ok(notice) if wanted(&notice) => return,
            Ok(_) => {}
            // Something came that we did not see; look.
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits for changes of one thing, which the database announces on a channel by its name.
pub struct Watch {
    notices: Option<broadcast::Receiver<Notice>>,
    channel: &'static str,
    about: String,
    look_every: Duration,
}

impl Watch {
    /// Notices everything from now on: make it before the first look, so that no change falls between looking and
    /// waiting. A change whose notice was lost is looked for after `look_every`, as are all without a [`Wake`].
    pub fn new(wake: Option<&Wake>, channel: &'static str, about: String, look_every: Duration) -> Self {
        Self { notices: wake.map(Wake::subscribe), channel, about, look_every }
    }

    /// Until the thing changed, or may have changed, or the time is over.
    pub async fn changed_before(&mut self, deadline: Instant) {
        let deadline = deadline.min(Instant::now() + self.look_every);
        let Some(notices) = &mut self.notices else { return tokio::time::sleep_until(deadline).await };
        let changed = heard(notices, |n| n.channel == self.channel && n.payload == self.about);
        let _ = tokio::time::timeout_at(deadline, changed).await;
    }
}

impl Db {
    /// Listens until the returned task is aborted. While the connection is down nothing can be heard, so
    /// every reconnection drops all caches; their own short lifetimes bound staleness meanwhile.
    pub fn listen(&self) -> (Wake, tokio::task::JoinHandle<()>) {
        let (sender, _) = broadcast::channel(BACKLOG);
        let wake = Wake(sender.clone());
        let db = self.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = listen_once(&db, &sender).await {
                    tracing::debug!(error = %error, "listening for notifications failed; trying again");
                }
                db.invalidate(INVALIDATE_ALL);
                tokio::time::sleep(RECONNECT_AFTER).await;
            }
        });
        (wake, task)
    }
}

async fn listen_once(db: &Db, sender: &broadcast::Sender<Notice>) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(5))
        .connect_with(db.connect().options(Roles::System))
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen_all(CHANNELS.iter().copied()).await?;
    db.invalidate(INVALIDATE_ALL);
    while let Some(notification) = listener.try_recv().await? {
        if notification.channel() == "gpuaas_invalidate" {
            db.invalidate(notification.payload());
        } else {
            let (channel, payload) = (notification.channel().to_owned(), notification.payload().to_owned());
            let _ = sender.send(Notice { channel, payload });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(channel: &str, payload: &str) -> Notice {
        Notice { channel: channel.to_owned(), payload: payload.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_at_its_own_notice_or_at_the_next_look() {
        let (sender, _) = broadcast::channel(8);
        let wake = Wake(sender.clone());
        let look_every = Duration::from_secs(5);
        let mut watch = Watch::new(Some(&wake), "gpuaas_logs", "a".to_owned(), look_every);
        let began = Instant::now();
        for (channel, payload) in [("gpuaas_logs", "b"), ("gpuaas_tasks", "a")] {
            sender.send(notice(channel, payload)).unwrap();
        }
        watch.changed_before(began + Duration::from_secs(60)).await;
        assert_eq!(began.elapsed(), look_every);
        sender.send(notice("gpuaas_logs", "a")).unwrap();
        watch.changed_before(began + Duration::from_secs(60)).await;
        assert_eq!(began.elapsed(), look_every);
        watch.changed_before(began + Duration::from_secs(6)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fell_behind_looks_at_once() {
        let (sender, _) = broadcast::channel(2);
        let mut watch = Watch::new(Some(&Wake(sender.clone())), "gpuaas_logs", "a".to_owned(), BACKLOG_TIME);
        for _ in 0..3 {
            sender.send(notice("gpuaas_tasks", "x")).unwrap();
        }
        let began = Instant::now();
        watch.changed_before(began + BACKLOG_TIME).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    const BACKLOG_TIME: Duration = Duration::from_secs(60);
}
