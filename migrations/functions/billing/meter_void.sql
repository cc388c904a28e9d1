-- The launch failed: what was set aside goes back.
CREATE OR REPLACE FUNCTION meter_void(p_allocation uuid, p_now timestamptz, p_posting uuid, p_correlation uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter meters;
BEGIN
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The chain before the meter, as everywhere.
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation FOR UPDATE;
    IF v_meter.state <> 'held' THEN
        RETURN false;
    END IF;
    PERFORM meter_hold_release(v_meter, p_now, p_posting, p_correlation);
    UPDATE meters SET state = 'void', hold_remaining = 0 WHERE id = v_meter.id;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION meter_void FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_void TO gpuaas_system;
