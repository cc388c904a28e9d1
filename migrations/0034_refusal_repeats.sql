-- Repeated refusals share an audit row: the first of a principal, action, code and minute is recorded at once, and the others
-- of that minute together by one row with their count. Single writer: the functions below, called by `pg`.

ALTER TABLE audit_logs ADD COLUMN repeats bigint;
COMMENT ON COLUMN audit_logs.repeats IS 'how many refusals after the first this row stands for; absent for every other row';
ALTER TABLE audit_logs ADD CONSTRAINT audit_logs_repeats CHECK (repeats IS NULL OR (repeats > 0 AND result = 'refused')) NOT VALID;

-- The hash of a row with a count covers the count, in form 2; all other rows keep form 1.
DROP FUNCTION audit_append(uuid, uuid, timestamptz, text, uuid, text, uuid, text, text, text, uuid, text, text, uuid, text, bytea, bytea);
CREATE FUNCTION audit_append(
    p_id uuid, p_org uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text,
    p_on_behalf_of uuid, p_action text, p_target_kind text, p_target_id text, p_project uuid,
    p_result text, p_code text, p_correlation uuid, p_source_ip text, p_before bytea, p_after bytea,
    p_repeats bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq  bigint;
    v_prev bytea;
    v_text text;
    v_hash bytea;
BEGIN
    -- Locks the head: appends to one chain are serial, chains are independent.
    SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_chains (org_id, seq, hash)
            VALUES (p_org, 0, sha256(convert_to('gpuaas-audit:' || p_org, 'UTF8'))) ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    END IF;
    v_seq := v_seq + 1;
    v_text := canonical_field(CASE WHEN p_repeats IS NULL THEN '1' ELSE '2' END)
        || canonical_field(p_id::text) || canonical_field(p_org::text)
        || canonical_field(v_seq::text) || canonical_field(((extract(epoch FROM p_at) * 1000000)::bigint)::text)
        || canonical_field(p_actor_kind) || canonical_field(p_actor_id::text) || canonical_field(p_actor_role)
        || canonical_field(p_on_behalf_of::text) || canonical_field(p_action) || canonical_field(p_target_kind)
        || canonical_field(p_target_id) || canonical_field(p_project::text) || canonical_field(p_result)
        || canonical_field(p_code) || canonical_field(p_correlation::text) || canonical_field(p_source_ip)
        || canonical_field(encode(p_before, 'hex')) || canonical_field(encode(p_after, 'hex'));
    IF p_repeats IS NOT NULL THEN
        v_text := v_text || canonical_field(p_repeats::text);
    END IF;
    v_hash := sha256(v_prev || convert_to(v_text, 'UTF8'));
    INSERT INTO audit_logs (id, org_id, seq, at, actor_kind, actor_id, actor_role, on_behalf_of, action, target_kind, target_id,
            project_id, result, code, correlation_id, source_ip, before_digest, after_digest, prev_hash, hash, repeats)
        VALUES (p_id, p_org, v_seq, p_at, p_actor_kind, p_actor_id, p_actor_role, p_on_behalf_of, p_action, p_target_kind,
            p_target_id, p_project, p_result, p_code, p_correlation, p_source_ip, p_before, p_after, v_prev, v_hash, p_repeats);
    UPDATE audit_chains SET seq = v_seq, hash = v_hash WHERE org_id = p_org;
    RETURN v_seq;
END $$;
REVOKE ALL ON FUNCTION audit_append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_append TO gpuaas_app, gpuaas_system;

CREATE TABLE refusal_windows (
    -- The organization whose audit chain it is; the nil UUID is the platform's own, and no project.
    chain_id            uuid        NOT NULL,
    project_id          uuid        NOT NULL,
    actor_kind          text        NOT NULL,
    actor_id            uuid        NOT NULL,
    action              text        NOT NULL,
    code                text        NOT NULL,
    minute              timestamptz NOT NULL,
    actor_role          text        NOT NULL,
    target_kind         text        NOT NULL,
    -- After the first, which has an audit row already.
    repeats             bigint      NOT NULL DEFAULT 0,
    last_at             timestamptz NOT NULL,
    last_target_id      text,
    last_correlation_id uuid        NOT NULL,
    last_source_ip      text,
    PRIMARY KEY (chain_id, project_id, actor_kind, actor_id, action, code, minute)
);
CREATE INDEX refusal_windows_by_minute ON refusal_windows (minute);
COMMENT ON TABLE refusal_windows IS 'platform: refusals of the current minute, counted until one audit row says how many; written by refusal_record and refusal_window_close only';

-- Records a refusal. Whether it got an audit row of its own; otherwise it is counted in the row of its minute.
CREATE FUNCTION refusal_record(
    p_id uuid, p_chain uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text, p_action text,
    p_target_kind text, p_target_id text, p_project uuid, p_code text, p_correlation uuid, p_source_ip text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_repeats bigint := 0;
BEGIN
    -- Somebody unknown is no principal; rows about these are bounded where they are refused.
    IF p_actor_id IS NOT NULL THEN
        INSERT INTO refusal_windows AS w (chain_id, project_id, actor_kind, actor_id, action, code, minute, actor_role, target_kind,
                last_at, last_target_id, last_correlation_id, last_source_ip)
            VALUES (p_chain, coalesce(p_project, '00000000-0000-0000-0000-000000000000'), p_actor_kind, p_actor_id, p_action,
                p_code, date_trunc('minute', p_at), p_actor_role, p_target_kind, p_at, p_target_id, p_correlation, p_source_ip)
            ON CONFLICT (chain_id, project_id, actor_kind, actor_id, action, code, minute)
            DO UPDATE SET repeats = w.repeats + 1, actor_role = excluded.actor_role, target_kind = excluded.target_kind,
                last_at = excluded.last_at, last_target_id = excluded.last_target_id,
                last_correlation_id = excluded.last_correlation_id, last_source_ip = excluded.last_source_ip
            RETURNING w.repeats INTO v_repeats;
    END IF;
    IF v_repeats > 0 THEN
        RETURN false;
    END IF;
    PERFORM audit_append(p_id, p_chain, p_at, p_actor_kind, p_actor_id, p_actor_role, NULL, p_action, p_target_kind, p_target_id,
        p_project, 'refused', p_code, p_correlation, p_source_ip, NULL, NULL);
    RETURN true;
END $$;

-- Ends one window from before p_minute: with an audit row when something was repeated in it. Whether there was one; a
-- transaction holds the lock of one audit chain only.
CREATE FUNCTION refusal_window_close(p_id uuid, p_minute timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v refusal_windows;
BEGIN
    DELETE FROM refusal_windows WHERE minute < p_minute AND repeats = 0;
    DELETE FROM refusal_windows WHERE ctid = (
            SELECT ctid FROM refusal_windows WHERE minute < p_minute ORDER BY minute LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING chain_id, project_id, actor_kind, actor_id, action, code, minute, actor_role, target_kind, repeats, last_at,
            last_target_id, last_correlation_id, last_source_ip INTO v;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM audit_append(p_id, v.chain_id, v.last_at, v.actor_kind, v.actor_id, v.actor_role, NULL, v.action, v.target_kind,
        v.last_target_id, nullif(v.project_id, '00000000-0000-0000-0000-000000000000'), 'refused', v.code,
        v.last_correlation_id, v.last_source_ip, NULL, NULL, v.repeats);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION refusal_record, refusal_window_close FROM PUBLIC;
GRANT EXECUTE ON FUNCTION refusal_record, refusal_window_close TO gpuaas_system;
