//! Payments. What went back and what is disputed is added up from refunds and disputes, never kept.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{OrgId, PaymentId, PostingId, TopupId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::{day::Books, topup::Payment};

struct Row {
    id: Uuid,
    org_id: Uuid,
    topup_id: Uuid,
    provider: String,
    intent: String,
    amount_minor: i64,
    currency: String,
    refunded_minor: i64,
    disputed_minor: i64,
    paid_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Payment {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            topup_id: row.topup_id.into(),
            provider: row.provider,
            intent: row.intent,
            amount_minor: row.amount_minor,
            currency: row.currency,
            refunded_minor: row.refunded_minor,
            disputed_minor: row.disputed_minor,
            paid_at: row.paid_at,
            created_at: row.created_at,
        }
    }
}

pub struct New<'a> {
    pub id: PaymentId,
    pub org: OrgId,
    pub topup: TopupId,
    pub provider: &'a str,
    pub intent: &'a str,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub posting: PostingId,
    pub now: DateTime<Utc>,
}

pub async fn create(conn: &mut Connection, new: New<'_>) -> Result<Payment, sqlx::Error> {
    sqlx::query!(
        "INSERT INTO payments (id, org_id, topup_id, provider, intent, amount_minor, currency, posting_id, paid_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)",
        new.id.uuid(),
        new.org.uuid(),
        new.topup.uuid(),
        new.provider,
        new.intent,
        new.amount_minor,
        new.currency,
        new.posting.uuid(),
        new.now,
    )
    .execute(conn)
    .await?;
    Ok(Payment {
        id: new.id,
        org_id: new.org,
        topup_id: new.topup,
        provider: new.provider.to_owned(),
        intent: new.intent.to_owned(),
        amount_minor: new.amount_minor,
        currency: new.currency.to_owned(),
        refunded_minor: 0,
        disputed_minor: 0,
        paid_at: new.now,
        created_at: new.now,
    })
}

pub async fn get(
    conn: &mut Connection,
    org: Option<OrgId>,
    id: PaymentId,
) -> Result<Option<Payment>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT p.id, p.org_id, p.topup_id, p.provider, p.intent, p.amount_minor, p.currency, p.paid_at, p.created_at,
             (SELECT coalesce(sum(r.amount_minor), 0)::bigint FROM refunds r WHERE r.payment_id = p.id AND r.state <> 'failed')
                 AS "refunded_minor!",
             (SELECT coalesce(sum(d.amount_minor), 0)::bigint FROM disputes d WHERE d.payment_id = p.id AND d.state <> 'won')
                 AS "disputed_minor!"
           FROM payments p WHERE p.id = $1 AND ($2::uuid IS NULL OR p.org_id = $2)"#,
        id.uuid(),
        org.map(OrgId::uuid),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Payment::from))
}

pub async fn id_of(conn: &mut Connection, intent: &str) -> Result<Option<PaymentId>, sqlx::Error> {
    let id =
        sqlx::query_scalar!("SELECT id FROM payments WHERE intent = $1", intent).fetch_optional(conn).await?;
    Ok(id.map(PaymentId::from))
}

/// With which provider a payment was made.
pub async fn provider_of(conn: &mut Connection, id: PaymentId) -> Result<String, sqlx::Error> {
    sqlx::query_scalar!("SELECT provider FROM payments WHERE id = $1", id.uuid()).fetch_one(conn).await
}

/// Held until the transaction ends: refunds and disputes of one payment are serial from here. The sums are read after
/// the lock was had, so that they hold what the one before did.
pub async fn lock(conn: &mut Connection, id: PaymentId) -> Result<Option<Payment>, sqlx::Error> {
    let found = sqlx::query_scalar!("SELECT id FROM payments WHERE id = $1 FOR NO KEY UPDATE", id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    if found.is_none() {
        return Ok(None);
    }
    get(conn, None, id).await
}

pub async fn list(
    conn: &mut Connection,
    org: Option<OrgId>,
    page: &PageQuery,
) -> Result<Vec<Payment>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT p.id, p.org_id, p.topup_id, p.provider, p.intent, p.amount_minor, p.currency, p.paid_at, p.created_at,
             (SELECT coalesce(sum(r.amount_minor), 0)::bigint FROM refunds r WHERE r.payment_id = p.id AND r.state <> 'failed')
                 AS "refunded_minor!",
             (SELECT coalesce(sum(d.amount_minor), 0)::bigint FROM disputes d WHERE d.payment_id = p.id AND d.state <> 'won')
                 AS "disputed_minor!"
           FROM payments p WHERE ($1::uuid IS NULL OR p.org_id = $1) AND p.id < $2 ORDER BY p.id DESC LIMIT $3"#,
        org.map(OrgId::uuid),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Payment::from).collect())
}

/// What arrived in a time, and whatever else of these is known.
pub async fn books(
    conn: &mut Connection,
    provider: &str,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    intents: &[String],
) -> Result<(Books, Books), sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT intent, amount_minor, currency, paid_at >= $2 AND paid_at < $3 AS "within!" FROM payments
           WHERE provider = $1 AND paid_at >= $2 AND paid_at < $3
           UNION
           SELECT intent, amount_minor, currency, paid_at >= $2 AND paid_at < $3 FROM payments WHERE intent = ANY ($4)"#,
        provider,
        from,
        until,
        intents,
    )
    .fetch_all(conn)
    .await?;
    let (mut within, mut around) = (Books::new(), Books::new());
    for row in rows.into_iter() {
        let (Some(intent), Some(amount), Some(currency)) = (row.intent, row.amount_minor, row.currency)
        else {
            continue;
        };
        if row.within {
            within.insert(intent.clone(), (amount, currency.clone()));
        }
        around.insert(intent, (amount, currency));
    }
    Ok((within, around))
}
