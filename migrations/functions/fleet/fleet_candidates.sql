-- The best nodes for so many members, each held until the transaction ends, with their free slots. Nodes that somebody
-- else holds are passed over. With p_wait they are waited for, and only while nothing else is held, so that nobody
-- waits in a circle: one member waits for the best node; several let go of what they have and try again. Slots that
-- somebody else holds are passed over always.
CREATE OR REPLACE FUNCTION fleet_candidates(
    p_request slot_request, p_members integer, p_spread boolean, p_limit integer, p_wait boolean
) RETURNS TABLE (
    node_id uuid, numa_fit integer, free integer, total integer, ssh_host text, ssh_port integer, slot_id uuid,
    slot_index integer, numa_node integer, fabric_vf text, fabric_numa integer, pci_address text, nvme_device text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_nodes uuid[];
BEGIN
    IF p_members = 1 AND NOT p_wait THEN
        v_nodes := fleet_nodes_best(p_request, p_spread, p_limit, true);
    ELSE
        FOR v_try IN 1 .. CASE WHEN NOT p_wait THEN 1 WHEN p_members = 1 THEN 200 ELSE 40 END LOOP
            IF v_try > 1 AND p_members > 1 THEN
                PERFORM pg_sleep(0.005 + 0.01 * random());
            END IF;
            -- Leaving this block by its exception gives up what was held in it.
            BEGIN
                v_nodes := fleet_nodes_best(p_request, p_spread, CASE WHEN p_members = 1 THEN 1 ELSE p_limit END,
                    p_members > 1);
                IF p_members = 1 THEN
                    PERFORM FROM node_capacity c WHERE c.node_id = ANY (v_nodes) AND c.kind = p_request.kind
                        AND c.model = p_request.model FOR UPDATE;
                END IF;
                EXIT WHEN fleet_nodes_take(
                    v_nodes, p_request.kind, p_request.model, p_request.slots, p_request.whole) >= p_members
                    OR p_members = 1 AND cardinality(v_nodes) = 0;
                RAISE EXCEPTION 'not enough' USING ERRCODE = 'GP001';
            EXCEPTION WHEN SQLSTATE 'GP001' THEN
                v_nodes := '{}';
            END;
            -- Nobody has it: no use in waiting.
            EXIT WHEN p_members > 1 AND p_wait AND fleet_nodes_take(
                fleet_nodes_best(p_request, p_spread, p_limit, false), p_request.kind, p_request.model,
                p_request.slots, p_request.whole) < p_members;
        END LOOP;
    END IF;
    RETURN QUERY
        SELECT c.node_id, c.numa_fit, CASE WHEN p_request.whole THEN c.ready ELSE c.free END, c.total,
            coalesce(n.ssh_host, n.hostname), coalesce(n.ssh_port, 22), s.id, s.slot_index, s.numa_node, s.fabric_vf,
            coalesce(s.fabric_numa, s.numa_node), s.pci_address, s.nvme_device
        FROM unnest(v_nodes) WITH ORDINALITY AS v (id, n)
            JOIN node_capacity c ON c.node_id = v.id AND c.kind = p_request.kind AND c.model = p_request.model
            JOIN nodes n ON n.id = v.id
            JOIN LATERAL (SELECT s.id, s.slot_index, s.numa_node, s.fabric_vf, s.fabric_numa, s.pci_address, s.nvme_device
                FROM node_resource_slots s
                WHERE s.node_id = v.id AND s.kind = p_request.kind AND s.model = p_request.model
                    AND slot_is_ready(s, n.serves)
                ORDER BY s.slot_index FOR NO KEY UPDATE SKIP LOCKED) s ON true
        ORDER BY v.n, s.slot_index;
END $$;
REVOKE ALL ON FUNCTION fleet_candidates(slot_request, integer, boolean, integer, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_candidates(slot_request, integer, boolean, integer, boolean) TO gpuaas_app, gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION fleet_candidates(
    p_kind text, p_model text, p_region text, p_sku text, p_pool uuid, p_labels jsonb,
    -- Slots of one node; or the whole node with exactly so many.
    p_need integer, p_whole boolean,
    p_members integer, p_spread boolean, p_limit integer, p_wait boolean
) RETURNS TABLE (
    node_id uuid, numa_fit integer, free integer, total integer, ssh_host text, ssh_port integer, slot_id uuid,
    slot_index integer, numa_node integer, fabric_vf text, fabric_numa integer, pci_address text, nvme_device text
)
LANGUAGE sql AS $$
    SELECT f.node_id, f.numa_fit, f.free, f.total, f.ssh_host, f.ssh_port, f.slot_id, f.slot_index, f.numa_node, f.fabric_vf,
        f.fabric_numa, f.pci_address, f.nvme_device
    FROM fleet_candidates(ROW(p_kind, p_model, p_region, p_sku, p_pool, p_labels, p_need, p_whole)::slot_request,
        p_members, p_spread, p_limit, p_wait) AS f
$$;
