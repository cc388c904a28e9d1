-- How much of `p_amount`, which goes back for [p_from, p_to), was paid with promotional credit: in the proportion in which the
-- charges for that time were. What was taken back of them before does not count. Promotional credit never becomes money:
-- the part of a minor unit is promotional.
CREATE OR REPLACE FUNCTION meter_promo_part(p_meter uuid, p_from timestamptz, p_to timestamptz, p_amount bigint) RETURNS bigint
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
        -- Use draws on what was set aside first: what each window took of the promotional credit there.
        SELECT u.turn, u.window_start, promo_part(m.hold_promo, (sum(u.amount_minor) OVER so_far)::bigint)
            - promo_part(m.hold_promo, (sum(u.amount_minor) OVER so_far - u.amount_minor)::bigint) AS promo
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
REVOKE ALL ON FUNCTION meter_promo_part FROM PUBLIC;
