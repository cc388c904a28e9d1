-- Frees all that an allocation holds, once; answers whether it held anything.
CREATE OR REPLACE FUNCTION capacity_free(p_allocation uuid, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE capacity_claims SET freed_at = p_now WHERE allocation_id = p_allocation AND freed_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- In the order in which capacity_reserve takes them.
    PERFORM FROM capacity_holdings h JOIN allocations a ON a.id = p_allocation AND h.org_id = a.org_id
        AND h.holder IN (a.org_id, a.project_id, a.creator_id) ORDER BY h.kind, h.holder FOR UPDATE OF h;
    UPDATE capacity_holdings h SET gpus = h.gpus - a.gpus, allocations = h.allocations - 1
        FROM (SELECT a.org_id, a.gpus, k.kind, k.holder FROM allocations a,
                  LATERAL (VALUES ('1_org', a.org_id), ('2_project', a.project_id), ('3_person', a.creator_id)) AS k (kind, holder)
              WHERE a.id = p_allocation) a
        WHERE h.org_id = a.org_id AND h.kind = a.kind AND h.holder = a.holder;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION capacity_free FROM PUBLIC;
GRANT EXECUTE ON FUNCTION capacity_free TO gpuaas_system;
