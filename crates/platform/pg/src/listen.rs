//! Notifications: cache invalidations from other replicas, and wake-ups for workers.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::broadcast;

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
        let notified = async {
            loop {
                match receiver.recv().await {
                    Ok(notice) if notice.channel == channel => return,
                    Ok(_) => {}
                    // Lagged: something came that we did not see; look.
                    Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let _ = tokio::time::timeout(at_most, notified).await;
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
