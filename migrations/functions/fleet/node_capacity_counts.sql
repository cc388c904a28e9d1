-- Counts slots of nodes, by kind and model.
CREATE OR REPLACE FUNCTION node_capacity_counts(p_nodes uuid[]) RETURNS TABLE (
    node_id uuid, kind text, model text, total bigint, free bigint, numa_fit bigint, ready bigint, cleaning bigint,
    blocked bigint
) LANGUAGE sql STABLE AS $$
    SELECT s.node_id, s.kind, s.model, sum(s.total)::bigint, sum(s.free)::bigint, max(s.free), sum(s.ready)::bigint,
        sum(s.cleaning)::bigint, sum(s.blocked)::bigint
    FROM (SELECT s.node_id, s.kind, s.model, count(*) AS total,
              count(*) FILTER (WHERE n.serves = 'any' AND slot_is_free(s)) AS free,
              count(*) FILTER (WHERE slot_is_ready(s, n.serves)) AS ready,
              count(*) FILTER (WHERE s.state = 'cleaning') AS cleaning,
              count(*) FILTER (WHERE s.state IN ('discovered', 'approved', 'cleanup_blocked', 'quarantined')
                  OR s.state = 'available' AND NOT slot_is_ready(s, n.serves)) AS blocked
          FROM node_resource_slots s JOIN nodes n ON n.id = s.node_id WHERE s.node_id = ANY (p_nodes)
          GROUP BY s.node_id, s.kind, s.model, s.numa_node) s
    GROUP BY s.node_id, s.kind, s.model
$$;
REVOKE ALL ON FUNCTION node_capacity_counts FROM PUBLIC;
