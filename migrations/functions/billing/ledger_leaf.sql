CREATE OR REPLACE FUNCTION ledger_leaf(
    p_line integer, p_account text, p_amount bigint, p_project uuid, p_allocation uuid, p_app uuid, p_meter uuid,
    p_start timestamptz, p_end timestamptz, p_correlation uuid
) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(int4send(p_line) || ledger_text(p_account) || int8send(p_amount) || ledger_maybe(uuid_send(p_project))
        || ledger_maybe(uuid_send(p_allocation)) || ledger_maybe(uuid_send(p_app)) || ledger_maybe(uuid_send(p_meter))
        || ledger_maybe(timestamptz_send(p_start)) || ledger_maybe(timestamptz_send(p_end)) || uuid_send(p_correlation))
$$;
