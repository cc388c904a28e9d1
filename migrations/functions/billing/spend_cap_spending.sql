-- What service accounts with a spend cap have spent in the month of `p_now`: those of these organizations, or of these
-- accounts among them. Spending is what the meters of an account took out of the accounts of its organization since the cap
-- was set: a hold and its release cancel out, credits count back. Only what was posted since the last time is read, once for
-- all accounts of an organization. `reserved` is what is used and not posted, or what is still set aside for it when that is
-- more.
CREATE OR REPLACE FUNCTION spend_cap_spending(p_orgs uuid[], p_accounts uuid[], p_now timestamptz)
RETURNS TABLE (service_account_id uuid, org_id uuid, project_id uuid, amount_minor bigint, updated_at timestamptz,
    currency text, seq bigint, month date, through_seq bigint, reached_at timestamptz, spent bigint, unposted bigint,
    reserved bigint)
LANGUAGE sql STABLE AS $$
    WITH caps AS MATERIALIZED (
        SELECT c.service_account_id AS account, c.org_id, c.project_id, c.amount_minor, c.updated_at, h.currency, h.seq, t.month,
            greatest(p.through_seq, c.counted_from_seq) AS through,
            CASE WHEN p.month = t.month THEN p.spent_minor ELSE 0 END AS spent,
            CASE WHEN p.month = t.month THEN p.reached_at END AS reached_at
        FROM (SELECT date_trunc('month', p_now AT TIME ZONE 'UTC')::date AS month) AS t
        CROSS JOIN spend_caps c
        JOIN ledger_chains h ON h.org_id = c.org_id
        LEFT JOIN spend_cap_progress p ON p.service_account_id = c.service_account_id
        WHERE c.org_id = ANY (p_orgs) AND (p_accounts IS NULL OR c.service_account_id = ANY (p_accounts))
    ), posted AS (
        SELECT c.account, -sum(l.amount_minor) AS amount
        FROM (SELECT caps.org_id, caps.month, min(caps.through) AS through FROM caps GROUP BY 1, 2) AS o
        JOIN ledger_lines l ON l.org_id = o.org_id AND l.seq > o.through
            AND l.posted_at >= o.month::timestamp AT TIME ZONE 'UTC'
            AND l.posted_at < (o.month + interval '1 month') AT TIME ZONE 'UTC'
        JOIN meters m ON m.id = l.meter_id
        JOIN caps c ON c.account = m.person_id AND l.seq > c.through
        WHERE l.account IN ('prepaid', 'held', 'promo')
        GROUP BY c.account
    )
    SELECT c.account, c.org_id, c.project_id, c.amount_minor, c.updated_at, c.currency, c.seq, c.month, c.through, c.reached_at,
        (c.spent + coalesce(d.amount, 0))::bigint, u.unposted, u.reserved
    FROM caps c
    LEFT JOIN posted d ON d.account = c.account
    CROSS JOIN LATERAL (
        SELECT least(coalesce(sum(used.amount), 0), n.most)::bigint AS unposted,
            least(coalesce(sum(greatest(used.amount, m.hold_remaining)), 0), n.most)::bigint AS reserved
        FROM (SELECT 9223372036854775807 AS most) AS n
        LEFT JOIN meters m ON m.org_id = c.org_id AND m.person_id = c.account AND m.state IN ('held', 'open', 'paused', 'closed')
        LEFT JOIN LATERAL usage_cost(m.carry, m.unit_price_minor, m.units,
            CASE WHEN m.state IN ('open', 'closed') THEN least(
                greatest(floor(extract(epoch FROM least(p_now, m.closed_at) - m.accrued_until)), 0)::bigint,
                (n.most - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1)) ELSE 0 END) AS used ON true
        GROUP BY n.most
    ) AS u
$$;
