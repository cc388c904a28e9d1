-- All that is kept of nodes, anew: after slots came, went, or became of another kind or model, or the node was to
-- serve something else.
CREATE OR REPLACE FUNCTION node_capacity_refresh(p_nodes uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- First the lock, then the sums in a statement of their own: whoever waited here counts what the other wrote.
    PERFORM FROM node_capacity WHERE node_id = ANY (p_nodes) ORDER BY node_id, kind, model FOR UPDATE;
    INSERT INTO node_capacity AS c (node_id, kind, model, region, pool_id, labels, sku_eligibility, placeable, slices,
        total, free, numa_fit, ready, cleaning, blocked, alone)
    SELECT s.node_id, s.kind, s.model, n.region, n.pool_id, n.labels, n.sku_eligibility,
        n.state = 'active' AND n.cordon_reason IS NULL, n.serves = 'any', s.total, s.free, s.numa_fit, s.ready,
        s.cleaning, s.blocked, count(*) OVER (PARTITION BY s.node_id) = 1
    FROM node_capacity_counts(p_nodes) s JOIN nodes n ON n.id = s.node_id
    ORDER BY s.node_id, s.kind, s.model
    ON CONFLICT (node_id, kind, model) DO UPDATE SET region = excluded.region, pool_id = excluded.pool_id,
        labels = excluded.labels, sku_eligibility = excluded.sku_eligibility, placeable = excluded.placeable,
        slices = excluded.slices, total = excluded.total, free = excluded.free, numa_fit = excluded.numa_fit,
        ready = excluded.ready, cleaning = excluded.cleaning, blocked = excluded.blocked, alone = excluded.alone;
    DELETE FROM node_capacity c WHERE c.node_id = ANY (p_nodes) AND NOT EXISTS (
        SELECT FROM node_resource_slots s WHERE s.node_id = c.node_id AND s.kind = c.kind AND s.model = c.model);
END $$;
REVOKE ALL ON FUNCTION node_capacity_refresh FROM PUBLIC;
