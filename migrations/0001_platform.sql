-- The platform's own tables: audit trail, outbox, idempotency records, lifecycle tables.
--
-- Three roles (made by the bootstrap before any migration runs): gpuaas_owner owns everything and runs
-- migrations; gpuaas_app serves requests, behind row-level security; gpuaas_system runs workers and
-- platform-wide reads. Neither service role can change what is written once: audit rows are written by the
-- functions below only, and so are new outbox rows and idempotency records; the system role may mark outbox
-- rows as delivered and remove what is old.
--
-- Every table carries a comment that starts with its class: `tenant:` (has org_id, row-level security),
-- `person:` (belongs to one person, row-level security), `platform:` (no tenant data; app role has no
-- access unless granted). A test reads these comments and holds each class to its rules.

-- The tenant and the principal of the current transaction; null when unset.
CREATE FUNCTION current_org() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.org_id', true), '')::uuid $$;
CREATE FUNCTION current_principal() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.principal_id', true), '')::uuid $$;

-- ── audit ────────────────────────────────────────────────────────────────────────────────────────────
-- One chain per organization; the nil UUID is the platform's own chain.
CREATE TABLE audit_chains (
    org_id uuid PRIMARY KEY,
    seq    bigint NOT NULL,
    hash   bytea  NOT NULL
);
COMMENT ON TABLE audit_chains IS 'tenant: head of each audit chain; written by audit_append only';

CREATE TABLE audit_logs (
    id             uuid        NOT NULL UNIQUE,
    org_id         uuid        NOT NULL,
    seq            bigint      NOT NULL,
    at             timestamptz NOT NULL,
    actor_kind     text        NOT NULL CHECK (actor_kind IN ('user', 'service_account', 'system', 'anonymous')),
    actor_id       uuid,
    actor_role     text        NOT NULL,
    on_behalf_of   uuid,
    action         text        NOT NULL,
    target_kind    text        NOT NULL,
    target_id      text,
    project_id     uuid,
    result         text        NOT NULL CHECK (result IN ('allowed', 'refused')),
    code           text,
    correlation_id uuid        NOT NULL,
    source_ip      text,
    before_digest  bytea,
    after_digest   bytea,
    prev_hash      bytea       NOT NULL,
    hash           bytea       NOT NULL,
    PRIMARY KEY (org_id, seq),
    CHECK ((result = 'refused') = (code IS NOT NULL)),
    CHECK ((actor_kind IN ('user', 'service_account')) = (actor_id IS NOT NULL))
);
CREATE INDEX audit_logs_by_id ON audit_logs (org_id, id);
CREATE INDEX audit_logs_by_correlation ON audit_logs (correlation_id);
COMMENT ON TABLE audit_logs IS 'tenant: append-only, hash-chained; written by audit_append only';

ALTER TABLE audit_logs ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_tenant ON audit_logs FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY audit_system ON audit_logs FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON audit_logs TO gpuaas_app, gpuaas_system;
ALTER TABLE audit_chains ENABLE ROW LEVEL SECURITY;
CREATE POLICY chain_tenant ON audit_chains FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY chain_system ON audit_chains FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON audit_chains TO gpuaas_app, gpuaas_system;

-- Even the owner cannot change a row without first removing this trigger, which a dump comparison shows.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit_logs FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit_logs FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A field of the canonical form: its length in bytes, a colon, its text; `-` when it is null.
CREATE FUNCTION canonical_field(field text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN field IS NULL THEN '-,' ELSE octet_length(field) || ':' || field || ',' END $$;

CREATE FUNCTION audit_append(
    p_id uuid, p_org uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text,
    p_on_behalf_of uuid, p_action text, p_target_kind text, p_target_id text, p_project uuid,
    p_result text, p_code text, p_correlation uuid, p_source_ip text, p_before bytea, p_after bytea
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq  bigint;
    v_prev bytea;
    v_hash bytea;
BEGIN
    -- Locks the head: appends to one chain are serial, chains are independent.
    SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_chains VALUES (p_org, 0, sha256(convert_to('gpuaas-audit:' || p_org, 'UTF8')))
            ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    END IF;
    v_seq := v_seq + 1;
    v_hash := sha256(v_prev || convert_to(
        canonical_field('1') || canonical_field(p_id::text) || canonical_field(p_org::text)
        || canonical_field(v_seq::text) || canonical_field(((extract(epoch FROM p_at) * 1000000)::bigint)::text)
        || canonical_field(p_actor_kind) || canonical_field(p_actor_id::text) || canonical_field(p_actor_role)
        || canonical_field(p_on_behalf_of::text) || canonical_field(p_action) || canonical_field(p_target_kind)
        || canonical_field(p_target_id) || canonical_field(p_project::text) || canonical_field(p_result)
        || canonical_field(p_code) || canonical_field(p_correlation::text) || canonical_field(p_source_ip)
        || canonical_field(encode(p_before, 'hex')) || canonical_field(encode(p_after, 'hex')), 'UTF8'));
    INSERT INTO audit_logs VALUES (p_id, p_org, v_seq, p_at, p_actor_kind, p_actor_id, p_actor_role, p_on_behalf_of,
        p_action, p_target_kind, p_target_id, p_project, p_result, p_code, p_correlation, p_source_ip, p_before,
        p_after, v_prev, v_hash);
    UPDATE audit_chains SET seq = v_seq, hash = v_hash WHERE org_id = p_org;
    RETURN v_seq;
END $$;

-- ── outbox ───────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE outbox_events (
    position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       uuid        NOT NULL UNIQUE,
    stream         text        NOT NULL,
    event_type     text        NOT NULL,
    version        smallint    NOT NULL,
    occurred_at    timestamptz NOT NULL,
    correlation_id uuid        NOT NULL,
    traceparent    text,
    org_id         uuid,
    project_id     uuid,
    payload        jsonb       NOT NULL,
    attempts       integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT '-infinity',
    last_error     text,
    published_at   timestamptz
);
CREATE INDEX outbox_pending ON outbox_events (position) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON outbox_events (published_at) WHERE published_at IS NOT NULL;
COMMENT ON TABLE outbox_events IS 'platform: events waiting for the relay; written by write_finish only';
GRANT SELECT, DELETE ON outbox_events TO gpuaas_system;
GRANT UPDATE (attempts, next_attempt_at, last_error, published_at) ON outbox_events TO gpuaas_system;

-- ── idempotency ──────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE idempotency_records (
    principal_id uuid        NOT NULL,
    endpoint     text        NOT NULL,
    key          text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    request_hash bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    status       smallint,
    body         bytea,
    PRIMARY KEY (principal_id, endpoint, key)
);
CREATE INDEX idempotency_by_age ON idempotency_records (created_at);
COMMENT ON TABLE idempotency_records IS 'platform: stored responses; reached through idempotency_claim and write_finish only';
GRANT SELECT, DELETE ON idempotency_records TO gpuaas_system;

-- Claims a key, or returns what was stored under it. A concurrent claim of the same key waits here until
-- the first transaction ends (bounded by lock_timeout).
CREATE FUNCTION idempotency_claim(
    p_principal uuid, p_endpoint text, p_key text, p_hash bytea, p_now timestamptz,
    OUT claimed boolean, OUT same_request boolean, OUT status smallint, OUT body bytea
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO idempotency_records AS r VALUES (p_principal, p_endpoint, p_key, p_hash, p_now) ON CONFLICT DO NOTHING;
    claimed := FOUND;
    same_request := true;
    IF NOT claimed THEN
        SELECT r.request_hash = p_hash, r.status, r.body INTO same_request, status, body
            FROM idempotency_records r WHERE r.principal_id = p_principal AND r.endpoint = p_endpoint AND r.key = p_key;
    END IF;
END $$;

-- Everything that must be written with an effect, in one round trip: audit, events, stored response, and
-- the notifications that drop caches and wake the relay when the transaction commits.
CREATE FUNCTION write_finish(
    p_id uuid, p_org uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text,
    p_on_behalf_of uuid, p_action text, p_target_kind text, p_target_id text, p_project uuid,
    p_correlation uuid, p_source_ip text, p_before bytea, p_after bytea,
    e_ids uuid[], e_streams text[], e_types text[], e_versions smallint[], e_orgs uuid[], e_projects uuid[],
    e_payloads jsonb[], p_traceparent text,
    i_principal uuid, i_endpoint text, i_key text, i_status smallint, i_body bytea,
    p_invalidate text[]
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq bigint;
    v_key text;
BEGIN
    v_seq := audit_append(p_id, p_org, p_at, p_actor_kind, p_actor_id, p_actor_role, p_on_behalf_of, p_action,
        p_target_kind, p_target_id, p_project, 'allowed', NULL, p_correlation, p_source_ip, p_before, p_after);
    IF cardinality(e_ids) > 0 THEN
        INSERT INTO outbox_events
            (event_id, stream, event_type, version, occurred_at, correlation_id, traceparent, org_id, project_id, payload)
        SELECT id, stream, type, ver, p_at, p_correlation, p_traceparent, org, project, payload
            FROM unnest(e_ids, e_streams, e_types, e_versions, e_orgs, e_projects, e_payloads)
                AS e (id, stream, type, ver, org, project, payload);
        PERFORM pg_notify('gpuaas_outbox', '');
    END IF;
    IF i_key IS NOT NULL THEN
        UPDATE idempotency_records SET status = i_status, body = i_body
            WHERE principal_id = i_principal AND endpoint = i_endpoint AND key = i_key;
    END IF;
    FOREACH v_key IN ARRAY p_invalidate LOOP
        PERFORM pg_notify('gpuaas_invalidate', v_key);
    END LOOP;
    RETURN v_seq;
END $$;

REVOKE ALL ON FUNCTION audit_append, idempotency_claim, write_finish FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_append, idempotency_claim, write_finish TO gpuaas_app, gpuaas_system;

-- ── lifecycles ───────────────────────────────────────────────────────────────────────────────────────
-- The same tables as in the code's `model/`; a test proves that they are equal.
CREATE TABLE lifecycle_transitions (
    lifecycle  text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    PRIMARY KEY (lifecycle, from_state, to_state)
);
COMMENT ON TABLE lifecycle_transitions IS 'platform: allowed state changes';
GRANT SELECT ON lifecycle_transitions TO gpuaas_app, gpuaas_system;

-- Refuses a state change that the table of the lifecycle (the trigger's argument) does not hold.
CREATE FUNCTION enforce_lifecycle() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.state IS DISTINCT FROM OLD.state AND NOT EXISTS (
        SELECT FROM lifecycle_transitions
        WHERE lifecycle = TG_ARGV[0] AND from_state = OLD.state AND to_state = NEW.state
    ) THEN
        RAISE EXCEPTION '% cannot go from % to %', TG_ARGV[0], OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
