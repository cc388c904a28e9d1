//! Adjustments.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{AdjustmentId, OrgId, PostingId, UserId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::adjustment::{Adjustment, AdjustmentKind, AdjustmentState, Unapproved};
use lifecycle::Named as _;

struct Row {
    id: Uuid,
    org_id: Uuid,
    kind: AdjustmentKind,
    amount_minor: i64,
    currency: String,
    corrects_entry_id: Option<Uuid>,
    reason: String,
    state: AdjustmentState,
    proposed_by: Option<Uuid>,
    decided_by: Option<Uuid>,
    seq: Option<i64>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Adjustment {
    fn from(row: Row) -> Self {
        Self {
            id: AdjustmentId::from(row.id),
            org_id: OrgId::from(row.org_id),
            kind: row.kind,
            amount_minor: row.amount_minor,
            currency: row.currency,
            corrects_entry_id: row.corrects_entry_id.map(PostingId::from),
            reason: row.reason,
            state: row.state,
            proposed_by: row.proposed_by.map(UserId::from),
            fault: None,
            decided_by: row.decided_by.map(UserId::from),
            seq: row.seq,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn insert(conn: &mut Connection, new: &Adjustment) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO ledger_adjustments (id, org_id, kind, amount_minor, currency, corrects_entry_id, reason, state,
             proposed_by, decided_by, seq, version, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        new.id.uuid(),
        new.org_id.uuid(),
        new.kind.name(),
        new.amount_minor,
        new.currency,
        new.corrects_entry_id.map(PostingId::uuid),
        new.reason,
        new.state.name(),
        new.proposed_by.map(UserId::uuid),
        new.decided_by.map(UserId::uuid),
        new.seq,
        new.version,
        new.created_at,
        new.updated_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn get(conn: &mut Connection, id: AdjustmentId) -> Result<Option<Adjustment>, sqlx::Error> {
    let row = sqlx::query_as!(Row, r#"SELECT id, org_id, kind AS "kind: AdjustmentKind", amount_minor, currency, corrects_entry_id, reason,
                 state AS "state: AdjustmentState", proposed_by, decided_by, seq, version,
             created_at, updated_at FROM ledger_adjustments WHERE id = $1"#, id.uuid())
        .fetch_optional(conn)
        .await?;
    Ok(row.map(Adjustment::from))
}

/// The row, held until the transaction ends: two who decide at once do so one after the other.
pub async fn get_for_update(
    conn: &mut Connection,
    id: AdjustmentId,
) -> Result<Option<Adjustment>, sqlx::Error> {
    let row = sqlx::query_as!(Row, r#"SELECT id, org_id, kind AS "kind: AdjustmentKind", amount_minor, currency, corrects_entry_id, reason,
                 state AS "state: AdjustmentState", proposed_by, decided_by, seq, version,
             created_at, updated_at FROM ledger_adjustments WHERE id = $1 FOR UPDATE"#, id.uuid())
        .fetch_optional(conn)
        .await?;
    Ok(row.map(Adjustment::from))
}

pub async fn decide(conn: &mut Connection, decided: &Adjustment) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE ledger_adjustments SET state = $2, decided_by = $3, seq = $4, version = $5, updated_at = $6 WHERE id = $1",
        decided.id.uuid(),
        decided.state.name(),
        decided.decided_by.map(UserId::uuid),
        decided.seq,
        decided.version,
        decided.updated_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn list(
    conn: &mut Connection,
    org: Option<OrgId>,
    state: Option<AdjustmentState>,
    page: &PageQuery,
) -> Result<Vec<Adjustment>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, kind AS "kind: AdjustmentKind", amount_minor, currency, corrects_entry_id, reason,
                 state AS "state: AdjustmentState", proposed_by, decided_by, seq, version,
             created_at, updated_at
         FROM ledger_adjustments
         WHERE id < $1 AND ($3::uuid IS NULL OR org_id = $3) AND ($4::text IS NULL OR state = $4)
         ORDER BY id DESC LIMIT $2"#,
        page.before(),
        page.limit(),
        org.map(OrgId::uuid),
        state.map(AdjustmentState::name),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Adjustment::from).collect())
}

/// Nobody else adds up what was posted without a second person before the transaction ends.
pub async fn lock_sums(conn: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query!(r#"SELECT pg_advisory_xact_lock(hashtext('ledger_adjustments')) AS "locked: ()""#)
        .execute(conn)
        .await?;
    Ok(())
}

/// What was posted since then without a second person. The ids of adjustments are in the order of time, so that nothing
/// older than `since` is read.
pub async fn unapproved(
    conn: &mut Connection,
    org: OrgId,
    clerk: UserId,
    since: DateTime<Utc>,
) -> Result<Unapproved, sqlx::Error> {
    let millis = u64::try_from(since.timestamp_millis()).unwrap_or(0);
    let first = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid();
    sqlx::query_as!(
        Unapproved,
        r#"SELECT coalesce(sum(abs(amount_minor::numeric)) FILTER (WHERE org_id = $1), 0)::bigint AS "of_org_minor!",
               coalesce(sum(abs(amount_minor::numeric)) FILTER (WHERE proposed_by = $2), 0)::bigint AS "by_clerk_minor!"
           FROM ledger_adjustments
           WHERE state = 'posted' AND id >= $3 AND created_at > $4 AND decided_by = proposed_by
               AND (org_id = $1 OR proposed_by = $2)"#,
        org.uuid(),
        clerk.uuid(),
        first,
        since,
    )
    .fetch_one(conn)
    .await
}

/// How many wait for a second person, and for how many seconds the oldest has.
pub async fn waiting(conn: &mut Connection, now: DateTime<Utc>) -> Result<(i64, f64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "count!", coalesce(extract(epoch FROM $1 - min(created_at)), 0)::float8 AS "oldest!"
           FROM ledger_adjustments WHERE state = 'proposed'"#,
        now
    )
    .fetch_one(conn)
    .await?;
    Ok((row.count, row.oldest))
}

/// Whether the ledger of the organization has such a posting.
pub async fn posting_exists(
    conn: &mut Connection,
    org: OrgId,
    posting: PostingId,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM ledger_postings WHERE org_id = $1 AND id = $2) AS "exists!""#,
        org.uuid(),
        posting.uuid(),
    )
    .fetch_one(conn)
    .await
}
