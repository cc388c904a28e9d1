-- Brings a suspended step what it waits for; a key that is no longer waited for changes nothing.
CREATE OR REPLACE FUNCTION saga_wake(p_run uuid, p_key text, p_signal jsonb, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_found boolean;
BEGIN
    UPDATE saga_runs SET signal = p_signal, wake_at = p_now, updated_at = p_now
        WHERE id = p_run AND wake_key = p_key AND signal IS NULL AND state IN ('running', 'undoing')
            AND (NOT called_by_app() OR org_id = current_org());
    v_found := FOUND;
    IF v_found THEN
        PERFORM pg_notify('gpuaas_sagas', '');
    END IF;
    RETURN v_found;
END $$;
REVOKE ALL ON FUNCTION saga_wake FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saga_wake TO gpuaas_app, gpuaas_system;
