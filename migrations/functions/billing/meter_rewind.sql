-- Takes back what was accrued of a running or ended meter after `p_to`, exactly: as a credit, or as the correction of
-- a charge that was too early. Answers what went back.
CREATE OR REPLACE FUNCTION meter_rewind(
    p_meter uuid, p_to timestamptz, p_kind text, p_reason text, p_now timestamptz, p_posting uuid, p_correlation uuid,
    OUT credited bigint, OUT posting bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter record;
    v_to    timestamptz;
    v_carry integer;
    v_at    timestamptz := p_now;
BEGIN
    credited := 0;
    SELECT org_id, currency INTO v_meter FROM meters WHERE id = p_meter;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT org_id, state, unit_price_minor, units, carry, accrued_until, running_since, turn INTO v_meter
        FROM meters WHERE id = p_meter FOR UPDATE;
    v_to := greatest(date_trunc('second', p_to), v_meter.running_since);
    IF v_meter.state NOT IN ('open', 'closed') OR v_meter.accrued_until <= v_to THEN
        RETURN;
    END IF;
    SELECT -c.amount, c.carry INTO credited, v_carry FROM usage_cost(v_meter.carry, v_meter.unit_price_minor, v_meter.units,
        -extract(epoch FROM v_meter.accrued_until - v_to)::bigint) AS c;
    IF credited > 0 THEN
        SELECT g.seq, g.posted_at INTO posting, v_at
            FROM meter_give_back(p_meter, tstzrange(v_to, v_meter.accrued_until), credited, p_kind, p_reason, p_now,
                p_posting, p_correlation) g;
    END IF;
    PERFORM month_ensure('usage_records', v_to);
    INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, seq, posted_at, turn)
        VALUES (v_meter.org_id, p_meter, v_to, v_meter.accrued_until, p_kind, -credited, v_carry, posting, v_at, v_meter.turn);
    UPDATE meters SET accrued_until = v_to, carry = v_carry, posted_minor = posted_minor - credited, turn = turn + 1
        WHERE id = p_meter;
END $$;
REVOKE ALL ON FUNCTION meter_rewind FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_rewind TO gpuaas_system;
