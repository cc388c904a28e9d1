-- It is active no more: it is paid for until this second. Wakes the worker, which posts the rest.
CREATE OR REPLACE FUNCTION meter_close(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at  timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
    v_org uuid;
BEGIN
    UPDATE meters SET state = 'closed',
            closed_at = CASE WHEN state = 'paused' THEN accrued_until ELSE greatest(v_at, running_since) END
        WHERE allocation_id = p_allocation AND state IN ('open', 'paused')
            AND (NOT called_by_app() OR org_id = current_org())
        RETURNING org_id INTO v_org;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE meter_pauses p SET resumed_at = v_at FROM meters m
        WHERE m.allocation_id = p_allocation AND p.meter_id = m.id AND p.resumed_at IS NULL;
    PERFORM balance_evaluation_queue(v_org);
    PERFORM pg_notify('gpuaas_billing', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION meter_close FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_close TO gpuaas_app, gpuaas_system;
