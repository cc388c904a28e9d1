-- The hash that a posting must have.
CREATE OR REPLACE FUNCTION ledger_hash(p ledger_postings) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ledger_content_hash(ROW(p.org_id, p.seq, p.posted_at, p.id, p.kind, p.currency, p.reference, p.reason,
        p.corrects_entry_id, p.actor_kind, p.actor_id, p.correlation_id, p.lines, p.lines_digest, p.prepaid_after, p.held_after,
        p.promo_after, p.disputed_after, p.prev_hash)::ledger_content)
$$;
