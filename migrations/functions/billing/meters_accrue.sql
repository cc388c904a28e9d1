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
        SELECT DISTINCT date_trunc('month', greatest(v_now, c.posted_at), 'UTC') AS at FROM ledger_chains c
            WHERE c.org_id = ANY (v_orgs)
    ) AS months;
    PERFORM month_ensure('usage_records', at AT TIME ZONE 'UTC') FROM (
        SELECT generate_series(date_trunc('month', min(m.first) AT TIME ZONE 'UTC'), max(m.last) AT TIME ZONE 'UTC',
            '1 month') AS at
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
            m.unit_price_minor, m.units, m.accrued_until AS start, least(
                CASE m.state WHEN 'closed' THEN least(m.closed_at, greatest(v_second, m.accrued_until)) ELSE v_target END,
                date_bin('1 hour', m.accrued_until, '2000-01-01 00:00:00Z') + interval '1 hour') AS finish
        FROM chains c CROSS JOIN LATERAL (
            SELECT m.id, m.org_id, m.project_id, m.allocation_id, m.app_instance_id, m.carry, m.hold_remaining, m.turn,
                m.unit_price_minor, m.units, m.accrued_until, m.state, m.closed_at
            FROM meters m WHERE m.org_id = c.org_id AND m.state IN ('open', 'closed')
                AND ((m.state = 'open' AND m.accrued_until < v_target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until
                    AND (m.closed_at = m.accrued_until OR m.accrued_until < v_second)))
            LIMIT p_limit
        ) m
    ), used AS MATERIALIZED (
        SELECT d.id, d.org_id, d.project_id, d.allocation_id, d.app_instance_id, d.turn, d.start, d.finish, c.amount, c.carry,
            least(d.hold_remaining, c.amount) AS from_hold
        FROM due d CROSS JOIN LATERAL
            usage_cost(d.carry, d.unit_price_minor, d.units, extract(epoch FROM d.finish - d.start)::bigint) AS c
    ), totals AS MATERIALIZED (
        SELECT u.org_id, count(*) AS meters, sum(u.amount)::bigint AS amount, sum(u.from_hold)::bigint AS from_hold
        FROM used u GROUP BY u.org_id
    ), lines AS MATERIALIZED (
        SELECT n.*, ledger_leaf(ROW(n.line, n.account, n.amount, n.project_id, n.allocation_id, n.app_instance_id, n.id,
            n.start,
            n.finish, p_correlation)::ledger_line_content) AS leaf
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
                -- Promotional credit makes up for what was taken from prepaid.
                SELECT t.org_id, a.account, a.sign * promo_part(c.promo, t.amount - t.from_hold), NULL, NULL, NULL, NULL,
                    NULL, NULL
                FROM totals t JOIN chains c ON c.org_id = t.org_id, (VALUES ('promo', -1), ('prepaid', 1)) AS a (account, sign)
                WHERE promo_part(c.promo, t.amount - t.from_hold) > 0
            ) AS l
        ) AS n
    ), sums AS MATERIALIZED (
        SELECT l.org_id, count(*)::integer AS lines, sha256(string_agg(l.leaf, ''::bytea ORDER BY l.line)) AS digest,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'prepaid'), 0)::bigint AS prepaid,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'held'), 0)::bigint AS held,
            coalesce(sum(l.amount) FILTER (WHERE l.account = 'promo'), 0)::bigint AS promo
        FROM lines l GROUP BY l.org_id
    ), unhashed AS MATERIALIZED (
        SELECT ROW(c.org_id, c.seq, c.posted_at, c.posting, 'usage', c.currency, NULL, 'metered use', NULL, 'system', NULL,
            p_correlation,
            s.lines, s.digest, c.prepaid + s.prepaid, c.held + s.held, c.promo + s.promo, c.disputed,
                c.hash)::ledger_content AS p
        FROM sums s JOIN chains c ON c.org_id = s.org_id
    ), posted AS MATERIALIZED (
        INSERT INTO ledger_postings (org_id, seq, posted_at, id, kind, currency, reference, reason, corrects_entry_id,
            actor_kind,
            actor_id, correlation_id, lines, lines_digest, prepaid_after, held_after, promo_after, disputed_after,
                prev_hash, hash, xact)
        SELECT (p).org_id, (p).seq, (p).posted_at, (p).id, (p).kind, (p).currency, (p).reference,
            (p).reason, (p).corrects_entry_id, (p).actor_kind, (p).actor_id, (p).correlation_id, (p).lines, (p).lines_digest,
            (p).prepaid_after, (p).held_after, (p).promo_after, (p).disputed_after, (p).prev_hash, ledger_content_hash(p),
            pg_current_xact_id()
        FROM unhashed
        RETURNING org_id, seq, posted_at, hash, prepaid_after, held_after, promo_after
    ), chained AS (
        UPDATE ledger_chains c SET seq = p.seq, posted_at = p.posted_at, hash = p.hash FROM posted p WHERE c.org_id = p.org_id
    ), lined AS (
        INSERT INTO ledger_lines (org_id, seq, line, posted_at, account, amount_minor, project_id, allocation_id,
            app_instance_id,
            meter_id, window_start, window_end, correlation_id, leaf)
        SELECT l.org_id, p.seq, l.line, p.posted_at, l.account, l.amount, l.project_id, l.allocation_id,
            l.app_instance_id, l.id, l.start, l.finish, p_correlation, l.leaf
        FROM lines l JOIN posted p ON p.org_id = l.org_id
    ), recorded AS (
        INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, seq, posted_at, turn)
        SELECT u.org_id, u.id, u.start, u.finish, 'usage', u.amount, u.carry,
            CASE WHEN u.amount > 0 THEN c.seq END, c.posted_at, u.turn
        FROM used u JOIN chains c ON c.org_id = u.org_id WHERE u.finish > u.start
    ), moved AS (
        UPDATE meters m SET accrued_until = u.finish, carry = u.carry, posted_minor = m.posted_minor + u.amount,
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
        SELECT m.id, m.org_id, m.currency, m.project_id, m.allocation_id, m.app_instance_id, m.hold_minor, m.hold_remaining,
            m.hold_promo
        FROM unnest(v_orgs) AS o (org_id) CROSS JOIN LATERAL (
            SELECT m.id, m.org_id, m.currency, m.project_id, m.allocation_id, m.app_instance_id, m.hold_minor,
                m.hold_remaining, m.hold_promo
            FROM meters m WHERE m.org_id = o.org_id AND m.state = 'closed' AND m.accrued_until = m.closed_at
            LIMIT p_limit FOR UPDATE
        ) m
    ), settled AS (
        UPDATE meters m SET state = 'settled', hold_remaining = 0 FROM ended e WHERE m.id = e.id
    )
    SELECT count(given.posted) INTO v_given FROM (
        SELECT ledger_append(ROW(e.org_id, min(e.currency), v_now, gen_random_uuid(), 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation)::new_posting,
            ROW(array_agg(a.account), array_agg(a.amount), array_agg(e.project_id), array_agg(e.allocation_id),
            array_agg(e.app_instance_id), array_agg(e.id), array_agg(NULL::timestamptz),
            array_agg(NULL::timestamptz))::line_batch) AS posted
        FROM ended e CROSS JOIN LATERAL (VALUES ('held', -e.hold_remaining),
            ('prepaid', e.hold_remaining - hold_promo_unused(e.hold_minor, e.hold_remaining, e.hold_promo)),
            ('promo', hold_promo_unused(e.hold_minor, e.hold_remaining, e.hold_promo))) AS a (account, amount)
        WHERE a.amount <> 0 GROUP BY e.org_id
    ) AS given;
END $$;
REVOKE ALL ON FUNCTION meters_accrue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meters_accrue TO gpuaas_system;
