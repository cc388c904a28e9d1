-- A slot that can be sold: approved, probed, healthy, with nothing in its way, and a GPU with fabric of its own that
-- is not known to be on another NUMA node.
CREATE OR REPLACE FUNCTION slot_is_free(s node_resource_slots) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT s.state = 'available' AND s.health = 'healthy' AND s.blockers = '[]'
        AND (s.kind <> 'gpu' OR s.fabric_mode = 'vf' AND coalesce(s.fabric_numa = s.numa_node, true))
$$;
