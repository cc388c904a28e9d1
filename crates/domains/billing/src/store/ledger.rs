//! The ledger: appending to a chain, and reading where it stands.

use chrono::{DateTime, Utc};
use kernel::ids::{OrgId, PostingId, ProjectId};
use pg::{ActorKind, Connection, WriteTx};
use uuid::Uuid;

use super::chains::PostingRow;
use crate::model::{
    account::{Balances, Posted, Posting, PostingKind},
    rating::PARTS,
};

/// Appends a posting, as `gpuaas_system`. Nothing when its reference was posted before.
pub async fn append(
    tx: &mut WriteTx,
    currency: &str,
    posting: &Posting,
) -> Result<Option<Posted>, sqlx::Error> {
    let ambient = tx.db().ambient().clone();
    let id: PostingId = ambient.id();
    let permit = tx.permit().clone();
    let actor = permit.actor();
    // A person acts in their own name; whatever else posts is the system.
    let by_person = matches!(actor.kind, ActorKind::User | ActorKind::ServiceAccount);
    let (actor_kind, actor_id) = if by_person { (actor.kind, actor.id) } else { (ActorKind::System, None) };
    let lines = &posting.lines;
    let none: Vec<Option<Uuid>> = vec![None; lines.len()];
    let never: Vec<Option<chrono::DateTime<chrono::Utc>>> = vec![None; lines.len()];
    let row = sqlx::query!(
        r#"SELECT seq AS "seq?", prepaid_after AS "prepaid?", held_after AS "held?", promo_after AS "promo?",
             disputed_after AS "disputed?"
           FROM ledger_append(ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)::new_posting,
               ROW($12, $13, $14, $15, $16, $16, $17, $17)::line_batch)"#,
        posting.org.uuid(),
        currency,
        ambient.now(),
        id.uuid(),
        posting.kind.name(),
        posting.reference.as_deref(),
        posting.reason,
        posting.corrects.map(PostingId::uuid),
        actor_kind.name(),
        actor_id,
        permit.origin().correlation_id.0,
        &lines.iter().map(|line| line.account.name().to_owned()).collect::<Vec<_>>(),
        &lines.iter().map(|line| line.amount_minor).collect::<Vec<_>>(),
        &lines.iter().map(|line| line.project.map(|id| id.uuid())).collect::<Vec<_>>() as &[Option<Uuid>],
        &lines.iter().map(|line| line.allocation.map(|id| id.uuid())).collect::<Vec<_>>()
            as &[Option<Uuid>],
        &none as &[Option<Uuid>],
        &never as &[Option<chrono::DateTime<chrono::Utc>>],
    )
    .fetch_one(tx.conn())
    .await?;
    let (Some(seq), Some(prepaid_minor), Some(held_minor), Some(promo_minor), Some(disputed_minor)) =
        (row.seq, row.prepaid, row.held, row.promo, row.disputed)
    else {
        return Ok(None);
    };
    let balances = Balances { prepaid_minor, held_minor, promo_minor, disputed_minor };
    Ok(Some(Posted { id, seq, balances }))
}

/// Where a ledger stands, and its currency; nothing when there is none yet. One row is read, however long the chain is.
///
/// The posting is asked for as the first from the chain's end on: that order is the primary key's and no other index
/// has it, so it is found by its whole key, in the one month that can hold it, with and without statistics. Compared
/// for equality only, a month without statistics is read through whichever index looks smallest, posting by posting.
pub async fn balances(conn: &mut Connection, org: OrgId) -> Result<Option<(Balances, String)>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT c.currency AS "currency!", p.prepaid_after AS "prepaid?", p.held_after AS "held?", p.promo_after AS "promo?",
             p.disputed_after AS "disputed?"
           FROM ledger_chains c
           LEFT JOIN LATERAL (
               SELECT l.seq, l.prepaid_after, l.held_after, l.promo_after, l.disputed_after
               FROM ledger_postings l WHERE l.org_id = c.org_id AND l.seq >= c.seq AND l.posted_at = c.posted_at
               ORDER BY l.seq LIMIT 1
           ) AS p ON p.seq = c.seq
           WHERE c.org_id = $1"#,
        org.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let balances = Balances {
            prepaid_minor: row.prepaid.unwrap_or(0),
            held_minor: row.held.unwrap_or(0),
            promo_minor: row.promo.unwrap_or(0),
            disputed_minor: row.disputed.unwrap_or(0),
        };
        (balances, row.currency)
    }))
}

/// What the money of a launch is decided from.
pub struct LaunchBalances {
    /// With their currency; none when the organization never had any.
    pub balances: Option<(Balances, String)>,
    pub budget_blocked: bool,
    /// Of the spend cap of whoever launches, if there is one.
    pub cap_left_minor: Option<i64>,
    /// Of what runs and what starts.
    pub burn_per_hour: i64,
    /// Used and not posted, in 3600ths of a minor unit.
    pub unposted_parts: i64,
}

/// The same, whether the budget of the project blocks launches, and what is used up at this moment, in one round trip.
pub async fn launch_balances(
    conn: &mut Connection,
    (org, project): (OrgId, ProjectId),
    launcher: Option<Uuid>,
    now: DateTime<Utc>,
) -> Result<LaunchBalances, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT b.blocked AS "blocked!", b.cap_left AS "cap_left?", c.currency AS "currency?", p.prepaid_after AS "prepaid?", p.held_after AS "held?",
             p.promo_after AS "promo?", p.disputed_after AS "disputed?",
             least(u.burn + s.burn, $4::bigint)::bigint AS "burn!", u.unposted AS "unposted!", u.carry AS "carry!"
           FROM (SELECT budget_blocks($1, $2, $3) AS blocked, 
               (SELECT spend_cap_left(s.org_id, s.service_account_id, $3) FROM spend_caps s
                WHERE s.service_account_id = $5 AND s.org_id = $1) AS cap_left) AS b
           LEFT JOIN ledger_chains c ON c.org_id = $1
           LEFT JOIN LATERAL (
               SELECT l.seq, l.prepaid_after, l.held_after, l.promo_after, l.disputed_after
               FROM ledger_postings l WHERE l.org_id = c.org_id AND l.seq >= c.seq AND l.posted_at = c.posted_at
               ORDER BY l.seq LIMIT 1
           ) AS p ON p.seq = c.seq
           CROSS JOIN LATERAL (
               SELECT coalesce(sum(hour.amount) FILTER (WHERE m.state = 'open'), 0) AS burn,
                 least(coalesce(sum(used.amount), 0), $4::bigint)::bigint AS unposted, coalesce(sum(used.carry), 0)::bigint AS carry
               FROM meters m, usage_cost(0, m.unit_price_minor, m.units, 3600) AS hour,
                 usage_cost(m.carry, m.unit_price_minor, m.units, least(
                     greatest(floor(extract(epoch FROM least($3, m.closed_at) - m.accrued_until)), 0)::bigint,
                     ($4::bigint - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1))) AS used
               WHERE m.org_id = $1 AND m.state IN ('open', 'closed')
           ) AS u
           CROSS JOIN LATERAL (
               SELECT coalesce(sum(hour.amount), 0) AS burn
               FROM meters m, usage_cost(0, m.unit_price_minor, m.units, 3600) AS hour
               WHERE m.org_id = $1 AND m.state = 'held'
           ) AS s"#,
        org.uuid(),
        project.uuid(),
        now,
        i64::MAX,
        launcher,
    )
    .fetch_one(conn)
    .await?;
    let balances = Balances {
        prepaid_minor: row.prepaid.unwrap_or(0),
        held_minor: row.held.unwrap_or(0),
        promo_minor: row.promo.unwrap_or(0),
        disputed_minor: row.disputed.unwrap_or(0),
    };
    Ok(LaunchBalances {
        balances: row.currency.map(|currency| (balances, currency)),
        budget_blocked: row.blocked,
        cap_left_minor: row.cap_left,
        burn_per_hour: row.burn,
        unposted_parts: row.unposted.saturating_mul(PARTS).saturating_add(row.carry),
    })
}

/// What a list of postings is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kind: Option<PostingKind>,
    pub project: Option<Uuid>,
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
}

/// Newest first, from before `before`.
pub async fn list(
    conn: &mut Connection,
    org: OrgId,
    filter: &Filter,
    before: i64,
    limit: i64,
) -> Result<Vec<kernel::ledger::Posting>, sqlx::Error> {
    let rows = sqlx::query_as!(
        PostingRow,
        r#"SELECT org_id, seq, posted_at, id, kind, currency, reference, reason, corrects_entry_id, actor_kind, actor_id,
               correlation_id, lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after, prev_hash, hash,
               true AS "kept!"
           FROM ledger_postings p
           WHERE org_id = $1 AND seq < $2 AND ($4::text IS NULL OR kind = $4)
               AND ($5::timestamptz IS NULL OR posted_at >= $5) AND ($6::timestamptz IS NULL OR posted_at < $6)
               AND ($7::uuid IS NULL OR EXISTS (SELECT FROM ledger_lines l WHERE l.org_id = p.org_id AND l.seq = p.seq
                   AND l.posted_at = p.posted_at AND l.project_id = $7))
           ORDER BY seq DESC LIMIT $3"#,
        org.uuid(),
        before,
        limit,
        filter.kind.map(PostingKind::name),
        filter.from,
        filter.to,
        filter.project,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Into::into).collect())
}

pub async fn get(
    conn: &mut Connection,
    org: OrgId,
    seq: i64,
) -> Result<Option<kernel::ledger::Posting>, sqlx::Error> {
    let row = sqlx::query_as!(
        PostingRow,
        r#"SELECT org_id, seq, posted_at, id, kind, currency, reference, reason, corrects_entry_id, actor_kind, actor_id,
               correlation_id, lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after, prev_hash, hash,
               true AS "kept!"
           FROM ledger_postings WHERE org_id = $1 AND seq = $2"#,
        org.uuid(),
        seq,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Into::into))
}
