//! The audit row of a refusal, which has no effect to share a transaction with.

use kernel::Code;
use uuid::Uuid;

use crate::{Actor, Db, Error, Origin, Scope};

/// Who was refused what, where, and why.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub actor: Actor,
    /// The chain it belongs to. An outsider's attempt goes to the platform's (`Scope::Platform`), so that
    /// strangers cannot fill a tenant's.
    pub scope: Scope,
    pub action: &'static str,
    /// What it was aimed at: a kind, and its name as it was given.
    pub target: (&'static str, Option<String>),
    pub code: Code,
}

/// A name comes from outside and may be long; its beginning tells enough.
const LONGEST_TARGET: usize = 200;

pub async fn refuse(db: &Db, refusal: Refusal, origin: &Origin) -> Result<(), Error> {
    let (id, now) = (db.ambient().uuid(), db.ambient().now());
    let Refusal { actor, scope, action, target, code } = refusal;
    let target_id = target.1.map(|name| name.chars().filter(|c| *c != '\0').take(LONGEST_TARGET).collect());
    let mut upkeep = db.upkeep("record a refusal").await?;
    sqlx::query_scalar!(
        r#"SELECT audit_append($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9, $10, 'refused', $11, $12, $13, NULL, NULL) AS "seq!""#,
        id,
        scope.org().map_or(Uuid::nil(), |o| o.uuid()),
        now,
        actor.kind.name(),
        actor.id as Option<Uuid>,
        actor.role,
        action,
        target.0,
        target_id as Option<String>,
        scope.project().map(|p| p.uuid()) as Option<Uuid>,
        code.as_str(),
        origin.correlation_id.0,
        origin.source_ip.clone() as Option<String>,
    )
    .fetch_one(upkeep.conn())
    .await
    .map_err(Error::of)?;
    Ok(())
}
