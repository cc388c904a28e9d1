//! What must hold of allocations, and of the money for them, at any moment, asked of the database behind everybody's
//! back. All questions about either are asked of one snapshot, so they may be asked while everything goes on.

use pg::Roles;
use sqlx::{Connection as _, Executor as _};

use crate::TestDb;

const NEVER: &[(&str, &str)] = &[
    (
        "a slot is claimed twice",
        "SELECT count(*) FROM (SELECT slot_id FROM capacity_claims WHERE freed_at IS NULL AND slot_id IS NOT NULL
         GROUP BY slot_id HAVING count(*) > 1) x",
    ),
    (
        "a node is claimed whole and by slots",
        "SELECT count(*) FROM (SELECT node_id FROM capacity_claims WHERE freed_at IS NULL GROUP BY node_id
         HAVING count(DISTINCT exclusive) > 1) x",
    ),
    (
        "an allocation that is over holds something, or one that is not holds other slots than it has",
        "SELECT count(*) FROM allocations a WHERE
             (SELECT array_agg(slot_id ORDER BY slot_id) FROM capacity_claims c
              WHERE c.allocation_id = a.id AND c.freed_at IS NULL AND slot_id IS NOT NULL)
             IS DISTINCT FROM CASE WHEN a.state NOT IN ('released', 'failed')
                 THEN (SELECT array_agg(s ORDER BY s) FROM unnest(a.slot_ids) s) END",
    ),
    (
        "a slot is not in a state that its allocation allows",
        "SELECT count(*) FROM node_resource_slots s LEFT JOIN capacity_claims c ON c.slot_id = s.id AND c.freed_at IS NULL
             LEFT JOIN allocations a ON a.id = c.allocation_id
         WHERE NOT CASE a.state WHEN 'requested' THEN s.state = 'reserved'
             WHEN 'provisioning' THEN s.state = 'in_use' WHEN 'active' THEN s.state = 'in_use'
             WHEN 'releasing' THEN s.state IN ('in_use', 'cleaning', 'cleanup_blocked', 'quarantined')
             WHEN 'release_failed' THEN s.state IN ('cleanup_blocked', 'quarantined')
             ELSE s.state NOT IN ('reserved', 'in_use', 'cleaning') OR s.state = 'cleaning' AND EXISTS
                 (SELECT FROM saga_runs r WHERE r.name = 'cleanup' AND r.state IN ('running', 'undoing')) END",
    ),
    (
        "a slot is fenced and nobody says why",
        "SELECT count(*) FROM node_resource_slots WHERE state = 'cleanup_blocked' AND coalesce(cleanup_reason, '') = ''",
    ),
    (
        "holdings are not what is held",
        "SELECT count(*) FROM capacity_holdings h LEFT JOIN
             (SELECT k.kind, k.holder, sum(a.gpus) AS gpus, count(*) AS allocations FROM allocations a,
                  LATERAL (VALUES ('1_org', a.org_id), ('2_project', a.project_id), ('3_person', a.creator_id))
                      AS k (kind, holder)
              WHERE a.state NOT IN ('released', 'failed') GROUP BY k.kind, k.holder, a.org_id) r
             ON r.kind = h.kind AND r.holder = h.holder
         WHERE h.gpus <> coalesce(r.gpus, 0) OR h.allocations <> coalesce(r.allocations, 0)",
    ),
    (
        "the count of free slots is not what is free",
        "SELECT count(*) FROM node_capacity c JOIN nodes n ON n.id = c.node_id JOIN LATERAL
             (SELECT count(*) AS total, count(*) FILTER (WHERE n.serves = 'any' AND slot_is_free(s)) AS free,
                  count(*) FILTER (WHERE slot_is_ready(s, n.serves)) AS ready,
                  count(*) FILTER (WHERE s.state = 'cleaning') AS cleaning,
                  count(*) FILTER (WHERE s.state IN ('discovered', 'approved', 'cleanup_blocked', 'quarantined')
                      OR s.state = 'available' AND NOT slot_is_ready(s, n.serves)) AS blocked FROM node_resource_slots s
              WHERE s.node_id = c.node_id AND s.kind = c.kind AND s.model = c.model) r ON true
         WHERE (c.total, c.free, c.ready, c.blocked, c.cleaning) <> (r.total, r.free, r.ready, r.blocked, r.cleaning)",
    ),
    (
        "a meter is open for what was never active, or runs on after the end",
        "SELECT count(*) FROM allocations a
         WHERE (a.state IN ('requested', 'provisioning', 'failed') AND a.meter_opened_at IS NOT NULL)
             OR (a.state IN ('active', 'releasing', 'release_failed') AND a.meter_opened_at IS NULL)
             OR (a.state IN ('releasing', 'release_failed') OR a.state = 'released' AND a.meter_opened_at IS NOT NULL)
                 <> (a.meter_closed_at IS NOT NULL)",
    ),
    (
        "a meter was opened other than once for what became active",
        "SELECT count(*) FROM allocations a WHERE (a.meter_opened_at IS NOT NULL)::int <>
             (SELECT count(*) FROM allocation_events e WHERE e.allocation_id = a.id AND e.to_state = 'active')",
    ),
    (
        "a meter is not in a state that its allocation allows",
        "SELECT count(*) FROM meters m LEFT JOIN allocations a ON a.id = m.allocation_id
         WHERE m.source = 'allocation' AND NOT coalesce(CASE
             WHEN a.state IN ('requested', 'provisioning') THEN m.state = 'held'
             WHEN a.state = 'active' THEN m.state IN ('open', 'paused')
             WHEN a.state = 'failed' OR a.state = 'released' AND a.meter_opened_at IS NULL THEN m.state = 'void'
             ELSE m.state IN ('closed', 'settled') END, false)",
    ),
    (
        "a meter was opened or closed at another time than its allocation",
        "SELECT count(*) FROM meters m JOIN allocations a ON a.id = m.allocation_id
         WHERE m.opened_at IS DISTINCT FROM date_trunc('second', a.meter_opened_at)
             OR m.closed_at > greatest(date_trunc('second', a.meter_closed_at), m.running_since)
             OR (m.closed_at IS NULL) <> (a.meter_closed_at IS NULL)",
    ),
    (
        "an allocation of somebody who pays has no meter",
        "SELECT count(*) FROM allocations a WHERE EXISTS (SELECT FROM ledger_chains c WHERE c.org_id = a.org_id)
             AND NOT EXISTS (SELECT FROM meters m WHERE m.allocation_id = a.id)",
    ),
    (
        "an allocation on its way has no run",
        "SELECT count(*) FROM allocations a WHERE a.state IN ('requested', 'provisioning', 'releasing') AND NOT EXISTS
             (SELECT FROM saga_runs r WHERE r.subject = 'alloc_' || replace(a.id::text, '-', '')
              AND r.state IN ('running', 'undoing'))",
    ),
    (
        "an end was told other than once",
        "SELECT count(*) FROM allocations a JOIN (VALUES ('active', 'provisioning.active'), ('failed', 'provisioning.failed'),
             ('released', 'provisioning.releasing.completed')) AS e (state, event) ON e.state = a.state
             LEFT JOIN (SELECT event_type, payload->>'allocation_id' AS id, count(*) AS times FROM outbox_events
                 GROUP BY 1, 2) o ON o.event_type = e.event AND o.id = 'alloc_' || replace(a.id::text, '-', '')
         WHERE o.times IS DISTINCT FROM 1",
    ),
    (
        "the history of an allocation is not one way to its state",
        "SELECT count(*) FROM allocations a JOIN
             (SELECT allocation_id, (array_agg(to_state ORDER BY seq DESC))[1] AS last,
                  count(*) FILTER (WHERE from_state IS DISTINCT FROM before) AS gaps
              FROM (SELECT *, lag(to_state) OVER (PARTITION BY allocation_id ORDER BY seq) AS before
                    FROM allocation_events WHERE kind = 'state') e GROUP BY allocation_id) h ON h.allocation_id = a.id
         WHERE h.last <> a.state OR h.gaps > 0",
    ),
    (
        "a run that failed left work open at a node",
        "SELECT count(*) FROM node_tasks t JOIN saga_runs r ON split_part(t.waiting_key, '/', 1) = 'run_' || replace(r.id::text, '-', '')
         WHERE t.state IN ('queued', 'dispatched', 'running') AND r.state IN ('undone', 'stuck')",
    ),
    (
        "a tenant reads of a node",
        "SELECT count(*) FROM (SELECT n.hostname, a.node_id, a.state_reason || ' ' || string_agg(e.name || ' ' || e.reason, ' ') AS seen
             FROM allocations a JOIN allocation_events e ON e.allocation_id = a.id JOIN nodes n ON n.id = a.node_id
             GROUP BY a.id, n.hostname) x
         WHERE seen LIKE '%' || node_id || '%' OR seen LIKE '%' || replace(node_id::text, '-', '') || '%'
             OR seen LIKE '%' || hostname || '%' OR seen LIKE '%task_%' OR seen LIKE '%slot_%'",
    ),
];

/// Says what does not hold.
pub async fn broken(db: &TestDb) -> Result<(), String> {
    broken_of(db, NEVER).await?;
    crate::money::broken(db).await
}

/// The same for questions of one's own: what never happens, and how often it does.
pub async fn broken_of(db: &TestDb, never: &[(&str, &str)]) -> Result<(), String> {
    let mut conn = db.conn(Roles::Admin).await;
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.expect("a snapshot");
    for (what, sql) in never {
        let asked = sqlx::query_scalar(sqlx::AssertSqlSafe((*sql).to_owned())).fetch_one(&mut conn).await;
        let count: i64 = asked.unwrap_or_else(|error| panic!("{what}: {error}"));
        if count != 0 {
            return Err(format!("{what} ({count} times)"));
        }
    }
    let _ = conn.close().await;
    Ok(())
}

pub async fn hold(db: &TestDb) {
    broken(db).await.unwrap();
}
