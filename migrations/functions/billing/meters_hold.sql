-- Sets the cost of the first time aside for each allocation of a launch and makes their meters. Answers `ok`,
-- `insufficient_balance`, `budget_blocked` or `spend_cap`; in the latter three nothing was written. With `spend_cap`,
-- `available` is what is left of the cap.
CREATE OR REPLACE FUNCTION meters_hold(
    p_terms meter_terms, p_now timestamptz, p_hold_seconds bigint, p_posting uuid, p_origin write_origin,
    m_ids uuid[], m_allocations uuid[],
    OUT answer text, OUT available bigint, OUT needed bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_last  record;
    v_each  bigint := usage_cost_rounded_up(p_terms.unit_price_minor, p_terms.units, p_hold_seconds);
    v_count bigint := cardinality(m_ids);
    v_promo bigint;
    v_free  boolean := usage_cost_rounded_up(p_terms.unit_price_minor, p_terms.units, 1) = 0;
    v_left  bigint;
BEGIN
    needed := v_each * v_count;
    v_chain := ledger_lock(p_terms.org_id, p_terms.currency);
    SELECT prepaid_after, promo_after INTO v_last FROM ledger_postings WHERE org_id = p_terms.org_id AND seq = v_chain.seq
        AND posted_at = v_chain.posted_at;
    available := coalesce(v_last.prepaid_after + v_last.promo_after, 0);
    IF budget_blocks(p_terms.org_id, p_terms.project_id, p_now) THEN
        answer := 'budget_blocked';
        RETURN;
    END IF;
    -- A cap is not removed while this launch relies on it.
    PERFORM FROM spend_caps WHERE service_account_id = p_terms.person_id AND org_id = p_terms.org_id FOR KEY SHARE;
    IF FOUND THEN
        v_left := spend_cap_left(p_terms.org_id, p_terms.person_id, p_now);
    ELSIF p_origin.actor_kind = 'service_account' AND NOT EXISTS (SELECT FROM budgets b
            WHERE b.org_id = p_terms.org_id AND b.project_id = p_terms.project_id AND b.action = 'release') THEN
        v_left := 0;
    END IF;
    IF v_left < needed OR (v_left <= 0 AND NOT v_free) THEN
        answer := 'spend_cap';
        available := v_left;
        RETURN;
    END IF;
    IF available < needed OR (available <= 0 AND NOT v_free) THEN
        answer := 'insufficient_balance';
        RETURN;
    END IF;
    answer := 'ok';
    v_promo := promo_part(coalesce(v_last.promo_after, 0), needed);
    INSERT INTO meters (id, org_id, project_id, source, allocation_id, person_id, sku, unit, units, unit_price_minor, currency,
            state, hold_minor, hold_remaining, hold_promo, created_at)
        SELECT id, p_terms.org_id, p_terms.project_id, 'allocation', allocation, p_terms.person_id, p_terms.sku,
            p_terms.unit, p_terms.units, p_terms.unit_price_minor, p_terms.currency,
            'held', v_each, v_each, promo_part(v_promo - (n - 1) * v_each, v_each), p_now
        FROM unnest(m_ids, m_allocations) WITH ORDINALITY AS m (id, allocation, n);
    IF v_each > 0 THEN
        PERFORM ledger_append(ROW(p_terms.org_id, p_terms.currency, p_now, p_posting, 'hold', NULL,
            'set aside for a launch', NULL, p_origin.actor_kind, p_origin.actor_id, p_origin.correlation_id)::new_posting,
            ROW(accounts, amounts, projects, allocations, array_fill(NULL::uuid, ARRAY[n]), meters,
                array_fill(NULL::timestamptz, ARRAY[n]), array_fill(NULL::timestamptz, ARRAY[n]))::line_batch)
        FROM (
            SELECT array_agg(account ORDER BY rank, id), array_agg(amount ORDER BY rank, id),
                array_agg(p_terms.project_id ORDER BY rank, id),
                array_agg(allocation ORDER BY rank, id), array_agg(id ORDER BY rank, id), count(*)::integer
            FROM (
                SELECT 1, 'prepaid', -v_each, id, allocation FROM unnest(m_ids, m_allocations) AS m (id, allocation)
                UNION ALL SELECT 2, 'held', v_each, id, allocation FROM unnest(m_ids, m_allocations) AS m (id, allocation)
                UNION ALL SELECT 3, 'promo', -v_promo, NULL, NULL WHERE v_promo > 0
                UNION ALL SELECT 4, 'prepaid', v_promo, NULL, NULL WHERE v_promo > 0
            ) AS l (rank, account, amount, id, allocation)
        ) AS a (accounts, amounts, projects, allocations, meters, n);
    END IF;
END $$;
REVOKE ALL ON FUNCTION meters_hold(meter_terms, timestamptz, bigint, uuid, write_origin, uuid[], uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meters_hold(meter_terms, timestamptz, bigint, uuid, write_origin, uuid[], uuid[]) TO gpuaas_app, gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION meters_hold(
    p_org uuid, p_project uuid, p_person uuid, p_now timestamptz, p_hold_seconds bigint, p_sku text, p_unit text, p_units integer,
    p_price bigint, p_currency text, p_posting uuid, p_actor_kind text, p_actor uuid, p_correlation uuid,
    m_ids uuid[], m_allocations uuid[],
    OUT answer text, OUT available bigint, OUT needed bigint
)
LANGUAGE sql AS $$
    SELECT h.answer, h.available, h.needed
    FROM meters_hold(ROW(p_org, p_project, p_person, p_sku, p_unit, p_units, p_price, p_currency)::meter_terms, p_now,
        p_hold_seconds, p_posting, ROW(p_actor_kind, p_actor, p_correlation)::write_origin, m_ids, m_allocations) AS h
$$;
