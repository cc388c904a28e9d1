//! What the platform's own tables need now and then.

use crate::{Db, Error, IdempotentRequest, StoredResponse};
use chrono::{DateTime, Utc};

const BATCH: i64 = 5_000;

/// Forgets stored responses from before `cutoff`; a key that old may be used anew. Returns how many.
pub async fn idempotency_forget(db: &Db, cutoff: DateTime<Utc>) -> Result<u64, Error> {
    let mut forgotten = 0;
    loop {
        // A connection per batch: nobody waits for the whole clean-up.
        let mut upkeep = db.upkeep("forget old idempotency records").await?;
        let batch = sqlx::query!(
            "DELETE FROM idempotency_records WHERE (principal_id, endpoint, key) IN
                 (SELECT principal_id, endpoint, key FROM idempotency_records WHERE created_at < $1
                  ORDER BY created_at LIMIT $2)",
            cutoff,
            BATCH,
        )
        .execute(upkeep.conn())
        .await?
        .rows_affected();
        forgotten += batch;
        if batch < BATCH.unsigned_abs() {
            return Ok(forgotten);
        }
    }
}

/// What was stored under a key for this very request, without reserving the key. A repeated request finds its answer
/// here when its first effect took away what it acted on.
pub async fn idempotency_find(db: &Db, request: &IdempotentRequest) -> Result<Option<StoredResponse>, Error> {
    let mut upkeep = db.upkeep("find the answer to a repeated request").await?;
    let row = sqlx::query!(
        "SELECT status, body FROM idempotency_records
         WHERE principal_id = $1 AND endpoint = $2 AND key = $3 AND request_hash = $4",
        request.principal_id,
        request.endpoint,
        request.key,
        &request.request_hash[..],
    )
    .fetch_optional(upkeep.conn())
    .await?;
    Ok(row.and_then(|row| Some(StoredResponse { status: u16::try_from(row.status?).ok()?, body: row.body? })))
}
