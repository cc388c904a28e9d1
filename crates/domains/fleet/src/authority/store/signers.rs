//! Signers as they are shown, and the signed lists of them.

use chrono::{DateTime, Utc};
use kernel::{Code, Failure, PageQuery, Problem};
use node_proto::{SignedKeyset, text::Base64};
use pg::Connection;

use crate::authority::model::signer::SignerState;

#[derive(Clone, Debug)]
pub struct SignerRow {
    pub signer_version: i32,
    pub state: SignerState,
    pub public_key: Vec<u8>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl SignerRow {
    pub fn number(&self) -> u32 {
        u32::try_from(self.signer_version).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub struct KeysetRow {
    pub serial: i64,
    pub document: Vec<u8>,
    pub signature: Vec<u8>,
}

impl KeysetRow {
    pub fn signed(self) -> SignedKeyset {
        SignedKeyset { document: Base64(self.document), signature: Base64(self.signature) }
    }
}

/// In the order of their versions.
pub async fn list(conn: &mut Connection, page: &PageQuery) -> Result<Vec<SignerRow>, sqlx::Error> {
    let after = i32::try_from(page.after().as_u128()).unwrap_or(i32::MAX);
    sqlx::query_as!(
        SignerRow,
        r#"SELECT signer_version, state AS "state: SignerState", public_key, version, created_at, updated_at FROM signer_keys
         WHERE signer_version > $1 ORDER BY signer_version LIMIT $2"#,
        after,
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

pub async fn get(conn: &mut Connection, signer_version: i32) -> Result<Option<SignerRow>, sqlx::Error> {
    sqlx::query_as!(
        SignerRow,
        r#"SELECT signer_version, state AS "state: SignerState", public_key, version, created_at, updated_at FROM signer_keys
         WHERE signer_version = $1"#,
        signer_version,
    )
    .fetch_optional(conn)
    .await
}

/// Those whose keys are not needed any more.
pub async fn ended_versions(conn: &mut Connection) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT signer_version FROM signer_keys WHERE state IN ('retired', 'revoked') ORDER BY 1 DESC LIMIT 1000"
    )
    .fetch_all(conn)
    .await
}

/// The highest version, and the highest serial; zero when there is none.
pub async fn highest(conn: &mut Connection) -> Result<(i32, i64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT coalesce((SELECT max(signer_version) FROM signer_keys), 0) AS "signer_version!",
                  coalesce((SELECT max(serial) FROM signer_keysets), 0) AS "serial!""#
    )
    .fetch_one(conn)
    .await?;
    Ok((row.signer_version, row.serial))
}

pub async fn insert(
    conn: &mut Connection,
    signer_version: i32,
    state: SignerState,
    public_key: &[u8],
    now: DateTime<Utc>,
) -> Result<SignerRow, Failure> {
    sqlx::query_as!(
        SignerRow,
        r#"INSERT INTO signer_keys (signer_version, state, public_key, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
         RETURNING signer_version, state AS "state: SignerState", public_key, version, created_at, updated_at"#,
        signer_version,
        state.name(),
        public_key,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| match pg::constraint_violated(&error) {
        Some("signer_keys_one_staged") => Problem::new(Code::AlreadyExists, "A signer is already staged.")
            .suggest("Activate or revoke the staged signer first.")
            .into(),
        _ => error.into(),
    })
}

/// Nothing when the row was not in `from`.
pub async fn set_state(
    conn: &mut Connection,
    signer_version: i32,
    from: SignerState,
    to: SignerState,
    now: DateTime<Utc>,
) -> Result<Option<SignerRow>, sqlx::Error> {
    sqlx::query_as!(
        SignerRow,
        r#"UPDATE signer_keys SET state = $3, version = version + 1, updated_at = $4
         WHERE signer_version = $1 AND state = $2
         RETURNING signer_version, state AS "state: SignerState", public_key, version, created_at, updated_at"#,
        signer_version,
        from.name(),
        to.name(),
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Newest first.
pub async fn keysets(conn: &mut Connection, below: i64, limit: i64) -> Result<Vec<KeysetRow>, sqlx::Error> {
    sqlx::query_as!(
        KeysetRow,
        "SELECT serial, document, signature FROM signer_keysets WHERE serial < $1 ORDER BY serial DESC LIMIT $2",
        below,
        limit,
    )
    .fetch_all(conn)
    .await
}

pub async fn keyset_insert(
    conn: &mut Connection,
    serial: i64,
    signed: &SignedKeyset,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO signer_keysets (serial, document, signature, created_at) VALUES ($1, $2, $3, $4)",
        serial,
        &signed.document.0,
        &signed.signature.0,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
