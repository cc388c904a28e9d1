//! Certificates that were given to nodes.

use chrono::{DateTime, Utc};
use kernel::{hex::Hex, ids::NodeId};
use pg::Connection;
use trust::peer::PeerCertificate;
use uuid::Uuid;

use crate::model::certificate::{Certificate, CertificateState};

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
            Some(_) => CertificateState::Revoked,
            None if self.not_after <= now => CertificateState::Expired,
            None => CertificateState::Valid,
        };
        Certificate {
            serial: self.serial,
            node_id: self.node_id.into(),
            authority_id: self.authority_id.into(),
            fingerprint: Hex(self.fingerprint),
            state,
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
    pub key_sha256: &'a [u8],
    pub chain_pem: &'a str,
    /// The certificate that was shown for it.
    pub renewed_from: Option<&'a str>,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
    pub now: DateTime<Utc>,
}

/// The node's one that counts; the database supersedes the one before. It is never from before the node was asked for a
/// new key, whatever the clocks of the processes say: the node's lock orders the two.
pub async fn insert(conn: &mut Connection, new: &NewCertificate<'_>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at,
             key_sha256, chain_pem, renewed_from)
         VALUES ($1, $2, $3, $4, $5, $6, greatest($7, (SELECT rekey_since FROM nodes WHERE id = $2)), $8, $9, $10)",
        new.serial,
        new.node.uuid(),
        new.authority,
        new.fingerprint,
        new.not_before,
        new.not_after,
        new.now,
        new.key_sha256,
        new.chain_pem,
        new.renewed_from,
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

/// The node's certificate that counts.
pub struct Live {
    pub serial: String,
    /// Those that may ask for it once more: nobody was heard with it, nor with any in between.
    pub asked_by: Vec<String>,
    pub key_sha256: Option<Vec<u8>>,
    pub chain_pem: Option<String>,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
}

pub async fn live(
    conn: &mut Connection,
    node: NodeId,
    now: DateTime<Utc>,
) -> Result<Option<Live>, sqlx::Error> {
    sqlx::query_as!(
        Live,
        r#"SELECT live.serial, live.key_sha256, live.chain_pem, live.not_before, live.not_after,
               ARRAY(WITH RECURSIVE earlier (serial) AS (
                         SELECT live.renewed_from WHERE live.first_used_at IS NULL AND live.renewed_from IS NOT NULL
                         UNION
                         SELECT c.renewed_from FROM earlier JOIN node_certificates c ON c.serial = earlier.serial
                         WHERE c.node_id = $1 AND c.superseded AND c.first_used_at IS NULL
                           AND c.renewed_from IS NOT NULL)
                     SELECT e.serial FROM earlier e JOIN node_certificates c ON c.serial = e.serial
                     WHERE c.superseded) AS "asked_by!: Vec<String>"
           FROM node_certificates live
           WHERE live.node_id = $1 AND live.revoked_at IS NULL AND live.not_after > $2"#,
        node.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await
}

/// How many certificates the node was given since then.
pub async fn made_since(
    conn: &mut Connection,
    node: NodeId,
    since: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM node_certificates WHERE node_id = $1 AND created_at > $2"#,
        node.uuid(),
        since,
    )
    .fetch_one(conn)
    .await
}

/// Whether a certificate was given for this key before, to whomever.
pub async fn key_is_known(conn: &mut Connection, key_sha256: &[u8]) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM node_certificates WHERE key_sha256 = $1) AS "known!""#,
        key_sha256,
    )
    .fetch_one(conn)
    .await
}

/// The node was heard with it.
pub async fn first_used(conn: &mut Connection, serial: &str, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE node_certificates SET first_used_at = $2 WHERE serial = $1 AND first_used_at IS NULL",
        serial,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// When the restore that is under way, or the last one, was noticed: certificates that are given from then on are
/// recorded.
pub async fn restore_noticed_at(conn: &mut Connection) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!("SELECT coalesce(restored_at, last_restored_at) FROM installation")
        .fetch_one(conn)
        .await
}

/// What was done about the certificates of a node since a restore was noticed.
pub enum SinceRestore {
    Nothing,
    /// Somebody else spoke for the node: another certificate was taken over, or renewed.
    Another,
    /// One was given for a token, or revoked; or this one is recorded by now, or from before the last one of the backup.
    Decided,
}

pub async fn since_restore(
    conn: &mut Connection,
    node: NodeId,
    serial: &str,
    issued_at: DateTime<Utc>,
    noticed_at: DateTime<Utc>,
) -> Result<SinceRestore, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT coalesce(bool_or(c.serial = $2 OR (c.revoked_at >= $3 AND NOT c.superseded)
                   OR (c.created_at >= $3 AND c.renewed_from IS NULL AND c.adopted_at IS NULL)
                   OR (c.created_at < $3 AND c.created_at > $4 AND c.adopted_at IS NULL)), false) AS "decided!",
               coalesce(bool_or(c.adopted_at >= $3 OR (c.created_at >= $3 AND c.renewed_from IS NOT NULL)), false)
                   AS "another!"
           FROM node_certificates c WHERE c.node_id = $1"#,
        node.uuid(),
        serial,
        noticed_at,
        issued_at,
    )
    .fetch_one(conn)
    .await?;
    Ok(match (row.decided, row.another) {
        (true, _) => SinceRestore::Decided,
        (false, true) => SinceRestore::Another,
        (false, false) => SinceRestore::Nothing,
    })
}

/// Records a certificate that the node has shown as the one that counts, and as used.
pub async fn adopt(
    conn: &mut Connection,
    shown: &PeerCertificate,
    issued_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at,
             key_sha256, first_used_at, adopted_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)",
        shown.serial,
        shown.node_id.uuid(),
        shown.authority_id.uuid(),
        &shown.fingerprint,
        shown.not_before,
        shown.not_after,
        issued_at,
        &shown.key_sha256,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Since when a node is asked for a new key, and whether it was asked just now.
pub struct RekeyAsked {
    pub since: DateTime<Utc>,
    pub newly: bool,
}

/// The certificates that the node has are to be renewed at once, unless that was asked for after `unless_since` already.
/// Says since when: after each of them, also when they were dated by a process whose clock is ahead. The node is locked.
pub async fn rekey(
    conn: &mut Connection,
    node: NodeId,
    unless_since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Option<RekeyAsked>, sqlx::Error> {
    sqlx::query_as!(
        RekeyAsked,
        r#"WITH before AS (SELECT id, coalesce(rekey_since < $2, true) AS newly FROM nodes WHERE id = $1)
           UPDATE nodes n SET rekey_since = CASE WHEN NOT before.newly THEN n.rekey_since
               ELSE greatest($3, $2, (SELECT max(created_at) + interval '1 microsecond'
                                      FROM node_certificates WHERE node_id = $1)) END
           FROM before WHERE n.id = before.id
           RETURNING n.rekey_since AS "since!", before.newly AS "newly!""#,
        node.uuid(),
        unless_since,
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Whether no certificate from before that counts any more, and the one that does was used. Those from before are
/// copies in the hands of whoever still shows them.
pub async fn rekeyed(conn: &mut Connection, node: NodeId, since: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    let done = sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (SELECT FROM node_certificates WHERE node_id = $1 AND revoked_at IS NULL
               AND (created_at < $2 OR first_used_at IS NULL)) AS "done!""#,
        node.uuid(),
        since,
    )
    .fetch_one(&mut *conn)
    .await?;
    if done {
        sqlx::query!(
            "UPDATE node_certificates SET superseded = true
             WHERE node_id = $1 AND created_at < $2 AND revoked_at IS NOT NULL AND NOT superseded",
            node.uuid(),
            since,
        )
        .execute(conn)
        .await?;
    }
    Ok(done)
}

/// Those of the nodes that are to make a new key, and were not heard with one.
pub async fn key_waits(conn: &mut Connection, nodes: &[NodeId]) -> Result<Vec<NodeId>, sqlx::Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.uuid()).collect();
    let waits = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n JOIN node_certificates live ON live.node_id = n.id AND live.revoked_at IS NULL
         WHERE n.id = ANY ($1) AND n.rekey_since IS NOT NULL
           AND (live.created_at < n.rekey_since OR live.first_used_at IS NULL)",
        &nodes,
    )
    .fetch_all(conn)
    .await?;
    Ok(waits.into_iter().map(NodeId::from).collect())
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
