//! Notifications: cache invalidations from other replicas, and wake-ups for workers.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::{sync::broadcast, time::Instant};

use crate::{Db, Roles, db::INVALIDATE_ALL};

/// Wakes workers that wait on a channel. A missed wake-up costs a polling interval, never work.
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
    "gpuaas_dial",
    "gpuaas_terminals",
    "gpuaas_logs",
    "gpuaas_sagas",
    "gpuaas_allocations",
    "gpuaas_billing",
    "gpuaas_balances",
    "gpuaas_webhooks",
    "gpuaas_notify",
];
/// Notices buffered for a slow subscriber; beyond that it misses some and must poll.
const BACKLOG: usize = 4096;
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

impl Wake {
    pub fn subscribe(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }

    /// Waits for a notification on `channel`, or for `at_most`.
    pub async fn wait(receiver: &mut broadcast::Receiver<Notice>, channel: &str, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, wait_for_notice(receiver, |notice| notice.channel == channel))
            .await;
    }
}

/// Waits for a notice that is `wanted`, or that may have been missed.
async fn wait_for_notice(receiver: &mut broadcast::Receiver<Notice>, wanted: impl Fn(&Notice) -> bool) {
    loop {
        match receiver.recv().await {
            Ok(notice) if wanted(&notice) => return,
            Ok(_) => {}
            // Missed notices: the caller must check.
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits for changes of one resource, for which the database sends notices with its name on a channel.
pub struct Watch {
    notices: Option<broadcast::Receiver<Notice>>,
    channel: &'static str,
    about: String,
    poll_interval: Duration,
}

impl Watch {
    /// Receives notices from now on: create it before the first read, so that no change is missed between reading and
    /// waiting. After `poll_interval` the caller polls, for lost notices and without a [`Wake`].
    pub fn new(wake: Option<&Wake>, channel: &'static str, about: String, poll_interval: Duration) -> Self {
        Self { notices: wake.map(Wake::subscribe), channel, about, poll_interval }
    }

    /// Waits until the resource changed, or may have changed, or until the deadline.
    pub async fn wait_for_change(&mut self, deadline: Instant) {
        let deadline = deadline.min(Instant::now() + self.poll_interval);
        let Some(notices) = &mut self.notices else { return tokio::time::sleep_until(deadline).await };
        let changed = wait_for_notice(notices, |n| n.channel == self.channel && n.payload == self.about);
        let _ = tokio::time::timeout_at(deadline, changed).await;
    }
}

impl Db {
    /// Listens until the returned task is aborted. While the connection is down no notice arrives, so
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
    async fn a_watch_ends_at_its_own_notice_or_after_the_poll_interval() {
        let (sender, _) = broadcast::channel(8);
        let wake = Wake(sender.clone());
        let poll_interval = Duration::from_secs(5);
        let mut watch = Watch::new(Some(&wake), "gpuaas_logs", "a".to_owned(), poll_interval);
        let began = Instant::now();
        for (channel, payload) in [("gpuaas_logs", "b"), ("gpuaas_tasks", "a")] {
            sender.send(notice(channel, payload)).unwrap();
        }
        watch.wait_for_change(began + Duration::from_secs(60)).await;
        assert_eq!(began.elapsed(), poll_interval);
        sender.send(notice("gpuaas_logs", "a")).unwrap();
        watch.wait_for_change(began + Duration::from_secs(60)).await;
        assert_eq!(began.elapsed(), poll_interval);
        watch.wait_for_change(began + Duration::from_secs(6)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_missed_notices_ends_immediately() {
        let (sender, _) = broadcast::channel(2);
        let mut watch = Watch::new(Some(&Wake(sender.clone())), "gpuaas_logs", "a".to_owned(), BACKLOG_TIME);
        for _ in 0..3 {
            sender.send(notice("gpuaas_tasks", "x")).unwrap();
        }
        let began = Instant::now();
        watch.wait_for_change(began + BACKLOG_TIME).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    const BACKLOG_TIME: Duration = Duration::from_secs(60);
}
