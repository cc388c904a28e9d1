-- What a service account may still set aside for launches in the month of `p_now`, and never more than by the clock of the
-- database; NULL for whoever has no spend cap. Before the organization has a ledger, nothing was spent.
CREATE OR REPLACE FUNCTION spend_cap_left(p_org uuid, p_account uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT least(greatest(c.amount_minor::numeric - coalesce(s.spent, 0) - coalesce(s.reserved, 0), 0), c.amount_minor)::bigint
    FROM spend_caps c
    LEFT JOIN spend_cap_spending(ARRAY[p_org], ARRAY[p_account], least(p_now, ledger_clock(p_now))) AS s ON true
    WHERE c.service_account_id = p_account AND c.org_id = p_org
$$;
