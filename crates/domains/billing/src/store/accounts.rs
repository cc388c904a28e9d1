//! How organizations stand. Whoever writes here holds the chains of these organizations.

use chrono::{DateTime, Utc};
use kernel::ids::OrgId;
use lifecycle::Named as _;
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::{account::Balances, balance::BalanceState, rating::PARTS};

/// What the state of an organization is decided from.
pub struct Account {
    pub org: OrgId,
    pub currency: String,
    /// Nothing when it was never decided.
    pub state: Option<BalanceState>,
    pub version: i64,
    pub state_changed_at: Option<DateTime<Utc>>,
    pub depletes_at: Option<DateTime<Utc>>,
    pub balances: Balances,
    pub burn_per_hour: i64,
    /// Used and not posted, in 3600ths of a minor unit.
    pub unposted_parts: i64,
}

/// What the time is for the ledger.
pub async fn database_clock(
    conn: &mut Connection,
    claimed: DateTime<Utc>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT ledger_clock($1) AS "at!""#, claimed).fetch_one(conn).await
}

/// Of those organizations that have a posting. Read are the last posting, as by [`super::ledger::balances`], and the meters
/// that run or are not posted to their end; nothing older. What a bigint cannot hold counts as the largest: one meter that
/// was long not accrued must not fail the evaluation of others.
pub async fn accounts(
    conn: &mut Connection,
    orgs: &[Uuid],
    now: DateTime<Utc>,
) -> Result<Vec<Account>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.org_id AS "org_id!", c.currency AS "currency!", a.state AS "state?: BalanceState", a.version AS "version?",
             a.state_changed_at AS "state_changed_at?", a.projected_depletion_at AS "projected_depletion_at?",
             p.prepaid_after AS "prepaid!", p.held_after AS "held!", p.promo_after AS "promo!",
             p.disputed_after AS "disputed!", b.burn AS "burn!",
             b.unposted AS "unposted!", b.carry AS "carry!"
           FROM unnest($1::uuid[]) AS o (org_id)
           JOIN ledger_chains c ON c.org_id = o.org_id
           JOIN LATERAL (
               SELECT l.seq, l.prepaid_after, l.held_after, l.promo_after, l.disputed_after
               FROM ledger_postings l WHERE l.org_id = c.org_id AND l.seq >= c.seq AND l.posted_at = c.posted_at
               ORDER BY l.seq LIMIT 1
           ) AS p ON p.seq = c.seq
           LEFT JOIN billing_accounts a ON a.org_id = c.org_id
           CROSS JOIN LATERAL (
               SELECT least(coalesce(sum(hour.amount) FILTER (WHERE m.state = 'open'), 0), $3::bigint)::bigint AS burn,
                 least(coalesce(sum(used.amount), 0), $3::bigint)::bigint AS unposted, coalesce(sum(used.carry), 0)::bigint AS carry
               FROM meters m, usage_cost(0, m.unit_price_minor, m.units, 3600) AS hour,
                 usage_cost(m.carry, m.unit_price_minor, m.units, least(
                     greatest(floor(extract(epoch FROM least($2, m.closed_at) - m.accrued_until)), 0)::bigint,
                     ($3::bigint - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1))) AS used
               WHERE m.org_id = c.org_id AND m.state IN ('open', 'closed')
           ) AS b"#,
        orgs,
        now,
        i64::MAX,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Account {
            org: OrgId::from(row.org_id),
            currency: row.currency,
            state: row.state,
            version: row.version.unwrap_or(0),
            state_changed_at: row.state_changed_at,
            depletes_at: row.projected_depletion_at,
            balances: Balances {
                prepaid_minor: row.prepaid,
                held_minor: row.held,
                promo_minor: row.promo,
                disputed_minor: row.disputed,
            },
            burn_per_hour: row.burn,
            unposted_parts: row.unposted.saturating_mul(PARTS).saturating_add(row.carry),
        })
        .collect())
}

/// How an account is from now on.
pub struct Change {
    pub org: OrgId,
    pub state: BalanceState,
    pub depletes_at: Option<DateTime<Utc>>,
    /// The version that was decided on; 0 when there was none.
    pub version: i64,
}

/// False when one of them is not what it was when it was decided on.
pub async fn change(tx: &mut WriteTx, changes: &[Change], now: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    let changed = sqlx::query!(
        "INSERT INTO billing_accounts AS a (org_id, state, state_changed_at, projected_depletion_at, version)
         SELECT org_id, state, $5, depletes_at, version + 1
         FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bigint[]) AS c (org_id, state, depletes_at, version)
         ON CONFLICT (org_id) DO UPDATE SET state = excluded.state, projected_depletion_at = excluded.projected_depletion_at,
             version = excluded.version,
             state_changed_at = CASE WHEN a.state = excluded.state THEN a.state_changed_at ELSE excluded.state_changed_at END
         WHERE a.version = excluded.version - 1",
        &changes.iter().map(|c| c.org.uuid()).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.state.name().to_owned()).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.depletes_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
        &changes.iter().map(|c| c.version).collect::<Vec<_>>(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(usize::try_from(changed.rows_affected()).is_ok_and(|count| count == changes.len()))
}

/// Organizations whose balance should have ended by now, those that waited longest first.
pub async fn ending(conn: &mut Connection, now: DateTime<Utc>, limit: i64) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT org_id FROM billing_accounts WHERE state = 'auto_release_pending' AND projected_depletion_at <= $1
         ORDER BY projected_depletion_at LIMIT $2",
        now,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// When the next balance ends.
pub async fn next_end(conn: &mut Connection) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT min(projected_depletion_at) FROM billing_accounts WHERE state = 'auto_release_pending'"
    )
    .fetch_one(conn)
    .await
}

/// Wakes the worker: something will end before it looks again by itself.
pub async fn wake_worker(tx: &mut WriteTx) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_notify('gpuaas_billing', '')").execute(tx.conn()).await?;
    Ok(())
}
