-- For the release before, which reads this one; drop it with the next.
-- What the runs of a subject did, newest run first: to a tenant its own, to the platform all.
CREATE OR REPLACE FUNCTION saga_timeline(p_subject text, p_limit integer)
RETURNS TABLE (run_id uuid, name text, run_state text, step text, undo boolean, attempt integer, state text, detail text,
    started_at timestamptz, finished_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.id, r.name, r.state, s.step, s.undo, s.attempt, s.state, s.detail, s.started_at, s.finished_at
    FROM saga_runs r JOIN saga_steps s ON s.run_id = r.id
    WHERE r.subject = p_subject AND (NOT called_by_app() OR r.org_id = current_org())
    ORDER BY r.id DESC, s.seq LIMIT p_limit
$$;
REVOKE ALL ON FUNCTION saga_timeline FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saga_timeline TO gpuaas_app, gpuaas_system;
