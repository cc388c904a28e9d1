-- Stores the messages that are new and hands each to the consumers that want it; answers how many were new.
CREATE OR REPLACE FUNCTION bus_publish(p_now timestamptz, p_messages message_batch) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_new bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(bus_registry_lock());
    WITH fresh AS (
        INSERT INTO bus_messages (event_id, stream, event_type, version, occurred_at, correlation_id, traceparent,
            org_id, project_id, payload, published_at)
        SELECT id, stream, type, ver, occurred, correlation, trace, org, project, payload, p_now
            FROM unnest(p_messages.ids, p_messages.streams, p_messages.types, p_messages.versions, p_messages.occurred,
                p_messages.correlations, p_messages.traceparents, p_messages.orgs, p_messages.projects, p_messages.payloads)
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
REVOKE ALL ON FUNCTION bus_publish(timestamptz, message_batch) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION bus_publish(timestamptz, message_batch) TO gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION bus_publish(
    p_now timestamptz, p_ids uuid[], p_streams text[], p_types text[], p_versions smallint[],
    p_occurred timestamptz[], p_correlations uuid[], p_traceparents text[], p_orgs uuid[], p_projects uuid[],
    p_payloads jsonb[]
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT bus_publish(p_now, ROW(p_ids, p_streams, p_types, p_versions, p_occurred, p_correlations, p_traceparents,
        p_orgs, p_projects, p_payloads)::message_batch)
$$;
