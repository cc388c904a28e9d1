-- The hash of a posting: of what it says and of the hash before it. `kernel::ledger` builds the same.
CREATE OR REPLACE FUNCTION ledger_content_hash(p ledger_content) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(p.prev_hash || '\x01'::bytea || uuid_send(p.org_id) || int8send(p.seq) || timestamptz_send(p.posted_at)
        || uuid_send(p.id) || ledger_text(p.kind) || ledger_text(p.currency)
        || ledger_maybe(ledger_text(p.reference)) || ledger_text(p.reason) || ledger_maybe(uuid_send(p.corrects_entry_id))
        || ledger_text(p.actor_kind) || ledger_maybe(uuid_send(p.actor_id)) || uuid_send(p.correlation_id)
        || int4send(p.lines) || p.lines_digest
        || int8send(p.prepaid_after) || int8send(p.held_after) || int8send(p.promo_after) || int8send(p.disputed_after))
$$;
