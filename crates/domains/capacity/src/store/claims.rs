//! What is held: claims are made by `reserve` and freed here.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, OrgId, ProjectId},
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

/// Frees all that an allocation holds, once; answers whether it held anything.
pub async fn free(tx: &mut WriteTx, allocation: AllocationId, now: DateTime<Utc>) -> Result<bool, Failure> {
    let freed = sqlx::query_scalar!(r#"SELECT capacity_free($1, $2) AS "freed!""#, allocation.uuid(), now)
        .fetch_one(tx.conn())
        .await?;
    Ok(freed)
}

/// What a holder has at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    pub gpus: i64,
    pub allocations: i64,
}

/// The GPUs and allocations of an organization, a project and a user, in this order.
pub async fn quota_usage(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    person: Uuid,
) -> Result<[QuotaUsage; 3], sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT kind, gpus, allocations FROM capacity_holdings WHERE org_id = $1 AND (kind, holder) IN
             (('1_org', $1::uuid), ('2_project', $2::uuid), ('3_person', $3::uuid))",
        org.uuid(),
        project.uuid(),
        person,
    )
    .fetch_all(conn)
    .await?;
    let of = |kind: &str| {
        let row = rows.iter().find(|row| row.kind == kind);
        row.map_or(QuotaUsage::default(), |row| QuotaUsage { gpus: row.gpus, allocations: row.allocations })
    };
    Ok([of("1_org"), of("2_project"), of("3_person")])
}
