-- Only the sums, and only of the kinds and models that changed: whoever holds one of a node's rows never waits for
-- another.
CREATE OR REPLACE FUNCTION node_capacity_recount(p_nodes uuid[], p_kinds text[], p_models text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM node_capacity WHERE node_id = ANY (p_nodes) AND kind = ANY (p_kinds) AND model = ANY (p_models)
        ORDER BY node_id, kind, model FOR UPDATE;
    UPDATE node_capacity c SET total = s.total, free = s.free, numa_fit = s.numa_fit, ready = s.ready,
        cleaning = s.cleaning, blocked = s.blocked
    FROM node_capacity_counts(p_nodes) s
    WHERE s.kind = ANY (p_kinds) AND s.model = ANY (p_models)
        AND c.node_id = s.node_id AND c.kind = s.kind AND c.model = s.model;
END $$;
REVOKE ALL ON FUNCTION node_capacity_recount FROM PUBLIC;
