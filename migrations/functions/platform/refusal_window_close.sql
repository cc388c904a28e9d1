-- Ends one window from before p_minute: with an audit row when something was repeated in it. Whether there was one; a
-- transaction holds the lock of one audit chain only.
CREATE OR REPLACE FUNCTION refusal_window_close(p_id uuid, p_minute timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v refusal_windows;
BEGIN
    DELETE FROM refusal_windows WHERE minute < p_minute AND repeats = 0;
    DELETE FROM refusal_windows WHERE ctid = (
            SELECT ctid FROM refusal_windows WHERE minute < p_minute
                AND repeats > 0 ORDER BY minute LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING chain_id, project_id, actor_kind, actor_id, action, code, minute, actor_role, target_kind, repeats, last_at,
            last_target_id, last_correlation_id, last_source_ip INTO v;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM audit_append(ROW(p_id, v.chain_id, v.last_at, v.actor_kind, v.actor_id, v.actor_role, NULL, v.action,
        v.target_kind,
        v.last_target_id, nullif(v.project_id, '00000000-0000-0000-0000-000000000000'), 'refused', v.code,
        v.last_correlation_id, v.last_source_ip, NULL, NULL, v.repeats)::audit_entry);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION refusal_window_close FROM PUBLIC;
GRANT EXECUTE ON FUNCTION refusal_window_close TO gpuaas_system;
