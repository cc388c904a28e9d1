-- Durable workflows. Single writer: the `saga` crate. Requests start, wake and cancel runs through the functions
-- below only; workers, as gpuaas_system, do the rest.

CREATE TABLE saga_runs (
    id             uuid PRIMARY KEY,
    name           text        NOT NULL,
    spec_version   integer     NOT NULL,
    -- Whom it is about; there is one live run per subject.
    subject        text        NOT NULL,
    org_id         uuid,
    state          text        NOT NULL DEFAULT 'running',
    input          jsonb       NOT NULL,
    -- What the steps that are done left, by name.
    outputs        jsonb       NOT NULL DEFAULT '{}',
    -- The step that is being run or undone, and which attempt.
    step           integer     NOT NULL DEFAULT 0,
    attempt        integer     NOT NULL DEFAULT 1,
    -- Begun means that a worker may have called the step: then it is taken back too.
    begun          boolean     NOT NULL DEFAULT false,
    -- Leases in a row that brought nothing: a step that takes its worker down is not tried for ever.
    unfinished     integer     NOT NULL DEFAULT 0,
    -- How often telling the domain of the end has failed.
    end_attempts   integer     NOT NULL DEFAULT 0,
    -- While it waits to be woken: by what, and what was brought.
    wake_key       text,
    signal         jsonb,
    -- Set by the first call of an attempt that commits without ending the step.
    attempt_deadline timestamptz,
    -- Why it goes forward no more; the reason of the first failure stays.
    failure        text,
    cancel_reason  text,
    wake_at        timestamptz NOT NULL,
    lease_until    timestamptz,
    fence          bigint      NOT NULL DEFAULT 0,
    deadline       timestamptz NOT NULL,
    correlation_id uuid        NOT NULL,
    traceparent    text,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    finished_at    timestamptz,
    CHECK (state IN ('running', 'undoing', 'succeeded', 'undone', 'stuck')),
    CHECK ((finished_at IS NULL) = (state IN ('running', 'undoing'))),
    CHECK (state NOT IN ('undoing', 'undone', 'stuck') OR failure IS NOT NULL),
    CHECK (step >= 0 AND attempt >= 1)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX saga_runs_one_live ON saga_runs (subject) WHERE state IN ('running', 'undoing');
CREATE INDEX saga_runs_due ON saga_runs (wake_at) WHERE state IN ('running', 'undoing');
CREATE INDEX saga_runs_by_subject ON saga_runs (subject, id);
CREATE INDEX saga_runs_by_state ON saga_runs (state, id);
CREATE INDEX saga_runs_finished ON saga_runs (finished_at) WHERE finished_at IS NOT NULL;
COMMENT ON TABLE saga_runs IS 'platform: runs of durable workflows';
GRANT SELECT, INSERT, UPDATE, DELETE ON saga_runs TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('saga_run', 'running', 'undoing'), ('saga_run', 'running', 'succeeded'), ('saga_run', 'running', 'stuck'),
    ('saga_run', 'running', 'undone'),
    ('saga_run', 'undoing', 'undone'), ('saga_run', 'undoing', 'stuck');
CREATE TRIGGER saga_runs_lifecycle BEFORE UPDATE OF state ON saga_runs
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('saga_run');

-- The timeline: one row per attempt of a step, forwards or back.
CREATE TABLE saga_steps (
    run_id      uuid        NOT NULL REFERENCES saga_runs ON DELETE CASCADE,
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    step        text        NOT NULL,
    undo        boolean     NOT NULL,
    attempt     integer     NOT NULL,
    state       text        NOT NULL CHECK (state IN ('waiting', 'done', 'failed', 'skipped')),
    detail      text        NOT NULL DEFAULT '',
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (run_id, seq)
);
CREATE UNIQUE INDEX saga_steps_attempt ON saga_steps (run_id, step, undo, attempt);
COMMENT ON TABLE saga_steps IS 'platform: what each run did, attempt by attempt';
GRANT SELECT, INSERT, UPDATE, DELETE ON saga_steps TO gpuaas_system;

-- Whether a definer's function was called for a tenant (or a person): then it keeps to current_org().
CREATE FUNCTION called_by_app() RETURNS boolean LANGUAGE sql STABLE
    AS $$ SELECT coalesce(nullif(current_setting('role', true), 'none'), session_user::text) = 'gpuaas_app' $$;

-- Starts a run in the transaction of whoever decided it; answers false while another of the subject is live.
CREATE FUNCTION saga_start(
    p_id uuid, p_name text, p_version integer, p_subject text, p_org uuid, p_input jsonb, p_now timestamptz,
    p_deadline timestamptz, p_correlation uuid, p_traceparent text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_started boolean;
BEGIN
    IF called_by_app() AND p_org IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'a run is started for its own organization only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO saga_runs (id, name, spec_version, subject, org_id, input, wake_at, deadline, correlation_id,
        traceparent, created_at, updated_at)
    VALUES (p_id, p_name, p_version, p_subject, p_org, p_input, p_now, p_deadline, p_correlation, p_traceparent,
        p_now, p_now)
    ON CONFLICT (subject) WHERE state IN ('running', 'undoing') DO NOTHING;
    v_started := FOUND;
    IF v_started THEN
        PERFORM pg_notify('gpuaas_sagas', '');
    END IF;
    RETURN v_started;
END $$;

-- Asks the live run of a subject to be taken back; answers whether there was one that can be.
CREATE FUNCTION saga_cancel(p_subject text, p_reason text, p_now timestamptz)
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

-- Brings a suspended step what it waits for; a key that is no longer waited for changes nothing.
CREATE FUNCTION saga_wake(p_run uuid, p_key text, p_signal jsonb, p_now timestamptz)
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

-- What the runs of a subject did, newest run first: to a tenant its own, to the platform all.
CREATE FUNCTION saga_timeline(p_subject text, p_limit integer)
RETURNS TABLE (run_id uuid, name text, run_state text, step text, undo boolean, attempt integer, state text, detail text,
    started_at timestamptz, finished_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT r.id, r.name, r.state, s.step, s.undo, s.attempt, s.state, s.detail, s.started_at, s.finished_at
    FROM saga_runs r JOIN saga_steps s ON s.run_id = r.id
    WHERE r.subject = p_subject AND (NOT called_by_app() OR r.org_id = current_org())
    ORDER BY r.id DESC, s.seq LIMIT p_limit
$$;
REVOKE ALL ON FUNCTION saga_start, saga_cancel, saga_wake, saga_timeline FROM PUBLIC;
GRANT EXECUTE ON FUNCTION saga_start, saga_cancel, saga_wake, saga_timeline TO gpuaas_app, gpuaas_system;
