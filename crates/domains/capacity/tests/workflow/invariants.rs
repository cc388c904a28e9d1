//! What must hold whenever no transaction is open, asked of the database behind everybody's back.

use crate::kit::Kit;

const NEVER: &[(&str, &str)] = &[
    (
        "a slot is claimed twice",
        "SELECT count(*) FROM (SELECT slot_id FROM capacity_claims WHERE freed_at IS NULL AND slot_id IS NOT NULL
         GROUP BY slot_id HAVING count(*) > 1) x",
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
             WHEN 'releasing' THEN s.state IN ('in_use', 'cleaning', 'cleanup_blocked')
             WHEN 'release_failed' THEN s.state = 'cleanup_blocked'
             ELSE s.state IN ('available', 'cleanup_blocked') END",
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
              WHERE a.state NOT IN ('released', 'failed') GROUP BY k.kind, k.holder) r
             ON r.kind = h.kind AND r.holder = h.holder
         WHERE h.gpus <> coalesce(r.gpus, 0) OR h.allocations <> coalesce(r.allocations, 0)",
    ),
    (
        "the count of free slots is not what is free",
        "SELECT count(*) FROM node_capacity c JOIN LATERAL
             (SELECT count(*) FILTER (WHERE slot_is_free(s)) AS free,
                  count(*) FILTER (WHERE s.state = 'cleanup_blocked') AS blocked,
                  count(*) FILTER (WHERE s.state = 'cleaning') AS cleaning FROM node_resource_slots s
              WHERE s.node_id = c.node_id AND s.kind = c.kind AND s.model = c.model) r ON true
         WHERE (c.free, c.blocked, c.cleaning) <> (r.free, r.blocked, r.cleaning)",
    ),
    (
        "a meter was opened more than once, or for what was never active",
        "SELECT count(*) FROM allocations a WHERE (a.meter_opened_at IS NOT NULL)::int <>
             (SELECT count(*) FROM test_meters m WHERE m.allocation = a.id AND m.what = 'open')
             OR (a.state IN ('requested', 'provisioning', 'failed') AND a.meter_opened_at IS NOT NULL)",
    ),
    (
        "a meter runs on after the end, or was closed more than once",
        "SELECT count(*) FROM allocations a WHERE (a.meter_closed_at IS NOT NULL)::int <>
             (SELECT count(*) FROM test_meters m WHERE m.allocation = a.id AND m.what = 'close')
             OR (a.state IN ('releasing', 'released', 'release_failed') AND a.meter_closed_at IS NULL)",
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
        "a run that failed left work open at a node",
        "SELECT count(*) FROM node_tasks t JOIN saga_runs r ON split_part(t.waiting_key, '/', 1) = 'run_' || replace(r.id::text, '-', '')
         WHERE t.state IN ('queued', 'dispatched', 'running') AND r.state IN ('undone', 'stuck')",
    ),
    (
        "a tenant reads of a node",
        "SELECT count(*) FROM (SELECT a.node_id, a.slot_ids, a.state_reason || ' ' || string_agg(e.name || ' ' || e.reason, ' ') AS seen
             FROM allocations a JOIN allocation_events e ON e.allocation_id = a.id GROUP BY a.id) x
         WHERE seen LIKE '%' || node_id || '%' OR seen LIKE '%' || replace(node_id::text, '-', '') || '%'
             OR seen LIKE '%host-%' OR seen LIKE '%task_%' OR seen LIKE '%slot_%'",
    ),
];

/// Says what does not hold.
pub async fn broken(kit: &Kit) -> Result<(), String> {
    for (what, sql) in NEVER {
        let count: i64 = kit.one(sql).await;
        if count != 0 {
            return Err(format!("{what} ({count} times)"));
        }
    }
    Ok(())
}

pub async fn hold(kit: &Kit) {
    broken(kit).await.unwrap();
}
