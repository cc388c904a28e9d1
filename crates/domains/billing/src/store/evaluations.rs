//! The queue of organizations whose balance and budgets are to be evaluated: written by `balance_evaluation_queue` when
//! a meter changes.

use pg::{Connection, WriteTx};
use uuid::Uuid;

/// One change of a meter.
#[derive(Clone, Copy)]
pub struct Queued {
    pub id: i64,
    pub org: Uuid,
}

/// The oldest, at most `limit`.
pub async fn queued(conn: &mut Connection, limit: i64) -> Result<Vec<Queued>, sqlx::Error> {
    sqlx::query_as!(Queued, "SELECT id, org_id AS org FROM balance_evaluations ORDER BY id LIMIT $1", limit)
        .fetch_all(conn)
        .await
}

/// Locks the chains of these organizations that nobody else has locked, and answers which.
pub async fn chains_lock(tx: &mut WriteTx, orgs: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT org_id AS "org_id!" FROM ledger_chains_lock($1) AS l (org_id)"#, orgs)
        .fetch_all(tx.conn())
        .await
}

/// Of these, the organizations without a chain: there is no balance to evaluate.
pub async fn without_chain(conn: &mut Connection, orgs: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT o.org_id AS "org_id!" FROM unnest($1::uuid[]) AS o (org_id)
           WHERE NOT EXISTS (SELECT FROM ledger_chains c WHERE c.org_id = o.org_id)"#,
        orgs
    )
    .fetch_all(conn)
    .await
}

/// Exactly these: others of the same organizations may have come meanwhile.
pub async fn remove(conn: &mut Connection, ids: &[i64]) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM balance_evaluations WHERE id = ANY ($1)", ids).execute(conn).await?;
    Ok(())
}
