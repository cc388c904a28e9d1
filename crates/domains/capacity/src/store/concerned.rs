//! Allocations that money or a fault of hardware is about.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, NodeId, SlotId};
use pg::Connection;

use crate::service::money::Due;

/// What runs or is being launched and is not ending, in the order of the ids, after `after`.
pub async fn of(
    conn: &mut Connection,
    due: Due,
    after: Option<AllocationId>,
    limit: i64,
) -> Result<Vec<AllocationId>, sqlx::Error> {
    let (org, project) = match due {
        Due::Depletion(org) => (org, None),
        Due::Budget(org, project) => (org, Some(project)),
    };
    let ids = sqlx::query_scalar!(
        "SELECT id FROM allocations WHERE org_id = $1 AND ($2::uuid IS NULL OR project_id = $2)
             AND state IN ('requested', 'provisioning', 'active') AND ($3::uuid IS NULL OR id > $3)
         ORDER BY id LIMIT $4",
        org.uuid(),
        project.map(|project| project.uuid()),
        after.map(|after| after.uuid()),
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(AllocationId::from).collect())
}

/// Who was on this part of a node after `since` for money, by organization.
pub async fn paid_since(
    conn: &mut Connection,
    node: NodeId,
    slot: Option<SlotId>,
    since: DateTime<Utc>,
) -> Result<Vec<AllocationId>, sqlx::Error> {
    // Two questions, because those that are over are found by when, and the others by where.
    let ids = sqlx::query_scalar!(
        r#"SELECT id AS "id!" FROM (
               SELECT id, org_id FROM allocations WHERE node_id = $1 AND ($2::uuid IS NULL OR $2 = ANY (slot_ids))
                   AND state NOT IN ('released', 'failed') AND meter_opened_at IS NOT NULL
                   AND coalesce(meter_closed_at, 'infinity') > $3
               UNION ALL
               SELECT id, org_id FROM allocations WHERE finished_at > $3 AND node_id = $1
                   AND ($2::uuid IS NULL OR $2 = ANY (slot_ids)) AND state = 'released' AND meter_closed_at > $3
           ) AS paid ORDER BY org_id, id"#,
        node.uuid(),
        slot.map(|slot| slot.uuid()),
        since,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(AllocationId::from).collect())
}
