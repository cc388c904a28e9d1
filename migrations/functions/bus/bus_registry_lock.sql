-- Publishing shares this lock and registering a consumer takes it alone, so that a message published while
-- a consumer appears is found either by the fan-out or by the backfill.
CREATE OR REPLACE FUNCTION bus_registry_lock() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT 7453010373643006062 $$;
