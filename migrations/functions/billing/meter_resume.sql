-- It runs again; the time between is not paid for. Never from before it stood still.
CREATE OR REPLACE FUNCTION meter_resume(p_pause uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at  timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
    v_org uuid;
BEGIN
    UPDATE meters m SET state = 'open', accrued_until = greatest(v_at, m.accrued_until), running_since = greatest(v_at, m.accrued_until)
        FROM meter_pauses p WHERE p.id = p_pause AND p.resumed_at IS NULL AND m.id = p.meter_id AND m.state = 'paused'
        RETURNING m.org_id INTO v_org;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE meter_pauses SET resumed_at = greatest(v_at, since) WHERE id = p_pause;
    PERFORM balance_evaluation_queue(v_org);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION meter_resume FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_resume TO gpuaas_system;
