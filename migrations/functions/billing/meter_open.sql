-- The allocation is active: it is paid for from this second on.
CREATE OR REPLACE FUNCTION meter_open(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at  timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
    v_org uuid;
BEGIN
    UPDATE meters SET state = 'open', opened_at = v_at, accrued_until = v_at, running_since = v_at
        WHERE allocation_id = p_allocation AND state = 'held'
        RETURNING org_id INTO v_org;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM balance_evaluation_queue(v_org);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION meter_open FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_open TO gpuaas_system;
