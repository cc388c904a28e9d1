//! Disputes. A state changes in [`close`] and nowhere else.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{DisputeId, OrgId, PaymentId, PostingId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::dispute::{Dispute, DisputeState};

struct Row {
    id: Uuid,
    org_id: Uuid,
    payment_id: Uuid,
    provider_dispute: String,
    amount_minor: i64,
    currency: String,
    reason: String,
    state: DisputeState,
    posting_id: Uuid,
    closed_at: Option<DateTime<Utc>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Dispute {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            payment_id: row.payment_id.into(),
            provider_dispute: row.provider_dispute,
            amount_minor: row.amount_minor,
            currency: row.currency,
            reason: row.reason,
            state: row.state,
            posting_id: row.posting_id.into(),
            closed_at: row.closed_at,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub struct New<'a> {
    pub id: DisputeId,
    pub org: OrgId,
    pub payment: PaymentId,
    pub provider_dispute: &'a str,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub reason: &'a str,
    pub posting: PostingId,
    pub now: DateTime<Utc>,
}

pub async fn create(conn: &mut Connection, new: New<'_>) -> Result<Dispute, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO disputes (id, org_id, payment_id, provider_dispute, amount_minor, currency, reason, state, posting_id,
             created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9, $9)
         RETURNING id, org_id, payment_id, provider_dispute, amount_minor, currency, reason,
             state AS "state: DisputeState", posting_id, closed_at, version,
             created_at, updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.payment.uuid(),
        new.provider_dispute,
        new.amount_minor,
        new.currency,
        new.reason,
        new.posting.uuid(),
        new.now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub async fn get(
    conn: &mut Connection,
    org: Option<OrgId>,
    id: DisputeId,
) -> Result<Option<Dispute>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, provider_dispute, amount_minor, currency, reason, state AS "state: DisputeState",
                 posting_id, closed_at, version,
             created_at, updated_at
         FROM disputes WHERE id = $1 AND ($2::uuid IS NULL OR org_id = $2)"#,
        id.uuid(),
        org.map(OrgId::uuid)
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Dispute::from))
}

pub async fn lock(conn: &mut Connection, provider_dispute: &str) -> Result<Option<Dispute>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, provider_dispute, amount_minor, currency, reason, state AS "state: DisputeState",
                 posting_id, closed_at, version,
             created_at, updated_at
         FROM disputes WHERE provider_dispute = $1 FOR NO KEY UPDATE"#,
        provider_dispute
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Dispute::from))
}

pub async fn list(
    conn: &mut Connection,
    org: Option<OrgId>,
    page: &PageQuery,
) -> Result<Vec<Dispute>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, provider_dispute, amount_minor, currency, reason, state AS "state: DisputeState",
                 posting_id, closed_at, version,
             created_at, updated_at
         FROM disputes WHERE ($1::uuid IS NULL OR org_id = $1) AND id < $2 ORDER BY id DESC LIMIT $3"#,
        org.map(OrgId::uuid),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Dispute::from).collect())
}

pub async fn close(
    conn: &mut Connection,
    id: DisputeId,
    to: DisputeState,
    now: DateTime<Utc>,
) -> Result<Dispute, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE disputes SET state = $2, closed_at = $3, version = version + 1, updated_at = $3 WHERE id = $1
         RETURNING id, org_id, payment_id, provider_dispute, amount_minor, currency, reason,
             state AS "state: DisputeState", posting_id, closed_at, version,
             created_at, updated_at"#,
        id.uuid(),
        to.name(),
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}
