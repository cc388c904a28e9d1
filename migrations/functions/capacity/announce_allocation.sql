-- Wakes whoever waits for a change: `?wait=`, streams.
CREATE OR REPLACE FUNCTION announce_allocation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_allocations', NEW.allocation_id::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER allocation_events_announce AFTER INSERT ON allocation_events
    FOR EACH ROW EXECUTE FUNCTION announce_allocation();
