-- Asks the live run of a subject to be taken back; answers whether there was one that can be.
CREATE OR REPLACE FUNCTION saga_cancel(p_subject text, p_reason text, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_found boolean;
BEGIN
    UPDATE saga_runs SET cancel_reason = coalesce(cancel_reason, p_reason), wake_at = p_now, updated_at = p_now,
            version = version + 1
        WHERE subject = p_subject AND state = 'running' AND (NOT called_by_app() OR org_id = current_org());
    v_found := FOUND;
    IF v_found THEN
        PERFORM pg_notify('gpuaas_sagas', '');
    END IF;
    RETURN v_found;
END $$;
REVOKE ALL ON FUNCTION saga_cancel FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saga_cancel TO gpuaas_app, gpuaas_system;
