CREATE OR REPLACE FUNCTION ledger_leaf(p_line ledger_line_content) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(int4send(p_line.line) || ledger_text(p_line.account) || int8send(p_line.amount_minor)
        || ledger_maybe(uuid_send(p_line.project_id)) || ledger_maybe(uuid_send(p_line.allocation_id))
        || ledger_maybe(uuid_send(p_line.app_instance_id)) || ledger_maybe(uuid_send(p_line.meter_id))
        || ledger_maybe(timestamptz_send(p_line.window_start)) || ledger_maybe(timestamptz_send(p_line.window_end))
        || uuid_send(p_line.correlation_id))
$$;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION ledger_leaf(
    p_line integer, p_account text, p_amount bigint, p_project uuid, p_allocation uuid, p_app uuid, p_meter uuid,
    p_start timestamptz, p_end timestamptz, p_correlation uuid
) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ledger_leaf(ROW(p_line, p_account, p_amount, p_project, p_allocation, p_app, p_meter, p_start, p_end,
        p_correlation)::ledger_line_content)
$$;
