-- Gives back what the meter of an allocation was charged for [p_from, p_to), whatever state it is in now: each second that was
-- not given back and for which it did not stand still. What was used before `p_to` and is not charged yet is charged first, so
-- that it is exact. Answers what went back, for what time, and the last posting; no time when there was nothing to give back.
CREATE OR REPLACE FUNCTION meter_credit(
    p_allocation uuid, p_from timestamptz, p_to timestamptz, p_finding uuid, p_reason text, p_evidence jsonb, p_now timestamptz,
    p_correlation uuid, OUT credited bigint, OUT since timestamptz, OUT until timestamptz, OUT posting bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter record;
    v_to    timestamptz;
    v_span  tstzrange;
    v_carry integer;
    v_back  bigint;
    v_seq   bigint;
    v_at    timestamptz;
BEGIN
    credited := 0;
    SELECT id, org_id, currency INTO v_meter FROM meters WHERE allocation_id = p_allocation;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- The chain before the meter, as everywhere.
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT id, org_id, state, closed_at INTO v_meter FROM meters WHERE allocation_id = p_allocation FOR UPDATE;
    IF v_meter.state NOT IN ('open', 'paused', 'closed', 'settled') THEN
        RETURN;
    END IF;
    v_to := least(date_trunc('second', least(p_to, p_now, ledger_clock(p_now))), v_meter.closed_at);
    IF v_meter.state IN ('open', 'closed') THEN
        PERFORM meter_charge(v_meter.id, v_to, p_now, p_correlation);
    END IF;
    FOR v_span IN SELECT unnest(meter_charged_times(v_meter.id, p_from, v_to)) LOOP
        SELECT id, org_id, unit_price_minor, units, carry, turn INTO v_meter FROM meters WHERE allocation_id = p_allocation;
        SELECT -c.amount, c.carry INTO v_back, v_carry FROM usage_cost(v_meter.carry, v_meter.unit_price_minor, v_meter.units,
            -extract(epoch FROM upper(v_span) - lower(v_span))::bigint) AS c;
        v_seq := NULL;
        v_at := p_now;
        IF v_back > 0 THEN
            SELECT g.seq, g.posted_at INTO v_seq, v_at FROM meter_give_back(v_meter.id, v_span, v_back,
                'credit', p_reason, p_now, gen_random_uuid(), p_correlation) g;
        END IF;
        PERFORM month_ensure('usage_records', lower(v_span));
        INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, seq, posted_at, turn)
            VALUES (v_meter.org_id, v_meter.id, lower(v_span), upper(v_span), 'credit', -v_back, v_carry, v_seq, v_at, v_meter.turn);
        -- What is given back is not taken back again: nothing before its end can be rewound.
        UPDATE meters m SET carry = v_carry, posted_minor = m.posted_minor - v_back,
                running_since = greatest(m.running_since, upper(v_span))
            WHERE m.id = v_meter.id;
        INSERT INTO meter_pauses (id, org_id, meter_id, since, resumed_at, finding_id, reason, evidence, credited_minor, seq, created_at)
            VALUES (gen_random_uuid(), v_meter.org_id, v_meter.id, lower(v_span), upper(v_span), p_finding, p_reason, p_evidence,
                v_back, v_seq, p_now);
        credited := credited + v_back;
        since := least(since, lower(v_span));
        until := greatest(until, upper(v_span));
        posting := coalesce(v_seq, posting);
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION meter_credit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_credit TO gpuaas_system;
