//! Allocations. A state changes in [`step`] and nowhere else.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery, Problem,
    ids::{AllocationId, GroupId, NodeId, OrgId, ProjectId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap, WriteTx};
use serde_json::Value;
use uuid::Uuid;

use crate::model::{
    allocation::{
        Allocation, AllocationEvent, AllocationState, Filter, ProfileSnapshot, ReleaseCause, Shape,
    },
    sku::PriceUnit,
};

struct Row {
    id: Uuid,
    org_id: Uuid,
    project_id: Uuid,
    group_id: Option<Uuid>,
    name: String,
    creator_kind: String,
    creator_id: Uuid,
    sku: String,
    shape: Shape,
    region: String,
    gpus: i32,
    profile: Value,
    price_unit: PriceUnit,
    unit_price_minor: i64,
    currency: String,
    isolation_model: String,
    node_id: Uuid,
    slot_ids: Vec<Uuid>,
    username: String,
    uid: i32,
    ssh_host: String,
    ssh_port: i32,
    ssh_host_keys: Vec<String>,
    work_order: Vec<u8>,
    access_version: i64,
    installed_access: i64,
    access_order: Option<Vec<u8>>,
    restart_order: Option<Vec<u8>>,
    state: AllocationState,
    state_reason: String,
    failure_code: Option<String>,
    state_changed_at: DateTime<Utc>,
    release_cause: Option<ReleaseCause>,
    active_at: Option<DateTime<Utc>>,
    meter_opened_at: Option<DateTime<Utc>>,
    meter_closed_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl TryFrom<Row> for Allocation {
    type Error = Failure;

    fn try_from(row: Row) -> Result<Self, Failure> {
        let profile: ProfileSnapshot = serde_json::from_value(row.profile)?;
        Ok(Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            project_id: row.project_id.into(),
            group_id: row.group_id.map(GroupId::from),
            name: row.name,
            creator_kind: row.creator_kind.parse()?,
            creator_id: row.creator_id,
            sku: row.sku,
            shape: row.shape,
            region: row.region,
            gpus: row.gpus,
            profile,
            price_unit: row.price_unit,
            unit_price_minor: row.unit_price_minor,
            currency: row.currency,
            isolation_model: row.isolation_model.parse()?,
            node_id: row.node_id.into(),
            slot_ids: row.slot_ids.into_iter().map(Into::into).collect(),
            username: row.username,
            uid: row.uid,
            ssh_host: row.ssh_host,
            ssh_port: row.ssh_port,
            ssh_host_keys: row.ssh_host_keys,
            work_order: row.work_order,
            access_version: row.access_version,
            installed_access: row.installed_access,
            access_order: row.access_order,
            restart_order: row.restart_order,
            state: row.state,
            state_reason: row.state_reason,
            failure_code: row.failure_code,
            state_changed_at: row.state_changed_at,
            release_cause: row.release_cause,
            active_at: row.active_at,
            meter_opened_at: row.meter_opened_at,
            meter_closed_at: row.meter_closed_at,
            finished_at: row.finished_at,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

pub async fn get(conn: &mut Connection, id: AllocationId) -> Result<Option<Allocation>, Failure> {
    let row = sqlx::query_as!(Row, r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations WHERE id = $1"#, id.uuid())
        .fetch_optional(conn)
        .await?;
    row.map(Allocation::try_from).transpose()
}

/// Held until the transaction ends, so that what is decided from it stays true.
pub async fn lock(conn: &mut Connection, id: AllocationId) -> Result<Option<Allocation>, Failure> {
    let row = sqlx::query_as!(Row, r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations WHERE id = $1 FOR NO KEY UPDATE"#, id.uuid())
        .fetch_optional(conn)
        .await?;
    row.map(Allocation::try_from).transpose()
}

pub async fn list(
    conn: &mut Connection,
    filter: Filter<'_>,
    page: &PageQuery,
) -> Result<Vec<Allocation>, Failure> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations
         WHERE id > $1 AND ($3::uuid IS NULL OR project_id = $3) AND ($4::text IS NULL OR state = $4)
           AND (NOT $5 OR state NOT IN ('released', 'failed')) AND ($6::uuid IS NULL OR group_id = $6)
           AND ($7::uuid IS NULL OR node_id = $7) AND ($8::uuid IS NULL OR org_id = $8)
           AND ($9::text IS NULL OR sku = $9)
         ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
        filter.project.map(ProjectId::uuid),
        filter.state.map(AllocationState::name),
        filter.live,
        filter.group.map(GroupId::uuid),
        filter.node.map(NodeId::uuid),
        filter.org.map(OrgId::uuid),
        filter.sku,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(Allocation::try_from).collect()
}

/// What goes along with a change of state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Along<'a> {
    pub reason: &'a str,
    /// Who or what ended it.
    pub cause: Option<ReleaseCause>,
    /// Why it failed, when it did.
    pub failure_code: Option<&'a str>,
}

/// Applies an event that the lifecycle allows, by compare-and-swap on the version, with its history: the one place
/// where an allocation changes its state. A lost race is a conflict, and rolls back whatever was done with it.
pub async fn step(
    tx: &mut WriteTx,
    before: &Allocation,
    event: AllocationEvent,
    along: Along<'_>,
) -> Result<Allocation, Failure> {
    let to = before.after(event)?;
    let now = tx.db().ambient().now();
    let (actor, correlation) = (tx.permit().actor(), tx.permit().origin().correlation_id.0);
    let lasted = (now - before.state_changed_at).num_milliseconds().max(0);
    let row = sqlx::query_as!(
        Row,
        r#"WITH changed AS (
               UPDATE allocations SET state = $3, state_reason = $4, failure_code = $13, state_changed_at = $5, updated_at = $5,
                   version = version + 1, release_cause = coalesce($6, release_cause),
                   active_at = CASE WHEN $3 = 'active' THEN $5 ELSE active_at END,
                   meter_opened_at = CASE WHEN $3 = 'active' THEN $5 ELSE meter_opened_at END,
                   meter_closed_at = CASE WHEN $3 = 'releasing' THEN coalesce(meter_closed_at, greatest($5, meter_opened_at))
                       ELSE meter_closed_at END,
                   finished_at = CASE WHEN $3 IN ('released', 'failed') THEN $5 END
               WHERE id = $1 AND version = $2
               RETURNING id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape, region, gpus, profile, price_unit,
                   unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host, ssh_port, ssh_host_keys, work_order,
                   access_version, installed_access, access_order, restart_order, state, state_reason, failure_code, state_changed_at,
                   release_cause, active_at, meter_opened_at, meter_closed_at, finished_at, version, created_at, updated_at
           ), told AS (
               INSERT INTO allocation_events (allocation_id, org_id, at, kind, from_state, to_state, name, reason,
                   duration_ms, actor_kind, actor_id, correlation_id)
               SELECT id, org_id, $5, 'state', $7, $3, $8, $4, $9, $10, $11, $12 FROM changed
           )
           SELECT id AS "id!", org_id AS "org_id!", project_id AS "project_id!", group_id, name AS "name!",
               creator_kind AS "creator_kind!", creator_id AS "creator_id!", sku AS "sku!", shape AS "shape!: Shape",
               region AS "region!", gpus AS "gpus!", profile AS "profile!", price_unit AS "price_unit!: PriceUnit",
               unit_price_minor AS "unit_price_minor!", currency AS "currency!",
               isolation_model AS "isolation_model!", node_id AS "node_id!", slot_ids AS "slot_ids!",
               username AS "username!", uid AS "uid!", ssh_host AS "ssh_host!", ssh_port AS "ssh_port!",
               ssh_host_keys AS "ssh_host_keys!",
               work_order AS "work_order!", access_version AS "access_version!",
               installed_access AS "installed_access!", access_order, restart_order, state AS "state!: AllocationState",
               state_reason AS "state_reason!", failure_code, state_changed_at AS "state_changed_at!", release_cause AS "release_cause: ReleaseCause", active_at,
               meter_opened_at, meter_closed_at, finished_at, version AS "version!", created_at AS "created_at!",
               updated_at AS "updated_at!"
           FROM changed"#,
        before.id.uuid(),
        before.version,
        to.name(),
        along.reason,
        now,
        along.cause.map(ReleaseCause::name),
        before.state.name(),
        event.name(),
        lasted,
        actor.kind.name(),
        actor.id as Option<Uuid>,
        correlation,
        along.failure_code as Option<&str>,
    )
    .fetch_optional(tx.conn())
    .await?;
    let current = match row {
        Some(_) => None,
        None => version(tx.conn(), before.id).await?,
    };
    let row = Swap::from_update(row, current).or_problem("allocation")?;
    metrics::counter!("allocation_transitions_total", "to" => to.name()).increment(1);
    Allocation::try_from(row)
}

async fn version(conn: &mut Connection, id: AllocationId) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!("SELECT version FROM allocations WHERE id = $1", id.uuid()).fetch_optional(conn).await
}

/// The allocation of this project, or that there is no such thing.
pub async fn of_project(
    conn: &mut Connection,
    project: ProjectId,
    id: AllocationId,
) -> Result<Allocation, Failure> {
    let found = get(conn, id).await?.filter(|allocation| allocation.project_id == project);
    Ok(found.ok_or_else(|| Problem::not_found("allocation"))?)
}

/// The same, held.
pub async fn lock_of_project(
    conn: &mut Connection,
    project: ProjectId,
    id: AllocationId,
) -> Result<Allocation, Failure> {
    let found = lock(conn, id).await?.filter(|allocation| allocation.project_id == project);
    Ok(found.ok_or_else(|| Problem::not_found("allocation"))?)
}

/// The members of a group, in the order of their ids.
pub async fn of_group(conn: &mut Connection, group: GroupId) -> Result<Vec<Allocation>, Failure> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations WHERE group_id = $1 ORDER BY id"#,
        group.uuid()
    );
    rows.fetch_all(conn).await?.into_iter().map(Allocation::try_from).collect()
}

/// The same, held: always in this order, so that two that hold a group wait for each other at the first.
pub async fn lock_of_group(conn: &mut Connection, group: GroupId) -> Result<Vec<Allocation>, Failure> {
    let sql = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations WHERE group_id = $1 ORDER BY id FOR NO KEY UPDATE"#,
        group.uuid()
    );
    sql.fetch_all(conn).await?.into_iter().map(Allocation::try_from).collect()
}

/// Those of the given ones that belong to the project.
pub async fn among(
    conn: &mut Connection,
    project: ProjectId,
    ids: &[Uuid],
) -> Result<Vec<Allocation>, Failure> {
    let sql = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape AS "shape: Shape", region, gpus, profile,
             price_unit AS "price_unit: PriceUnit", unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid, ssh_host,
             ssh_port, ssh_host_keys, work_order, access_version, installed_access, access_order, restart_order, state AS "state: AllocationState", state_reason, failure_code,
             state_changed_at, release_cause AS "release_cause: ReleaseCause", active_at, meter_opened_at, meter_closed_at, finished_at, version,
             created_at, updated_at
         FROM allocations WHERE id = ANY ($1) AND project_id = $2 ORDER BY id"#,
        ids,
        project.uuid()
    );
    sql.fetch_all(conn).await?.into_iter().map(Allocation::try_from).collect()
}
