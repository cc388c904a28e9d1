-- Charges one running meter up to `p_to`, hour by hour, for what cannot wait until everything is accrued. The chain is
-- locked by the caller.
CREATE OR REPLACE FUNCTION meter_charge(p_meter uuid, p_to timestamptz, p_now timestamptz, p_correlation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter  meters;
    v_finish timestamptz;
    v_amount bigint;
    v_carry  integer;
    v_held   bigint;
    v_promo  bigint;
    v_accounts text[];
    v_amounts  bigint[];
    v_lines    integer;
    v_done   ledger_postings;
BEGIN
    p_to := least(p_to, date_trunc('second', ledger_clock(greatest(p_now, p_to))));
    LOOP
        SELECT * INTO v_meter FROM meters WHERE id = p_meter FOR UPDATE;
        IF v_meter.accrued_until >= p_to THEN
            RETURN;
        END IF;
        v_finish := least(p_to, date_bin('1 hour', v_meter.accrued_until, '2000-01-01 00:00:00Z') + interval '1 hour');
        SELECT c.amount, c.carry INTO v_amount, v_carry FROM usage_cost(v_meter.carry, v_meter.unit_price_minor, v_meter.units,
            extract(epoch FROM v_finish - v_meter.accrued_until)::bigint) AS c;
        v_held := least(v_meter.hold_remaining, v_amount);
        v_done := NULL;
        v_done.posted_at := p_now;
        IF v_amount > 0 THEN
            SELECT promo_part(p.promo_after, v_amount - v_held) INTO v_promo FROM ledger_chains c
                JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
                WHERE c.org_id = v_meter.org_id;
            SELECT array_agg(account ORDER BY n), array_agg(amount ORDER BY n), count(*) INTO v_accounts, v_amounts, v_lines
                FROM (VALUES (1, 'held', -v_held), (2, 'promo', -coalesce(v_promo, 0)),
                    (3, 'prepaid', v_held + coalesce(v_promo, 0) - v_amount), (4, 'revenue', v_amount)) AS l (n, account, amount)
                WHERE amount <> 0;
            v_done := ledger_append(ROW(v_meter.org_id, v_meter.currency, p_now, gen_random_uuid(), 'usage', NULL,
                'metered use', NULL, 'system', NULL, p_correlation)::new_posting,
                ROW(v_accounts, v_amounts, array_fill(v_meter.project_id, ARRAY[v_lines]),
                array_fill(v_meter.allocation_id, ARRAY[v_lines]), array_fill(v_meter.app_instance_id, ARRAY[v_lines]),
                array_fill(v_meter.id, ARRAY[v_lines]), array_fill(v_meter.accrued_until, ARRAY[v_lines]),
                array_fill(v_finish, ARRAY[v_lines]))::line_batch);
        END IF;
        PERFORM month_ensure('usage_records', v_meter.accrued_until);
        INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, seq, posted_at, turn)
            VALUES (v_meter.org_id, v_meter.id, v_meter.accrued_until, v_finish, 'usage', v_amount,
            v_carry, v_done.seq, v_done.posted_at, v_meter.turn);
        UPDATE meters SET accrued_until = v_finish, carry = v_carry, posted_minor = posted_minor + v_amount,
            hold_remaining = hold_remaining - v_held WHERE id = p_meter;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION meter_charge FROM PUBLIC;
