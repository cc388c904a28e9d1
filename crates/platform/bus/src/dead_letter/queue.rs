//! Dead letters as runners and upkeep see them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kernel::{event::Envelope, ids::DeadLetterId};
use pg::{Db, WriteTx};

use super::Class;
use crate::{UPKEEP, postgres::after};

/// A requeued letter on lease to a runner.
#[derive(Clone, Debug)]
pub(crate) struct LeasedLetter {
    pub id: DeadLetterId,
    pub stream: String,
    pub envelope: Envelope,
    pub slow_retries: u32,
    /// Attempts begun since it was requeued, with this one.
    pub tries: u32,
    fence: i64,
}

/// Leases letters that are due: requeued by a person, or transient ones whose time has come.
pub(crate) async fn letters_lease(
    db: &Db,
    consumer: &str,
    max: usize,
    lease: Duration,
) -> Result<Vec<LeasedLetter>, pg::Error> {
    let now = db.ambient().now();
    let mut tx = db.upkeep(UPKEEP).await?;
    let rows = sqlx::query!(
        "WITH due AS (
            SELECT id, (state = 'dead')::integer AS by_itself FROM dead_letters
            WHERE consumer = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3
            FOR UPDATE SKIP LOCKED
        )
        UPDATE dead_letters d SET state = 'requeued', due_at = $4, fence = d.fence + 1, attempts = d.attempts + 1,
            tries = CASE by_itself WHEN 1 THEN 1 ELSE d.tries + 1 END,
            slow_retries = d.slow_retries + by_itself, version = d.version + by_itself,
            updated_at = CASE by_itself WHEN 1 THEN $2 ELSE d.updated_at END
        FROM due WHERE d.id = due.id
        RETURNING d.id, d.stream, d.envelope, d.slow_retries, d.tries, d.fence",
        consumer,
        now,
        i64::try_from(max).unwrap_or(i64::MAX),
        after(now, lease),
    )
    .fetch_all(tx.conn())
    .await?;
    let mut leased = Vec::with_capacity(rows.len());
    for row in rows {
        match serde_json::from_value(row.envelope) {
            Ok(envelope) => leased.push(LeasedLetter {
                id: row.id.into(),
                stream: row.stream,
                envelope,
                slow_retries: u32::try_from(row.slow_retries).unwrap_or(u32::MAX),
                tries: u32::try_from(row.tries).unwrap_or(u32::MAX),
                fence: row.fence,
            }),
            // Only this crate writes envelopes; the letter stays listed for a person to discard.
            Err(error) => {
                tracing::error!(error = %error, dead_letter_id = %DeadLetterId::from(row.id), "a dead letter cannot be read")
            }
        }
    }
    Ok(leased)
}

/// In the transaction of the effect. False when the letter is no longer this runner's, or was discarded:
/// then there must be no effect.
pub(crate) async fn resolve(tx: &mut WriteTx, letter: &LeasedLetter) -> Result<bool, sqlx::Error> {
    let now = tx.db().ambient().now();
    let done = sqlx::query!(
        "UPDATE dead_letters SET state = 'resolved', due_at = NULL, version = version + 1, updated_at = $3
         WHERE id = $1 AND fence = $2 AND state = 'requeued'",
        letter.id.uuid(),
        letter.fence,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The attempt failed: dead again, with the new cause.
pub(crate) async fn fail(
    db: &Db,
    letter: &LeasedLetter,
    error: &str,
    class: Class,
    retry_at: Option<DateTime<Utc>>,
) -> Result<(), pg::Error> {
    let now = db.ambient().now();
    let mut tx = db.upkeep(UPKEEP).await?;
    sqlx::query!(
        "UPDATE dead_letters SET state = 'dead', error = $3, class = $4, due_at = $5, version = version + 1,
            updated_at = $6
         WHERE id = $1 AND fence = $2 AND state = 'requeued'",
        letter.id.uuid(),
        letter.fence,
        error,
        class.name(),
        retry_at as Option<DateTime<Utc>>,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Releases the lease of an interrupted attempt: another runner can lease the letter immediately. The attempt counts.
pub(crate) async fn lease_release(db: &Db, letter: &LeasedLetter) -> Result<(), pg::Error> {
    let now = db.ambient().now();
    let mut tx = db.upkeep(UPKEEP).await?;
    sqlx::query!(
        "UPDATE dead_letters SET due_at = $3 WHERE id = $1 AND fence = $2 AND state = 'requeued'",
        letter.id.uuid(),
        letter.fence,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Dead letters that wait, by consumer; a consumer whose letters were all dealt with shows as none.
pub(crate) async fn counts(db: &Db) -> Result<Vec<(String, i64)>, pg::Error> {
    let mut tx = db.upkeep(UPKEEP).await?;
    let rows = sqlx::query!(
        r#"SELECT consumer, count(*) FILTER (WHERE state = 'dead') AS "dead!" FROM dead_letters GROUP BY consumer"#
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.consumer, row.dead)).collect())
}

/// Deletes closed letters that were closed before `before`.
pub(crate) async fn clean(db: &Db, before: DateTime<Utc>, at_most: i64) -> Result<u64, pg::Error> {
    let mut tx = db.upkeep(UPKEEP).await?;
    let done = sqlx::query!(
        "DELETE FROM dead_letters WHERE id IN (
            SELECT id FROM dead_letters WHERE state IN ('discarded', 'resolved') AND updated_at < $1
            ORDER BY updated_at LIMIT $2)",
        before,
        at_most,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
