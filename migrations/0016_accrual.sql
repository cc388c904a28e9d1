-- Accrual: what meters ran becomes usage and postings, each window once; and the ways back: corrections, credits, pauses.

-- Which organizations have something to accrue, how much of it, and since when.
CREATE FUNCTION meters_due(p_target timestamptz) RETURNS TABLE (org_id uuid, due bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT m.org_id, count(*), min(m.accrued_until) FROM meters m
    WHERE m.state IN ('open', 'closed') AND ((m.state = 'open' AND m.accrued_until < p_target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until))
    GROUP BY m.org_id
$$;

CREATE FUNCTION meters_moved_aside() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a meter moved while it was accrued' USING ERRCODE = 'serialization_failure';
END $$;

-- Accrues what is due of these organizations up to `p_target`, each meter by one window that ends within the hour in
-- which it begins, at most `p_limit` meters of each organization: usage, lines, postings, carries and chains, in one
-- statement. Organizations that another worker is at are left to it. Posting ids belong to the organizations by place.
CREATE FUNCTION meters_accrue(
    p_orgs uuid[], p_postings uuid[], p_now timestamptz, p_target timestamptz, p_limit integer, p_correlation uuid
) RETURNS TABLE (org_id uuid, accrued bigint, posted_minor bigint, prepaid bigint, held bigint, promo bigint)
-- Enough memory for a whole batch: what does not fit is sorted on disk.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET work_mem = '64MB' AS $$
#variable_conflict use_column
DECLARE
    v_orgs  uuid[];
    v_given bigint;
BEGIN
    SELECT array_agg(locked.org_id) INTO v_orgs FROM (
        SELECT c.org_id FROM ledger_chains c WHERE c.org_id = ANY (p_orgs) ORDER BY c.org_id FOR UPDATE SKIP LOCKED
    ) AS locked;
    IF v_orgs IS NULL THEN
        RETURN;
    END IF;
    PERFORM month_ensure('ledger_postings', at), month_ensure('ledger_lines', at) FROM (
        SELECT DISTINCT date_trunc('month', greatest(p_now, c.posted_at), 'UTC') AS at FROM ledger_chains c WHERE c.org_id = ANY (v_orgs)
    ) AS months;
    PERFORM month_ensure('usage_records', at AT TIME ZONE 'UTC') FROM (
        SELECT generate_series(date_trunc('month', min(m.first) AT TIME ZONE 'UTC'), max(m.last) AT TIME ZONE 'UTC', '1 month') AS at
        FROM unnest(v_orgs) AS o (org_id) CROSS JOIN LATERAL (
            SELECT min(m.accrued_until) AS first, max(m.accrued_until) AS last FROM meters m
            WHERE m.org_id = o.org_id AND m.state IN ('open', 'closed')
        ) m
    ) AS months;
    RETURN QUERY
    WITH chains AS MATERIALIZED (
        SELECT c.org_id, c.currency, c.seq + 1 AS seq, c.hash, greatest(p_now, c.posted_at) AS posted_at, i.posting,
            coalesce(p.prepaid_after, 0) AS prepaid, coalesce(p.held_after, 0) AS held, coalesce(p.promo_after, 0) AS promo,
            coalesce(p.disputed_after, 0) AS disputed
        FROM unnest(p_orgs, p_postings) AS i (org_id, posting)
        JOIN ledger_chains c ON c.org_id = i.org_id AND c.org_id = ANY (v_orgs)
        LEFT JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
    ), due AS MATERIALIZED (
        SELECT m.id, m.org_id, m.project_id, m.allocation_id, m.app_instance_id, m.carry, m.hold_remaining, m.turn,
            m.accrued_until AS start, m.unit_price_minor * m.units AS rate, least(
                CASE m.state WHEN 'closed' THEN m.closed_at ELSE p_target END,
                date_bin('1 hour', m.accrued_until, '2000-01-01 00:00:00Z') + interval '1 hour') AS finish
        FROM chains c CROSS JOIN LATERAL (
            SELECT * FROM meters m WHERE m.org_id = c.org_id AND m.state IN ('open', 'closed')
                AND ((m.state = 'open' AND m.accrued_until < p_target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until))
            LIMIT p_limit
        ) m
    ), rated AS MATERIALIZED (
        SELECT d.*, d.carry + d.rate * extract(epoch FROM d.finish - d.start)::bigint AS total FROM due d
    ), used AS MATERIALIZED (
        SELECT r.*, r.total / 3600 AS amount, least(r.hold_remaining, r.total / 3600) AS from_hold FROM rated r
    ), totals AS MATERIALIZED (
        SELECT u.org_id, count(*) AS meters, sum(u.amount)::bigint AS amount, sum(u.from_hold)::bigint AS from_hold
        FROM used u GROUP BY u.org_id
    ), lines AS MATERIALIZED (
        SELECT n.*, ledger_leaf(n.line, n.account, n.amount, n.project_id, n.allocation_id, n.app_instance_id, n.id, n.start, n.finish,
            p_correlation) AS leaf
        FROM (
            SELECT l.*, (row_number() OVER (PARTITION BY l.org_id))::integer AS line FROM (
                SELECT u.org_id, 'held' AS account, -u.from_hold AS amount, u.project_id, u.allocation_id,
                    u.app_instance_id, u.id, u.start, u.finish
                FROM used u WHERE u.from_hold > 0
                UNION ALL
                SELECT u.org_id, 'prepaid', u.from_hold - u.amount, u.project_id, u.allocation_id,
                    u.app_instance_id, u.id, u.start, u.finish
                FROM used u WHERE u.amount > u.from_hold
                UNION ALL
                SELECT t.org_id, 'revenue', t.amount, NULL, NULL, NULL, NULL, NULL, NULL FROM totals t WHERE t.amount > 0
                UNION ALL
                -- Promotional credit is used before money: it makes up for what was taken from prepaid.
                SELECT t.org_id, a.account, a.sign * least(c.promo, t.amount - t.from_hold), NULL, NULL, NULL, NULL, NULL, NULL
                FROM totals t JOIN chains c ON c.org_id = t.org_id, (VALUES ('promo', -1), ('prepaid', 1)) AS a (account, sign)
                WHERE least(c.promo, t.amount - t.from_hold) > 0
            ) AS l
        ) AS n
    ), sums AS MATERIALIZED (
        SELECT l.org_id, count(*)::integer AS lines, sha256(string_agg(l.leaf, ''::bytea ORDER BY l.line)) AS digest,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'prepaid'), 0)::bigint AS prepaid,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'held'), 0)::bigint AS held,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'promo'), 0)::bigint AS promo
        FROM lines l GROUP BY l.org_id
    ), unhashed AS MATERIALIZED (
        SELECT ROW(c.org_id, c.seq, c.posted_at, c.posting, 'usage', c.currency, NULL, 'metered use', NULL, 'system', NULL, p_correlation,
            s.lines, s.digest, c.prepaid + s.prepaid, c.held + s.held, c.promo + s.promo, c.disputed, c.hash, NULL,
            pg_current_xact_id())::ledger_postings AS p
        FROM sums s JOIN chains c ON c.org_id = s.org_id
    ), posted AS MATERIALIZED (
        INSERT INTO ledger_postings SELECT (p).org_id, (p).seq, (p).posted_at, (p).id, (p).kind, (p).currency, (p).reference,
            (p).reason, (p).corrects_entry_id, (p).actor_kind, (p).actor_id, (p).correlation_id, (p).lines, (p).lines_digest,
            (p).prepaid_after, (p).held_after, (p).promo_after, (p).disputed_after, (p).prev_hash, ledger_hash(p), (p).xact
        FROM unhashed
        RETURNING org_id, seq, posted_at, hash, prepaid_after, held_after, promo_after
    ), chained AS (
        UPDATE ledger_chains c SET seq = p.seq, posted_at = p.posted_at, hash = p.hash FROM posted p WHERE c.org_id = p.org_id
    ), lined AS (
        INSERT INTO ledger_lines SELECT l.org_id, p.seq, l.line, p.posted_at, l.account, l.amount, l.project_id, l.allocation_id,
            l.app_instance_id, l.id, l.start, l.finish, p_correlation, l.leaf
        FROM lines l JOIN posted p ON p.org_id = l.org_id
    ), recorded AS (
        INSERT INTO usage_records SELECT u.org_id, u.id, u.start, u.finish, 'usage', u.amount, (u.total % 3600)::integer,
            CASE WHEN u.amount > 0 THEN c.seq END, c.posted_at, u.turn
        FROM used u JOIN chains c ON c.org_id = u.org_id WHERE u.finish > u.start
    ), moved AS (
        UPDATE meters m SET accrued_until = u.finish, carry = (u.total % 3600)::integer, posted_minor = m.posted_minor + u.amount,
            hold_remaining = m.hold_remaining - u.from_hold
        FROM used u WHERE m.id = u.id AND m.accrued_until = u.start AND m.turn = u.turn
        RETURNING m.org_id
    ), moves AS (
        SELECT v.org_id, count(*) AS meters FROM moved v GROUP BY v.org_id
    )
    SELECT t.org_id,
        -- Whoever moves a meter holds the chain, so this cannot be; if it is, nothing of the batch may stay.
        CASE WHEN v.meters = t.meters THEN t.meters ELSE meters_moved_aside() END,
        t.amount, coalesce(p.prepaid_after, c.prepaid), coalesce(p.held_after, c.held), coalesce(p.promo_after, c.promo)
    FROM totals t JOIN chains c ON c.org_id = t.org_id LEFT JOIN posted p ON p.org_id = t.org_id
        LEFT JOIN moves v ON v.org_id = t.org_id;
    -- Those that have ended give back what was set aside and not used: one posting for each organization.
    WITH ended AS MATERIALIZED (
        SELECT m.* FROM unnest(v_orgs) AS o (org_id) CROSS JOIN LATERAL (
            SELECT * FROM meters m WHERE m.org_id = o.org_id AND m.state = 'closed' AND m.accrued_until = m.closed_at
            LIMIT p_limit FOR UPDATE
        ) m
    ), settled AS (
        UPDATE meters m SET state = 'settled', hold_remaining = 0 FROM ended e WHERE m.id = e.id
    )
    SELECT count(given.posted) INTO v_given FROM (
        SELECT ledger_append(e.org_id, min(e.currency), p_now, gen_random_uuid(), 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation,
            array_agg(a.account), array_agg(a.amount), array_agg(e.project_id), array_agg(e.allocation_id),
            array_agg(e.app_instance_id), array_agg(e.id), array_agg(NULL::timestamptz), array_agg(NULL::timestamptz)) AS posted
        FROM ended e CROSS JOIN LATERAL (VALUES ('held', -e.hold_remaining),
            ('prepaid', e.hold_remaining - least(e.hold_remaining, e.hold_promo)),
            ('promo', least(e.hold_remaining, e.hold_promo))) AS a (account, amount)
        WHERE a.amount <> 0 GROUP BY e.org_id
    ) AS given;
END $$;

-- Takes back what was accrued of a running or ended meter after `p_to`, exactly: as a credit, or as the correction of
-- a charge that was too early. Answers what went back.
CREATE FUNCTION meter_rewind(
    p_meter uuid, p_to timestamptz, p_kind text, p_reason text, p_now timestamptz, p_posting uuid, p_correlation uuid,
    OUT credited bigint, OUT posting bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter meters;
    v_to    timestamptz;
    v_total numeric;
    v_carry integer;
    v_at    timestamptz;
    v_done  ledger_postings;
BEGIN
    credited := 0;
    SELECT * INTO v_meter FROM meters WHERE id = p_meter;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT * INTO v_meter FROM meters WHERE id = p_meter FOR UPDATE;
    v_to := greatest(date_trunc('second', p_to), v_meter.running_since);
    IF v_meter.state NOT IN ('open', 'closed') OR v_meter.accrued_until <= v_to THEN
        RETURN;
    END IF;
    v_total := v_meter.carry
        - v_meter.unit_price_minor * v_meter.units * extract(epoch FROM v_meter.accrued_until - v_to);
    v_carry := ((v_total % 3600) + 3600) % 3600;
    credited := div(v_carry - v_total, 3600);
    v_at := p_now;
    IF credited > 0 THEN
        v_done := ledger_append(v_meter.org_id, v_meter.currency, p_now, p_posting, p_kind, NULL, p_reason, NULL, 'system', NULL,
            p_correlation, ARRAY['prepaid', CASE p_kind WHEN 'credit' THEN 'credits_granted' ELSE 'revenue' END],
            ARRAY[credited, -credited], ARRAY[v_meter.project_id, v_meter.project_id],
            ARRAY[v_meter.allocation_id, v_meter.allocation_id], ARRAY[v_meter.app_instance_id, v_meter.app_instance_id],
            ARRAY[v_meter.id, v_meter.id], ARRAY[v_to, v_to], ARRAY[v_meter.accrued_until, v_meter.accrued_until]);
        posting := v_done.seq;
        v_at := v_done.posted_at;
    END IF;
    PERFORM month_ensure('usage_records', v_to);
    INSERT INTO usage_records VALUES (v_meter.org_id, v_meter.id, v_to, v_meter.accrued_until, p_kind, -credited, v_carry, posting, v_at,
        v_meter.turn);
    UPDATE meters SET accrued_until = v_to, carry = v_carry, posted_minor = posted_minor - credited, turn = turn + 1
        WHERE id = v_meter.id;
END $$;

-- Charges one running meter up to `p_to`, hour by hour, for what cannot wait until everything is accrued. The chain is
-- locked by the caller.
CREATE FUNCTION meter_charge(p_meter uuid, p_to timestamptz, p_now timestamptz, p_correlation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter  meters;
    v_finish timestamptz;
    v_total  bigint;
    v_amount bigint;
    v_held   bigint;
    v_promo  bigint;
    v_accounts text[];
    v_amounts  bigint[];
    v_lines    integer;
    v_done   ledger_postings;
BEGIN
    LOOP
        SELECT * INTO v_meter FROM meters WHERE id = p_meter FOR UPDATE;
        IF v_meter.accrued_until >= p_to THEN
            RETURN;
        END IF;
        v_finish := least(p_to, date_bin('1 hour', v_meter.accrued_until, '2000-01-01 00:00:00Z') + interval '1 hour');
        v_total := v_meter.carry
            + v_meter.unit_price_minor * v_meter.units * extract(epoch FROM v_finish - v_meter.accrued_until)::bigint;
        v_amount := v_total / 3600;
        v_held := least(v_meter.hold_remaining, v_amount);
        v_done := NULL;
        v_done.posted_at := p_now;
        IF v_amount > 0 THEN
            SELECT least(p.promo_after, v_amount - v_held) INTO v_promo FROM ledger_chains c
                JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
                WHERE c.org_id = v_meter.org_id;
            SELECT array_agg(account ORDER BY n), array_agg(amount ORDER BY n), count(*) INTO v_accounts, v_amounts, v_lines
                FROM (VALUES (1, 'held', -v_held), (2, 'promo', -coalesce(v_promo, 0)),
                    (3, 'prepaid', v_held + coalesce(v_promo, 0) - v_amount), (4, 'revenue', v_amount)) AS l (n, account, amount)
                WHERE amount <> 0;
            v_done := ledger_append(v_meter.org_id, v_meter.currency, p_now, gen_random_uuid(), 'usage', NULL, 'metered use', NULL,
                'system', NULL, p_correlation, v_accounts, v_amounts, array_fill(v_meter.project_id, ARRAY[v_lines]),
                array_fill(v_meter.allocation_id, ARRAY[v_lines]), array_fill(v_meter.app_instance_id, ARRAY[v_lines]),
                array_fill(v_meter.id, ARRAY[v_lines]), array_fill(v_meter.accrued_until, ARRAY[v_lines]),
                array_fill(v_finish, ARRAY[v_lines]));
        END IF;
        PERFORM month_ensure('usage_records', v_meter.accrued_until);
        INSERT INTO usage_records VALUES (v_meter.org_id, v_meter.id, v_meter.accrued_until, v_finish, 'usage', v_amount,
            (v_total % 3600)::integer, v_done.seq, v_done.posted_at, v_meter.turn);
        UPDATE meters SET accrued_until = v_finish, carry = (v_total % 3600)::integer, posted_minor = posted_minor + v_amount,
            hold_remaining = hold_remaining - v_held WHERE id = p_meter;
    END LOOP;
END $$;

-- The meter of an allocation stands still from `p_since` on; what was accrued after that goes back. Answers what went
-- back, or nothing when it does not run.
CREATE FUNCTION meter_pause(
    p_allocation uuid, p_since timestamptz, p_pause uuid, p_finding uuid, p_reason text, p_evidence jsonb, p_now timestamptz,
    p_posting uuid, p_correlation uuid
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_meter    meters;
    v_credited bigint;
    v_posting  bigint;
    v_since    timestamptz;
BEGIN
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM ledger_lock(v_meter.org_id, v_meter.currency);
    SELECT * INTO v_meter FROM meters WHERE allocation_id = p_allocation FOR UPDATE;
    IF v_meter.state <> 'open' THEN
        RETURN NULL;
    END IF;
    v_since := greatest(date_trunc('second', least(p_since, p_now)), v_meter.running_since);
    SELECT credited, posting INTO v_credited, v_posting
        FROM meter_rewind(v_meter.id, v_since, 'credit', p_reason, p_now, p_posting, p_correlation);
    -- What was used before that is paid for.
    PERFORM meter_charge(v_meter.id, v_since, p_now, p_correlation);
    UPDATE meters SET state = 'paused' WHERE id = v_meter.id;
    INSERT INTO meter_pauses VALUES (p_pause, v_meter.org_id, v_meter.id, v_since, NULL, p_finding, p_reason, p_evidence, v_credited,
        v_posting, p_now);
    RETURN v_credited;
END $$;

-- It runs again; the time between is not paid for.
CREATE FUNCTION meter_resume(p_pause uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', p_at);
BEGIN
    UPDATE meters m SET state = 'open', accrued_until = greatest(v_at, m.accrued_until), running_since = greatest(v_at, m.accrued_until)
        FROM meter_pauses p WHERE p.id = p_pause AND p.resumed_at IS NULL AND m.id = p.meter_id AND m.state = 'paused';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE meter_pauses SET resumed_at = v_at WHERE id = p_pause;
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION meters_due, meters_moved_aside, meters_accrue, meter_rewind, meter_charge, meter_pause, meter_resume FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meters_due, meters_accrue, meter_rewind, meter_pause, meter_resume TO gpuaas_system;
