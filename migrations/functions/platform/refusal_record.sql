-- Records a refusal. Whether it got an audit row of its own; otherwise it is counted in the row of its minute.
CREATE OR REPLACE FUNCTION refusal_record(p_entry audit_entry) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_repeats bigint := 0;
BEGIN
    -- Somebody unknown is no principal; rows about these are bounded where they are refused.
    IF p_entry.actor_id IS NOT NULL THEN
        INSERT INTO refusal_windows AS w (chain_id, project_id, actor_kind, actor_id, action, code, minute, actor_role,
                target_kind, last_at, last_target_id, last_correlation_id, last_source_ip)
            VALUES (p_entry.org_id, coalesce(p_entry.project_id, '00000000-0000-0000-0000-000000000000'),
                p_entry.actor_kind, p_entry.actor_id, p_entry.action, p_entry.code,
                date_trunc('minute', p_entry.at), p_entry.actor_role, p_entry.target_kind, p_entry.at,
                p_entry.target_id, p_entry.correlation_id, p_entry.source_ip)
            ON CONFLICT (chain_id, project_id, actor_kind, actor_id, action, code, minute)
            DO UPDATE SET repeats = w.repeats + 1, actor_role = excluded.actor_role, target_kind = excluded.target_kind,
                last_at = excluded.last_at, last_target_id = excluded.last_target_id,
                last_correlation_id = excluded.last_correlation_id, last_source_ip = excluded.last_source_ip
            RETURNING w.repeats INTO v_repeats;
    END IF;
    IF v_repeats > 0 THEN
        RETURN false;
    END IF;
    p_entry.result := 'refused';
    PERFORM audit_append(p_entry);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION refusal_record(audit_entry) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION refusal_record(audit_entry) TO gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION refusal_record(
    p_id uuid, p_chain uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text, p_action text,
    p_target_kind text, p_target_id text, p_project uuid, p_code text, p_correlation uuid, p_source_ip text
) RETURNS boolean
LANGUAGE sql AS $$
    SELECT refusal_record(ROW(p_id, p_chain, p_at, p_actor_kind, p_actor_id, p_actor_role, NULL, p_action, p_target_kind,
        p_target_id, p_project, NULL, p_code, p_correlation, p_source_ip, NULL, NULL, NULL)::audit_entry)
$$;
