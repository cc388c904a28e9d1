//! The audit row of a refusal, which has no effect to share a transaction with.

use kernel::Code;
use uuid::Uuid;

use crate::{Actor, Db, Error, Origin, Permit, Scope};

/// Records that `actor` was refused `action`. `org` is the chain it belongs to; an outsider's attempt goes
/// to the platform's chain, so that strangers cannot fill a tenant's.
pub async fn refuse(
    db: &Db,
    actor: Actor,
    scope: Scope,
    action: &'static str,
    code: Code,
    origin: Origin,
) -> Result<(), Error> {
    let (id, now) = (db.ambient().uuid(), db.ambient().now());
    let permit = Permit::system("record a refusal", origin.clone());
    let mut read = db.read(&permit).await?;
    sqlx::query_scalar!(
        r#"SELECT audit_append($1, $2, $3, $4, $5, $6, NULL, $7, 'none', NULL, $8, 'refused', $9, $10, $11, NULL, NULL) AS "seq!""#,
        id,
        scope.org().map_or(Uuid::nil(), |o| o.uuid()),
        now,
        actor.kind.name(),
        actor.id as Option<Uuid>,
        actor.role,
        action,
        scope.project().map(|p| p.uuid()) as Option<Uuid>,
        code.as_str(),
        origin.correlation_id.0,
        origin.source_ip as Option<String>,
    )
    .fetch_one(read.conn())
    .await
    .map_err(Error::of)?;
    Ok(())
}
