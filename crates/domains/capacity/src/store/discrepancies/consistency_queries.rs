//! What is looked for in our own records.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, NodeId, OrgId, ProjectId, SlotId, TaskId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    allocation::{AllocationState, Shape},
    discrepancy::{Expected, Found},
};

/// Allocations that are over and hold something.
pub async fn claims_of_ended(conn: &mut Connection, limit: i64) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT a.id, a.node_id, a.state, count(*) AS "claims!" FROM capacity_claims c
               JOIN allocations a ON a.id = c.allocation_id
           WHERE c.freed_at IS NULL AND a.state IN ('released', 'failed')
           GROUP BY a.id ORDER BY a.id LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let id = AllocationId::from(row.id);
        let message = format!("{id} is {} and still has {} claims on capacity.", row.state, row.claims);
        about_allocation(id, row.node_id, message)
    });
    Ok(found.collect())
}

/// Allocations that are not over and hold less, or more, than they were given.
pub async fn claims_missing(conn: &mut Connection, limit: i64) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT a.id, a.node_id, a.state, given.claims AS "given!", held.claims AS "held!" FROM allocations a
               CROSS JOIN LATERAL (SELECT cardinality(a.slot_ids) + (a.shape = 'baremetal')::int AS claims) given
               CROSS JOIN LATERAL (SELECT count(*) AS claims FROM capacity_claims c
                   WHERE c.allocation_id = a.id AND c.freed_at IS NULL) held
           WHERE a.state NOT IN ('released', 'failed') AND held.claims <> given.claims
           ORDER BY a.id LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let id = AllocationId::from(row.id);
        let message = format!("{id} is {} and has {} claims of {}.", row.state, row.held, row.given);
        about_allocation(id, row.node_id, message)
    });
    Ok(found.collect())
}

/// Slots that are taken since before `settled` and that nobody holds. A slot of an allocation that is over may be
/// cleaned by a workflow of its own.
pub async fn slots_unclaimed(
    conn: &mut Connection,
    settled: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT s.id, s.node_id, s.state FROM node_resource_slots s
         WHERE s.state IN ('reserved', 'in_use', 'cleaning') AND s.updated_at < $1
           AND NOT EXISTS (SELECT FROM capacity_claims c WHERE c.slot_id = s.id AND c.freed_at IS NULL)
           AND NOT (s.state = 'cleaning' AND EXISTS (SELECT FROM saga_runs r
               JOIN node_resource_slots o ON r.subject = 'slot_' || replace(o.id::text, '-', '')
               WHERE o.node_id = s.node_id AND r.state IN ('running', 'undoing')))
         ORDER BY s.id LIMIT $2",
        settled,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let (id, node) = (SlotId::from(row.id), NodeId::from(row.node_id));
        let message = format!("{id} of {node} is {}, but no allocation claims it.", row.state);
        Found { subject: id.to_string(), node: Some(node), allocation: None, message }
    });
    Ok(found.collect())
}

/// Slots that somebody holds and that are free since before `settled`, or do not exist.
pub async fn claims_on_free_slots(
    conn: &mut Connection,
    settled: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.slot_id AS "slot_id!", c.node_id, c.allocation_id, coalesce(s.state, 'gone') AS "state!"
           FROM capacity_claims c LEFT JOIN node_resource_slots s ON s.id = c.slot_id
           WHERE c.freed_at IS NULL AND c.slot_id IS NOT NULL
             AND (s.id IS NULL OR s.state IN ('discovered', 'approved', 'available') AND s.updated_at < $1)
           ORDER BY c.slot_id LIMIT $2"#,
        settled,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let (slot, id) = (SlotId::from(row.slot_id), AllocationId::from(row.allocation_id));
        let message = format!("{slot} is {}, and {id} holds it.", row.state);
        Found { subject: slot.to_string(), ..about_allocation(id, row.node_id, message) }
    });
    Ok(found.collect())
}

/// Allocations that are on their way since before `settled` without a workflow.
pub async fn workflows_missing(
    conn: &mut Connection,
    settled: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT a.id, a.node_id, a.state FROM allocations a
         WHERE a.state IN ('requested', 'provisioning', 'releasing') AND a.state_changed_at < $1
           AND NOT EXISTS (SELECT FROM saga_runs r WHERE r.subject = 'alloc_' || replace(a.id::text, '-', '')
               AND r.state IN ('running', 'undoing'))
         ORDER BY a.id LIMIT $2",
        settled,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let id = AllocationId::from(row.id);
        let message = format!("{id} is {}, but has no workflow run.", row.state);
        about_allocation(id, row.node_id, message)
    });
    Ok(found.collect())
}

/// Allocations whose machine has not given up keys that it should have before `settled`.
pub async fn keys_not_removed(
    conn: &mut Connection,
    settled: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT a.id, a.node_id, count(*) AS "keys!", min(k.removed_at) AS "since!" FROM allocation_keys k
               JOIN allocations a ON a.id = k.allocation_id
           WHERE k.removed_at < $1 AND a.state = 'active'
           GROUP BY a.id ORDER BY a.id LIMIT $2"#,
        settled,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let id = AllocationId::from(row.id);
        let message = format!(
            "The machine of {id} may still have {} keys that were revoked at {}.",
            row.keys,
            row.since.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
        );
        about_allocation(id, row.node_id, message)
    });
    Ok(found.collect())
}

/// Holders whose count is not what the allocations with claims add up to.
pub async fn holdings_differ(conn: &mut Connection, limit: i64) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"WITH counted AS (
               SELECT a.org_id, k.kind, k.holder, sum(a.gpus)::bigint AS gpus, count(*) AS allocations
               FROM allocations a, LATERAL (VALUES ('1_org', a.org_id), ('2_project', a.project_id),
                   ('3_person', a.creator_id)) AS k (kind, holder)
               WHERE a.id IN (SELECT c.allocation_id FROM capacity_claims c WHERE c.freed_at IS NULL)
               GROUP BY a.org_id, k.kind, k.holder
           )
           SELECT coalesce(h.kind, n.kind) AS "kind!", coalesce(h.org_id, n.org_id) AS "org_id!",
               coalesce(h.holder, n.holder) AS "holder!",
               coalesce(h.gpus, 0) AS "gpus!", coalesce(n.gpus, 0) AS "counted_gpus!",
               coalesce(h.allocations, 0) AS "allocations!", coalesce(n.allocations, 0) AS "counted_allocations!"
           FROM capacity_holdings h FULL JOIN counted n
               ON n.org_id = h.org_id AND n.kind = h.kind AND n.holder = h.holder
           WHERE coalesce(h.gpus, 0) <> coalesce(n.gpus, 0)
              OR coalesce(h.allocations, 0) <> coalesce(n.allocations, 0)
           ORDER BY 2, 1, 3 LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let org = OrgId::from(row.org_id);
        let subject = match row.kind.as_str() {
            "1_org" => org.to_string(),
            "2_project" => ProjectId::from(row.holder).to_string(),
            // A person or a service account.
            _ => format!("{org}/creator/{}", row.holder.simple()),
        };
        let message = format!(
            "{subject} is counted with {} GPUs in {} allocations, but has {} in {}.",
            row.gpus, row.allocations, row.counted_gpus, row.counted_allocations
        );
        Found { subject, node: None, allocation: None, message }
    });
    Ok(found.collect())
}

/// Those of the nodes whose count is not what their slots add up to.
pub async fn node_capacity_differs(
    conn: &mut Connection,
    nodes: &[NodeId],
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"WITH slots AS (
               SELECT s.node_id, s.kind, s.model, count(*) AS total,
                   count(*) FILTER (WHERE n.serves = 'any' AND slot_is_free(s)) AS free,
                   count(*) FILTER (WHERE slot_is_ready(s, n.serves)) AS ready,
                   count(*) FILTER (WHERE s.state = 'cleaning') AS cleaning,
                   n.state = 'active' AND n.cordon_reason IS NULL AS placeable
               FROM node_resource_slots s JOIN nodes n ON n.id = s.node_id
               WHERE s.node_id = ANY ($1) GROUP BY s.node_id, s.kind, s.model, n.id
           ), counted AS (
               SELECT node_id, kind, model, total, free, ready, cleaning, placeable,
                   count(*) OVER node = 1 AND total = ready AS whole FROM slots
               WINDOW node AS (PARTITION BY node_id)
           ), kept AS (
               SELECT node_id, kind, model, total, free, ready, cleaning, placeable, whole FROM node_capacity
               WHERE node_id = ANY ($1)
           )
           SELECT coalesce(k.node_id, c.node_id) AS "node_id!", coalesce(k.kind, c.kind) AS "kind!",
               coalesce(k.model, c.model) AS "model!", coalesce(k.free, 0) AS "kept!", coalesce(c.free, 0) AS "counted!"
           FROM kept k FULL JOIN counted c ON c.node_id = k.node_id AND c.kind = k.kind AND c.model = k.model
           WHERE (k.total, k.free, k.ready, k.cleaning, k.placeable, k.whole)
               IS DISTINCT FROM (c.total::int, c.free::int, c.ready::int, c.cleaning::int, c.placeable, c.whole)
           ORDER BY 1, 2, 3"#,
        &nodes.iter().map(|node| node.uuid()).collect::<Vec<Uuid>>(),
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let node = NodeId::from(row.node_id);
        let what = format!("{} {}", row.kind, row.model);
        let what = what.trim_end();
        let message = format!(
            "{node} is counted with {} free slots of {what}, but has {}, or another count differs.",
            row.kept, row.counted
        );
        Found { subject: format!("{node}/{what}"), node: Some(node), allocation: None, message }
    });
    Ok(found.collect())
}

/// Open tasks whose workflow ended before `settled`, or does not exist.
pub async fn tasks_unawaited(
    conn: &mut Connection,
    settled: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT t.id, t.node_id, t.task_type, t.state, split_part(t.waiting_key, '/', 1) AS "run!" FROM node_tasks t
           WHERE t.state IN ('queued', 'dispatched', 'running') AND t.waiting_kind = 'saga' AND t.created_at < $1
             AND NOT EXISTS (SELECT FROM saga_runs r
                 WHERE r.id = CASE WHEN t.waiting_key ~ '^run_[0-9a-f]{32}/' THEN substr(t.waiting_key, 5, 32)::uuid END
                   AND (r.finished_at IS NULL OR r.finished_at >= $1))
           ORDER BY t.id LIMIT $2"#,
        settled,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(|row| {
        let (id, node) = (TaskId::from(row.id), NodeId::from(row.node_id));
        let message = format!(
            "{id} ({}) of {node} is {}, but the workflow {} that waited for it has ended.",
            row.task_type, row.state, row.run
        );
        Found { subject: id.to_string(), node: Some(node), allocation: None, message }
    });
    Ok(found.collect())
}

/// What the nodes should have: of allocations that are not over, or ended after `since`.
pub async fn expected(
    conn: &mut Connection,
    nodes: &[NodeId],
    since: DateTime<Utc>,
) -> Result<Vec<Expected>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT id AS "id!", node_id AS "node_id!", shape AS "shape!: Shape", username AS "username!",
               state AS "state!: AllocationState",
               state_changed_at AS "state_changed_at!"
           FROM allocations WHERE node_id = ANY ($1) AND state NOT IN ('released', 'failed')
           UNION ALL
           SELECT id, node_id, shape, username, state, state_changed_at
           FROM allocations WHERE finished_at > $2 AND node_id = ANY ($1)"#,
        &nodes.iter().map(|node| node.uuid()).collect::<Vec<Uuid>>(),
        since,
    )
    .fetch_all(conn)
    .await?;
    let expected = rows.into_iter().map(|row| Expected {
        id: AllocationId::from(row.id),
        node: NodeId::from(row.node_id),
        shape: row.shape,
        username: row.username,
        active: row.state == AllocationState::Active,
        over: row.state.is_over(),
        changed_at: row.state_changed_at,
    });
    Ok(expected.collect())
}

fn about_allocation(id: AllocationId, node: Uuid, message: String) -> Found {
    Found { subject: id.to_string(), node: Some(NodeId::from(node)), allocation: Some(id), message }
}
