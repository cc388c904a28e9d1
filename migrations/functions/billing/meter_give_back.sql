-- Its arguments of the release before; drop this line with the next.
DROP FUNCTION IF EXISTS meter_give_back(uuid, timestamptz, timestamptz, bigint, text, text, timestamptz, uuid, uuid);
-- Posts that `p_amount` of what a meter was charged for `p_span` goes back; the chain is locked by the caller.
CREATE OR REPLACE FUNCTION meter_give_back(
    p_meter uuid, p_span tstzrange, p_amount bigint, p_kind text, p_reason text, p_now timestamptz, p_posting uuid,
    p_correlation uuid, OUT seq bigint, OUT posted_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_promo bigint := meter_promo_part(p_meter, lower(p_span), upper(p_span), p_amount);
BEGIN
    SELECT a.seq, a.posted_at INTO seq, posted_at
        FROM (
            SELECT m.org_id, m.currency, array_agg(l.account ORDER BY l.n) AS accounts,
                array_agg(l.amount ORDER BY l.n) AS amounts,
                array_agg(m.project_id) AS projects, array_agg(m.allocation_id) AS allocations,
                array_agg(m.app_instance_id) AS apps, array_agg(m.id) AS meters, array_agg(lower(p_span)) AS starts,
                array_agg(upper(p_span)) AS ends
            FROM meters m, (VALUES (1, 'prepaid', p_amount - v_promo), (2, 'promo', v_promo),
                (3, CASE p_kind WHEN 'credit' THEN 'credits_granted' ELSE 'revenue' END, -p_amount)) AS l (n, account, amount)
            WHERE m.id = p_meter AND l.amount <> 0 GROUP BY m.id
        ) AS g, LATERAL ledger_append(
            ROW(g.org_id, g.currency, p_now, p_posting, p_kind, NULL, p_reason, NULL, 'system', NULL,
                p_correlation)::new_posting,
            ROW(g.accounts, g.amounts, g.projects, g.allocations, g.apps, g.meters, g.starts, g.ends)::line_batch) AS a;
END $$;
REVOKE ALL ON FUNCTION meter_give_back FROM PUBLIC;
