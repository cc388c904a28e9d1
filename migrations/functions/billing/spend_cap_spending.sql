-- What service accounts with a spend cap have spent in the month of `p_now`: those of these organizations, or of these
-- accounts among them. Spending is what the meters of an account took out of the accounts of its organization: a hold and
-- its release cancel out, credits count back. Only what was posted since the last time is read. `reserved` is what is used
-- and not posted, or what is still set aside for it when that is more.
CREATE OR REPLACE FUNCTION spend_cap_spending(p_orgs uuid[], p_accounts uuid[], p_now timestamptz)
RETURNS TABLE (service_account_id uuid, org_id uuid, project_id uuid, amount_minor bigint, updated_at timestamptz,
    currency text, seq bigint, month date, through_seq bigint, reached_at timestamptz, spent bigint, unposted bigint,
    reserved bigint)
LANGUAGE sql STABLE AS $$
    SELECT c.service_account_id, c.org_id, c.project_id, c.amount_minor, c.updated_at, h.currency, h.seq, t.month, g.through,
        g.reached_at, (g.spent - coalesce((
            SELECT sum(l.amount_minor) FROM ledger_lines l JOIN meters m ON m.id = l.meter_id
            WHERE l.org_id = c.org_id AND l.seq > g.through AND m.person_id = c.service_account_id
                AND l.account IN ('prepaid', 'held', 'promo')
                AND l.posted_at >= t.month::timestamp AT TIME ZONE 'UTC'
                AND l.posted_at < (t.month + interval '1 month') AT TIME ZONE 'UTC'
        ), 0))::bigint, u.unposted, u.reserved
    FROM (SELECT date_trunc('month', p_now AT TIME ZONE 'UTC')::date AS month, 9223372036854775807 AS most) AS t
    CROSS JOIN spend_caps c
    JOIN ledger_chains h ON h.org_id = c.org_id
    LEFT JOIN spend_cap_progress p ON p.service_account_id = c.service_account_id AND p.month = t.month
    CROSS JOIN LATERAL (SELECT coalesce(p.spent_minor, 0) AS spent, coalesce(p.through_seq, 0) AS through, p.reached_at) AS g
    CROSS JOIN LATERAL (
        SELECT least(coalesce(sum(used.amount), 0), t.most)::bigint AS unposted,
            least(coalesce(sum(greatest(used.amount, m.hold_remaining)), 0), t.most)::bigint AS reserved
        FROM meters m, usage_cost(m.carry, m.unit_price_minor, m.units, CASE WHEN m.state IN ('open', 'closed') THEN least(
                greatest(floor(extract(epoch FROM least(p_now, m.closed_at) - m.accrued_until)), 0)::bigint,
                (t.most - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1)) ELSE 0 END) AS used
        WHERE m.org_id = c.org_id AND m.person_id = c.service_account_id AND m.state IN ('held', 'open', 'paused', 'closed')
    ) AS u
    WHERE c.org_id = ANY (p_orgs) AND (p_accounts IS NULL OR c.service_account_id = ANY (p_accounts))
$$;
