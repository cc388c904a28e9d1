-- What the time is for the ledger: the clock of the database, whatever the process that asks believes (`p_claimed`). No role
-- that services use can replace it. A test that moves its own clock replaces it in its own database.
CREATE OR REPLACE FUNCTION ledger_clock(p_claimed timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() $$;
REVOKE ALL ON FUNCTION ledger_clock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_clock TO gpuaas_app, gpuaas_system;
