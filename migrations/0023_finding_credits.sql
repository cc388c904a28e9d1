-- Credits for faulty hardware: exact for any time in the past, promotional credit back as such, and a second person where a
-- rule alone must not decide. Single writer: the `billing` crate.

-- ── the clock ────────────────────────────────────────────────────────────────────────────────────────
-- What the time is for the ledger: the clock of the database, whatever the process that asks believes (`p_claimed`). No role
-- that services use can replace it. A test that moves its own clock replaces it in its own database.
CREATE FUNCTION ledger_clock(p_claimed timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() $$;
REVOKE ALL ON FUNCTION ledger_clock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_clock TO gpuaas_app, gpuaas_system;

-- ── credits that wait ────────────────────────────────────────────────────────────────────────────────
-- Nobody: the product itself proposed it, because of a finding.
ALTER TABLE ledger_adjustments ALTER COLUMN proposed_by DROP NOT NULL;

-- For which allocation and time the product proposed a credit. The adjustment says who decided on it.
CREATE TABLE fault_credits (
    adjustment_id uuid PRIMARY KEY REFERENCES ledger_adjustments,
    org_id        uuid        NOT NULL,
    allocation_id uuid        NOT NULL,
    finding_id    uuid        NOT NULL,
    code          text        NOT NULL,
    part          text        NOT NULL CHECK (part IN ('gpu', 'machine')),
    -- Why it waits: the tenant is root there and can cause such a fault, the allocation has ended, or it is much.
    cause         text        NOT NULL CHECK (cause IN ('tenant_root', 'ended', 'amount')),
    since         timestamptz NOT NULL,
    -- Nothing: until the finding is resolved.
    until         timestamptz,
    created_at    timestamptz NOT NULL,
    CHECK (until >= since),
    CHECK (cause = 'tenant_root' OR until IS NOT NULL)
);
CREATE UNIQUE INDEX fault_credits_once ON fault_credits (allocation_id, finding_id, since);
CREATE INDEX fault_credits_by_finding ON fault_credits (finding_id);
COMMENT ON TABLE fault_credits IS 'platform: for which allocation and time a credit for faulty hardware was proposed';
GRANT SELECT, INSERT, UPDATE ON fault_credits TO gpuaas_system;

-- ── what goes back ───────────────────────────────────────────────────────────────────────────────────
-- The time of [p_from, p_to) for which a meter is or will be charged: since it was opened, until it was closed, without
-- the times for which it stood still or that were given back.
CREATE FUNCTION meter_charged_times(p_meter uuid, p_from timestamptz, p_to timestamptz) RETURNS tstzmultirange
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT CASE WHEN w.first < w.last THEN tstzmultirange(tstzrange(w.first, w.last)) - coalesce((
            SELECT range_agg(tstzrange(p.since, greatest(coalesce(p.resumed_at, 'infinity'), p.since))) FROM meter_pauses p WHERE p.meter_id = p_meter
        ), '{}'::tstzmultirange) ELSE '{}'::tstzmultirange END
    FROM meters m, LATERAL (SELECT greatest(date_trunc('second', p_from), m.opened_at) AS first,
        least(date_trunc('second', p_to), m.closed_at) AS last) AS w
    WHERE m.id = p_meter AND m.opened_at IS NOT NULL
$$;

-- How much of `p_amount`, which goes back for [p_from, p_to), was paid with promotional credit: in the proportion in which the
-- charges for that time were. What was taken back of them before does not count. Promotional credit never becomes money:
-- the part of a minor unit is promotional.
CREATE FUNCTION meter_promo_part(p_meter uuid, p_from timestamptz, p_to timestamptz, p_amount bigint) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH taken AS MATERIALIZED (
        SELECT u.turn, tstzrange(u.window_start, u.window_end) AS span FROM usage_records u
        WHERE u.meter_id = p_meter AND u.kind <> 'usage' AND u.window_start < p_to AND u.window_end > p_from
    ), charged AS MATERIALIZED (
        SELECT u.org_id, u.seq, u.posted_at, u.turn, u.window_start, coalesce((
                SELECT sum(extract(epoch FROM upper(r) - lower(r)))
                FROM unnest(tstzmultirange(tstzrange(greatest(u.window_start, p_from), least(u.window_end, p_to)))
                    - coalesce((SELECT range_agg(t.span) FROM taken t WHERE t.turn >= u.turn), '{}'::tstzmultirange)) AS r
            ), 0) / extract(epoch FROM u.window_end - u.window_start) AS part
        FROM usage_records u
        WHERE u.meter_id = p_meter AND u.kind = 'usage' AND u.seq IS NOT NULL
            -- No window of use is longer than an hour.
            AND u.window_start > p_from - interval '1 hour' AND u.window_start < p_to AND u.window_end > p_from
    ), drawn AS MATERIALIZED (
        -- Use draws on what was set aside first, and there on promotional credit first: what each window took of it.
        SELECT u.turn, u.window_start, least(m.hold_promo, sum(u.amount_minor) OVER so_far)
            - least(m.hold_promo, sum(u.amount_minor) OVER so_far - u.amount_minor) AS promo
        FROM usage_records u JOIN meters m ON m.id = u.meter_id
        WHERE u.meter_id = p_meter AND u.kind = 'usage'
        WINDOW so_far AS (ORDER BY u.turn, u.window_start)
    ), paid AS (
        SELECT sum(c.part * (own.held + own.prepaid + own.promo)) AS amount,
            sum(c.part * (least(own.held, d.promo) + own.promo
                + own.prepaid * coalesce(least(posting.promo::numeric / nullif(posting.prepaid, 0), 1), 0))) AS promo
        FROM charged c JOIN drawn d ON d.turn = c.turn AND d.window_start = c.window_start
        CROSS JOIN LATERAL (
            SELECT coalesce(-sum(l.amount_minor) FILTER (WHERE l.account = 'held'), 0) AS held,
                coalesce(-sum(l.amount_minor) FILTER (WHERE l.account = 'prepaid'), 0) AS prepaid,
                coalesce(-sum(l.amount_minor) FILTER (WHERE l.account = 'promo'), 0) AS promo
            FROM ledger_lines l WHERE l.org_id = c.org_id AND l.seq = c.seq AND l.posted_at = c.posted_at
                AND l.meter_id = p_meter AND l.window_start = c.window_start
        ) AS own
        CROSS JOIN LATERAL (
            -- A posting of many meters has one line of promotional credit for all that they took from prepaid.
            SELECT coalesce(-sum(l.amount_minor) FILTER (WHERE l.account = 'promo' AND l.meter_id IS NULL), 0) AS promo,
                coalesce(-sum(l.amount_minor) FILTER (WHERE l.account = 'prepaid' AND l.meter_id IS NOT NULL), 0) AS prepaid
            FROM ledger_lines l WHERE l.org_id = c.org_id AND l.seq = c.seq AND l.posted_at = c.posted_at
        ) AS posting
        WHERE c.part > 0
    )
    SELECT least(p_amount, ceil(round(p_amount * coalesce(paid.promo / nullif(paid.amount, 0), 0), 6)))::bigint FROM paid
$$;

-- Posts that `p_amount` of what a meter was charged for [p_from, p_to) goes back; the chain is locked by the caller.
CREATE FUNCTION meter_give_back(
    p_meter uuid, p_from timestamptz, p_to timestamptz, p_amount bigint, p_kind text, p_reason text, p_now timestamptz,
    p_posting uuid, p_correlation uuid, OUT seq bigint, OUT posted_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_promo bigint := meter_promo_part(p_meter, p_from, p_to, p_amount);
BEGIN
    SELECT a.seq, a.posted_at INTO seq, posted_at
        FROM (
            SELECT m.org_id, m.currency, array_agg(l.account ORDER BY l.n) AS accounts, array_agg(l.amount ORDER BY l.n) AS amounts,
                array_agg(m.project_id) AS projects, array_agg(m.allocation_id) AS allocations,
                array_agg(m.app_instance_id) AS apps, array_agg(m.id) AS meters, array_agg(p_from) AS starts, array_agg(p_to) AS ends
            FROM meters m, (VALUES (1, 'prepaid', p_amount - v_promo), (2, 'promo', v_promo),
                (3, CASE p_kind WHEN 'credit' THEN 'credits_granted' ELSE 'revenue' END, -p_amount)) AS l (n, account, amount)
            WHERE m.id = p_meter AND l.amount <> 0 GROUP BY m.id
        ) AS g, LATERAL ledger_append(g.org_id, g.currency, p_now, p_posting, p_kind, NULL, p_reason, NULL, 'system', NULL,
            p_correlation, g.accounts, g.amounts, g.projects, g.allocations, g.apps, g.meters, g.starts, g.ends) AS a;
END $$;

-- Takes back what was accrued of a running or ended meter after `p_to`, exactly: as a credit, or as the correction of
-- a charge that was too early. Answers what went back.
CREATE OR REPLACE FUNCTION meter_rewind(
    p_meter uuid, p_to timestamptz, p_kind text, p_reason text, p_now timestamptz, p_posting uuid, p_correlation uuid,
    OUT credited bigint, OUT posting bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter record;
    v_to    timestamptz;
    v_total numeric;
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
    v_total := v_meter.carry
        - v_meter.unit_price_minor * v_meter.units * extract(epoch FROM v_meter.accrued_until - v_to);
    v_carry := ((v_total % 3600) + 3600) % 3600;
    credited := div(v_carry - v_total, 3600);
    IF credited > 0 THEN
        SELECT g.seq, g.posted_at INTO posting, v_at
            FROM meter_give_back(p_meter, v_to, v_meter.accrued_until, credited, p_kind, p_reason, p_now, p_posting, p_correlation) g;
    END IF;
    PERFORM month_ensure('usage_records', v_to);
    INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, seq, posted_at, turn)
        VALUES (v_meter.org_id, p_meter, v_to, v_meter.accrued_until, p_kind, -credited, v_carry, posting, v_at, v_meter.turn);
    UPDATE meters SET accrued_until = v_to, carry = v_carry, posted_minor = posted_minor - credited, turn = turn + 1
        WHERE id = p_meter;
END $$;

-- Gives back what the meter of an allocation was charged for [p_from, p_to), whatever state it is in now: each second that was
-- not given back and for which it did not stand still. What was used before `p_to` and is not charged yet is charged first, so
-- that it is exact. Answers what went back, for what time, and the last posting; no time when there was nothing to give back.
CREATE FUNCTION meter_credit(
    p_allocation uuid, p_from timestamptz, p_to timestamptz, p_finding uuid, p_reason text, p_evidence jsonb, p_now timestamptz,
    p_correlation uuid, OUT credited bigint, OUT since timestamptz, OUT until timestamptz, OUT posting bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter record;
    v_to    timestamptz;
    v_span  tstzrange;
    v_total numeric;
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
        v_total := v_meter.carry
            - v_meter.unit_price_minor * v_meter.units * extract(epoch FROM upper(v_span) - lower(v_span));
        v_carry := ((v_total % 3600) + 3600) % 3600;
        v_back := div(v_carry - v_total, 3600);
        v_seq := NULL;
        v_at := p_now;
        IF v_back > 0 THEN
            SELECT g.seq, g.posted_at INTO v_seq, v_at FROM meter_give_back(v_meter.id, lower(v_span), upper(v_span), v_back,
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

-- The meter of an allocation stands still since `p_since`, or since now by the clock of the database if that is earlier, and
-- what was charged after that goes back. Answers how much; nothing when it does not run.
CREATE OR REPLACE FUNCTION meter_pause(
    p_allocation uuid, p_since timestamptz, p_pause uuid, p_finding uuid, p_reason text, p_evidence jsonb, p_now timestamptz,
    p_posting uuid, p_correlation uuid
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
        FROM meter_rewind(v_meter.id, v_since, 'credit', p_reason, p_now, p_posting, p_correlation);
    -- What was used before that is paid for.
    PERFORM meter_charge(v_meter.id, v_since, p_now, p_correlation);
    UPDATE meters SET state = 'paused' WHERE id = v_meter.id;
    INSERT INTO meter_pauses (id, org_id, meter_id, since, resumed_at, finding_id, reason, evidence, credited_minor, seq, created_at)
        VALUES (p_pause, v_meter.org_id, v_meter.id, v_since, NULL, p_finding, p_reason, p_evidence, v_credited, v_posting, p_now);
    RETURN v_credited;
END $$;

-- It runs again; the time between is not paid for. Never from before it stood still.
CREATE OR REPLACE FUNCTION meter_resume(p_pause uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
BEGIN
    UPDATE meters m SET state = 'open', accrued_until = greatest(v_at, m.accrued_until), running_since = greatest(v_at, m.accrued_until)
        FROM meter_pauses p WHERE p.id = p_pause AND p.resumed_at IS NULL AND m.id = p.meter_id AND m.state = 'paused';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE meter_pauses SET resumed_at = greatest(v_at, since) WHERE id = p_pause;
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION meter_charged_times, meter_promo_part, meter_give_back, meter_credit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_charged_times, meter_credit TO gpuaas_system;
