-- How much of each product is there and free, by region: what the catalog shows. A size of 0 means the whole node
-- with exactly so many slots.
CREATE OR REPLACE FUNCTION fleet_availability(
    p_skus text[], p_kinds text[], p_models text[], p_totals integer[], p_sizes integer[]
) RETURNS TABLE (
    sku text, region text, total bigint, free bigint, largest integer, whole_nodes bigint, launchable bigint
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT w.sku, c.region, sum(c.total), coalesce(sum(f.free) FILTER (WHERE c.placeable), 0),
        coalesce(max(f.free) FILTER (WHERE c.placeable), 0),
        count(*) FILTER (WHERE c.placeable AND c.whole),
        CASE WHEN w.size = 0 THEN count(*) FILTER (WHERE c.placeable AND c.whole AND c.total = w.total)
             ELSE coalesce(sum(c.free / nullif(w.size, 0)) FILTER (WHERE c.placeable), 0) END
    FROM unnest(p_skus, p_kinds, p_models, p_totals, p_sizes) AS w (sku, kind, model, total, size)
        JOIN node_capacity c ON c.kind = w.kind AND c.model = w.model
            AND (c.sku_eligibility = '{}' OR w.sku = ANY (c.sku_eligibility)) AND (c.slices OR w.size = 0)
        CROSS JOIN LATERAL (SELECT CASE w.size WHEN 0 THEN c.ready ELSE c.free END AS free) f
    GROUP BY w.sku, w.total, w.size, c.region
$$;
REVOKE ALL ON FUNCTION fleet_availability FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_availability TO gpuaas_app, gpuaas_system;
