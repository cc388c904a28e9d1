-- How many members these nodes could take together.
CREATE OR REPLACE FUNCTION fleet_nodes_take(p_nodes uuid[], p_kind text, p_model text, p_need integer, p_whole boolean)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT coalesce(sum(CASE WHEN p_whole THEN (c.whole AND c.total = p_need)::integer ELSE c.free / p_need END), 0)
        FROM node_capacity c
        WHERE c.node_id = ANY (p_nodes) AND c.kind = p_kind AND c.model = p_model AND c.placeable
$$;
REVOKE ALL ON FUNCTION fleet_nodes_take FROM PUBLIC;
