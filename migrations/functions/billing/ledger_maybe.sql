CREATE OR REPLACE FUNCTION ledger_maybe(b bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT coalesce('\x01'::bytea || b, '\x00'::bytea) $$;
