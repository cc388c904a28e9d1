-- Appends one posting with its lines. Times never go back along a chain, and never ahead of the clock of
-- the database.
-- Nothing is done, and nothing answered, when the reference was posted before.
CREATE OR REPLACE FUNCTION ledger_append(p_posting new_posting, p_lines line_batch) RETURNS ledger_postings
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_prev  record;
    v_new   ledger_postings;
BEGIN
    v_chain := ledger_lock(p_posting.org_id, p_posting.currency);
    -- Looked up after the chain is locked, by a statement of its own: it sees what was posted while this one waited.
    IF p_posting.reference IS NOT NULL AND EXISTS (
        SELECT FROM ledger_references r WHERE r.kind = p_posting.kind AND r.reference = p_posting.reference) THEN
        RETURN NULL;
    END IF;
    SELECT prepaid_after, held_after, promo_after, disputed_after INTO v_prev FROM ledger_postings
        WHERE org_id = p_posting.org_id AND seq = v_chain.seq AND posted_at = v_chain.posted_at;
    v_new.org_id := p_posting.org_id;
    v_new.seq := v_chain.seq + 1;
    v_new.posted_at := greatest(least(p_posting.at, ledger_clock(p_posting.at)), v_chain.posted_at);
    v_new.id := p_posting.id;
    v_new.kind := p_posting.kind;
    v_new.currency := p_posting.currency;
    v_new.reference := p_posting.reference;
    v_new.reason := p_posting.reason;
    v_new.corrects_entry_id := p_posting.corrects_entry_id;
    v_new.actor_kind := p_posting.actor_kind;
    v_new.actor_id := p_posting.actor_id;
    v_new.correlation_id := p_posting.correlation_id;
    v_new.prev_hash := v_chain.hash;
    v_new.xact := pg_current_xact_id();
    SELECT count(*), sha256(coalesce(string_agg(ledger_leaf(ROW(n, account, amount, project, allocation, app, meter,
            starts, ends, p_posting.correlation_id)::ledger_line_content), ''::bytea ORDER BY n), ''::bytea)),
        coalesce(v_prev.prepaid_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'prepaid'), 0),
        coalesce(v_prev.held_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'held'), 0),
        coalesce(v_prev.promo_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'promo'), 0),
        coalesce(v_prev.disputed_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'disputed'), 0)
        INTO v_new.lines, v_new.lines_digest, v_new.prepaid_after, v_new.held_after, v_new.promo_after, v_new.disputed_after
        FROM unnest(p_lines.accounts, p_lines.amounts, p_lines.projects, p_lines.allocations, p_lines.apps, p_lines.meters,
            p_lines.starts, p_lines.ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    v_new.hash := ledger_hash(v_new);
    PERFORM month_ensure('ledger_postings', v_new.posted_at), month_ensure('ledger_lines', v_new.posted_at);
    INSERT INTO ledger_postings (org_id, seq, posted_at, id, kind, currency, reference, reason, corrects_entry_id, actor_kind,
            actor_id, correlation_id, lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after,
            prev_hash, hash, xact)
        VALUES (v_new.org_id, v_new.seq, v_new.posted_at, v_new.id, v_new.kind, v_new.currency, v_new.reference, v_new.reason,
            v_new.corrects_entry_id, v_new.actor_kind, v_new.actor_id, v_new.correlation_id, v_new.lines, v_new.lines_digest,
            v_new.prepaid_after, v_new.held_after, v_new.promo_after, v_new.disputed_after, v_new.prev_hash, v_new.hash,
            v_new.xact);
    INSERT INTO ledger_lines (org_id, seq, line, posted_at, account, amount_minor, project_id, allocation_id, app_instance_id,
            meter_id, window_start, window_end, correlation_id, leaf)
        SELECT p_posting.org_id, v_new.seq, n, v_new.posted_at, account, amount, project, allocation, app, meter, starts,
            ends, p_posting.correlation_id,
            ledger_leaf(ROW(n, account, amount, project, allocation, app, meter, starts, ends,
                p_posting.correlation_id)::ledger_line_content)
        FROM unnest(p_lines.accounts, p_lines.amounts, p_lines.projects, p_lines.allocations, p_lines.apps, p_lines.meters,
            p_lines.starts, p_lines.ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    IF p_posting.reference IS NOT NULL THEN
        INSERT INTO ledger_references (kind, reference, org_id, seq)
            VALUES (p_posting.kind, p_posting.reference, p_posting.org_id, v_new.seq);
    END IF;
    UPDATE ledger_chains SET seq = v_new.seq, posted_at = v_new.posted_at, hash = v_new.hash
        WHERE org_id = p_posting.org_id;
    RETURN v_new;
END $$;
REVOKE ALL ON FUNCTION ledger_append(new_posting, line_batch) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_append(new_posting, line_batch) TO gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION ledger_append(
    p_org uuid, p_currency text, p_at timestamptz, p_id uuid, p_kind text, p_reference text, p_reason text, p_corrects uuid,
    p_actor_kind text, p_actor_id uuid, p_correlation uuid,
    l_accounts text[], l_amounts bigint[], l_projects uuid[], l_allocations uuid[], l_apps uuid[], l_meters uuid[],
    l_starts timestamptz[], l_ends timestamptz[]
) RETURNS ledger_postings
LANGUAGE sql AS $$
    SELECT ledger_append(ROW(p_org, p_currency, p_at, p_id, p_kind, p_reference, p_reason, p_corrects, p_actor_kind,
        p_actor_id, p_correlation)::new_posting,
        ROW(l_accounts, l_amounts, l_projects, l_allocations, l_apps, l_meters, l_starts, l_ends)::line_batch)
$$;
