//! The same rows without us: no postings, no hashes, no checks, no triggers.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, Executor as _, PgConnection};

pub const METERS: &str = "bare.meters";

const TABLES: &str = "CREATE SCHEMA bare;
    CREATE TABLE bare.meters (LIKE meters INCLUDING DEFAULTS INCLUDING INDEXES) WITH (fillfactor = 70);
    CREATE TABLE bare.usage_records (LIKE usage_records INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY RANGE (window_start);
    CREATE TABLE bare.usage_records_all PARTITION OF bare.usage_records DEFAULT;
    CREATE TABLE bare.ledger_lines (LIKE ledger_lines INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY RANGE (posted_at);
    CREATE TABLE bare.ledger_lines_all PARTITION OF bare.ledger_lines DEFAULT";

/// What became due of each meter; `$1` is where the window ends.
const USED: &str = "SELECT m.*, t.total / 3600 AS amount, (t.total % 3600)::integer AS left_over
    FROM bare.meters m, LATERAL (
        SELECT m.carry + m.unit_price_minor * m.units * extract(epoch FROM $1 - m.accrued_until)::bigint AS total
    ) AS t
    WHERE m.state IN ('open', 'closed') AND m.accrued_until < $1";

pub async fn tables(db: &mut PgConnection) -> anyhow::Result<()> {
    db.execute(TABLES).await?;
    Ok(())
}

/// One window of every meter, as the posting of this number would have it.
pub async fn accrue(
    db: &mut PgConnection,
    target: DateTime<Utc>,
    now: DateTime<Utc>,
    seq: i64,
) -> anyhow::Result<()> {
    let usage = format!(
        "INSERT INTO bare.usage_records
         SELECT org_id, id, accrued_until, $1, 'usage', amount, left_over, $3, $2, turn FROM ({USED}) AS u"
    );
    let lines = format!(
        "INSERT INTO bare.ledger_lines
         SELECT org_id, $3, row_number() OVER (PARTITION BY org_id), $2, account, amount, project_id, allocation_id, NULL, id, start,
             finish, $4, $5
         FROM (
             SELECT org_id, CASE WHEN hold_remaining >= amount THEN 'held' ELSE 'prepaid' END AS account, -amount AS amount,
                 project_id, allocation_id, id, accrued_until AS start, $1 AS finish
             FROM ({USED}) AS u
             UNION ALL
             SELECT org_id, 'revenue', sum(amount), NULL, NULL, NULL, NULL, NULL FROM ({USED}) AS u GROUP BY org_id
         ) AS l"
    );
    let moved = format!(
        "UPDATE bare.meters m SET accrued_until = $1, carry = u.left_over, posted_minor = m.posted_minor + u.amount,
             hold_remaining = m.hold_remaining - CASE WHEN m.hold_remaining >= u.amount THEN u.amount ELSE 0 END
         FROM ({USED}) AS u WHERE m.id = u.id"
    );
    let correlation = uuid::Uuid::from_u128(seq.unsigned_abs().into());
    let mut tx = db.begin().await?;
    sqlx::query(sqlx::AssertSqlSafe(usage)).bind(target).bind(now).bind(seq).execute(&mut *tx).await?;
    sqlx::query(sqlx::AssertSqlSafe(lines))
        .bind(target)
        .bind(now)
        .bind(seq)
        .bind(correlation)
        .bind(vec![0x5a_u8; 32])
        .execute(&mut *tx)
        .await?;
    sqlx::query(sqlx::AssertSqlSafe(moved)).bind(target).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// What all meters have come to, ours and these: charged, carried, left of holds, and rows.
pub async fn sums(db: &mut PgConnection) -> anyhow::Result<[String; 2]> {
    let mut both = [String::new(), String::new()];
    for (sum, schema) in both.iter_mut().zip(["public", "bare"]) {
        let sql = format!(
            "SELECT (SELECT concat_ws(' ', sum(posted_minor), sum(carry), sum(hold_remaining), max(accrued_until)) FROM {schema}.meters)
                 || ', ' || (SELECT concat_ws(' ', count(*), sum(amount_minor)) FROM {schema}.usage_records)
                 -- What was paid in is the first posting.
                 || ', ' || (SELECT concat_ws(' ', count(*), sum(amount_minor)) FROM {schema}.ledger_lines WHERE seq > 1)"
        );
        *sum = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut *db).await?;
    }
    Ok(both)
}
