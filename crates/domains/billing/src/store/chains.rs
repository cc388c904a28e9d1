//! Ledger chains as they are exported and checked: everything that is there, whether it belongs there or not.

use chrono::{DateTime, Utc};
use kernel::{
    hex::Hex,
    ids::OrgId,
    ledger::{Checkpoint, Head, Line, Posting},
    principal::{PrincipalId, PrincipalKind},
};
use pg::Connection;
use uuid::Uuid;

pub(super) struct PostingRow {
    pub org_id: Uuid,
    pub seq: i64,
    pub posted_at: DateTime<Utc>,
    pub id: Uuid,
    pub kind: String,
    pub currency: String,
    pub reference: Option<String>,
    pub reason: String,
    pub corrects_entry_id: Option<Uuid>,
    pub actor_kind: String,
    pub actor_id: Option<Uuid>,
    pub correlation_id: Uuid,
    pub lines: i32,
    pub lines_digest: Vec<u8>,
    pub prepaid_after: i64,
    pub held_after: i64,
    pub promo_after: i64,
    pub disputed_after: i64,
    pub prev_hash: Vec<u8>,
    pub hash: Vec<u8>,
    /// What it was made for is kept, so that it is not posted again.
    pub kept: bool,
}

impl From<PostingRow> for Posting {
    fn from(row: PostingRow) -> Self {
        let principal = |id: Uuid| match row.actor_kind.parse() {
            Ok(PrincipalKind::ServiceAccount) => PrincipalId::ServiceAccount(id.into()),
            Ok(PrincipalKind::User) | Err(_) => PrincipalId::User(id.into()),
        };
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            seq: row.seq,
            posted_at: row.posted_at,
            kind: row.kind,
            currency: row.currency,
            reference: row.reference,
            reason: row.reason,
            corrects_entry_id: row.corrects_entry_id.map(Into::into),
            actor_id: row.actor_id.map(principal),
            actor_kind: row.actor_kind,
            correlation_id: row.correlation_id,
            lines: row.lines,
            lines_digest: Hex(row.lines_digest),
            prepaid_after_minor: row.prepaid_after,
            held_after_minor: row.held_after,
            promo_after_minor: row.promo_after,
            disputed_after_minor: row.disputed_after,
            prev_hash: Hex(row.prev_hash),
            hash: Hex(row.hash),
        }
    }
}

struct LineRow {
    seq: i64,
    line: i32,
    posted_at: DateTime<Utc>,
    account: String,
    amount_minor: i64,
    project_id: Option<Uuid>,
    allocation_id: Option<Uuid>,
    app_instance_id: Option<Uuid>,
    meter_id: Option<Uuid>,
    window_start: Option<DateTime<Utc>>,
    window_end: Option<DateTime<Utc>>,
    correlation_id: Uuid,
    leaf: Vec<u8>,
}

impl From<LineRow> for Line {
    fn from(row: LineRow) -> Self {
        Self {
            seq: row.seq,
            line: row.line,
            posted_at: row.posted_at,
            account: row.account,
            amount_minor: row.amount_minor,
            project_id: row.project_id.map(Into::into),
            allocation_id: row.allocation_id.map(Into::into),
            app_instance_id: row.app_instance_id,
            meter_id: row.meter_id.map(Into::into),
            window_start: row.window_start,
            window_end: row.window_end,
            correlation_id: row.correlation_id,
            leaf: Hex(row.leaf),
        }
    }
}

/// The head of a chain, and how far its rows go by themselves, at one moment.
pub struct Ends {
    pub head: Option<Head>,
    /// The last posting, or line without one.
    pub seq: i64,
    /// The last posting that was signed.
    pub checkpoint_seq: i64,
    /// The last posting is in the month where the head says: balances are read from there.
    pub placed: bool,
}

pub async fn ends(conn: &mut Connection, org: OrgId) -> Result<Ends, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT c.currency AS "currency?", c.seq AS "seq?", c.hash AS "hash?", c.checkpoint_seq AS "checkpoint_seq?",
               greatest((SELECT seq FROM ledger_postings WHERE org_id = $1 ORDER BY seq DESC LIMIT 1),
                   (SELECT seq FROM ledger_lines WHERE org_id = $1 ORDER BY seq DESC LIMIT 1)) AS "last?",
               (SELECT max(seq) FROM ledger_checkpoints WHERE org_id = $1) AS "signed?",
               coalesce(c.seq, 0) = 0 OR EXISTS (SELECT FROM ledger_postings p
                   WHERE p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at) AS "placed!"
           FROM (SELECT) AS always LEFT JOIN ledger_chains c ON c.org_id = $1"#,
        org.uuid(),
    )
    .fetch_one(conn)
    .await?;
    let head = match (row.currency, row.seq, row.hash, row.checkpoint_seq) {
        (Some(currency), Some(seq), Some(hash), Some(checkpoint_seq)) => {
            Some(Head { org_id: org, currency, seq, hash: Hex(hash), checkpoint_seq })
        }
        _ => None,
    };
    let (seq, checkpoint_seq) = (row.last.unwrap_or(0), row.signed.unwrap_or(0));
    Ok(Ends { head, seq, checkpoint_seq, placed: row.placed })
}

/// The next postings in order, up to `last`; and whether each that was made for something is kept as such.
pub async fn postings(
    conn: &mut Connection,
    org: OrgId,
    after: (i64, DateTime<Utc>),
    last: i64,
    limit: i64,
) -> Result<Vec<(Posting, bool)>, sqlx::Error> {
    let rows = sqlx::query_as!(
        PostingRow,
        r#"SELECT org_id, seq, posted_at, id, kind, currency, reference, reason, corrects_entry_id, actor_kind, actor_id,
               correlation_id, lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after, prev_hash, hash,
               reference IS NULL OR EXISTS (SELECT FROM ledger_references r WHERE r.kind = p.kind
                   AND r.reference = p.reference AND r.org_id = p.org_id AND r.seq = p.seq) AS "kept!"
           FROM ledger_postings p
           WHERE org_id = $1 AND (seq, posted_at) > ($2, $3) AND seq <= $4 ORDER BY seq, posted_at LIMIT $5"#,
        org.uuid(),
        after.0,
        after.1,
        last,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.kept, Posting::from(row)))
        .map(|(kept, posting)| (posting, kept))
        .collect())
}

/// The next lines in order, of postings up to `last`.
pub async fn lines(
    conn: &mut Connection,
    org: OrgId,
    after: (i64, i32, DateTime<Utc>),
    last: i64,
    limit: i64,
) -> Result<Vec<Line>, sqlx::Error> {
    // Times that we did not write may be beyond what is read into; they are brought within, and found by their hash.
    let rows = sqlx::query_as!(
        LineRow,
        r#"SELECT seq, line, posted_at, account, amount_minor, project_id, allocation_id, app_instance_id, meter_id,
               CASE WHEN window_start IS NOT NULL THEN greatest(least(window_start, '9999-01-01Z'), '0001-01-01Z') END AS window_start,
               CASE WHEN window_end IS NOT NULL THEN greatest(least(window_end, '9999-01-01Z'), '0001-01-01Z') END AS window_end,
               correlation_id, leaf
           FROM ledger_lines
           WHERE org_id = $1 AND (seq, line, posted_at) > ($2, $3, $4) AND seq <= $5 ORDER BY seq, line, posted_at LIMIT $6"#,
        org.uuid(),
        after.0,
        after.1,
        after.2,
        last,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Line::from).collect())
}

/// Checkpoints of postings after `after` and up to `last`, in order.
pub async fn checkpoints(
    conn: &mut Connection,
    org: OrgId,
    after: i64,
    last: i64,
    limit: i64,
) -> Result<Vec<Checkpoint>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT day, prev_seq, seq, hash, signed_at, key_id, public_key, signature FROM ledger_checkpoints
           WHERE org_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq, day LIMIT $4"#,
        org.uuid(),
        after,
        last,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let checkpoints = rows.into_iter().map(|row| Checkpoint {
        org_id: org,
        day: row.day,
        prev_seq: row.prev_seq,
        seq: row.seq,
        hash: Hex(row.hash),
        signed_at: row.signed_at,
        key_id: row.key_id,
        public_key: Hex(row.public_key),
        signature: Hex(row.signature),
    });
    Ok(checkpoints.collect())
}

/// The organizations that have a chain or any part of one, in order. Steps from one to the next by index: what it
/// costs does not depend on how much they have posted.
pub async fn orgs(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<OrgId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        r#"WITH RECURSIVE next (id) AS (
               SELECT $1::uuid
               UNION ALL
               SELECT least(
                   (SELECT org_id FROM ledger_chains WHERE org_id > n.id ORDER BY org_id LIMIT 1),
                   (SELECT org_id FROM ledger_postings WHERE org_id > n.id ORDER BY org_id LIMIT 1),
                   (SELECT org_id FROM ledger_lines WHERE org_id > n.id ORDER BY org_id LIMIT 1),
                   (SELECT org_id FROM ledger_checkpoints WHERE org_id > n.id ORDER BY org_id LIMIT 1))
               FROM next n WHERE n.id IS NOT NULL
           ) SELECT id AS "id!" FROM next WHERE id > $1 LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(OrgId::from).collect())
}

/// What an account has gained in all chains of a currency.
pub struct Total {
    pub currency: String,
    pub account: String,
    pub amount_minor: i64,
}

pub async fn totals(conn: &mut Connection) -> Result<Vec<Total>, sqlx::Error> {
    sqlx::query_as!(
        Total,
        r#"SELECT coalesce(c.currency, '???') AS "currency!", l.account AS "account!", sum(l.amount)::bigint AS "amount_minor!"
           FROM (SELECT org_id, account, sum(amount_minor) AS amount FROM ledger_lines GROUP BY org_id, account) AS l
           LEFT JOIN ledger_chains c ON c.org_id = l.org_id GROUP BY 1, 2 ORDER BY 1, 2"#
    )
    .fetch_all(conn)
    .await
}
