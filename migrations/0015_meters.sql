-- Meters from the launch to the end: what is set aside, when they open and close. Called in the transaction of the change
-- that they belong to.

-- Sets the cost of the first time aside for each allocation of a launch and makes their meters. Answers `ok`,
-- `insufficient_balance` or `budget_blocked`; in the latter two nothing was written.
CREATE FUNCTION meters_hold(
    p_org uuid, p_project uuid, p_person uuid, p_now timestamptz, p_hold_seconds bigint, p_sku text, p_unit text, p_units integer,
    p_price bigint, p_currency text, p_posting uuid, p_actor_kind text, p_actor uuid, p_correlation uuid,
    m_ids uuid[], m_allocations uuid[],
    OUT answer text, OUT available bigint, OUT needed bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_last  ledger_postings;
    v_each  bigint := (p_price * p_units * p_hold_seconds + 3599) / 3600;
    v_count bigint := cardinality(m_ids);
    v_promo bigint;
BEGIN
    needed := v_each * v_count;
    v_chain := ledger_lock(p_org, p_currency);
    SELECT * INTO v_last FROM ledger_postings WHERE org_id = p_org AND seq = v_chain.seq AND posted_at = v_chain.posted_at;
    available := coalesce(v_last.prepaid_after + v_last.promo_after, 0);
    IF EXISTS (SELECT FROM budgets b JOIN budget_progress g USING (project_id) WHERE b.project_id = p_project AND b.org_id = p_org
        AND b.action IN ('block', 'release') AND g.crossed_at IS NOT NULL
        -- The budget may have been raised since.
        AND g.spent_minor::numeric * 100 >= b.amount_minor::numeric * b.threshold_percent
        AND g.month = date_trunc('month', p_now AT TIME ZONE 'UTC')::date) THEN
        answer := 'budget_blocked';
        RETURN;
    END IF;
    IF available < needed OR (available <= 0 AND p_price * p_units > 0) THEN
        answer := 'insufficient_balance';
        RETURN;
    END IF;
    answer := 'ok';
    -- What prepaid money does not cover comes from promotional credit.
    v_promo := least(greatest(needed - coalesce(v_last.prepaid_after, 0), 0), coalesce(v_last.promo_after, 0));
    INSERT INTO meters (id, org_id, project_id, source, allocation_id, person_id, sku, unit, units, unit_price_minor, currency,
            state, hold_minor, hold_remaining, hold_promo, created_at)
        SELECT id, p_org, p_project, 'allocation', allocation, p_person, p_sku, p_unit, p_units, p_price, p_currency,
            'held', v_each, v_each, greatest(least(v_each, v_promo - (n - 1) * v_each), 0), p_now
        FROM unnest(m_ids, m_allocations) WITH ORDINALITY AS m (id, allocation, n);
    IF v_each > 0 THEN
        PERFORM ledger_append(p_org, p_currency, p_now, p_posting, 'hold', NULL, 'set aside for a launch', NULL,
            p_actor_kind, p_actor, p_correlation, accounts, amounts, projects, allocations, array_fill(NULL::uuid, ARRAY[n]),
            meters, array_fill(NULL::timestamptz, ARRAY[n]), array_fill(NULL::timestamptz, ARRAY[n]))
        FROM (
            SELECT array_agg(account ORDER BY rank, id), array_agg(amount ORDER BY rank, id), array_agg(p_project ORDER BY rank, id),
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

-- Gives back what is set aside for a meter; the chain is locked by the caller's posting.
CREATE FUNCTION meter_hold_release(p_meter meters, p_now timestamptz, p_posting uuid, p_correlation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_promo bigint;
BEGIN
    IF p_meter.hold_remaining > 0 THEN
        v_promo := least(p_meter.hold_remaining, p_meter.hold_promo);
        PERFORM ledger_append(p_meter.org_id, p_meter.currency, p_now, p_posting, 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation,
            array_agg(l.account), array_agg(l.amount), array_agg(p_meter.project_id), array_agg(p_meter.allocation_id),
            array_agg(p_meter.app_instance_id), array_agg(p_meter.id), array_agg(NULL::timestamptz), array_agg(NULL::timestamptz))
        FROM (VALUES ('held', -p_meter.hold_remaining), ('prepaid', p_meter.hold_remaining - v_promo), ('promo', v_promo))
            AS l (account, amount)
        WHERE l.amount <> 0;
    END IF;
END $$;

-- The allocation is active: it is paid for from this second on.
CREATE FUNCTION meter_open(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', p_at);
BEGIN
    UPDATE meters SET state = 'open', opened_at = v_at, accrued_until = v_at, running_since = v_at
        WHERE allocation_id = p_allocation AND state = 'held';
    RETURN FOUND;
END $$;

-- It is active no more: it is paid for until this second. Wakes the worker, which posts the rest.
CREATE FUNCTION meter_close(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', p_at);
BEGIN
    UPDATE meters SET state = 'closed',
            closed_at = CASE WHEN state = 'paused' THEN accrued_until ELSE greatest(v_at, running_since) END
        WHERE allocation_id = p_allocation AND state IN ('open', 'paused')
            AND (NOT called_by_app() OR org_id = current_org());
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE meter_pauses p SET resumed_at = v_at FROM meters m
        WHERE m.allocation_id = p_allocation AND p.meter_id = m.id AND p.resumed_at IS NULL;
    PERFORM pg_notify('gpuaas_billing', '');
    RETURN true;
END $$;

-- The launch failed: what was set aside goes back.
CREATE FUNCTION meter_void(p_allocation uuid, p_now timestamptz, p_posting uuid, p_correlation uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter meters;
BEGIN
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The chain before the meter, as everywhere.
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation FOR UPDATE;
    IF v_meter.state <> 'held' THEN
        RETURN false;
    END IF;
    PERFORM meter_hold_release(v_meter, p_now, p_posting, p_correlation);
    UPDATE meters SET state = 'void', hold_remaining = 0 WHERE id = v_meter.id;
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION meters_hold, meter_hold_release, meter_open, meter_close, meter_void FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meters_hold, meter_close TO gpuaas_app, gpuaas_system;
GRANT EXECUTE ON FUNCTION meter_open, meter_void TO gpuaas_system;
