//! The built-in transport: tables of the same database, `SKIP LOCKED` leases, `NOTIFY` as wake-up.
//!
//! Every call is one statement, hence one transaction, so nothing is half done. `publish` fans out at once:
//! each matching consumer gets a row in `bus_deliveries`, which its ack deletes.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Stream, event::Envelope};
use pg::{Db, Upkeep};
use uuid::Uuid;

use crate::{Burial, ConsumerSpec, Delivery, Message, Receipt, Transport, TransportError, UPKEEP};

#[derive(Clone)]
pub struct PgTransport {
    db: Db,
}

/// A consumer that nobody ran for this long is forgotten, with what waits for it.
const CONSUMER_FORGOTTEN_AFTER: TimeDelta = TimeDelta::days(30);
const DELETE_AT_MOST: i64 = 10_000;

impl PgTransport {
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    fn now(&self) -> DateTime<Utc> {
        self.db.ambient().now()
    }

    async fn open(&self) -> Result<Upkeep, TransportError> {
        self.db.upkeep(UPKEEP).await.map_err(|error| TransportError::Unavailable(error.into()))
    }
}

fn failed(error: sqlx::Error) -> TransportError {
    if pg::is_transient(&error) {
        TransportError::Unavailable(error.into())
    } else {
        TransportError::Rejected(error.into())
    }
}

/// The fence that a receipt stands for; one that is not ours matches no row.
fn fence(receipt: &Receipt) -> i64 {
    receipt.0.parse().unwrap_or(-1)
}

fn lease_still_ours(rows: u64) -> Result<(), TransportError> {
    if rows == 0 { Err(TransportError::LeaseLost) } else { Ok(()) }
}

pub(crate) fn after(now: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(by).ok().and_then(|by| now.checked_add_signed(by)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[async_trait]
impl Transport for PgTransport {
    async fn consumer_ensure(&self, consumer: &ConsumerSpec) -> Result<(), TransportError> {
        let now = self.now();
        sqlx::query_scalar!(
            r#"SELECT bus_consumer_ensure($1, $2, $3, $4) AS "added!""#,
            consumer.name,
            consumer.stream,
            &consumer.event_types,
            now,
        )
        .fetch_one(self.open().await?.conn())
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn publish(&self, messages: &[Message]) -> Result<(), TransportError> {
        if messages.is_empty() {
            return Ok(());
        }
        let column = |f: fn(&Envelope) -> Option<Uuid>| -> Vec<Option<Uuid>> {
            messages.iter().map(|m| f(&m.envelope)).collect()
        };
        let ids: Vec<Uuid> = messages.iter().map(|m| m.envelope.event_id).collect();
        let streams: Vec<String> = messages.iter().map(|m| m.stream.clone()).collect();
        let types: Vec<String> = messages.iter().map(|m| m.envelope.event_type.clone()).collect();
        let versions: Vec<i16> =
            messages.iter().map(|m| i16::try_from(m.envelope.version).unwrap_or(i16::MAX)).collect();
        let occurred: Vec<DateTime<Utc>> = messages.iter().map(|m| m.envelope.occurred_at).collect();
        let correlations: Vec<Uuid> = messages.iter().map(|m| m.envelope.correlation_id).collect();
        let traces: Vec<Option<String>> = messages.iter().map(|m| m.envelope.traceparent.clone()).collect();
        let payloads: Vec<serde_json::Value> = messages.iter().map(|m| m.envelope.payload.clone()).collect();
        let now = self.now();
        sqlx::query_scalar!(
            r#"SELECT bus_publish($1, ROW($2, $3, $4, $5, $6, $7, $8, $9, $10, $11)::message_batch) AS "new!""#,
            now,
            &ids,
            &streams,
            &types,
            &versions,
            &occurred,
            &correlations,
            &traces as &[Option<String>],
            &column(|e| e.org_id) as &[Option<Uuid>],
            &column(|e| e.project_id) as &[Option<Uuid>],
            &payloads,
        )
        .fetch_one(self.open().await?.conn())
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn fetch(
        &self,
        consumer: &ConsumerSpec,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Delivery>, TransportError> {
        let now = self.now();
        let rows = sqlx::query!(
            r#"WITH due AS (
                SELECT consumer, event_id FROM bus_deliveries
                WHERE consumer = $1 AND available_at <= $2
                ORDER BY available_at, position LIMIT $3
                FOR UPDATE SKIP LOCKED
            ), leased AS (
                UPDATE bus_deliveries d SET attempts = d.attempts + 1, fence = d.fence + 1, available_at = $4
                FROM due WHERE d.consumer = due.consumer AND d.event_id = due.event_id
                RETURNING d.event_id, d.attempts, d.fence
            )
            SELECT l.attempts AS "attempts!", l.fence AS "fence!", m.event_id, m.stream, m.event_type, m.version,
                m.occurred_at, m.correlation_id, m.traceparent, m.org_id, m.project_id, m.payload
            FROM leased l JOIN bus_messages m ON m.event_id = l.event_id ORDER BY m.position"#,
            consumer.name,
            now,
            i64::try_from(max).unwrap_or(i64::MAX),
            after(now, lease),
        )
        .fetch_all(self.open().await?.conn())
        .await
        .map_err(failed)?;
        let delivery = |attempts: i32, fence: i64, stream: String, envelope: Envelope| Delivery {
            consumer: consumer.name.clone(),
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            receipt: Receipt(fence.to_string()),
            message: Message { stream, envelope },
        };
        let deliveries = rows.into_iter().map(|r| {
            let envelope = Envelope {
                event_id: r.event_id,
                event_type: r.event_type,
                version: u16::try_from(r.version).unwrap_or(0),
                occurred_at: r.occurred_at,
                correlation_id: r.correlation_id,
                traceparent: r.traceparent,
                org_id: r.org_id,
                project_id: r.project_id,
                payload: r.payload,
            };
            delivery(r.attempts, r.fence, r.stream, envelope)
        });
        Ok(deliveries.collect())
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), TransportError> {
        let done = sqlx::query!(
            "DELETE FROM bus_deliveries WHERE consumer = $1 AND event_id = $2 AND fence = $3",
            delivery.consumer,
            delivery.message.envelope.event_id,
            fence(&delivery.receipt),
        )
        .execute(self.open().await?.conn())
        .await
        .map_err(failed)?;
        lease_still_ours(done.rows_affected())
    }

    async fn retry(&self, delivery: &Delivery, delay: Duration, error: &str) -> Result<(), TransportError> {
        let available_at = after(self.now(), delay);
        // The fence rises: with the lease given back, the receipt is spent.
        let done = sqlx::query!(
            "UPDATE bus_deliveries SET available_at = $4, last_error = $5, fence = fence + 1
             WHERE consumer = $1 AND event_id = $2 AND fence = $3",
            delivery.consumer,
            delivery.message.envelope.event_id,
            fence(&delivery.receipt),
            available_at,
            error,
        )
        .execute(self.open().await?.conn())
        .await
        .map_err(failed)?;
        lease_still_ours(done.rows_affected())
    }

    async fn dead_letter(&self, delivery: &Delivery, burial: &Burial) -> Result<(), TransportError> {
        let (id, now) = (self.db.ambient().uuid(), self.now());
        let envelope = serde_json::to_value(&delivery.message.envelope)
            .map_err(|error| TransportError::Rejected(error.into()))?;
        let done = sqlx::query!(
            "WITH gone AS (
                DELETE FROM bus_deliveries WHERE consumer = $2 AND event_id = $3 AND fence = $4 RETURNING 1
            )
            INSERT INTO dead_letters AS d (id, consumer, stream, event_id, event_type, envelope, error, class,
                attempts, due_at, created_at, updated_at)
            SELECT $1, $2, $5, $3, $6, $7, $8, $9, $10, $11, $12, $12 FROM gone
            ON CONFLICT (consumer, event_id) WHERE state IN ('dead', 'requeued') DO UPDATE
                SET error = excluded.error, attempts = d.attempts + excluded.attempts, updated_at = excluded.updated_at",
            id,
            delivery.consumer,
            delivery.message.envelope.event_id,
            fence(&delivery.receipt),
            delivery.message.stream,
            delivery.message.envelope.event_type,
            envelope,
            burial.error,
            burial.class.name(),
            i32::try_from(delivery.attempts).unwrap_or(i32::MAX),
            burial.retry_at as Option<DateTime<Utc>>,
            now,
        )
        .execute(self.open().await?.conn())
        .await
        .map_err(failed)?;
        lease_still_ours(done.rows_affected())
    }

    /// A message older than its stream keeps is deleted once no living consumer waits for it.
    async fn retain(&self) -> Result<u64, TransportError> {
        let now = self.now();
        let mut tx = self.open().await?;
        let forgotten = sqlx::query_scalar!(
            "DELETE FROM bus_consumers WHERE last_seen_at < $1 RETURNING name",
            now - CONSUMER_FORGOTTEN_AFTER,
        )
        .fetch_all(tx.conn())
        .await
        .map_err(failed)?;
        for consumer in forgotten {
            tracing::warn!(
                consumer,
                "a consumer that nobody runs any more was forgotten, with what waited for it"
            );
        }
        let mut deleted = 0;
        for stream in Stream::ALL {
            let cutoff = now - TimeDelta::days(i64::from(stream.retention_days()));
            let done = sqlx::query!(
                "DELETE FROM bus_messages WHERE event_id IN (
                    SELECT m.event_id FROM bus_messages m
                    WHERE m.stream = $1 AND m.published_at < $2
                        AND NOT EXISTS (SELECT FROM bus_deliveries d WHERE d.event_id = m.event_id)
                    ORDER BY m.published_at LIMIT $3)",
                stream.name(),
                cutoff,
                DELETE_AT_MOST,
            )
            .execute(tx.conn())
            .await
            .map_err(failed)?;
            deleted += done.rows_affected();
        }
        Ok(deleted)
    }
}
