//! What workflows write besides the state of an allocation: progress, key sets, where a machine answers.

use kernel::{Failure, ids::AllocationId};
use pg::WriteTx;
use uuid::Uuid;

use crate::model::{allocation::Allocation, history::HistoryKind};

/// A line of an allocation's history; without a duration it is the time since the line before.
pub struct Line<'a> {
    pub name: String,
    pub reason: &'a str,
    pub duration_ms: Option<i64>,
}

/// Appends lines of a kind that is no change of state.
pub async fn history(
    tx: &mut WriteTx,
    allocation: &Allocation,
    kind: HistoryKind,
    lines: &[Line<'_>],
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let (actor, correlation) = (tx.permit().actor(), tx.permit().origin().correlation_id.0);
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    let reasons: Vec<String> = lines.iter().map(|line| line.reason.to_owned()).collect();
    let durations: Vec<Option<i64>> = lines.iter().map(|line| line.duration_ms).collect();
    sqlx::query!(
        "INSERT INTO allocation_events (allocation_id, org_id, at, kind, name, reason, duration_ms, actor_kind,
             actor_id, correlation_id)
         SELECT $1, $2, $3, $4, l.name, l.reason, coalesce(l.ms, since.ms), $8, $9, $10
         FROM unnest($5::text[], $6::text[], $7::bigint[]) WITH ORDINALITY AS l (name, reason, ms, n),
             (SELECT greatest(0, (extract(epoch FROM $3 - max(at)) * 1000)::bigint) AS ms FROM allocation_events
              WHERE allocation_id = $1 AND kind IN ('state', 'phase')) since
         ORDER BY l.n",
        allocation.id.uuid(),
        allocation.org_id.uuid(),
        now,
        kind.name(),
        &names,
        &reasons,
        &durations as &[Option<i64>],
        actor.kind.name(),
        actor.id as Option<Uuid>,
        correlation,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// How a version of the key set gets to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTask {
    /// By the order of a request: keys may be added.
    Install,
    /// Keys only go.
    Remove,
}

impl KeyTask {
    const fn line(self) -> &'static str {
        match self {
            Self::Install => "keys_sent",
            Self::Remove => "key_removal_sent",
        }
    }
}

/// That this version of the key set is on its way to the machine.
pub async fn keys_sent(tx: &mut WriteTx, allocation: &Allocation, task: KeyTask) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let correlation = tx.permit().origin().correlation_id.0;
    let (actor_kind, actor_id) = (tx.permit().actor().kind.name(), tx.permit().actor().id);
    sqlx::query!(
        "INSERT INTO allocation_events (allocation_id, org_id, at, kind, name, reason, actor_kind, actor_id,
             correlation_id, key_set_version)
         VALUES ($1, $2, $3, 'access', $4, $5, $6, $7, $8, $9)",
        allocation.id.uuid(),
        allocation.org_id.uuid(),
        now,
        task.line(),
        format!("key set {}", allocation.access_version),
        actor_kind,
        actor_id as Option<Uuid>,
        correlation,
        allocation.access_version,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Which version of the key set was sent last, and how; the first one goes with the machine itself. One that the release
/// before sent has no version here: it counts as the first, and the newest set is sent once more.
pub async fn keys_sent_last(tx: &mut WriteTx, id: AllocationId) -> Result<(i64, KeyTask), Failure> {
    let row = sqlx::query!(
        "SELECT name, key_set_version FROM allocation_events WHERE allocation_id = $1 AND kind = 'access'
             AND name IN ('keys_sent', 'key_removal_sent')
         ORDER BY seq DESC LIMIT 1",
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    let Some(row) = row else { return Ok((1, KeyTask::Install)) };
    let task = if row.name == KeyTask::Remove.line() { KeyTask::Remove } else { KeyTask::Install };
    Ok((row.key_set_version.unwrap_or(1), task))
}

/// The machine has this version of the key set; it never goes back.
pub async fn keys_installed(tx: &mut WriteTx, id: AllocationId, version: i64) -> Result<(), Failure> {
    sqlx::query!(
        "UPDATE allocations SET installed_access = greatest(installed_access, $2) WHERE id = $1",
        id.uuid(),
        version,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The public keys of the machine's SSH server.
pub async fn host_keys_known(tx: &mut WriteTx, id: AllocationId, keys: &[String]) -> Result<(), Failure> {
    sqlx::query!("UPDATE allocations SET ssh_host_keys = $2 WHERE id = $1", id.uuid(), keys)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Where the machine answers.
pub async fn reached_at(tx: &mut WriteTx, id: AllocationId, host: &str, port: u16) -> Result<(), Failure> {
    sqlx::query!(
        "UPDATE allocations SET ssh_host = $2, ssh_port = $3 WHERE id = $1",
        id.uuid(),
        host,
        i32::from(port),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
