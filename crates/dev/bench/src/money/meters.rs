//! Organizations with money, and meters that run: rows, made in sets.

use anyhow::ensure;
use chrono::{DateTime, Utc};
use sqlx::{Executor as _, PgConnection};

use super::bare;

/// Minor units for an hour: a window of a minute is 7.5 of them, so something is always carried.
const PRICE: i64 = 450;
/// What the hold of every tenth meter still has: more than these windows use.
const HOLD: i64 = 1_000_000;

/// Each with a project and a ledger, in which there is more than they use.
pub async fn organizations(db: &mut PgConnection, count: u32, at: DateTime<Utc>) -> anyhow::Result<()> {
    let sql = "SELECT ledger_append(ROW(md5('org' || n)::uuid, 'USD', $2, gen_random_uuid(), 'topup', NULL, 'bench', NULL, 'system',
            NULL, gen_random_uuid())::new_posting, ROW(ARRAY['prepaid', 'held', 'cash_stripe'], ARRAY[$3, $3, -2 * $3],
            a.ids, a.ids, a.ids, a.ids, a.times, a.times)::line_batch)
        FROM generate_series(0, $1 - 1) AS n,
            (SELECT array_fill(NULL::uuid, ARRAY[3]) AS ids, array_fill(NULL::timestamptz, ARRAY[3]) AS times) AS a";
    sqlx::query(sql).bind(i64::from(count)).bind(at).bind(1_000_000_000_000_i64).execute(&mut *db).await?;
    let sql = "WITH orgs AS (
            INSERT INTO organizations (id, kind, slug, name, created_at, updated_at)
            SELECT md5('org' || n)::uuid, 'enterprise', 'bench-' || n, 'Bench', $2, $2 FROM generate_series(0, $1 - 1) AS n
        )
        INSERT INTO projects (id, org_id, slug, name, created_at, updated_at)
        SELECT md5('project' || n)::uuid, md5('org' || n)::uuid, 'bench', 'Bench', $2, $2 FROM generate_series(0, $1 - 1) AS n";
    sqlx::query(sql).bind(i64::from(count)).bind(at).execute(db).await?;
    Ok(())
}

/// Adds meters that were opened at `at` until there are so many; the same ones without us. Their ids go up with time, as
/// ours do, and organizations take turns.
pub async fn grow(db: &mut PgConnection, meters: u32, orgs: u32, at: DateTime<Utc>) -> anyhow::Result<()> {
    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM meters").fetch_one(&mut *db).await?;
    ensure!(there <= i64::from(meters), "meters are measured from few to many");
    for table in ["meters", bare::METERS] {
        let sql = format!(
            "INSERT INTO {table} (id, org_id, project_id, source, allocation_id, sku, unit, units, unit_price_minor, currency, state,
                 hold_minor, hold_remaining, opened_at, accrued_until, running_since, created_at)
             SELECT made.id, md5('org' || n % $3)::uuid, md5('project' || n % $3)::uuid, 'allocation', made.id, 'h200-sxm-slice',
                 'gpu_hour', 1, $5, 'USD', 'open', made.hold, made.hold, $4, $4, $4, $4
             FROM generate_series($1, $2 - 1) AS n, LATERAL (
                 SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || substr(md5('meter' || n), 1, 20))::uuid AS id,
                     CASE WHEN n / $3 % 10 = 0 THEN $6 ELSE 0 END AS hold
             ) AS made"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(there)
            .bind(i64::from(meters))
            .bind(i64::from(orgs))
            .bind(at)
            .bind(PRICE)
            .bind(HOLD)
            .execute(&mut *db)
            .await?;
    }
    settle(db).await?;
    db.execute("ANALYZE").await?;
    Ok(())
}

/// What a measurement left behind is not left to the next.
pub async fn settle(db: &mut PgConnection) -> anyhow::Result<()> {
    db.execute("VACUUM meters, bare.meters, ledger_chains, billing_accounts").await?;
    db.execute("CHECKPOINT").await?;
    Ok(())
}
