-- Available slots become reserved; answers how many, and the caller refuses anything but all.
CREATE OR REPLACE FUNCTION fleet_slots_reserve(p_slots uuid[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_count integer;
BEGIN
    UPDATE node_resource_slots SET state = 'reserved', version = version + 1, updated_at = p_now
        WHERE id = ANY (p_slots) AND state = 'available';
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
REVOKE ALL ON FUNCTION fleet_slots_reserve FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_slots_reserve TO gpuaas_app, gpuaas_system;
