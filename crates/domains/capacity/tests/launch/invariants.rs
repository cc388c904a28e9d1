//! What must hold at any time, asked of the database behind everybody's back.

use crate::world::World;

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
        "a slot is reserved without a claim, or claimed without being reserved",
        "SELECT count(*) FROM node_resource_slots s FULL JOIN
             (SELECT slot_id FROM capacity_claims WHERE freed_at IS NULL AND slot_id IS NOT NULL) c ON c.slot_id = s.id
         WHERE (s.state = 'reserved') <> (c.slot_id IS NOT NULL)",
    ),
    (
        "an allocation holds other slots than it has",
        "SELECT count(*) FROM allocations a WHERE a.state NOT IN ('released', 'failed') AND
             (SELECT array_agg(slot_id ORDER BY slot_id) FROM capacity_claims c
              WHERE c.allocation_id = a.id AND c.freed_at IS NULL AND slot_id IS NOT NULL)
             IS DISTINCT FROM (SELECT array_agg(s ORDER BY s) FROM unnest(a.slot_ids) s)",
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
        "SELECT count(*) FROM node_capacity c WHERE c.free <> (SELECT count(*) FROM node_resource_slots s
             WHERE s.node_id = c.node_id AND s.kind = c.kind AND s.model = c.model AND slot_is_free(s))",
    ),
    (
        "an allocation on its way has no run",
        "SELECT count(*) FROM allocations a WHERE a.state IN ('requested', 'provisioning') AND NOT EXISTS
             (SELECT FROM saga_runs r WHERE r.subject = 'alloc_' || replace(a.id::text, '-', '')
              AND r.state IN ('running', 'undoing'))",
    ),
    (
        "an allocation was made without its event or its audit row",
        "SELECT abs((SELECT count(*) FROM allocations) -
             (SELECT count(*) FROM outbox_events WHERE event_type = 'provisioning.requested'))",
    ),
];

pub async fn hold(world: &World) {
    for (what, sql) in NEVER {
        assert_eq!(world.count(sql).await, 0, "{what}");
    }
}
