-- The meter of an allocation stands still since `p_since`, or since now by the clock of the database if that is earlier, and
-- what was charged after that goes back. Answers how much; nothing when it does not run.
CREATE OR REPLACE FUNCTION meter_pause(
    p_allocation uuid, p_since timestamptz, p_pause uuid, p_cause pause_cause, p_now timestamptz, p_posting uuid,
    p_correlation uuid
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter    record;
    v_credited bigint;
    v_posting  bigint;
    v_since    timestamptz;
BEGIN
    SELECT org_id, currency INTO v_meter FROM meters WHERE allocation_id = p_allocation;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT id, org_id, state, running_since INTO v_meter FROM meters WHERE allocation_id = p_allocation FOR UPDATE;
    IF v_meter.state <> 'open' THEN
        RETURN NULL;
    END IF;
    v_since := greatest(date_trunc('second', least(p_since, p_now, ledger_clock(p_now))), v_meter.running_since);
    SELECT credited, posting INTO v_credited, v_posting
        FROM meter_rewind(v_meter.id, v_since, 'credit', p_cause.reason, p_now, p_posting, p_correlation);
    -- What was used before that is paid for.
    PERFORM meter_charge(v_meter.id, v_since, p_now, p_correlation);
    UPDATE meters SET state = 'paused' WHERE id = v_meter.id;
    PERFORM balance_evaluation_queue(v_meter.org_id);
    INSERT INTO meter_pauses (id, org_id, meter_id, since, resumed_at, finding_id, reason, evidence, credited_minor, seq, created_at)
        VALUES (p_pause, v_meter.org_id, v_meter.id, v_since, NULL, p_cause.finding_id, p_cause.reason,
            p_cause.evidence, v_credited, v_posting, p_now);
    RETURN v_credited;
END $$;
REVOKE ALL ON FUNCTION meter_pause(uuid, timestamptz, uuid, pause_cause, timestamptz, uuid, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_pause(uuid, timestamptz, uuid, pause_cause, timestamptz, uuid, uuid) TO gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION meter_pause(
    p_allocation uuid, p_since timestamptz, p_pause uuid, p_finding uuid, p_reason text, p_evidence jsonb, p_now timestamptz,
    p_posting uuid, p_correlation uuid
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT meter_pause(p_allocation, p_since, p_pause, ROW(p_finding, p_reason, p_evidence)::pause_cause, p_now, p_posting,
        p_correlation)
$$;
