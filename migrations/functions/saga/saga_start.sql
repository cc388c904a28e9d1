-- Starts a run in the transaction of whoever decided it; answers false while another of the subject is live.
CREATE OR REPLACE FUNCTION saga_start(p_run new_saga_run, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_started boolean;
BEGIN
    IF called_by_app() AND p_run.org_id IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'a run is started for its own organization only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO saga_runs (id, name, spec_version, subject, org_id, input, wake_at, deadline, correlation_id,
        traceparent, created_at, updated_at)
    VALUES (p_run.id, p_run.name, p_run.spec_version, p_run.subject, p_run.org_id, p_run.input, p_now, p_run.deadline,
        p_run.correlation_id, p_run.traceparent, p_now, p_now)
    ON CONFLICT (subject) WHERE state IN ('running', 'undoing') DO NOTHING;
    v_started := FOUND;
    IF v_started THEN
        PERFORM pg_notify('gpuaas_sagas', '');
    END IF;
    RETURN v_started;
END $$;
REVOKE ALL ON FUNCTION saga_start(new_saga_run, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saga_start(new_saga_run, timestamptz) TO gpuaas_app, gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION saga_start(
    p_id uuid, p_name text, p_version integer, p_subject text, p_org uuid, p_input jsonb, p_now timestamptz,
    p_deadline timestamptz, p_correlation uuid, p_traceparent text
) RETURNS boolean
LANGUAGE sql AS $$
    SELECT saga_start(ROW(p_id, p_name, p_version, p_subject, p_org, p_input, p_deadline, p_correlation,
        p_traceparent)::new_saga_run, p_now)
$$;
