//! Allocations that money or a fault of hardware is about.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, NodeId, SlotId},
};
use pg::Connection;

use crate::model::{
    allocation::{Shape, tenant_is_root},
    money::Due,
};

/// What runs or is being launched and is not ending, in the order of the ids, after `after`.
pub async fn allocations_due(
    conn: &mut Connection,
    due: Due,
    after: Option<AllocationId>,
    limit: i64,
) -> Result<Vec<AllocationId>, sqlx::Error> {
    let (org, project, account) = match due {
        Due::Depletion(org) => (org, None, None),
        Due::Budget(org, project) => (org, Some(project), None),
        Due::SpendCap(org, account) => (org, None, Some(account)),
    };
    let ids = sqlx::query_scalar!(
        "SELECT id FROM allocations WHERE org_id = $1 AND ($2::uuid IS NULL OR project_id = $2)
             AND state IN ('requested', 'provisioning', 'active') AND ($3::uuid IS NULL OR id > $3)
             AND ($5::uuid IS NULL OR (creator_kind = 'service_account' AND creator_id = $5))
         ORDER BY id LIMIT $4",
        org.uuid(),
        project.map(|project| project.uuid()),
        after.map(|after| after.uuid()),
        limit,
        account.map(|account| account.uuid()),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(AllocationId::from).collect())
}

/// An allocation that was on a part of a node for money, and what its tenant may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paying {
    pub id: AllocationId,
    pub tenant_is_root: bool,
}

/// Who was active on this part of a node between `since` and `until` for money, by organization.
pub async fn paying_between(
    conn: &mut Connection,
    node: NodeId,
    slot: Option<SlotId>,
    since: DateTime<Utc>,
    until: Option<DateTime<Utc>>,
) -> Result<Vec<Paying>, Failure> {
    // Two questions, because those that are over are found by when, and the others by where.
    let rows = sqlx::query!(
        r#"SELECT id AS "id!", shape AS "shape!: Shape", isolation_model AS "isolation_model!" FROM (
               SELECT id, org_id, shape, isolation_model FROM allocations WHERE node_id = $1 AND ($2::uuid IS NULL OR $2 = ANY (slot_ids))
                   AND state NOT IN ('released', 'failed') AND meter_opened_at < coalesce($4::timestamptz, 'infinity')
                   AND coalesce(meter_closed_at, 'infinity') > $3
               UNION ALL
               SELECT id, org_id, shape, isolation_model FROM allocations WHERE finished_at > $3 AND node_id = $1
                   AND ($2::uuid IS NULL OR $2 = ANY (slot_ids)) AND state = 'released' AND meter_closed_at > $3
                   AND meter_opened_at < coalesce($4::timestamptz, 'infinity')
           ) AS paid ORDER BY org_id, id"#,
        node.uuid(),
        slot.map(|slot| slot.uuid()),
        since,
        until,
    )
    .fetch_all(conn)
    .await?;
    let paying = rows.into_iter().map(|row| {
        let tenant_is_root = tenant_is_root(row.shape, row.isolation_model.parse()?);
        Ok(Paying { id: row.id.into(), tenant_is_root })
    });
    paying.collect()
}
