//! The audit row of a refusal, which has no effect to share a transaction with.
//!
//! Whoever is refused the same thing again within a minute gets no further row: the database counts the repeats, across
//! replicas, and [`refusal_windows_close`] writes one row with their number when the minute is over. So refusals cannot
//! outnumber effects in a chain, and nothing is lost when a process dies.

use chrono::{DurationRound as _, TimeDelta};
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
        r#"SELECT refusal_record(
            ROW($1, $2, $3, $4, $5, $6, NULL, $7, $8, $9, $10, NULL, $11, $12, $13, NULL, NULL, NULL)::audit_entry) AS "own_row!""#,
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
    .map_err(Error::from_sqlx)?;
    Ok(())
}

/// Minutes closed in one turn; more wait for the next.
const CLOSED_IN_A_TURN: usize = 1_000;

/// Writes the audit rows of the minutes that are over. Returns how many; several replicas may do it at once.
pub async fn refusal_windows_close(db: &Db) -> Result<usize, Error> {
    let now = db.ambient().now();
    let minute = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now);
    for closed in 0..CLOSED_IN_A_TURN {
        // A transaction for each: nobody who appends to a chain waits for more than one row.
        let mut upkeep = db.upkeep("record repeated refusals").await?;
        let id = db.ambient().uuid();
        let found = sqlx::query_scalar!(r#"SELECT refusal_window_close($1, $2) AS "found!""#, id, minute)
            .fetch_one(upkeep.conn())
            .await
            .map_err(Error::from_sqlx)?;
        if !found {
            return Ok(closed);
        }
    }
    Ok(CLOSED_IN_A_TURN)
}
