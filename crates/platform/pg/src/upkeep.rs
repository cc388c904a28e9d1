//! What the platform's own tables need now and then.

use chrono::{DateTime, Utc};
use kernel::CorrelationId;

use crate::{Db, Error, Origin, Permit};

const BATCH: i64 = 5_000;

/// Forgets stored responses from before `cutoff`; a key that old may be used anew. Returns how many.
pub async fn idempotency_forget(db: &Db, cutoff: DateTime<Utc>) -> Result<u64, Error> {
    let permit = Permit::system(
        "forget old idempotency records",
        Origin::internal(CorrelationId(db.ambient().uuid())),
    );
    let mut forgotten = 0;
    loop {
        // A connection per batch: nobody waits for the whole clean-up.
        let mut read = db.read(&permit).await?;
        let batch = sqlx::query!(
            "DELETE FROM idempotency_records WHERE (principal_id, endpoint, key) IN
                 (SELECT principal_id, endpoint, key FROM idempotency_records WHERE created_at < $1
                  ORDER BY created_at LIMIT $2)",
            cutoff,
            BATCH,
        )
        .execute(read.conn())
        .await?
        .rows_affected();
        forgotten += batch;
        if batch < BATCH.unsigned_abs() {
            return Ok(forgotten);
        }
    }
}
