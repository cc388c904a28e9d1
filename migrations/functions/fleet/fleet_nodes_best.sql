-- Its arguments of the release before; drop this line with the next.
DROP FUNCTION IF EXISTS fleet_nodes_best(text, text, text, text, uuid, jsonb, integer, boolean, boolean, integer,
    boolean);
-- The best nodes of one region for a request, in the order of the packing rule: those that nobody else holds, held
-- until the transaction ends; or, when nothing is to be held, whoever holds them.
CREATE OR REPLACE FUNCTION fleet_nodes_best(
    p_request slot_request, p_spread boolean, p_limit integer, p_hold boolean
) RETURNS uuid[]
-- Planned once, and by index: what is true of a fleet of ten nodes must not decide for one of ten thousand.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off AS $$
DECLARE
    v_nodes uuid[] := '{}';
    v_more  uuid[];
    v_level integer;
    v_low   integer;
    v_high  integer;
BEGIN
    -- A range of one total, and sorted by it: so only the index of whole nodes gives this order.
    IF p_request.whole AND p_hold THEN
        RETURN ARRAY (SELECT c.node_id FROM node_capacity c
            WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                AND c.region = p_request.region AND c.whole
                AND c.total BETWEEN p_request.slots AND p_request.slots
                AND (p_request.pool_id IS NULL OR c.pool_id = p_request.pool_id) AND c.labels @> p_request.labels
                AND (c.sku_eligibility = '{}' OR p_request.sku = ANY (c.sku_eligibility))
            ORDER BY c.total, c.node_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    ELSIF p_request.whole THEN
        RETURN ARRAY (SELECT c.node_id FROM node_capacity c
            WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                AND c.region = p_request.region AND c.whole
                AND c.total BETWEEN p_request.slots AND p_request.slots
                AND (p_request.pool_id IS NULL OR c.pool_id = p_request.pool_id) AND c.labels @> p_request.labels
                AND (c.sku_eligibility = '{}' OR p_request.sku = ANY (c.sku_eligibility))
            ORDER BY c.total, c.node_id LIMIT p_limit);
    END IF;
    -- First nodes where it fits on one NUMA node, then the others; level by level of free slots, so that each step
    -- is one descent of the index.
    FOR v_pass IN 1..2 LOOP
        v_low := CASE v_pass WHEN 1 THEN p_request.slots ELSE 0 END;
        v_high := CASE v_pass WHEN 1 THEN 2147483647 ELSE p_request.slots - 1 END;
        v_level := CASE WHEN p_spread THEN 2147483647 ELSE p_request.slots END;
        LOOP
            IF p_spread THEN
                v_level := (SELECT c.free FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                        AND c.region = p_request.region
                        AND c.free <= v_level ORDER BY c.free DESC LIMIT 1);
            ELSE
                v_level := (SELECT c.free FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                        AND c.region = p_request.region
                        AND c.free >= v_level ORDER BY c.free LIMIT 1);
            END IF;
            EXIT WHEN v_level IS NULL OR v_level < p_request.slots;
            IF p_hold THEN
                v_more := ARRAY (SELECT c.node_id FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                        AND c.region = p_request.region
                        AND c.free = v_level AND c.numa_fit BETWEEN v_low AND v_high
                        AND (p_request.pool_id IS NULL OR c.pool_id = p_request.pool_id) AND c.labels @> p_request.labels
                        AND (c.sku_eligibility = '{}' OR p_request.sku = ANY (c.sku_eligibility))
                    ORDER BY c.numa_fit, c.node_id LIMIT p_limit - cardinality(v_nodes) FOR UPDATE SKIP LOCKED);
            ELSE
                v_more := ARRAY (SELECT c.node_id FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_request.kind AND c.model = p_request.model
                        AND c.region = p_request.region
                        AND c.free = v_level AND c.numa_fit BETWEEN v_low AND v_high
                        AND (p_request.pool_id IS NULL OR c.pool_id = p_request.pool_id) AND c.labels @> p_request.labels
                        AND (c.sku_eligibility = '{}' OR p_request.sku = ANY (c.sku_eligibility))
                    ORDER BY c.numa_fit, c.node_id LIMIT p_limit - cardinality(v_nodes));
            END IF;
            v_nodes := v_nodes || v_more;
            IF cardinality(v_nodes) >= p_limit THEN
                RETURN v_nodes;
            END IF;
            v_level := v_level + CASE WHEN p_spread THEN -1 ELSE 1 END;
        END LOOP;
    END LOOP;
    RETURN v_nodes;
END $$;
REVOKE ALL ON FUNCTION fleet_nodes_best FROM PUBLIC;
