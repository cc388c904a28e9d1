-- Gives back what is set aside for a meter; the chain is locked by the caller's posting.
CREATE OR REPLACE FUNCTION meter_hold_release(p_meter meters, p_now timestamptz, p_posting uuid, p_correlation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_promo bigint;
BEGIN
    IF p_meter.hold_remaining > 0 THEN
        v_promo := hold_promo_unused(p_meter.hold_minor, p_meter.hold_remaining, p_meter.hold_promo);
        PERFORM ledger_append(ROW(p_meter.org_id, p_meter.currency, p_now, p_posting, 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation)::new_posting,
            ROW(array_agg(l.account), array_agg(l.amount), array_agg(p_meter.project_id), array_agg(p_meter.allocation_id),
            array_agg(p_meter.app_instance_id), array_agg(p_meter.id), array_agg(NULL::timestamptz),
            array_agg(NULL::timestamptz))::line_batch)
        FROM (VALUES ('held', -p_meter.hold_remaining), ('prepaid', p_meter.hold_remaining - v_promo), ('promo', v_promo))
            AS l (account, amount)
        WHERE l.amount <> 0;
    END IF;
END $$;
REVOKE ALL ON FUNCTION meter_hold_release FROM PUBLIC;
