-- Binary: numbers and times (microseconds since 2000) big-endian, text with its length before it, and a byte that
-- says whether something optional is there. `kernel::ledger` builds the same.
CREATE OR REPLACE FUNCTION ledger_text(t text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT int4send(octet_length(t)) || convert_to(t, 'UTF8') $$;
