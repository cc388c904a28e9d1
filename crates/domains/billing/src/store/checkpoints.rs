//! Signed heads of chains.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::{hex::Hex, ids::OrgId, ledger::Checkpoint};
use pg::{Connection, WriteTx};
use uuid::Uuid;

/// A chain that moved since it was signed.
pub struct Due {
    pub org: OrgId,
    pub prev_seq: i64,
    pub seq: i64,
    pub hash: Hex,
    /// The last posting has this hash, and the one that was signed last still has the hash that was signed.
    pub sound: bool,
}

/// The next chains after `after` that moved since they were signed and were not signed on `day` or later.
pub async fn due(
    conn: &mut Connection,
    day: NaiveDate,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Due>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.org_id, c.seq, c.hash, c.checkpoint_seq,
               EXISTS (SELECT FROM ledger_postings p WHERE p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
                   AND p.hash = c.hash)
               AND (c.checkpoint_seq = 0 OR EXISTS (SELECT FROM ledger_checkpoints k
                   JOIN ledger_postings p ON p.org_id = k.org_id AND p.seq = k.seq AND p.hash = k.hash
                   WHERE k.org_id = c.org_id AND k.seq = c.checkpoint_seq)) AS "sound!"
           FROM ledger_chains c
           WHERE c.org_id > $2 AND c.seq > c.checkpoint_seq
               AND NOT EXISTS (SELECT FROM ledger_checkpoints k WHERE k.org_id = c.org_id AND k.day >= $1)
           ORDER BY c.org_id LIMIT $3"#,
        day,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let due = rows.into_iter().map(|row| Due {
        org: row.org_id.into(),
        prev_seq: row.checkpoint_seq,
        seq: row.seq,
        hash: Hex(row.hash),
        sound: row.sound,
    });
    Ok(due.collect())
}

/// Keeps what was signed with one key; answers how many.
pub async fn add(
    tx: &mut WriteTx,
    day: NaiveDate,
    signed_at: DateTime<Utc>,
    key: (&str, &[u8]),
    signed: &[Checkpoint],
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT ledger_checkpoints_add($1, $2, $3, $4, ROW($5, $6, $7, $8, $9)::checkpoint_batch) AS "added!""#,
        day,
        signed_at,
        key.0,
        key.1,
        &signed.iter().map(|checkpoint| checkpoint.org_id.uuid()).collect::<Vec<_>>(),
        &signed.iter().map(|checkpoint| checkpoint.prev_seq).collect::<Vec<_>>(),
        &signed.iter().map(|checkpoint| checkpoint.seq).collect::<Vec<_>>(),
        &signed.iter().map(|checkpoint| checkpoint.hash.0.clone()).collect::<Vec<_>>(),
        &signed.iter().map(|checkpoint| checkpoint.signature.0.clone()).collect::<Vec<_>>(),
    )
    .fetch_one(tx.conn())
    .await
}
