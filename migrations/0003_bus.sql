-- The bus: messages, durable consumers, deliveries, inbox and dead letters. Single writer: the `bus` crate,
-- as gpuaas_system; requests reach dead letters only in platform scope.

-- ── the Postgres transport ───────────────────────────────────────────────────────────────────────────
CREATE TABLE bus_messages (
    event_id       uuid PRIMARY KEY,
    position       bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    stream         text        NOT NULL,
    event_type     text        NOT NULL,
    version        smallint    NOT NULL,
    occurred_at    timestamptz NOT NULL,
    correlation_id uuid        NOT NULL,
    traceparent    text,
    org_id         uuid,
    project_id     uuid,
    payload        jsonb       NOT NULL,
    published_at   timestamptz NOT NULL
);
CREATE INDEX bus_messages_by_stream ON bus_messages (stream, published_at);
COMMENT ON TABLE bus_messages IS 'platform: published events, kept as long as their stream keeps them';
GRANT SELECT, INSERT, DELETE ON bus_messages TO gpuaas_system;

CREATE TABLE bus_consumers (
    name         text PRIMARY KEY,
    stream       text        NOT NULL,
    event_types  text[]      NOT NULL,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL
);
COMMENT ON TABLE bus_consumers IS 'platform: durable consumers and what they take; no event types means all of the stream';
GRANT SELECT, INSERT, UPDATE, DELETE ON bus_consumers TO gpuaas_system;

-- What a consumer still has to handle. A lease moves available_at ahead and raises the fence; whoever
-- comes back with an older fence is refused.
CREATE TABLE bus_deliveries (
    consumer     text        NOT NULL REFERENCES bus_consumers ON DELETE CASCADE,
    event_id     uuid        NOT NULL REFERENCES bus_messages,
    position     bigint      NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL,
    fence        bigint      NOT NULL DEFAULT 0,
    last_error   text,
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX bus_deliveries_due ON bus_deliveries (consumer, available_at, position);
CREATE INDEX bus_deliveries_by_event ON bus_deliveries (event_id);
COMMENT ON TABLE bus_deliveries IS 'platform: messages that a consumer has not handled yet';
GRANT SELECT, INSERT, UPDATE, DELETE ON bus_deliveries TO gpuaas_system;

-- Publishing shares this lock and registering a consumer takes it alone, so that a message published while
-- a consumer appears is found either by the fan-out or by the backfill.
CREATE FUNCTION bus_registry_lock() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT 7453010373643006062 $$;

-- Stores the messages that are new and hands each to the consumers that want it; answers how many were new.
CREATE FUNCTION bus_publish(
    p_now timestamptz, p_ids uuid[], p_streams text[], p_types text[], p_versions smallint[],
    p_occurred timestamptz[], p_correlations uuid[], p_traceparents text[], p_orgs uuid[], p_projects uuid[],
    p_payloads jsonb[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_new bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(bus_registry_lock());
    WITH fresh AS (
        INSERT INTO bus_messages (event_id, stream, event_type, version, occurred_at, correlation_id, traceparent,
            org_id, project_id, payload, published_at)
        SELECT id, stream, type, ver, occurred, correlation, trace, org, project, payload, p_now
            FROM unnest(p_ids, p_streams, p_types, p_versions, p_occurred, p_correlations, p_traceparents, p_orgs,
                p_projects, p_payloads)
                WITH ORDINALITY AS m (id, stream, type, ver, occurred, correlation, trace, org, project, payload, n)
            ORDER BY n
        ON CONFLICT (event_id) DO NOTHING
        RETURNING event_id, position, stream, event_type
    ), handed AS (
        INSERT INTO bus_deliveries (consumer, event_id, position, available_at)
        SELECT c.name, f.event_id, f.position, p_now
            FROM fresh f JOIN bus_consumers c
            ON c.stream = f.stream AND (cardinality(c.event_types) = 0 OR f.event_type = ANY (c.event_types))
    )
    SELECT count(*) INTO v_new FROM fresh;
    IF v_new > 0 THEN
        PERFORM pg_notify('gpuaas_bus', '');
    END IF;
    RETURN v_new;
END $$;

-- Makes a consumer known, or notes that it lives. What it newly takes is handed to it from the messages
-- that its stream still keeps; answers how many those were.
CREATE FUNCTION bus_consumer_ensure(p_name text, p_stream text, p_types text[], p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_old   bus_consumers;
    v_added bigint;
BEGIN
    UPDATE bus_consumers SET last_seen_at = p_now
        WHERE name = p_name AND stream = p_stream AND event_types = p_types;
    IF FOUND THEN
        RETURN 0;
    END IF;
    PERFORM pg_advisory_xact_lock(bus_registry_lock());
    SELECT * INTO v_old FROM bus_consumers WHERE name = p_name;
    INSERT INTO bus_consumers VALUES (p_name, p_stream, p_types, p_now, p_now)
        ON CONFLICT (name) DO UPDATE
        SET stream = excluded.stream, event_types = excluded.event_types, last_seen_at = excluded.last_seen_at;
    INSERT INTO bus_deliveries (consumer, event_id, position, available_at)
        SELECT p_name, m.event_id, m.position, p_now FROM bus_messages m
        WHERE m.stream = p_stream
            AND (cardinality(p_types) = 0 OR m.event_type = ANY (p_types))
            AND NOT (v_old.name IS NOT NULL AND v_old.stream = p_stream
                AND (cardinality(v_old.event_types) = 0 OR m.event_type = ANY (v_old.event_types)))
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_added = ROW_COUNT;
    RETURN v_added;
END $$;

REVOKE ALL ON FUNCTION bus_publish, bus_consumer_ensure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION bus_publish, bus_consumer_ensure TO gpuaas_system;

-- ── inbox ────────────────────────────────────────────────────────────────────────────────────────────
-- Written in the transaction of the effect: an event that is here has had its one effect.
CREATE TABLE inbox_records (
    consumer   text        NOT NULL,
    event_id   uuid        NOT NULL,
    handled_at timestamptz NOT NULL,
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX inbox_records_by_age ON inbox_records (handled_at);
COMMENT ON TABLE inbox_records IS 'platform: events that a consumer has handled';
GRANT SELECT, INSERT, DELETE ON inbox_records TO gpuaas_system;

-- ── dead letters ─────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE dead_letters (
    id             uuid PRIMARY KEY,
    consumer       text        NOT NULL,
    stream         text        NOT NULL,
    event_id       uuid        NOT NULL,
    event_type     text        NOT NULL,
    envelope       jsonb       NOT NULL,
    error          text        NOT NULL,
    class          text        NOT NULL CHECK (class IN ('transient', 'permanent')),
    attempts       integer     NOT NULL,
    -- Automatic retries so far, and attempts begun since the last requeue.
    slow_retries   integer     NOT NULL DEFAULT 0,
    tries          integer     NOT NULL DEFAULT 0,
    -- When it is tried next: by itself while dead and transient, at once (or after a lease) while requeued.
    due_at         timestamptz,
    fence          bigint      NOT NULL DEFAULT 0,
    state          text        NOT NULL DEFAULT 'dead' CHECK (state IN ('dead', 'requeued', 'discarded', 'resolved')),
    discard_reason text,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    CHECK ((state = 'discarded') = (discard_reason IS NOT NULL)),
    CHECK (CASE state
        WHEN 'requeued' THEN due_at IS NOT NULL
        WHEN 'dead' THEN due_at IS NULL OR class = 'transient'
        ELSE due_at IS NULL END)
);
CREATE UNIQUE INDEX dead_letters_open ON dead_letters (consumer, event_id) WHERE state IN ('dead', 'requeued');
CREATE INDEX dead_letters_due ON dead_letters (consumer, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX dead_letters_by_consumer ON dead_letters (consumer, id);
CREATE INDEX dead_letters_closed ON dead_letters (updated_at) WHERE state IN ('discarded', 'resolved');
COMMENT ON TABLE dead_letters IS 'platform: messages that a consumer could not handle';
GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters TO gpuaas_system;

INSERT INTO lifecycle_transitions VALUES
    ('dead_letter', 'dead', 'requeued'), ('dead_letter', 'dead', 'discarded'),
    ('dead_letter', 'requeued', 'resolved'), ('dead_letter', 'requeued', 'dead'),
    ('dead_letter', 'requeued', 'discarded');
CREATE TRIGGER dead_letters_lifecycle BEFORE UPDATE OF state ON dead_letters
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('dead_letter');
