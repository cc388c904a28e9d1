//! From the outbox to the transport, and the upkeep of what the bus keeps.
//!
//! Rows are leased, published, and marked. A relay that dies in between leaves them to be published again
//! when the lease ends; the transport knows the event ids. An event is never given up: its delay is bounded,
//! its number of attempts is not, and `outbox_oldest_age_seconds` tells that something is wrong.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use chrono::TimeDelta;
use pg::{Db, Wake};
use telemetry::names;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Message, OUTBOX_CHANNEL, Transport, TransportError, UPKEEP, dead_letter, error_text,
    outbox::{self, Pending},
    postgres::after,
    retry::backoff,
};

const BATCH: usize = 200;
const LEASE: Duration = Duration::from_secs(60);
/// Shorter than the lease, so that a slow relay has given up before another begins.
const PUBLISH_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_secs(1);
const MEASURE_EVERY: Duration = Duration::from_secs(10);
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// Shorter than what a process has for its stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

const KEEP_PUBLISHED: TimeDelta = TimeDelta::days(1);
/// Longer than any stream keeps a message, so that no copy outlives the memory of its effect.
const KEEP_INBOX: TimeDelta = TimeDelta::days(60);
const KEEP_CLOSED_LETTERS: TimeDelta = TimeDelta::days(30);
const DELETE_AT_MOST: i64 = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the outbox cannot be read or marked")]
    Database(#[from] pg::Error),
    #[error("events cannot be published")]
    Transport(#[source] TransportError),
    #[error("the transport did not take the events in time")]
    TooSlow,
}

pub struct Relay {
    db: Db,
    transport: Arc<dyn Transport>,
    wake: Wake,
    /// The batch that is being published.
    leased: Mutex<Vec<Uuid>>,
}

impl Relay {
    pub(crate) fn new(db: Db, transport: Arc<dyn Transport>, wake: Wake) -> Self {
        Self { db, transport, wake, leased: Mutex::default() }
    }

    /// Works until `stop`; then finishes the batch it holds, or leaves it after a deadline.
    pub async fn run(self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_WITHIN).await;
        };
        tokio::select! {
            () = self.work(&stop) => {}
            () = late => {
                tracing::warn!("the relay did not stop in time; what it leased is published by another");
                self.leases_release().await;
            }
        }
    }

    fn leased(&self) -> MutexGuard<'_, Vec<Uuid>> {
        self.leased.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Releases the leases of an interrupted batch. An event that was already published is deduplicated by its id.
    async fn leases_release(&self) {
        let ids = std::mem::take(&mut *self.leased());
        let now = vec![self.db.ambient().now(); ids.len()];
        let text = "the process stopped before the event was published";
        if let Err(error) = outbox::failed(&self.db, &ids, &now, text).await {
            tracing::warn!(error = %error, "leases of events could not be released; they expire");
        }
    }

    async fn work(&self, stop: &CancellationToken) {
        let mut wakes = self.wake.subscribe();
        let (mut measure_at, mut tidy_at) = (Instant::now(), Instant::now() + TIDY_EVERY);
        let mut healthy = true;
        while !stop.is_cancelled() {
            // What arrives from here on is not in this batch.
            while wakes.try_recv().is_ok() {}
            let outcome = Box::pin(self.relay_batch()).await;
            healthy = report(healthy, outcome.as_ref().err());
            if measure_at <= Instant::now() {
                measure_at = Instant::now() + MEASURE_EVERY;
                if let Err(error) = self.measure().await {
                    tracing::debug!(error = error_text(&error), "the outbox could not be measured");
                }
            }
            if tidy_at <= Instant::now() {
                tidy_at = Instant::now() + TIDY_EVERY;
                if let Err(error) = self.tidy().await {
                    tracing::warn!(
                        error = error_text(&error),
                        "old bus rows could not be deleted; trying again later"
                    );
                }
            }
            if outcome.is_ok_and(|leased| leased == BATCH) {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = Wake::wait(&mut wakes, OUTBOX_CHANNEL, POLL_EVERY) => {}
            }
        }
    }

    /// Publishes one batch and answers how many rows it took on. The error is the last one met; what could
    /// be published was.
    pub async fn relay_batch(&self) -> Result<usize, RelayError> {
        let pending = outbox::events_lease(&self.db, BATCH, LEASE).await?;
        if pending.is_empty() {
            return Ok(0);
        }
        *self.leased() = pending.iter().map(Pending::id).collect();
        let published = self.publish_all(&pending).await;
        self.leased().clear();
        published.map(|()| pending.len())
    }

    async fn publish_all(&self, pending: &[Pending]) -> Result<(), RelayError> {
        match self.publish(pending).await {
            Ok(()) => Ok(()),
            // One bad message must not hold up the others.
            Err(RelayError::Transport(TransportError::Rejected(_))) if pending.len() > 1 => {
                let mut last = Ok(());
                for one in pending {
                    let outcome = self.publish(std::slice::from_ref(one)).await;
                    last = last.and(outcome);
                }
                last
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes rows together and notes what became of them.
    async fn publish(&self, pending: &[Pending]) -> Result<(), RelayError> {
        let messages: Vec<Message> = pending.iter().map(|p| p.message.clone()).collect();
        let ids: Vec<Uuid> = pending.iter().map(Pending::id).collect();
        let outcome = match tokio::time::timeout(PUBLISH_WITHIN, self.transport.publish(&messages)).await {
            Ok(outcome) => outcome.map_err(RelayError::Transport),
            Err(_) => Err(RelayError::TooSlow),
        };
        match outcome {
            Ok(()) => Ok(outbox::published(&self.db, &ids).await?),
            Err(error) => {
                let now = self.db.ambient().now();
                let delay = |p: &Pending| backoff(FIRST_DELAY, MAX_DELAY, p.attempts, random(&self.db));
                let next: Vec<_> = pending.iter().map(|p| after(now, delay(p))).collect();
                outbox::failed(&self.db, &ids, &next, &error_text(&error)).await?;
                Err(error)
            }
        }
    }

    /// Sets the gauges of outbox and dead letters.
    pub async fn measure(&self) -> Result<(), RelayError> {
        let now = self.db.ambient().now();
        let mut tx = self.db.upkeep(UPKEEP).await?;
        let backlog = outbox::backlog(tx.conn(), now).await.map_err(pg::Error::from)?;
        drop(tx);
        gauge(names::OUTBOX_PENDING, backlog.pending);
        gauge(names::OUTBOX_OLDEST_AGE_SECONDS, backlog.oldest_age_seconds);
        for (consumer, dead) in dead_letter::counts(&self.db).await? {
            #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
            metrics::gauge!(names::DEAD_LETTERS, "consumer" => consumer).set(dead as f64);
        }
        Ok(())
    }

    /// Deletes what nobody needs any more.
    pub async fn tidy(&self) -> Result<(), RelayError> {
        let now = self.db.ambient().now();
        self.transport.retain().await.map_err(RelayError::Transport)?;
        outbox::clean(&self.db, now - KEEP_PUBLISHED, DELETE_AT_MOST).await?;
        dead_letter::clean(&self.db, now - KEEP_CLOSED_LETTERS, DELETE_AT_MOST).await?;
        let mut tx = self.db.upkeep(UPKEEP).await?;
        sqlx::query!(
            "DELETE FROM inbox_records WHERE (consumer, event_id) IN (
                SELECT consumer, event_id FROM inbox_records WHERE handled_at < $1 ORDER BY handled_at LIMIT $2)",
            now - KEEP_INBOX,
            DELETE_AT_MOST,
        )
        .execute(tx.conn())
        .await
        .map_err(pg::Error::from)?;
        Ok(())
    }
}

pub(crate) fn random(db: &Db) -> u32 {
    u32::from_le_bytes(db.ambient().bytes())
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn gauge(name: &'static str, value: u64) {
    metrics::gauge!(name).set(value as f64);
}

/// One line when the relay begins to fail and one when it works again.
fn report(was_healthy: bool, error: Option<&RelayError>) -> bool {
    match error {
        Some(error) if was_healthy => {
            tracing::warn!(error = error_text(error), "events cannot be relayed; trying again");
        }
        None if !was_healthy => tracing::info!("events are relayed again"),
        _ => {}
    }
    error.is_none()
}
