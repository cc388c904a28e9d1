-- Makes a consumer known, or notes that it lives. What it newly takes is handed to it from the messages
-- that its stream still keeps; answers how many those were.
CREATE OR REPLACE FUNCTION bus_consumer_ensure(p_name text, p_stream text, p_types text[], p_now timestamptz)
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
    INSERT INTO bus_consumers (name, stream, event_types, created_at, last_seen_at)
        VALUES (p_name, p_stream, p_types, p_now, p_now)
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
REVOKE ALL ON FUNCTION bus_consumer_ensure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION bus_consumer_ensure TO gpuaas_system;
