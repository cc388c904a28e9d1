-- The clock of the database bounds what is posted. Single writer of the ledger: the `billing` crate.

-- Of what was set aside, promotional credit is used first: what is left of it after `p_hold - p_remaining` were used.
CREATE FUNCTION hold_promo_unused(p_hold bigint, p_remaining bigint, p_promo bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(p_promo - (p_hold - p_remaining), 0) $$;

-- Use is charged after it happened, by whatever function: the last resort behind those that clamp their times.
CREATE FUNCTION usage_within_clock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_last timestamptz;
BEGIN
    SELECT max(window_end) INTO v_last FROM new_usage WHERE kind = 'usage';
    IF v_last > ledger_clock(v_last) THEN
        RAISE EXCEPTION 'use up to % is in the future', v_last
            USING ERRCODE = 'check_violation', CONSTRAINT = 'usage_within_clock';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER usage_within_clock AFTER INSERT ON usage_records REFERENCING NEW TABLE AS new_usage
    FOR EACH STATEMENT EXECUTE FUNCTION usage_within_clock();

-- Appends one posting; every argument that is a list has an element for each line. Times never go back along a chain,
-- and never ahead of the clock of the database.
-- Nothing is done, and nothing answered, when the reference was posted before.
CREATE OR REPLACE FUNCTION ledger_append(
    p_org uuid, p_currency text, p_at timestamptz, p_id uuid, p_kind text, p_reference text, p_reason text, p_corrects uuid,
    p_actor_kind text, p_actor_id uuid, p_correlation uuid,
    l_accounts text[], l_amounts bigint[], l_projects uuid[], l_allocations uuid[], l_apps uuid[], l_meters uuid[],
    l_starts timestamptz[], l_ends timestamptz[]
) RETURNS ledger_postings LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_prev  ledger_postings;
    v_new   ledger_postings;
BEGIN
    v_chain := ledger_lock(p_org, p_currency);
    -- Looked up after the chain is locked, by a statement of its own: it sees what was posted while this one waited.
    IF p_reference IS NOT NULL AND EXISTS (
        SELECT FROM ledger_references r WHERE r.kind = p_kind AND r.reference = p_reference) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_prev FROM ledger_postings
        WHERE org_id = p_org AND seq = v_chain.seq AND posted_at = v_chain.posted_at;
    v_new.org_id := p_org;
    v_new.seq := v_chain.seq + 1;
    v_new.posted_at := greatest(least(p_at, ledger_clock(p_at)), v_chain.posted_at);
    v_new.id := p_id;
    v_new.kind := p_kind;
    v_new.currency := p_currency;
    v_new.reference := p_reference;
    v_new.reason := p_reason;
    v_new.corrects_entry_id := p_corrects;
    v_new.actor_kind := p_actor_kind;
    v_new.actor_id := p_actor_id;
    v_new.correlation_id := p_correlation;
    v_new.prev_hash := v_chain.hash;
    v_new.xact := pg_current_xact_id();
    SELECT count(*), sha256(coalesce(string_agg(ledger_leaf(n::integer, account, amount, project, allocation, app, meter, starts,
            ends, p_correlation), ''::bytea ORDER BY n), ''::bytea)),
        coalesce(v_prev.prepaid_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'prepaid'), 0),
        coalesce(v_prev.held_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'held'), 0),
        coalesce(v_prev.promo_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'promo'), 0),
        coalesce(v_prev.disputed_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'disputed'), 0)
        INTO v_new.lines, v_new.lines_digest, v_new.prepaid_after, v_new.held_after, v_new.promo_after, v_new.disputed_after
        FROM unnest(l_accounts, l_amounts, l_projects, l_allocations, l_apps, l_meters, l_starts, l_ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    v_new.hash := ledger_hash(v_new);
    PERFORM month_ensure('ledger_postings', v_new.posted_at), month_ensure('ledger_lines', v_new.posted_at);
    INSERT INTO ledger_postings SELECT (v_new).*;
    INSERT INTO ledger_lines
        SELECT p_org, v_new.seq, n, v_new.posted_at, account, amount, project, allocation, app, meter, starts, ends, p_correlation,
            ledger_leaf(n::integer, account, amount, project, allocation, app, meter, starts, ends, p_correlation)
        FROM unnest(l_accounts, l_amounts, l_projects, l_allocations, l_apps, l_meters, l_starts, l_ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    IF p_reference IS NOT NULL THEN
        INSERT INTO ledger_references VALUES (p_kind, p_reference, p_org, v_new.seq);
    END IF;
    UPDATE ledger_chains SET seq = v_new.seq, posted_at = v_new.posted_at, hash = v_new.hash WHERE org_id = p_org;
    RETURN v_new;
END $$;

-- Which organizations have something to accrue, how much of it, and since when. Nothing is due that the
-- clock of the database has not reached.
CREATE OR REPLACE FUNCTION meters_due(p_target timestamptz) RETURNS TABLE (org_id uuid, due bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT m.org_id, count(*), min(m.accrued_until)
    FROM meters m, (SELECT least(p_target, date_trunc('second', ledger_clock(p_target))) AS target OFFSET 0) AS clock
    WHERE m.state IN ('open', 'closed') AND ((m.state = 'open' AND m.accrued_until < clock.target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until))
    GROUP BY m.org_id
$$;

-- Accrues what is due of these organizations up to `p_target`, each meter by one window that ends within the hour in
-- which it begins, at most `p_limit` meters of each organization: usage, lines, postings, carries and chains, in one
-- statement. Organizations that another worker is at are left to it. Posting ids belong to the organizations by place.
CREATE OR REPLACE FUNCTION meters_accrue(
    p_orgs uuid[], p_postings uuid[], p_now timestamptz, p_target timestamptz, p_limit integer, p_correlation uuid
) RETURNS TABLE (org_id uuid, accrued bigint, posted_minor bigint, prepaid bigint, held bigint, promo bigint)
-- Enough memory for a whole batch: what does not fit is sorted on disk.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET work_mem = '64MB' AS $$
#variable_conflict use_column
DECLARE
    v_orgs   uuid[];
    v_given  bigint;
    -- A process whose clock is ahead neither charges ahead nor posts in the future.
    v_clock  timestamptz := ledger_clock(greatest(p_now, p_target));
    v_now    timestamptz := least(p_now, v_clock);
    v_second timestamptz := date_trunc('second', v_clock);
    v_target timestamptz := least(p_target, v_second);
BEGIN
    SELECT array_agg(locked.org_id) INTO v_orgs FROM (
        SELECT c.org_id FROM ledger_chains c WHERE c.org_id = ANY (p_orgs) ORDER BY c.org_id FOR UPDATE SKIP LOCKED
    ) AS locked;
    IF v_orgs IS NULL THEN
        RETURN;
    END IF;
    PERFORM month_ensure('ledger_postings', at), month_ensure('ledger_lines', at) FROM (
        SELECT DISTINCT date_trunc('month', greatest(v_now, c.posted_at), 'UTC') AS at FROM ledger_chains c WHERE c.org_id = ANY (v_orgs)
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
        SELECT c.org_id, c.currency, c.seq + 1 AS seq, c.hash, greatest(v_now, c.posted_at) AS posted_at, i.posting,
            coalesce(p.prepaid_after, 0) AS prepaid, coalesce(p.held_after, 0) AS held, coalesce(p.promo_after, 0) AS promo,
            coalesce(p.disputed_after, 0) AS disputed
        FROM unnest(p_orgs, p_postings) AS i (org_id, posting)
        JOIN ledger_chains c ON c.org_id = i.org_id AND c.org_id = ANY (v_orgs)
        LEFT JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
    ), due AS MATERIALIZED (
        SELECT m.id, m.org_id, m.project_id, m.allocation_id, m.app_instance_id, m.carry, m.hold_remaining, m.turn,
            m.accrued_until AS start, m.unit_price_minor * m.units AS rate, least(
                CASE m.state WHEN 'closed' THEN least(m.closed_at, greatest(v_second, m.accrued_until)) ELSE v_target END,
                date_bin('1 hour', m.accrued_until, '2000-01-01 00:00:00Z') + interval '1 hour') AS finish
        FROM chains c CROSS JOIN LATERAL (
            SELECT * FROM meters m WHERE m.org_id = c.org_id AND m.state IN ('open', 'closed')
                AND ((m.state = 'open' AND m.accrued_until < v_target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until
                    AND (m.closed_at = m.accrued_until OR m.accrued_until < v_second)))
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
        SELECT ledger_append(e.org_id, min(e.currency), v_now, gen_random_uuid(), 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation,
            array_agg(a.account), array_agg(a.amount), array_agg(e.project_id), array_agg(e.allocation_id),
            array_agg(e.app_instance_id), array_agg(e.id), array_agg(NULL::timestamptz), array_agg(NULL::timestamptz)) AS posted
        FROM ended e CROSS JOIN LATERAL (VALUES ('held', -e.hold_remaining),
            ('prepaid', e.hold_remaining - hold_promo_unused(e.hold_minor, e.hold_remaining, e.hold_promo)),
            ('promo', hold_promo_unused(e.hold_minor, e.hold_remaining, e.hold_promo))) AS a (account, amount)
        WHERE a.amount <> 0 GROUP BY e.org_id
    ) AS given;
END $$;

-- The allocation is active: it is paid for from this second on.
CREATE OR REPLACE FUNCTION meter_open(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
BEGIN
    UPDATE meters SET state = 'open', opened_at = v_at, accrued_until = v_at, running_since = v_at
        WHERE allocation_id = p_allocation AND state = 'held';
    RETURN FOUND;
END $$;

-- It is active no more: it is paid for until this second. Wakes the worker, which posts the rest.
CREATE OR REPLACE FUNCTION meter_close(p_allocation uuid, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_at timestamptz := date_trunc('second', least(p_at, ledger_clock(p_at)));
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

-- Charges one running meter up to `p_to`, hour by hour, for what cannot wait until everything is accrued. The chain is
-- locked by the caller.
CREATE OR REPLACE FUNCTION meter_charge(p_meter uuid, p_to timestamptz, p_now timestamptz, p_correlation uuid) RETURNS void
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
    p_to := least(p_to, date_trunc('second', ledger_clock(greatest(p_now, p_to))));
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
