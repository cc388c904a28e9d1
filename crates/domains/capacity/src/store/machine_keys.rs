//! Which SSH keys the machine of an allocation has or is to get. A row is written when a request orders the key, marked
//! when nobody with access has it any more, and deleted when the machine has confirmed that it gave the key up.

use chrono::{DateTime, Utc};
use kernel::{Failure, ids::AllocationId};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::{access::MachinesOf, allocation::Allocation};

/// What launches order: the same keys for each of their allocations.
pub async fn insert_first(tx: &mut WriteTx, made: &[Allocation], keys: &[String]) -> Result<(), sqlx::Error> {
    let ids: Vec<Uuid> = made.iter().map(|allocation| allocation.id.uuid()).collect();
    let orgs: Vec<Uuid> = made.iter().map(|allocation| allocation.org_id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO allocation_keys (allocation_id, public_key, org_id, ordered_version)
         SELECT a.id, k, a.org, 1 FROM unnest($1::uuid[], $2::uuid[]) AS a (id, org), unnest($3::text[]) AS k",
        &ids,
        &orgs,
        keys,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A request ordered exactly these with the allocation's newest key set; all others must go.
pub async fn order(tx: &mut WriteTx, allocation: &Allocation, keys: &[String]) -> Result<(), sqlx::Error> {
    let (id, version) = (allocation.id, allocation.access_version);
    mark_removed(tx, id, version, keys).await?;
    sqlx::query!(
        "INSERT INTO allocation_keys (allocation_id, public_key, org_id, ordered_version)
         SELECT $1, k, $2, $3 FROM unnest($4::text[]) AS k
         ON CONFLICT (allocation_id, public_key) DO UPDATE
             SET ordered_version = excluded.ordered_version, removed_version = NULL, removed_at = NULL",
        id.uuid(),
        allocation.org_id.uuid(),
        version,
        keys,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Marks every key that is not in `keep` as one that the machine has no more from this version of its key set on. Answers
/// how many were not marked before.
pub async fn mark_removed(
    tx: &mut WriteTx,
    id: AllocationId,
    version: i64,
    keep: &[String],
) -> Result<u64, sqlx::Error> {
    let now = tx.db().ambient().now();
    let marked = sqlx::query!(
        "UPDATE allocation_keys SET removed_version = $2, removed_at = $4
         WHERE allocation_id = $1 AND removed_version IS NULL AND NOT public_key = ANY ($3)",
        id.uuid(),
        version,
        keep,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(marked.rows_affected())
}

/// The keys that the machine may keep or get, sorted.
pub async fn list(conn: &mut Connection, id: AllocationId) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT public_key FROM allocation_keys WHERE allocation_id = $1 AND removed_version IS NULL
         ORDER BY public_key",
        id.uuid()
    )
    .fetch_all(conn)
    .await
}

/// What the machine does not have yet, or still has.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// A request ordered a key set that was not installed.
    pub ordered: bool,
    /// Keys must go.
    pub removed: bool,
}

/// Of the versions after `installed`, up to `version`.
pub async fn pending(
    conn: &mut Connection,
    id: AllocationId,
    installed: i64,
    version: i64,
) -> Result<Pending, sqlx::Error> {
    sqlx::query_as!(
        Pending,
        r#"SELECT coalesce(bool_or(removed_version IS NULL AND ordered_version > $2 AND ordered_version <= $3), false)
                AS "ordered!",
            coalesce(bool_or(removed_version <= $3), false) AS "removed!"
        FROM allocation_keys WHERE allocation_id = $1"#,
        id.uuid(),
        installed,
        version,
    )
    .fetch_one(conn)
    .await
}

/// The machine has given up what this version of the key set does not have.
pub async fn removal_confirmed(tx: &mut WriteTx, id: AllocationId, version: i64) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM allocation_keys WHERE allocation_id = $1 AND removed_version <= $2",
        id.uuid(),
        version
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The next version of the key set, when only keys went.
pub async fn version_raise(tx: &mut WriteTx, before: &Allocation) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    let changed = sqlx::query!(
        "UPDATE allocations SET access_version = access_version + 1, updated_at = $3, version = version + 1
         WHERE id = $1 AND version = $2",
        before.id.uuid(),
        before.version,
        now,
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    super::allocation_ends::reload_changed(tx, before, changed).await
}

/// Allocations whose machine has or gets a key that nobody with access has; after `after`, in the order of the ids. One
/// whose keys were on their way and did not arrive is among them unless its node is away, or that ended after `retry`.
pub async fn outdated(
    conn: &mut Connection,
    of: MachinesOf,
    after: Option<AllocationId>,
    retry: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<AllocationId>, sqlx::Error> {
    let (user, node) = match of {
        MachinesOf::Everybody => (None, None),
        MachinesOf::Person(user) => (Some(user.uuid()), None),
        MachinesOf::ServiceAccount(account) => (Some(account.uuid()), None),
        MachinesOf::Node(node) => (None, Some(node.uuid())),
    };
    let ids = sqlx::query_scalar!(
        "SELECT a.id FROM allocations a
         WHERE a.state IN ('requested', 'provisioning', 'active') AND ($1::uuid IS NULL OR a.id > $1)
             AND ($2::uuid IS NULL OR a.creator_id = $2
                 OR EXISTS (SELECT FROM allocation_access_grants g WHERE g.allocation_id = a.id AND g.user_id = $2))
             AND ($3::uuid IS NULL OR a.node_id = $3)
             AND (EXISTS (SELECT FROM allocation_keys k WHERE k.allocation_id = a.id AND k.removed_version IS NULL
                     AND NOT k.public_key = ANY (ARRAY(SELECT m.public_key FROM member_ssh_keys(a.project_id,
                         ARRAY(SELECT a.creator_id UNION ALL SELECT g.user_id FROM allocation_access_grants g
                             WHERE g.allocation_id = a.id)) AS m)))
                 OR (a.state = 'active'
                     AND EXISTS (SELECT FROM allocation_keys k
                         WHERE k.allocation_id = a.id AND k.removed_version IS NOT NULL)
                     AND NOT EXISTS (SELECT FROM nodes n WHERE n.id = a.node_id AND n.state = 'offline')
                     AND NOT EXISTS (SELECT FROM saga_runs r
                         WHERE r.subject = 'alloc_' || replace(a.id::text, '-', '') || '/access'
                             AND (r.finished_at IS NULL OR r.finished_at > $4))))
         ORDER BY a.id LIMIT $5",
        after.map(|after| after.uuid()),
        user,
        node,
        retry,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(AllocationId::from).collect())
}

/// Of allocations that are over nothing is kept. Answers how many keys were deleted.
pub async fn tidy(conn: &mut Connection, limit: i64) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query!(
        "DELETE FROM allocation_keys WHERE (allocation_id, public_key) IN (
             SELECT k.allocation_id, k.public_key FROM allocation_keys k JOIN allocations a ON a.id = k.allocation_id
             WHERE a.state IN ('released', 'failed') LIMIT $1)",
        limit
    )
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
