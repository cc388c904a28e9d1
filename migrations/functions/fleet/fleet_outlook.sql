-- What is needed to say why nothing fits, without looking at the whole fleet: of each region the nodes with most
-- free slots, those that are whole, and those that would have most if all was clean, or all was ready. For a whole
-- node what is ready counts as free; for parts of one, nodes that sell none do not count.
CREATE OR REPLACE FUNCTION fleet_outlook(
    p_kind text, p_model text, p_sku text, p_pool uuid, p_labels jsonb, p_whole_total integer, p_limit integer
) RETURNS TABLE (
    node_id uuid, region text, placeable boolean, total integer, free integer, numa_fit integer, cleaning integer,
    blocked integer, whole boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
    SELECT DISTINCT ON (c.region, c.node_id) c.node_id, c.region, c.placeable, c.total,
        CASE WHEN p_whole_total IS NULL THEN c.free ELSE c.ready END, c.numa_fit, c.cleaning, c.blocked, c.whole
    FROM regions r CROSS JOIN LATERAL (
        (SELECT c.node_id, c.region, c.placeable, c.total, c.free, c.ready, c.numa_fit, c.cleaning, c.blocked, c.whole
         FROM node_capacity c WHERE c.placeable AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.free DESC LIMIT p_limit)
        UNION ALL
        (SELECT c.node_id, c.region, c.placeable, c.total, c.free, c.ready, c.numa_fit, c.cleaning, c.blocked, c.whole
         FROM node_capacity c WHERE c.placeable AND c.whole AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND c.total = p_whole_total AND (p_pool IS NULL OR c.pool_id = p_pool)
             AND c.labels @> p_labels AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
         LIMIT p_limit)
        UNION ALL
        (SELECT c.node_id, c.region, c.placeable, c.total, c.free, c.ready, c.numa_fit, c.cleaning, c.blocked, c.whole
         FROM node_capacity c WHERE c.placeable AND c.cleaning > 0 AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_whole_total IS NULL OR c.total = p_whole_total)
             AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.ready + c.cleaning DESC LIMIT p_limit)
        UNION ALL
        (SELECT c.node_id, c.region, c.placeable, c.total, c.free, c.ready, c.numa_fit, c.cleaning, c.blocked, c.whole
         FROM node_capacity c WHERE c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_whole_total IS NULL OR c.total = p_whole_total)
             AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.ready + c.cleaning + c.blocked DESC LIMIT p_limit)
    ) c
$$;
REVOKE ALL ON FUNCTION fleet_outlook FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_outlook TO gpuaas_app, gpuaas_system;
