//! Certificates that were given to nodes.

use chrono::{DateTime, Utc};
use kernel::{hex::Hex, ids::NodeId};
use pg::Connection;
use uuid::Uuid;

use crate::model::certificate::Certificate;

struct Row {
    serial: String,
    node_id: Uuid,
    authority_id: Uuid,
    fingerprint: Vec<u8>,
    not_before: DateTime<Utc>,
    not_after: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    reason: Option<String>,
    created_at: DateTime<Utc>,
}

impl Row {
    fn read(self, now: DateTime<Utc>) -> Certificate {
        let state = match self.revoked_at {
            Some(_) => "revoked",
            None if self.not_after <= now => "expired",
            None => "valid",
        };
        Certificate {
            serial: self.serial,
            node_id: self.node_id.into(),
            authority_id: self.authority_id.into(),
            fingerprint: Hex(self.fingerprint),
            state: state.to_owned(),
            not_before: self.not_before,
            not_after: self.not_after,
            revoked_at: self.revoked_at,
            reason: self.reason,
            created_at: self.created_at,
        }
    }
}

pub struct NewCertificate<'a> {
    pub serial: &'a str,
    pub node: NodeId,
    pub authority: Uuid,
    pub fingerprint: &'a [u8],
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
    pub now: DateTime<Utc>,
}

pub async fn insert(conn: &mut Connection, new: &NewCertificate<'_>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        new.serial,
        new.node.uuid(),
        new.authority,
        new.fingerprint,
        new.not_before,
        new.not_after,
        new.now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Newest first. `before` is the place of the last one seen.
pub async fn list(
    conn: &mut Connection,
    node: NodeId,
    before: Option<(DateTime<Utc>, &str)>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<Certificate>, sqlx::Error> {
    let (at, serial) = before.unzip();
    let rows = sqlx::query_as!(
        Row,
        "SELECT serial, node_id, authority_id, fingerprint, not_before, not_after, revoked_at, reason, created_at
         FROM node_certificates
         WHERE node_id = $1 AND ($2::timestamptz IS NULL OR (not_after, serial) < ($2, $3::text))
         ORDER BY not_after DESC, serial DESC LIMIT $4",
        node.uuid(),
        at,
        serial,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.read(now)).collect())
}

/// How many certificates of the node would be accepted now, and whether the one with this serial is among them.
pub async fn live(
    conn: &mut Connection,
    node: NodeId,
    serial: &str,
    now: DateTime<Utc>,
) -> Result<(i64, bool), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "count!", COALESCE(bool_or(serial = $2), false) AS "is_live!" FROM node_certificates
           WHERE node_id = $1 AND not_after > $3 AND revoked_at IS NULL"#,
        node.uuid(),
        serial,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok((row.count, row.is_live))
}

/// Revokes the certificate with this serial, or all that are still valid. Returns those it revoked.
pub async fn revoke(
    conn: &mut Connection,
    node: NodeId,
    serial: Option<&str>,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<Vec<Certificate>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "UPDATE node_certificates SET revoked_at = $3, reason = $4
         WHERE node_id = $1 AND revoked_at IS NULL AND not_after > $3 AND ($2::text IS NULL OR serial = $2)
         RETURNING serial, node_id, authority_id, fingerprint, not_before, not_after, revoked_at, reason, created_at",
        node.uuid(),
        serial,
        now,
        reason,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.read(now)).collect())
}

/// Forgets certificates that ended before `cutoff`.
pub async fn forget(conn: &mut Connection, cutoff: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM node_certificates WHERE serial IN
             (SELECT serial FROM node_certificates WHERE not_after < $1 ORDER BY serial LIMIT $2)",
        cutoff,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
